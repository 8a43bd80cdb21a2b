"""Tariffs over real local days: 23, 24, 25 and half-hour-shifted ones; exact costs by hand, and a loop over the hours."""

from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.intervals import Interval
from pricing.cost_sheet import CostSheetError
from pricing.tariff import Tariff, TariffError
from pricing.tariff_calendar import CalendarPeriod, calendar_tariff
from pricing.tco import parse_cost_sheet
from tests.golden.registry import SHEET

PEAK, LEVEL, VALLEY = Fraction("1.04"), Fraction("0.65"), Fraction("0.26")
DAY = [
    CalendarPeriod("peak", PEAK, tuple(range(8, 16))),
    CalendarPeriod("flat", LEVEL, tuple(range(16, 24))),
    CalendarPeriod("valley", VALLEY, tuple(range(8))),
]


def local_days(day: date, zone: str, days: int = 1) -> Interval:
    here = ZoneInfo(zone)
    start, end = (datetime(at.year, at.month, at.day, tzinfo=here) for at in (day, day + timedelta(days=days)))
    return Interval(start, end)


def cost(tariff: Tariff) -> Fraction:
    return sum((period.weight * period.price_per_kwh for period in tariff.periods), Fraction(0))


@pytest.mark.parametrize(
    ("day", "zone", "hours", "by_hand"),
    [
        # 1 kW: 8 h at 1.04, 8 h at 0.65, and 7, 9 or 8 h at 0.26
        (date(2026, 3, 29), "Europe/Berlin", 23, "15.34"),
        (date(2026, 10, 25), "Europe/Berlin", 25, "15.86"),
        (date(2026, 3, 8), "America/New_York", 23, "15.34"),
        (date(2026, 11, 1), "America/New_York", 25, "15.86"),
        (date(2026, 3, 29), "Asia/Shanghai", 24, "15.6"),
        # half an hour of the valley vanishes or comes twice: 7.5 x 0.26 and 8.5 x 0.26
        (date(2026, 10, 4), "Australia/Lord_Howe", Fraction(47, 2), "15.47"),
        (date(2026, 4, 5), "Australia/Lord_Howe", Fraction(49, 2), "15.73"),
    ],
)
def test_the_cost_of_a_day_on_which_the_clock_changes(day: date, zone: str, hours: Fraction, by_hand: str) -> None:
    tariff = calendar_tariff(DAY, local_days(day, zone), zone)
    assert (tariff.weight, cost(tariff)) == (hours, Fraction(by_hand))


def test_the_load_of_an_hour_that_comes_twice_counts_twice() -> None:
    """2 kW by night, 1 kW by day: 9 h x 2 kW x 0.26 = 4.68 and 8 x 1.04 + 8 x 0.65 = 13.52."""
    load = [Fraction(2)] * 8 + [Fraction(1)] * 16
    tariff = calendar_tariff(DAY, local_days(date(2026, 10, 25), "Europe/Berlin"), "Europe/Berlin", load)
    assert (tariff.weight, cost(tariff)) == (34, Fraction("18.2"))
    assert tariff.price_per_kwh == Fraction("18.2") / 34


def test_a_critical_peak_prices_its_months_and_hours_alone() -> None:
    """Three of eight peak hours cost 20 % more in January, July, August and December: 5 x 1.04 + 3 x 1.248 = 8.944."""
    critical = CalendarPeriod("critical", PEAK * Fraction("1.2"), (13, 14, 15), (1, 7, 8, 12))
    for day, by_hand in ((date(2026, 7, 1), "16.224"), (date(2026, 6, 30), "15.6")):
        tariff = calendar_tariff([critical, *DAY], local_days(day, "Asia/Shanghai"), "Asia/Shanghai")
        assert cost(tariff) == Fraction(by_hand)


zones = st.sampled_from(
    ["Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu",
     "America/Havana", "Africa/Casablanca", "Pacific/Chatham", "UTC"]
)  # fmt: skip
days = st.dates(date(2020, 1, 1), date(2030, 1, 1))
prices = st.lists(st.fractions(0, 3, max_denominator=1000), min_size=24, max_size=24)


@given(days, zones, prices, prices)
def test_a_day_costs_what_its_quarters_of_an_hour_cost(
    day: date, zone: str, by_hour: list[Fraction], load: list[Fraction]
) -> None:
    window = local_days(day, zone)
    periods = [CalendarPeriod(f"{hour}", price, (hour,)) for hour, price in enumerate(by_hour)]
    assert calendar_tariff(periods, window, zone).weight == Fraction(window.microseconds, 3_600_000_000)
    kwh = expected = Fraction(0)
    for number in range(window.microseconds // 900_000_000):
        hour = (window.start + number * timedelta(minutes=15)).astimezone(ZoneInfo(zone)).hour
        kwh += load[hour] / 4
        expected += by_hour[hour] * load[hour] / 4
    if kwh:
        tariff = calendar_tariff(periods, window, zone, load)
        assert (tariff.weight, cost(tariff)) == (kwh, expected)


@given(days, zones, st.integers(1, 4), st.integers(1, 4))
def test_neighbouring_spans_add_up(day: date, zone: str, first: int, second: int) -> None:
    middle = day + timedelta(days=first)
    parts = [calendar_tariff(DAY, local_days(*span), zone) for span in ((day, zone, first), (middle, zone, second))]
    whole = calendar_tariff(DAY, local_days(day, zone, first + second), zone)
    assert cost(whole) == sum(cost(part) for part in parts)
    assert whole.weight == sum(part.weight for part in parts)


def test_an_hour_without_a_price_is_refused() -> None:
    with pytest.raises(TariffError, match=r"no period prices 2026-10-10T08:00\+08:00"):
        calendar_tariff(DAY[1:], local_days(date(2026, 10, 10), "Asia/Shanghai"), "Asia/Shanghai")


CALENDAR: dict[str, Any] = {
    "zone": "Europe/Berlin", "from": "2026-03-29", "until": "2026-03-30",
    "periods": [
        {"name": "peak", "ratio": "1.6", "hours": [["8", "12"], ["12", "16"]]},
        {"name": "valley", "ratio": "0.4", "hours": [["0", "8"]]},
        {"name": "flat", "ratio": "1"},
    ],
}  # fmt: skip


def test_a_sheet_with_a_calendar_has_the_mean_of_its_hours() -> None:
    """B12 by another way: 15.34 over 23 hours."""
    sheet = parse_cost_sheet({**SHEET, "electricity_price_per_kwh": "0.65", "tariff": CALENDAR})
    assert sheet.tariff.price_per_kwh == Fraction("15.34") / 23


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"zone": "Berlin"}, "tariff.zone: 'Berlin' must be a time zone such as Asia/Shanghai"),
        ({"from": "yesterday"}, "tariff.from: 'yesterday' must be a day such as 2026-10-01"),
        ({"until": "2026-03-29"}, "tariff.until: 2026-03-29 must be after from 2026-03-29 by at most 367 days"),
        ({"until": "2028-01-01"}, "tariff.until: 2028-01-01 must be after from 2026-03-29 by at most 367 days"),
        ({"load_kw": ["1"]}, "tariff.load_kw: has 1 values: give one for each of the 24 hours of the local day"),
        ({"periods": [{"ratio": "1", "hours": [["8", "25"]]}]},
         "tariff.periods[0].hours: ['8', '25'] must be a pair of hours, such as [10, 15]"),
        *(({"periods": [{"ratio": "1"}, {"ratio": "2", "hours": [pair]}]},
           f"tariff.periods[1].hours: {pair!r} is no time: the end is not included, and a whole day is [0, 24]")
          for pair in ([22, 22], [24, 24], [24, 0])),
        ({"periods": [{"ratio": "1", "months": ["13"]}]},
         "tariff.periods[0].months[0]: '13' must be a number from 1 to 12 (month of the year)"),
        ({"periods": [{"ratio": "1", "hours": [["8", "9"]]}]},
         "tariff.periods: no period prices 2026-03-29T00:00+01:00: give one for every hour and month"),
        ({"summer": "1"}, "tariff.summer: is no field of a tariff calendar"),
    ],
)  # fmt: skip
def test_a_bad_calendar_is_refused_by_field(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(CostSheetError) as refused:
        parse_cost_sheet({**SHEET, "tariff": {**CALENDAR, **changed}})
    assert [message.replace("a whole number", "a number") for message in refused.value.messages] == [says]
