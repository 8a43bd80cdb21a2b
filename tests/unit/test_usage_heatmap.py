"""Use by hour of the week: the running hour counts as far as it has passed."""

from datetime import UTC, datetime
from decimal import Decimal

from billing.portal.usage_heatmap import heat_of, hours_of
from metering.intervals import Interval
from pricing.meters import MICROSECONDS_PER_HOUR


def test_a_device_that_is_used_all_the_time_is_one_device_in_the_running_hour_too() -> None:
    """Monday 5 October 2026 from 0:00 to 1:15: one device for 60 and for 15 minutes, one device in use in both hours."""
    window = Interval(datetime(2026, 10, 5, 0, tzinfo=UTC), datetime(2026, 10, 5, 1, 15, tzinfo=UTC))
    used = {(0, 0): Decimal(MICROSECONDS_PER_HOUR), (0, 1): Decimal(MICROSECONDS_PER_HOUR // 4)}
    heat = heat_of("devices", used, hours_of(window, "UTC"), MICROSECONDS_PER_HOUR, 1)
    assert heat is not None
    assert [cell.mean for cell in heat.days[0][:3]] == [Decimal("1.0"), Decimal("1.0"), None]


def test_an_hour_of_several_weeks_is_the_mean_of_all_of_them() -> None:
    """The first hour of Monday passed twice and for 30 minutes: 5 device-hours of 2.5 hours are 2 devices."""
    window = Interval(datetime(2026, 10, 5, 0, tzinfo=UTC), datetime(2026, 10, 19, 0, 30, tzinfo=UTC))
    heat = heat_of("devices", {(0, 0): Decimal(5)}, hours_of(window, "UTC"), 1, 1)
    assert heat is not None
    assert heat.days[0][0].mean == Decimal("2.0")
