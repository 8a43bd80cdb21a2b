"""Waivers: a person takes responsibility for an exception that cannot be solved, with a reason and until a day."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from django.db import transaction

from billing.closing.exception_kinds import WAIVABLE
from billing.closing.exceptions import ReportedException
from billing.closing.models import ExceptionWaiver
from billing.closing.report import build_report
from billing.invoices.models import BillingPeriod
from billing.tenancy.audit import audit_record
from metering.intervals import day_of, midnight_of
from metering.messages import Message, UserError
from metering.names import visible


class WaiverError(UserError, ValueError):
    """Error: an exception that may not be waived."""

    code = "waiver"


DEFAULT_DAYS: Final = 31
LONGEST_DAYS: Final = 366


def exception_waive(
    *, period: BillingPeriod, kind: str, subject: str, reason: str, actor: str, now: datetime, until: date | None = None,
    quantity: Decimal | None = None,
) -> ExceptionWaiver:  # fmt: skip
    """Waive an exception up to the `quantity` that the person saw, or its present one, until a local day, that day included.

    The default is 31 days from now. A larger quantity, or a close after that day, is blocked again.
    Usage without owner or price cannot be waived: it must be solved.  Raises WaiverError.
    """
    if kind not in WAIVABLE:
        raise WaiverError(Message(
            "%(kind)s cannot be waived (only %(names)s): solve it", kind=kind, names=", ".join(WAIVABLE)
        ))
    if not reason.strip():
        raise WaiverError(Message("a waiver needs a reason"))
    if period.close_seq is not None and period.waivers.filter(kind=kind, subject=subject).exists():
        raise WaiverError(Message(
            "period %(month)s is closed: its waiver of %(kind)s %(subject)s stays",
            month=period.month, kind=kind, subject=subject,
        ))
    if period.status == BillingPeriod.Status.CLOSED:
        raise WaiverError(Message("period %(month)s is closed: nothing blocks it", month=period.month))
    expires_at = _expiry(period, until, now)
    reported = build_report(period, now=now, thorough=False).exceptions
    found = _found(reported, period, kind, subject)
    with transaction.atomic():
        return _store(period, found, quantity, reason, actor, expires_at)


def exceptions_waive(
    *, period: BillingPeriod, seen: Iterable[tuple[str, str, Decimal]], reason: str, actor: str, now: datetime,
    until: date | None = None,
) -> int:  # fmt: skip
    """Waive several exceptions of one cause, by kind, subject and quantity, all of them or none; return how many.

    `seen`: those that the person saw; later ones still block.  Raises WaiverError.
    """
    wanted = list(dict.fromkeys(seen))
    if not reason.strip():
        raise WaiverError(Message("a waiver needs a reason"))
    if not wanted or any(kind not in WAIVABLE for kind, *_ in wanted):
        raise WaiverError(Message("none of these can be waived: solve what is behind them"))
    if period.close_seq is not None:
        raise WaiverError(Message("period %(month)s is closed: nothing blocks it", month=period.month))
    expires_at = _expiry(period, until, now)
    reported = build_report(period, now=now, thorough=False).exceptions
    found = [(_found(reported, period, kind, subject), quantity) for kind, subject, quantity in wanted]
    with transaction.atomic():
        for item, quantity in found:
            _store(period, item, quantity, reason, actor, expires_at)
    return len(found)


def _found(
    reported: Sequence[ReportedException], period: BillingPeriod, kind: str, subject: str
) -> ReportedException:
    of_kind = [item for item in reported if item.kind == kind]
    as_shown = [item for item in of_kind if visible(item.subject) == visible(subject)]
    found = next((item for item in of_kind if item.subject == subject), as_shown[0] if as_shown else None)
    if found is None:
        raise WaiverError(Message(
            "period %(month)s has no exception %(kind)s %(subject)s", month=period.month, kind=kind, subject=subject
        ))
    return found


def _store(
    period: BillingPeriod, found: ReportedException, seen: Decimal | None, reason: str, actor: str, expires_at: datetime
) -> ExceptionWaiver:
    # never more than was seen: an increase since then blocks again
    quantity = found.quantity if seen is None else min(seen, found.quantity)
    facts = {"reason": reason, "waived_by": actor, "quantity": quantity, "expires_at": expires_at}
    waiver, _ = ExceptionWaiver.objects.update_or_create(
        period=period, kind=found.kind, subject=found.subject, defaults=facts
    )
    detail = {"reason": reason, "quantity": str(quantity), "expires_at": expires_at.isoformat()}
    waived = f"{period.month} {found.kind} {found.subject}"
    audit_record(actor=actor, action="exception_waive", subject=waived, detail=detail)
    return waiver


def _expiry(period: BillingPeriod, last_day: date | None, now: datetime) -> datetime:
    """Return local midnight after the last day.  Raises WaiverError."""
    today = day_of(now, period.zone)
    day = today + timedelta(days=DEFAULT_DAYS) if last_day is None else last_day
    if not today <= day <= today + timedelta(days=LONGEST_DAYS):
        raise WaiverError(Message(
            "until %(day)s: choose a day from today on, within %(days)s days", day=day.isoformat(), days=LONGEST_DAYS
        ))
    return midnight_of(day + timedelta(days=1), period.zone)


def last_day(text: str | None) -> date | None:
    """Parse a day as people write it, None for nothing.  Raises WaiverError."""
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise WaiverError(Message("until %(text)s: write a day as 2026-11-30", text=repr(text[:20]))) from error
