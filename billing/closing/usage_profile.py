"""Extras of a month's pages: its use by hour of the week, and as many days of the month before.

A running month is compared with the month before up to the same day and time, rated by today's reference data. Not up to the
last midnight: the cost of the month so far includes today, and both are to be of the same length. The moment is a whole
minute by the clock of the installation, which the page names; where a night had an hour more or less, the clock counts and
not the hours that passed.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Final, Self
from zoneinfo import ZoneInfo

import msgspec

from billing.invoices.line_rollups import LineRollup, line_rollups, statement_line
from billing.invoices.lines import Line, invoice_lines
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.rating.assessment import RatingResult, rate_slice
from billing.rating.reference_data import ReferenceData
from billing.usage.gpu_time_by_job import WeekHours, devices_by_week_hour, tokens_by_week_hour
from billing.usage.selectors import last_close_seq
from metering.intervals import Interval, previous_month
from pricing.rating import LineKey

HOURS: Final = list(product(range(7), range(24)))


class HoursOf(msgspec.Struct, gc=False):
    """Use by hour of the week from Monday 0:00, local: `name` is cluster, accelerator and resource, or a model."""

    name: tuple[str, ...]
    hours: list[Decimal]


class WeekUse(msgspec.Struct):
    """Use by the places and consumers of all lines until `until`: device-microseconds, and tokens."""

    until: datetime
    devices: list[HoursOf]
    tokens: list[HoursOf]


def weekly_usage_profile(period: BillingPeriod, keys: Iterable[LineKey], now: datetime) -> WeekUse | None:
    """Return the use until `now` of the namespaces and consumers that lines name; None before the month begins."""
    until = min(period.end, now)
    if until <= period.start:
        return None
    places, consumers = named_by(keys)
    window = Interval(period.start, until)
    devices = devices_by_week_hour(window, period.zone, places)
    tokens = tokens_by_week_hour(window, period.zone, consumers)
    return WeekUse(
        until, [HoursOf(name, _listed(found)) for name, found in devices.items()],
        [HoursOf((name,), _listed(found)) for name, found in tokens.items()],
    )  # fmt: skip


def named_by(keys: Iterable[LineKey | LineRollup]) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the namespaces (with clusters) and consumers of lines; corrections of other months name no use of this one."""
    places, consumers = set(), set()
    for key in keys:
        if not key.correction and key.what.on_demand and not key.counts_tokens:
            places.add((key.cluster, key.namespace))
        elif not key.correction and key.counts_tokens:
            consumers.add(key.consumer)
    return places, consumers


def _listed(found: WeekHours) -> list[Decimal]:
    return [found.get(hour, Decimal(0)) for hour in HOURS]


def of_hours(listed: Iterable[Decimal]) -> WeekHours:
    """Convert the list back to use by weekday and hour."""
    return dict(zip(HOURS, listed, strict=True))


def same_moment(period: BillingPeriod, before: BillingPeriod, now: datetime) -> datetime:
    """Return the day and time of the month before to compare with `period` at `now`; its end if that month is shorter."""
    # clock times: between instants a changed hour of the night would count
    began, begun = (month.start.astimezone(ZoneInfo(month.zone)).replace(tzinfo=None) for month in (before, period))
    here = now.astimezone(ZoneInfo(period.zone)).replace(tzinfo=None, second=0, microsecond=0)
    return min((began + (here - begun)).replace(tzinfo=ZoneInfo(before.zone)).astimezone(UTC), before.end)


@dataclass(frozen=True, slots=True)
class DaysBefore:
    """First days of a month, those before `until`, as the close after all closes so far would see them."""

    month: str
    window: Interval
    until: datetime
    close_seq: int
    assessed: RatingResult

    @classmethod
    def of(cls, period: BillingPeriod, now: datetime, reference_data: ReferenceData) -> Self | None:
        """Return the month before up to where `period` is at `now`; None if it has not begun."""
        before = period_of(previous_month(period.month))
        until = same_moment(period, before, now)
        if until <= before.start:
            return None
        window, close_seq = before.window, reference_data.close_seq or last_close_seq() + 1
        assessed = rate_slice(
            window=window, zone=before.zone, reference_data=reference_data, close_seq=close_seq, correction=False,
            until=until,
        )  # fmt: skip
        return cls(before.month, window, until, close_seq, assessed)

    @property
    def lines(self) -> list[Line]:
        """Return the lines that teams would be charged or shown; the platform's own use is left out."""
        return invoice_lines(charge for charge in self.assessed.charges if not charge.key.platform)


class Compared(msgspec.Struct):
    """Sums by team of as many days of the month before, and until when; nothing (None) of a month that does not run."""

    until: datetime | None = None
    teams: dict[str, list[LineRollup]] = {}

    @classmethod
    def of(cls, period: BillingPeriod, reference_data: ReferenceData, now: datetime) -> "Compared":
        """Compare a running month; empty if the month before is unknown."""
        days = DaysBefore.of(period, now, reference_data) if period.start <= now < period.end else None
        if days is None or days.assessed.faults:
            return cls()
        teams: dict[str, list[LineRollup]] = defaultdict(list)
        for item in line_rollups(statement_line(line) for line in days.lines):
            teams[item.team].append(item)
        return cls(days.until, teams)
