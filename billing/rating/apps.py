from importlib import import_module

from django.apps import AppConfig


class RatingConfig(AppConfig):
    name = "billing.rating"
    label = "rating"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Make known what may be proposed here."""
        import_module("billing.rating.services.commitment_terms")
        import_module("billing.rating.services.first_prices")
