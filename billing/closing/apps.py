from importlib import import_module

from django.apps import AppConfig


class ClosingConfig(AppConfig):
    name = "billing.closing"

    def ready(self) -> None:
        """Register the kinds of proposals that this package defines."""
        import_module("billing.closing.services.reopening")
