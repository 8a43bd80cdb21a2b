"""Billing modes: switch a team between showback and charging, from an open month on."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from billing.approvals.limits import require_right
from billing.invoices.models import BillingPeriod
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from billing.tenancy.models import BillingMode, Team
from billing.usage.epochs import ingest_lock_shared
from metering.intervals import IntervalError, billing_month
from metering.messages import Message, UserError


class ModeError(UserError, ValueError):
    """Error: a switch that cannot be made as requested."""

    code = "billing_mode"


def billing_mode_put(
    *, team: str, from_month: str, mode: str, reason: str, actor: str, now: datetime
) -> BillingMode:
    """Show a team its invoices (shadow) or charge it (chargeback) from a month that is not closed.

    Raises ModeError, AuthorityError.
    """
    (row,) = billing_modes_put(teams=[team], from_month=from_month, mode=mode, reason=reason, actor=actor, now=now)
    return row


def billing_modes_put(
    *, teams: Iterable[str], from_month: str, mode: str, reason: str, actor: str, now: datetime
) -> list[BillingMode]:
    """Switch several teams: all of them or none.  Raises ModeError, AuthorityError."""
    if mode not in BillingMode.Mode.values:
        raise ModeError(Message(
            "mode %(mode)s is none of %(names)s", mode=repr(mode), names=", ".join(BillingMode.Mode.values)
        ))
    if not reason.strip():
        raise ModeError(Message("a switch of the billing mode needs a reason"))
    try:
        billing_month(from_month, "UTC")
    except IntervalError as error:
        raise ModeError(Message("from_month %(month)s: %(error)s", month=repr(from_month), error=str(error))) from error
    facts = {"mode": mode, "reason": reason, "set_by": actor, "set_at": now}
    with transaction.atomic():
        ingest_lock_shared()  # no month is cut off before this transaction ends
        closed = BillingPeriod.objects.exclude(close_seq=None).filter(month__gte=from_month).first()
        if closed is not None:
            raise ModeError(Message(
                "from_month %(month)s: period %(closed)s is %(status)s; choose a later month",
                month=from_month, closed=closed.month, status=closed.status,
            ))
        return [_put(team, from_month, facts, actor) for team in teams]


def _put(team: str, from_month: str, facts: dict[str, Any], actor: str) -> BillingMode:
    found = Team.objects.filter(code=team, is_group=False).first()
    if found is None:
        raise ModeError(Message("team %(team)s: there is no such team", team=repr(team)))
    require_right(actor, Message("switch the billing mode of %(team)s", team=team), Right.APPROVE)
    row, _ = BillingMode.objects.update_or_create(team=found, from_month=from_month, defaults=facts)
    detail = {"from_month": from_month, "mode": facts["mode"], "reason": facts["reason"]}
    audit_record(actor=actor, action="billing_mode_put", subject=team, detail=detail)
    return row
