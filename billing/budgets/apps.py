from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "billing.budgets"
    label = "budgets"
    default_auto_field = "django.db.models.BigAutoField"
