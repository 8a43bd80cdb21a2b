from importlib import import_module

from django.apps import AppConfig


class CorrectionsConfig(AppConfig):
    name = "billing.corrections"
    label = "corrections"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Make known what may be proposed here."""
        import_module("billing.corrections.services.retroactive")
