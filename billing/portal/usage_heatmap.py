"""Use of a month by weekday and hour, for a page: means over the hours that the month had, and their shades."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.usage.gpu_time_by_job import WeekHour, WeekHours
from metering.intervals import MICROSECOND, Interval
from pricing.money import round_to

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class HeatCell:
    """Hour of the week: the mean use while it lasted, and its shade from 0 to 9."""

    hour: int
    mean: Decimal | None
    shade: int


@dataclass(frozen=True, slots=True)
class Heat:
    """Mean use by weekday (Monday first) and hour: devices in use, or tokens an hour. `peak` is the largest."""

    name: str
    days: list[list[HeatCell]]
    peak: Decimal


def heat_of(name: str, sums: WeekHours, hours: Mapping[WeekHour, Fraction], per: int, places: int) -> Heat | None:
    """Return means over the hours of the window, None without use; an hour of the week outside the window is unknown."""
    means = {
        at: round_to(Fraction(sums.get(at, Decimal(0))) / (per * count), places) for at, count in hours.items() if count
    }
    peak = max(means.values(), default=Decimal(0))
    if not peak:
        return None
    days = [[_cell(means.get((day, hour)), hour, peak) for hour in range(24)] for day in range(7)]
    return Heat(name, days, peak)


def added_up(parts: Iterable[WeekHours]) -> WeekHours:
    sums: WeekHours = defaultdict(Decimal)
    for part in parts:
        for at, amount in part.items():
            sums[at] += amount
    return sums


def hours_of(window: Interval, zone: str) -> Mapping[WeekHour, Fraction]:
    """Count the hours of a window by weekday and hour; the running hour counts as far as it has passed.

    >>> from datetime import datetime
    >>> hours_of(Interval(datetime(2026, 10, 5, 0, tzinfo=UTC), datetime(2026, 10, 5, 1, 15, tzinfo=UTC)), "UTC")[0, 1]
    Fraction(1, 4)
    """
    where = ZoneInfo(zone)
    hours: dict[WeekHour, Fraction] = defaultdict(Fraction)
    # in UTC, so that a change of summer time drops or doubles its local hour as the clock does
    at = window.start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    while at < window.end:
        there = at.astimezone(where)
        inside = min(at + HOUR, window.end) - max(at, window.start)
        hours[there.weekday(), there.hour] += Fraction(inside // MICROSECOND, HOUR // MICROSECOND)
        at += HOUR
    return hours


def _cell(mean: Decimal | None, hour: int, peak: Decimal) -> HeatCell:
    return HeatCell(hour, mean, 0 if not mean else min(9, 1 + int(mean / peak * 8)))
