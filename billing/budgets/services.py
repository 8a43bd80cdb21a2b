"""All writes of budgets."""

from decimal import Decimal

from billing.budgets.models import Budget
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team


def budget_put(*, team: Team, period: str, amount: Decimal, thresholds: list[int], actor: str) -> bool:
    """Store a team's budget; True if anything changed."""
    known = Budget.objects.filter(team=team, period=period).first()
    if known and (known.amount, known.thresholds) == (amount, thresholds):
        return False
    Budget.objects.update_or_create(team=team, period=period, defaults={"amount": amount, "thresholds": thresholds})
    audit_record(actor=actor, action="budget_put", subject=team.code, detail={"amount": str(amount)})
    return True
