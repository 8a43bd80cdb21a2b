"""Whether a month can be closed, seen while usage comes in, and whether that still holds in the instant of the cut-off.

What costs time is done before: summing the month's usage and finding owner and price for it. In the instant in which no
usage can come in, it is asked whether there is usage under a name that was not there, in a stretch of time of one owner and
price; whether anybody changed an owner, a price or a waiver; and everything that takes no sums. Only where the first two
are so, the month is looked at again while ingest waits.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Count, Max

from billing.invoicing.models import BillingPeriod
from billing.invoicing.report import Report, build_report, found_at_once
from billing.rating.assessment import assess
from billing.rating.books import Books
from billing.rating.selectors import books_known
from billing.tenancy.models import AuditEntry
from billing.usage.epochs import one_snapshot
from billing.usage.names import Names, names_used
from billing.usage.selectors import last_ordinal
from metering.intervals import Interval

LATELY: Final = 10_000
"""Audit entries among which one may appear late: their numbers are given before they are committed."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was found, and what it was found of: names of usage in pieces of time, and the last audit entries."""

    report: Report
    devices: list[Interval]
    tokens: list[Interval]
    names: Names
    last_entry: int
    entries: int

    def still_holds(self, period: BillingPeriod, *, now: datetime) -> Report:
        """The report that decides, asked for while no usage can come in."""
        entries = AuditEntry.objects.filter(pk__gt=self.last_entry - LATELY).count()
        if entries != self.entries or names_used(self.devices, self.tokens) != self.names:
            return look(period, now=now).report
        return found_at_once(period, now=now)


def look(period: BillingPeriod, *, now: datetime) -> Look:
    """Look at an open month: its report without judging jobs by their efficiency, which holds no close."""
    window = Interval(period.start, period.end)
    with one_snapshot():
        last = AuditEntry.objects.aggregate(last=Max("pk"))["last"] or 0
        entries = AuditEntry.objects.filter(pk__gt=last - LATELY).aggregate(count=Count("pk"))["count"]
        devices, tokens = _pieces(books_known(last_ordinal() + 1), window)
        names = names_used(devices, tokens)
        assessment = assess(window=window, zone=period.zone, ordinal=None, judged=False)
        report = build_report(period, now=now, thorough=False, assessment=assessment)
    return Look(report, devices, tokens, names, last, entries)


def _pieces(books: Books, window: Interval) -> tuple[list[Interval], list[Interval]]:
    return window.cut(books.device_changes()), window.cut(books.card.changes() | books.consumers.changes())
