"""PURE: UTC hours and days, by which usage is rolled up."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
HOURS_KEPT: Final = 10_000


def this_hour(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def next_hour(instant: datetime) -> datetime:
    floor = this_hour(instant)
    return floor if floor == instant else floor + HOUR


def this_day(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def next_day(instant: datetime) -> datetime:
    floor = this_day(instant)
    return floor if floor == instant else floor + DAY


@lru_cache(maxsize=HOURS_KEPT)
def hour_of(seconds: int) -> datetime:
    """Return the UTC hour that begins at a Unix time; cached, since rows come by the million and hours by the hundred."""
    return datetime.fromtimestamp(seconds, UTC)
