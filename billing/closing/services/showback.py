"""Switching a team between being shown and being charged, from an open month on."""

from datetime import datetime

from django.db import transaction

from billing.approvals.limits import require_right
from billing.invoices.models import BillingMode, BillingPeriod
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.usage.epochs import ingest_lock_shared
from metering.intervals import IntervalError, billing_month
from metering.messages import Message


class ModeError(ValueError):
    """A switch that cannot be made as asked."""


def billing_mode_put(
    *, team: str, from_month: str, mode: str, reason: str, actor: str, now: datetime
) -> BillingMode:
    """Show a team its invoices (shadow) or charge it (chargeback) from a month that is not closed.

    Raises ModeError, AuthorityError.
    """
    if mode not in BillingMode.Mode.values:
        raise ModeError(f"mode {mode!r} is none of {', '.join(BillingMode.Mode.values)}")
    if not reason.strip():
        raise ModeError("a switch of the billing mode needs a reason")
    try:
        billing_month(from_month, "UTC")
    except IntervalError as error:
        raise ModeError(f"from_month {from_month!r}: {error}") from error
    found = Team.objects.filter(code=team, is_group=False).first()
    if found is None:
        raise ModeError(f"team {team!r}: there is no such team")
    require_right(actor, Message("switch the billing mode of %(team)s", team=team), Right.APPROVE)
    with transaction.atomic():
        ingest_lock_shared()  # no month is cut off while this looks
        closed = BillingPeriod.objects.exclude(close_seq=None).filter(month__gte=from_month).first()
        if closed is not None:
            raise ModeError(f"from_month {from_month}: period {closed.month} is {closed.status}; choose a later month")
        row, _ = BillingMode.objects.update_or_create(
            team=found, from_month=from_month,
            defaults={"mode": mode, "reason": reason, "set_by": actor, "set_at": now},
        )  # fmt: skip
        audit_record(
            actor=actor, action="billing_mode_put", subject=team,
            detail={"from_month": from_month, "mode": mode, "reason": reason},
        )  # fmt: skip
    return row
