"""When the months of the tests are over."""

from datetime import UTC, datetime

OCTOBER_OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
NOVEMBER_OVER = datetime(2026, 12, 1, 0, 5, tzinfo=UTC)
DECEMBER_OVER = datetime(2027, 1, 1, 0, 5, tzinfo=UTC)
