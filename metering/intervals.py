"""PURE: half-open intervals in UTC, exact to the microsecond, and billing months in a zone.

A billing month runs from local midnight to local midnight of the billing zone, so it may have 743 or 745 hours.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MONTH: Final = re.compile(r"(\d{4})-(0[1-9]|1[0-2])\Z")
MICROSECOND: Final = timedelta(microseconds=1)


class IntervalError(ValueError):
    """Bounds that make no interval, or an instant without an offset."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """[start, end) in UTC. Aware instants of any offset are accepted; a naive one is refused."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            instant: datetime = getattr(self, name)
            if instant.tzinfo is None:
                raise IntervalError(f"{name} {instant.isoformat()} has no offset")
            object.__setattr__(self, name, instant.astimezone(UTC))
        if self.end < self.start:
            raise IntervalError(f"end {self.end.isoformat()} is before start {self.start.isoformat()}")

    @property
    def microseconds(self) -> int:
        """Elapsed time, a whole number."""
        return (self.end - self.start) // MICROSECOND

    def overlap(self, other: "Interval") -> "Interval | None":
        """The common part, or None where there is none.

        >>> hour = lambda a, b: Interval(datetime(2026, 10, 1, a, tzinfo=UTC), datetime(2026, 10, 1, b, tzinfo=UTC))
        >>> hour(1, 3).overlap(hour(3, 4)) is None, hour(1, 3).overlap(hour(2, 4)) == hour(2, 3)
        (True, True)
        """
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Interval(start, end) if start < end else None

    def cut(self, instants: Iterable[datetime]) -> "list[Interval]":
        """The pieces between those of `instants` that lie inside; together they are the interval again."""
        inside = sorted({at.astimezone(UTC) for at in instants if self.start < at < self.end})
        bounds = [self.start, *inside, self.end]
        return [Interval(lo, hi) for lo, hi in pairwise(bounds)]

    def in_zone(self, zone: str) -> tuple[datetime, datetime]:
        """Both bounds as local times of `zone`."""
        return self.start.astimezone(_zone(zone)), self.end.astimezone(_zone(zone))


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlap, in order; touching intervals become one."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.start <= merged[-1].end:
            merged[-1] = Interval(merged[-1].start, max(merged[-1].end, interval.end))
        else:
            merged.append(interval)
    return merged


def billing_month(month: str, zone: str) -> Interval:
    """The month "2026-10" from local midnight to local midnight of `zone`.  Raises IntervalError.

    >>> billing_month("2026-03", "Asia/Shanghai").start.isoformat()
    '2026-02-28T16:00:00+00:00'
    """
    match = MONTH.match(month)
    if match is None or not 2000 <= int(match.group(1)) < 2200:
        raise IntervalError(f"month {month!r} must be written like 2026-10")
    year, number = int(match.group(1)), int(match.group(2))
    where = _zone(zone)
    start = datetime(year, number, 1, tzinfo=where)
    return Interval(start, datetime(year + number // 12, number % 12 + 1, 1, tzinfo=where))


def month_of(instant: datetime, zone: str) -> str:
    """The billing month that `instant` lies in.

    >>> month_of(datetime(2026, 2, 28, 16, tzinfo=UTC), "Asia/Shanghai")
    '2026-03'
    """
    if instant.tzinfo is None:
        raise IntervalError(f"instant {instant.isoformat()} has no offset")
    local = instant.astimezone(_zone(zone))
    return f"{local.year:04d}-{local.month:02d}"


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise IntervalError(f"zone {name!r} is not a known time zone") from error
