from django.apps import AppConfig


class BudgetsConfig(AppConfig):
    name = "billing.budgets"

    def ready(self) -> None:
        """Let the period report name budgets on which nothing was spent."""
        from billing.budgets.unmatched import unmatched_budgets
        from billing.closing.unmatched_rules import READERS

        READERS.append(unmatched_budgets)
