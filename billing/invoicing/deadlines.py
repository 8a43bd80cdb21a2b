"""PURE: deadlines in business days: Mondays to Fridays of the billing zone; public holidays are not known here."""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

SATURDAY = 5
TRIAGE_DAYS = 2
DECISION_DAYS = 10
DISPUTE_WINDOW_DAYS = 10


def end_of_business_day(start: datetime, days: int, zone: str) -> datetime:
    """The end (local midnight after it) of the `days`-th business day after the day of `start`.

    >>> from datetime import UTC
    >>> friday = datetime(2026, 11, 6, 9, tzinfo=UTC)
    >>> end_of_business_day(friday, 2, "UTC").isoformat()
    '2026-11-11T00:00:00+00:00'
    >>> end_of_business_day(datetime(2026, 11, 6, 17, tzinfo=UTC), 2, "Asia/Shanghai").isoformat()
    '2026-11-11T00:00:00+08:00'
    """
    day = start.astimezone(ZoneInfo(zone)).date()
    while days:
        day += timedelta(days=1)
        days -= day.weekday() < SATURDAY
    return datetime.combine(day + timedelta(days=1), time(), ZoneInfo(zone))
