"""PURE: deadlines in business days of the house: Mondays to Fridays without its holidays, and the days made up for them."""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from pricing.business_days import BusinessCalendar

TRIAGE_DAYS = 2
ACCEPTANCE_DAYS = 5
"""Who says nothing for so long has accepted a document."""
DECISION_DAYS = 10
DISPUTE_WINDOW_DAYS = 10


def end_of_business_day(start: datetime, days: int, zone: str, calendar: BusinessCalendar) -> datetime:
    """The end (local midnight after it) of the `days`-th business day after the day of `start`.

    >>> from datetime import UTC, date
    >>> from pricing.business_days import WEEKDAYS
    >>> friday = datetime(2026, 11, 6, 9, tzinfo=UTC)
    >>> end_of_business_day(friday, 2, "UTC", WEEKDAYS).isoformat()
    '2026-11-11T00:00:00+00:00'
    >>> end_of_business_day(datetime(2026, 11, 6, 17, tzinfo=UTC), 2, "Asia/Shanghai", WEEKDAYS).isoformat()
    '2026-11-11T00:00:00+08:00'
    >>> end_of_business_day(friday, 2, "UTC", BusinessCalendar(frozenset({date(2026, 11, 9)}))).isoformat()
    '2026-11-12T00:00:00+00:00'
    """
    day = start.astimezone(ZoneInfo(zone)).date()
    while days:
        day += timedelta(days=1)
        days -= calendar.works(day)
    return datetime.combine(day + timedelta(days=1), time(), ZoneInfo(zone))
