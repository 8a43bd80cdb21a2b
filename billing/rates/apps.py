from importlib import import_module

from django.apps import AppConfig


class RatesConfig(AppConfig):
    name = "billing.rates"

    def ready(self) -> None:
        """Register the kinds of proposals that this package defines."""
        import_module("billing.rates.services.drafts")
