from importlib import import_module

from django.apps import AppConfig


class RatesConfig(AppConfig):
    name = "billing.rates"

    def ready(self) -> None:
        """Make known what may be proposed here."""
        import_module("billing.rates.services.drafts")
