from importlib import import_module

from django.apps import AppConfig


class RatingConfig(AppConfig):
    name = "billing.rating"

    def ready(self) -> None:
        """Register the kinds of proposals that this package defines."""
        import_module("billing.rating.services.commitment_terms")
        import_module("billing.rating.services.first_prices")
