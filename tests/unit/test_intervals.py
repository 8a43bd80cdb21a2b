"""Intervals are half-open and exact; months begin at local midnight, whatever the clocks do."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from metering.intervals import Interval, IntervalError, billing_month, month_of, next_month, previous_month, union


def at(hour: int, microsecond: int = 0) -> datetime:
    return datetime(2026, 10, 1, hour, microsecond=microsecond, tzinfo=UTC)


def hours(start: int, end: int) -> Interval:
    return Interval(at(start), at(end))


def test_bounds_of_any_offset_are_kept_in_utc() -> None:
    shanghai = timezone(timedelta(hours=8))
    interval = Interval(datetime(2026, 10, 1, 8, tzinfo=shanghai), datetime(2026, 10, 1, 9, tzinfo=shanghai))
    assert interval == hours(0, 1)
    assert interval.start.tzinfo is UTC


@pytest.mark.parametrize("naive", [datetime.fromisoformat("2026-10-01"), datetime.fromisoformat("2026-10-01T05:00")])
def test_a_naive_instant_is_refused_everywhere(naive: datetime) -> None:
    attempts: list[Any] = [
        lambda: Interval(naive, at(1)), lambda: Interval(at(1), naive), lambda: hours(0, 9).cut([naive]),
        lambda: hours(0, 9).contains(naive), lambda: month_of(naive, "UTC"),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(IntervalError, match="has no offset"):
            attempt()


def test_a_date_is_no_instant() -> None:
    with pytest.raises(IntervalError, match="is a date, not a datetime"):
        Interval(date(2026, 10, 1), at(1))  # type: ignore[arg-type]


def test_an_instant_outside_of_the_calendar_is_refused() -> None:
    with pytest.raises(IntervalError, match="outside the calendar"):
        Interval(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=8))), at(1))


def test_an_end_before_the_start_is_refused_and_an_empty_interval_is_not() -> None:
    with pytest.raises(IntervalError, match="is before start"):
        hours(2, 1)
    assert hours(2, 2).microseconds == 0


def test_the_end_is_outside() -> None:
    assert hours(1, 2).contains(at(1))
    assert not hours(1, 2).contains(at(2))
    assert hours(1, 2).overlap(hours(2, 3)) is None


def test_a_microsecond_is_a_microsecond() -> None:
    assert Interval(at(0), at(0, 1)).microseconds == 1
    assert hours(0, 1).microseconds == 3_600_000_000


def test_cuts_outside_and_twice_change_nothing() -> None:
    assert hours(1, 4).cut([at(2), at(2), at(1), at(4), at(9)]) == [hours(1, 2), hours(2, 4)]
    assert hours(1, 4).cut([]) == [hours(1, 4)]


def test_a_union_joins_what_touches_and_drops_what_is_empty() -> None:
    assert union([hours(5, 6), hours(1, 3), hours(2, 4), hours(4, 5), hours(8, 8)]) == [hours(1, 6)]
    assert union([hours(8, 8)]) == []


@pytest.mark.parametrize("month", ["2026-13", "2026-00", "2026-1", "26-01", "2026-10 ", "1999-12", "2200-01", "٢٠٢٦-١٠", ""])
def test_a_month_is_written_like_2026_10(month: str) -> None:
    with pytest.raises(IntervalError, match="must be written like 2026-10"):
        billing_month(month, "UTC")


@pytest.mark.parametrize("zone", ["Asia/Nowhere", "", "../etc/passwd", "/etc/localtime", "Asia", "UTC\0"])
def test_an_unknown_zone_is_named(zone: str) -> None:
    with pytest.raises(IntervalError) as caught:
        billing_month("2026-10", zone)
    assert repr(zone) in str(caught.value)


def test_a_month_begins_at_the_first_of_two_midnights() -> None:
    """St. John's set its clocks back at 00:01 on 1 November 2009: midnight came twice."""
    october, november = (billing_month(month, "America/St_Johns") for month in ("2009-10", "2009-11"))
    assert october.end == november.start == datetime(2009, 11, 1, 2, 30, tzinfo=UTC)
    assert month_of(november.start + timedelta(minutes=30), "America/St_Johns") == "2009-11"
    assert month_of(november.start - timedelta(microseconds=1), "America/St_Johns") == "2009-10"


def test_a_month_whose_midnight_does_not_exist_begins_at_the_change() -> None:
    """Asuncion went from 23:59:59 on 30 September 2017 to 01:00 on 1 October."""
    october = billing_month("2017-10", "America/Asuncion")
    assert october.start == datetime(2017, 10, 1, 4, tzinfo=UTC)
    assert month_of(october.start, "America/Asuncion") == "2017-10"
    assert month_of(october.start - timedelta(microseconds=1), "America/Asuncion") == "2017-09"


def test_the_month_of_an_instant_is_that_of_the_zone() -> None:
    instant = datetime(2026, 9, 30, 16, tzinfo=UTC)
    assert (month_of(instant, "Asia/Shanghai"), month_of(instant, "Europe/Berlin")) == ("2026-10", "2026-09")


def test_instants_of_other_centuries_have_months_too() -> None:
    assert month_of(datetime(1970, 1, 1, tzinfo=UTC), "Asia/Shanghai") == "1970-01"


def test_months_before_and_after() -> None:
    assert (next_month("2026-12"), previous_month("2026-01")) == ("2027-01", "2025-12")
    with pytest.raises(IntervalError):
        next_month("2026-13")


def test_bounds_as_local_times() -> None:
    start, end = billing_month("2026-10", "Asia/Shanghai").in_zone("Asia/Shanghai")
    assert (start.isoformat(), end.isoformat()) == ("2026-10-01T00:00:00+08:00", "2026-11-01T00:00:00+08:00")
