"""PURE: how long before it takes effect a price change is announced, in business days."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

SATURDAY = 5


def business_days_between(announced: datetime, effective: datetime, zone: str) -> int:
    """Mondays to Fridays after the day of announcement, up to and including the first day in force, in local days.

    Public holidays are not known here; 0 where the change takes effect on the day of announcement or before.

    >>> from datetime import UTC
    >>> monday = datetime(2026, 11, 2, 9, tzinfo=UTC)
    >>> business_days_between(monday, datetime(2026, 11, 16, tzinfo=UTC), "UTC")
    10
    >>> business_days_between(monday, datetime(2026, 11, 15, tzinfo=UTC), "UTC")
    9
    """
    first, last = (instant.astimezone(ZoneInfo(zone)).date() for instant in (announced, effective))
    weeks, days = divmod(max((last - first).days, 0), 7)
    rest = (first + timedelta(days=number) for number in range(1, days + 1))
    return weeks * SATURDAY + sum(day.weekday() < SATURDAY for day in rest)
