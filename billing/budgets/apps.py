from importlib import import_module

from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "billing.budgets"
    label = "budgets"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Make known what may be proposed here."""
        import_module("billing.budgets.services.overrides")
