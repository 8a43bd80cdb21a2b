"""PURE: half-open intervals in UTC, exact to the microsecond, and days and billing months in a zone.

A billing month runs from local midnight to local midnight of the billing zone, so it may have 743 or 745 hours.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from metering.messages import Message

MONTH: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])\Z")
MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(instant: datetime) -> int:
    """Return the microseconds since 1970."""
    return (instant - EPOCH) // MICROSECOND


def from_us(microseconds: int) -> datetime:
    """Return the instant of so many microseconds since 1970."""
    return EPOCH + microseconds * MICROSECOND


class IntervalError(ValueError):
    """Bounds that make no interval, or an instant without an offset."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Half-open interval [start, end) in UTC. Aware instants of any offset are accepted; a naive one is refused."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            object.__setattr__(self, name, _utc(getattr(self, name), name))
        if self.end < self.start:
            raise IntervalError(f"end {self.end.isoformat()} is before start {self.start.isoformat()}")

    @property
    def microseconds(self) -> int:
        """Return the elapsed time, a whole number."""
        return (self.end - self.start) // MICROSECOND

    def contains(self, instant: datetime) -> bool:
        """Return True if start <= instant < end."""
        return self.start <= _utc(instant, "instant") < self.end

    def overlap(self, other: "Interval") -> "Interval | None":
        """Return the common part, or None if there is none.

        >>> hour = lambda a, b: Interval(datetime(2026, 10, 1, a, tzinfo=UTC), datetime(2026, 10, 1, b, tzinfo=UTC))
        >>> hour(1, 3).overlap(hour(3, 4)) is None, hour(1, 3).overlap(hour(2, 4)) == hour(2, 3)
        (True, True)
        """
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Interval(start, end) if start < end else None

    def cut(self, instants: Iterable[datetime]) -> "list[Interval]":
        """Cut the interval at those of `instants` that lie inside; the pieces together are the interval."""
        inside = sorted({at for at in (_utc(instant, "instant") for instant in instants) if self.start < at < self.end})
        bounds = [self.start, *inside, self.end]
        return [Interval(lo, hi) for lo, hi in pairwise(bounds)]

    def in_zone(self, zone: str) -> tuple[datetime, datetime]:
        """Return both bounds as local times of `zone`."""
        return self.start.astimezone(_zone(zone)), self.end.astimezone(_zone(zone))


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into disjoint ones, in order; touching intervals become one, empty ones vanish.

    >>> hour = lambda a, b: Interval(datetime(2026, 10, 1, a, tzinfo=UTC), datetime(2026, 10, 1, b, tzinfo=UTC))
    >>> union([hour(5, 6), hour(1, 3), hour(3, 4)]) == [hour(1, 4), hour(5, 6)]
    True
    """
    merged: list[Interval] = []
    for interval in sorted(interval for interval in intervals if interval.start < interval.end):
        if merged and interval.start <= merged[-1].end:
            merged[-1] = Interval(merged[-1].start, max(merged[-1].end, interval.end))
        else:
            merged.append(interval)
    return merged


def without(intervals: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Return the parts of the intervals that lie in no hole, in order.

    >>> hour = lambda a, b: Interval(datetime(2026, 10, 1, a, tzinfo=UTC), datetime(2026, 10, 1, b, tzinfo=UTC))
    >>> without([hour(1, 5)], [hour(2, 3), hour(4, 9)]) == [hour(1, 2), hour(3, 4)]
    True
    """
    left = union(intervals)
    for hole in union(holes):
        pieces = [piece for one in left for piece in one.cut((hole.start, hole.end))]
        left = [piece for piece in pieces if not piece.overlap(hole)]
    return left


def day_of(instant: datetime, zone: str) -> date:
    """Return the local day of an instant.

    >>> day_of(datetime(2026, 10, 1, 16, tzinfo=UTC), "Asia/Shanghai")
    datetime.date(2026, 10, 2)
    """
    return instant.astimezone(_zone(zone)).date()


def midnight_of(day: date, zone: str) -> datetime:
    """Return the beginning of a local day, as a local time."""
    return datetime(day.year, day.month, day.day, tzinfo=_zone(zone))


def declared_instant(text: str, zone: str | None) -> datetime:
    """Parse an instant that people declare, into UTC: RFC 3339 with an offset, or a date, which is local midnight of `zone`.

    From 2000 to 2199.  Raises ValueError, also for a date where there is no zone.

    >>> declared_instant("2026-10-01", "Asia/Shanghai").isoformat()
    '2026-09-30T16:00:00+00:00'
    """
    value = datetime.fromisoformat(text)
    if value.tzinfo is None and len(text) == len("2026-10-01") and zone is not None:
        value = value.replace(tzinfo=_zone(zone))
    if value.tzinfo is None or not 2000 <= value.year < 2200:
        raise ValueError(text)
    return value.astimezone(UTC)


def midnights(start: datetime, end: datetime, zone: str) -> list[datetime]:
    """Return the midnights from the local day of `start` to that of `end`, in UTC: a local day may have 23 or 25 hours.

    >>> found = midnights(datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC), "Europe/Berlin")
    >>> [f"{at:%d %H}" for at in found]
    ['23 22', '24 22', '25 23']
    """
    first = day_of(start, zone)
    days = (first + timedelta(days=number) for number in range((day_of(end, zone) - first).days + 1))
    return [midnight_of(day, zone).astimezone(UTC) for day in days]


def billing_month(month: str, zone: str) -> Interval:
    """Return the month "2026-10" from local midnight to local midnight of `zone`.  Raises IntervalError.

    Where a clock change makes midnight happen twice the first one counts; where it skips midnight, the change itself.

    >>> billing_month("2026-03", "Asia/Shanghai").start.isoformat()
    '2026-02-28T16:00:00+00:00'
    """
    year, number = _year_and_number(month)
    where = _zone(zone)
    return Interval(datetime(year, number, 1, tzinfo=where), _first_of_next_month(year, number, where))


def month_of(instant: datetime, zone: str) -> str:
    """Return the billing month that contains `instant`.  Raises IntervalError.

    It is not always the month of the local date: where clocks fall back over midnight of the first (St. John's, 1 November
    2009), the repeated last hour of the old month belongs to the new one, which had begun.

    >>> month_of(datetime(2026, 2, 28, 16, tzinfo=UTC), "Asia/Shanghai")
    '2026-03'
    """
    local = _utc(instant, "instant").astimezone(_zone(zone))
    begun = _first_of_next_month(local.year, local.month, _zone(zone))
    if begun.astimezone(UTC) <= instant:
        return f"{begun.year:04d}-{begun.month:02d}"
    return f"{local.year:04d}-{local.month:02d}"


def _first_of_next_month(year: int, number: int, zone: ZoneInfo) -> datetime:
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=zone)


def next_month(month: str) -> str:
    """Return the month after a month: "2027-01" after "2026-12".

    >>> next_month("2026-12")
    '2027-01'
    """
    return _month_after(month, 1)


def previous_month(month: str) -> str:
    """Return the month before a month: "2026-12" before "2027-01".

    >>> previous_month("2027-01")
    '2026-12'
    """
    return _month_after(month, -1)


@dataclass(frozen=True, slots=True)
class FiscalQuarter:
    """Quarter of a fiscal year. `year`: the calendar year in which the fiscal year ends; `first`: its first month."""

    year: int
    number: int
    first: str

    @property
    def first_of_year(self) -> str:
        """Return the month with which the fiscal year begins."""
        return _month_after(self.first, -3 * (self.number - 1))


def fiscal_quarter_of(month: str, year_begins: int) -> FiscalQuarter:
    """Return the fiscal quarter of a month; fiscal years begin with month `year_begins` (1 to 12).  Raises IntervalError.

    >>> fiscal_quarter_of("2026-11", 1), fiscal_quarter_of("2026-11", 4)
    (FiscalQuarter(year=2026, number=4, first='2026-10'), FiscalQuarter(year=2027, number=3, first='2026-10'))
    """
    year, number = _year_and_number(month)
    since = (number - year_begins) % 12
    ends = year + (1 if year_begins > 1 and number >= year_begins else 0)
    return FiscalQuarter(ends, since // 3 + 1, _month_after(month, -(since % 3)))


def _month_after(month: str, months: int) -> str:
    year, number = _year_and_number(month)
    count = 12 * year + number - 1 + months
    return f"{count // 12:04d}-{count % 12 + 1:02d}"


def _year_and_number(month: str) -> tuple[int, int]:
    match = MONTH.match(month)
    if match is None or not 2000 <= int(match.group(1)) < 2200:
        raise IntervalError(
            Message("month %(month)s must be written like 2026-10, from 2000 to 2199", month=repr(month[:40]))
        )
    return int(match.group(1)), int(match.group(2))


def _utc(instant: datetime, name: str) -> datetime:
    if not isinstance(instant, datetime):
        raise IntervalError(f"{name} {instant!r} is a {type(instant).__name__}, not a datetime")
    if instant.tzinfo is UTC:
        return instant
    if instant.utcoffset() is None:
        raise IntervalError(f"{name} {instant.isoformat()} has no offset")
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise IntervalError(f"{name} {instant.isoformat()} is outside the calendar") from error


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise IntervalError(f"zone {name!r} is not a known time zone") from error
