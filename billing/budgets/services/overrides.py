"""Letting a budget pass its cap: with a reason, an amount, an end, and a second person."""

from datetime import datetime
from decimal import Decimal

from django.db import transaction

from billing.approvals.limits import require_right, require_second_person
from billing.budgets.models import Budget, CapOverride
from billing.budgets.services.budgets import BudgetError
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from metering.messages import Message


def cap_override_ask(
    *, budget: Budget, amount: Decimal, until: datetime, reason: str, now: datetime, actor: str
) -> CapOverride:
    """Ask that the cap of a budget stand `amount` higher until then.  Raises BudgetError.

    Nothing changes before somebody else approves it.
    """
    if not amount > 0 or amount != round(amount, 2) or amount >= 10**18:
        raise BudgetError(Message("amount %(amount)s: must be above 0, with at most two decimals", amount=amount))
    if not now < until:
        raise BudgetError(Message(
            "override until %(until)s: must lie in the future; every override ends", until=until.isoformat()
        ))
    if not reason.strip():
        raise BudgetError(Message("override: a reason is missing"))
    with transaction.atomic():
        override = CapOverride.objects.create(
            budget=budget, amount=amount, until=until, reason=reason.strip()[:500], asked_by=actor, asked_at=now
        )
        _tell("cap_override_ask", override, actor)
    return override


def cap_override_approve(*, override_id: int, now: datetime, actor: str) -> CapOverride:
    """Put it in force.  Raises AuthorityError, BudgetError: it is approved already, or its time is over."""
    with transaction.atomic():
        override = CapOverride.objects.select_for_update().get(pk=override_id)
        what = Message("let %(budget)s pass its cap", budget=override.budget)
        require_right(actor, what, Right.APPROVE, Right.CLOSE)
        require_second_person(actor, override.asked_by, what)
        if override.approved_by or override.until <= now:
            raise BudgetError(Message("override %(n)s: it is approved already, or its time is over", n=override_id))
        override.approved_by, override.approved_at = actor, now
        override.save(update_fields=["approved_by", "approved_at"])
        _tell("cap_override_approve", override, actor)
    return override


def cap_override_end(*, override: CapOverride, now: datetime, actor: str) -> None:
    """End it before its time, or take back what nobody has approved."""
    with transaction.atomic():
        CapOverride.objects.filter(pk=override.pk, until__gt=now).update(until=now)
        _tell("cap_override_end", override, actor)


def _tell(action: str, override: CapOverride, actor: str) -> None:
    detail = {"amount": str(override.amount), "until": override.until.isoformat(), "reason": override.reason,
              "asked_by": override.asked_by}  # fmt: skip
    audit_record(actor=actor, action=action, subject=str(override.budget), detail=detail)
