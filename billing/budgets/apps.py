from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "billing.budgets"
    unmatched_rules = "billing.budgets.unmatched.unmatched_budgets"
