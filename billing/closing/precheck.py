"""Whether a month can be closed, seen while usage comes in, and whether that still holds in the instant of the cut-off.

A month can be closed where all usage has its owner and its price, and that is seen by the names under which it was
reported: nothing is added up for it. Only where a name lacks one, or something else holds the month, everything is summed,
so that who is refused sees the amounts. In the instant in which no usage can come in, it is asked whether usage came in
under a name that was not there; whether anybody changed an owner, a price or a waiver; and everything that takes no sums.
Only where the first two are so, the month is looked at again while ingest waits. Usage under a name that was there, in a
stretch of time in which it has no owner or price, is found when the month is rated: then the cut-off is taken back.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Count, Max

from billing.closing.intercompany import teams_apart
from billing.closing.report import Report, build_report, found_at_once, found_beforehand, found_without_sums
from billing.invoices.models import BillingPeriod
from billing.rating.assessment import rate_period
from billing.rating.priceability import all_owned_and_priced
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.tenancy.models import AuditEntry
from billing.usage.epochs import one_snapshot
from billing.usage.selectors import EpochFilter, last_ordinal, late_epochs, late_windows
from billing.usage.usage_keys import HighWaterMark, UsageKeys, high_water_mark, only_known, usage_keys_used
from metering.intervals import Interval

LATELY: Final = 10_000
"""Audit entries among which one may appear late: their numbers are given before they are committed."""


@dataclass(frozen=True, slots=True)
class ClosePrecheck:
    """What was found, and what it was found of: names of usage in pieces of time, and the last audit entries."""

    report: Report
    devices: list[Interval]
    tokens: list[Interval]
    names: UsageKeys
    reached: HighWaterMark
    last_entry: int
    entries: int

    def still_holds(self, period: BillingPeriod, *, now: datetime) -> Report:
        """The report that decides, asked for while no usage can come in."""
        entries = AuditEntry.objects.filter(pk__gt=self.last_entry - LATELY).count()
        if entries != self.entries or not only_known(self.devices, self.tokens, self.names, self.reached):
            return precheck(period, now=now).report
        return found_at_once(period, now=now)


def precheck(period: BillingPeriod, *, now: datetime) -> ClosePrecheck:
    """Look at an open month: its report as far as it decides, complete where something holds the month."""
    window = Interval(period.start, period.end)
    with one_snapshot():
        last = AuditEntry.objects.aggregate(last=Max("pk"))["last"] or 0
        entries = AuditEntry.objects.filter(pk__gt=last - LATELY).aggregate(count=Count("pk"))["count"]
        this = last_ordinal() + 1
        reference_data = reference_data_known(this)
        devices, tokens = _pieces(reference_data, window)
        reached, names = high_water_mark(), usage_keys_used(devices, tokens, EpochFilter())
        report = _report(period, reference_data, names, this, now=now)
    return ClosePrecheck(report, devices, tokens, names, reached, last, entries)


def _report(period: BillingPeriod, reference_data: ReferenceData, names: UsageKeys, this: int, *, now: datetime) -> Report:
    window = Interval(period.start, period.end)
    if (
        not requires_full_rating(period)
        and all_owned_and_priced(reference_data, *_pieces(reference_data, window), names)
        and _late_priced(reference_data, this)
    ):
        report = found_without_sums(period, now=now)
        if report.closable and found_beforehand(period, now=now).closable:
            return report
    assessment = rate_period(window=window, zone=period.zone, ordinal=None, judged=False, isolate=True)
    return build_report(period, now=now, thorough=False, assessment=assessment)


def requires_full_rating(period: BillingPeriod) -> bool:
    """Whether what can hold a month is compared with sums: what a meter counted, and what a team of another legal entity
    would be charged.
    """
    return period.meter_readings.exists() or bool(teams_apart())


def _late_priced(reference_data: ReferenceData, this: int) -> bool:
    """Whether what came late of closed months has its owner and price."""
    for late in late_windows(this):
        pieces = _pieces(reference_data, Interval(late.start, late.end))
        if not all_owned_and_priced(reference_data, *pieces, usage_keys_used(*pieces, late_epochs(this))):
            return False
    return True


def _pieces(reference_data: ReferenceData, window: Interval) -> tuple[list[Interval], list[Interval]]:
    return reference_data.device_pieces(window), reference_data.token_pieces(window)
