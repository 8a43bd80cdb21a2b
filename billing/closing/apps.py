from importlib import import_module

from django.apps import AppConfig


class ClosingConfig(AppConfig):
    name = "billing.closing"
    label = "closing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Make known what may be proposed here."""
        import_module("billing.closing.services.reopening")
