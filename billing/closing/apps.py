from importlib import import_module

from django.apps import AppConfig


class ClosingConfig(AppConfig):
    name = "billing.closing"

    def ready(self) -> None:
        """Make known what may be proposed here."""
        import_module("billing.closing.services.reopening")
