"""PURE: business days of a company, for the notice period between the announcement of a price and its start."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

SATURDAY = 5


@dataclass(frozen=True, slots=True)
class BusinessCalendar:
    """Public holidays, and Saturdays and Sundays that are working days."""

    holidays: frozenset[date] = frozenset()
    working_days: frozenset[date] = frozenset()

    def works(self, day: date) -> bool:
        """Return True if a day is a business day.

        >>> week = BusinessCalendar(frozenset({date(2026, 10, 1)}), frozenset({date(2026, 10, 10)}))
        >>> [week.works(date(2026, 10, number)) for number in (1, 2, 3, 10)]
        [False, True, False, True]
        """
        return day in self.working_days or (day.weekday() < SATURDAY and day not in self.holidays)


WEEKDAYS = BusinessCalendar()


def business_days_between(
    announced: datetime, effective: datetime, zone: str, calendar: BusinessCalendar = WEEKDAYS
) -> int:
    """Count the business days after the day of announcement, up to and including the first day in force, in local days.

    0 where the change takes effect on the day of announcement or before.

    >>> from datetime import UTC
    >>> monday = datetime(2026, 11, 2, 9, tzinfo=UTC)
    >>> business_days_between(monday, datetime(2026, 11, 16, tzinfo=UTC), "UTC")
    10
    >>> business_days_between(monday, datetime(2026, 11, 15, tzinfo=UTC), "UTC")
    9
    >>> house = BusinessCalendar(frozenset({date(2026, 11, 3), date(2026, 11, 16)}), frozenset({date(2026, 11, 7)}))
    >>> business_days_between(monday, datetime(2026, 11, 16, tzinfo=UTC), "UTC", house)
    9
    """
    first, last = (instant.astimezone(ZoneInfo(zone)).date() for instant in (announced, effective))
    weeks, days = divmod(max((last - first).days, 0), 7)
    rest = (first + timedelta(days=number) for number in range(1, days + 1))
    weekdays = weeks * SATURDAY + sum(day.weekday() < SATURDAY for day in rest)
    # holidays on weekdays subtract, working weekends add; other special days change nothing
    special = (day for day in calendar.holidays | calendar.working_days if first < day <= last)
    return weekdays + sum(calendar.works(day) - (day.weekday() < SATURDAY) for day in special)
