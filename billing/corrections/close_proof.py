"""Proof of the closes: each belongs to its period, has its window, and is in force or voided as the audit log says.

These few rows decide which close knew of which usage: a close that is voided or added unnoticed bills late usage twice or
never.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from billing.invoices.models import BillingPeriod, Invoice
from billing.tenancy.models import AuditEntry
from billing.usage.models import Close

CUT_OFF: Final = "period_cut_off"
TAKEN_BACK: Final = ("period_cut_off_withdraw", "period_reopen")


@dataclass(frozen=True)
class CloseFault:
    """Fault of a close: the expected and the found fact; `month` is "" where it belongs to none."""

    month: str
    expected: str
    found: str

    def __str__(self) -> str:
        of = f"of {self.month}" if self.month else "of no month"
        return f"closes {of}: {self.expected} expected, found {self.found}"


def closes_altered() -> list[CloseFault]:
    """Return the faults of the closes of all months, compared with their periods and the audit log."""
    periods = {period.month: period for period in BillingPeriod.objects.order_by("month")}
    closes = {close.close_seq: close for close in Close.objects.order_by("close_seq")}
    months = {(period.start, period.end): month for month, period in periods.items()}
    months_of_closes = {number: months.get((close.start, close.end), "") for number, close in closes.items()}
    found = list(_as_periods_say(periods, closes))
    by_period = {period.close_seq for period in periods.values()}
    found += [
        CloseFault(months_of_closes[number], f"close {number} taken back or of a period", "it stands, of none")
        for number, close in closes.items()
        if close.withdrawn_at is None and number not in by_period
    ]
    return found + list(_as_the_log_says(closes, months_of_closes))


def _as_periods_say(periods: dict[str, BillingPeriod], closes: dict[int, Close]) -> Iterator[CloseFault]:
    drafted = Invoice.objects.exclude(status=Invoice.Status.VOID).filter(period__status=BillingPeriod.Status.OPEN)
    for month in sorted(set(drafted.values_list("period__month", flat=True))):
        yield CloseFault(month, "no invoices of a month that is open", f"{drafted.filter(period__month=month).count()}")
    for month, period in periods.items():
        if period.close_seq is None:
            continue
        close = closes.get(period.close_seq)
        if close is None:
            yield CloseFault(month, f"close {period.close_seq}", "none of that number")
        elif close.withdrawn_at is not None:
            yield CloseFault(month, f"close {period.close_seq} stands", f"taken back at {close.withdrawn_at.isoformat()}")
        elif (close.start, close.end) != (period.start, period.end):
            span = _span(period.start, period.end)
            yield CloseFault(month, f"close {period.close_seq} of {span}", _span(close.start, close.end))


def _as_the_log_says(closes: dict[int, Close], months: dict[int, str]) -> Iterator[CloseFault]:
    made = AuditEntry.objects.filter(action=CUT_OFF, detail__close_seq__isnull=False).order_by("id")
    for month, number in made.values_list("subject", "detail__close_seq"):
        if number not in closes:
            yield CloseFault(month, f"close {number}, as the audit log says", "none of that number")
    taken_back = AuditEntry.objects.filter(action__in=TAKEN_BACK, detail__close_seq__isnull=False)
    numbers = set(taken_back.values_list("detail__close_seq", flat=True))
    added = AuditEntry.objects.filter(action="row_insert", subject__startswith="usage_close ", detail__has_key="after")
    # newest first: the dictionary below keeps the entry that comes last, the original insert
    first = added.order_by("-id").values_list("subject", "detail__after")
    rows = {subject.split()[-1]: after for subject, after in first}
    for number, close in closes.items():
        if close.withdrawn_at is None and number in numbers:
            yield CloseFault(months[number], f"close {number} taken back, as the audit log says", "it stands")
        if close.withdrawn_at is not None and number not in numbers:
            yield CloseFault(months[number], f"close {number} stands, as the audit log says", "it is taken back")
        row = rows.get(str(number))
        if row is not None and (was := _facts(row)) != (now := (_span(close.start, close.end), close.rating_rules)):
            yield CloseFault(months[number], f"close {number} of {was[0]}, rules {was[1]}", f"of {now[0]}, rules {now[1]}")


def _facts(row: dict[str, Any]) -> tuple[str, int]:
    return _span(datetime.fromisoformat(row["start"]), datetime.fromisoformat(row["end"])), int(row["rating_rules"])


def _span(start: datetime, end: datetime) -> str:
    return f"{start.astimezone(UTC).isoformat()} to {end.astimezone(UTC).isoformat()}"
