"""What the browser gets to draw: exact decimals written out, a text for every value."""

import json
from datetime import date
from decimal import Decimal
from fractions import Fraction

from billing.budgets.models import BudgetStatus
from billing.portal.bridge import Bridge, Effect
from billing.portal.charts import (
    bridge_chart,
    course_chart,
    day_rows,
    days_chart,
    pools_chart,
    tornado_chart,
    trend_chart,
    waterfall_chart,
)
from billing.portal.selectors import TrendPoint

D = Decimal


def test_a_bridge_hangs_every_effect_where_the_one_before_ended() -> None:
    bridge = Bridge(D("100.00"), D("130.00"), [Effect("price", D("-20.00")), Effect("usage", D("50.00"))], [])
    shown = json.loads(bridge_chart(bridge, "CNY").json)
    (series,) = shown["series"]
    assert series["values"] == [["0", "100.00"], ["100.00", "80.00"], ["80.00", "130.00"], ["0", "130.00"]]
    assert series["texts"] == ["100.00", "−20.00", "+50.00", "130.00"]
    assert series["colours"] == ["gpu", "jade", "unowned", "gpu"]
    assert (shown["axis"], shown["across"], shown["written"]) == ("CNY", "Effect", True)


def test_a_waterfall_ends_with_the_price_that_its_parts_add_up_to() -> None:
    steps = [("hardware", (Fraction(0), Fraction(6)), "6.0000"), ("markup", (Fraction(6), Fraction(15, 2)), "1.5000")]
    shown = json.loads(waterfall_chart(steps, D("7.5000"), "CNY").json)
    (series,) = shown["series"]
    assert series["values"] == [["0.0000", "6.0000"], ["6.0000", "7.5000"], ["0", "7.5000"]]
    assert (series["texts"][-1], shown["labels"][-1], shown["written"]) == ("7.5000", "Price", True)
    assert (shown["axis"], shown["across"]) == ("CNY per GPU-hour", "Component")


def test_what_moves_a_price_has_the_words_of_its_inputs() -> None:
    swings = [("life_years", (Fraction(8), Fraction(10)), "8.0000 – 10.0000")]
    shown = json.loads(tornado_chart(swings, Fraction(9), "CNY").json)
    assert (shown["labels"], shown["axis"], shown["across"]) == (["Years of use"], "CNY per GPU-hour", "Input")


def test_every_chart_says_what_both_of_its_axes_are() -> None:
    day, pool = date(2026, 11, 1), {"accelerator": "A", "cluster": "c", "charged": 7200}
    charts = [
        trend_chart([TrendPoint("2026-09", D("1.00"))], "2026-09", "CNY"),
        days_chart([(day, D("2"), D("20.00"))], "GPU-hours", "CNY", "gpu"), pools_chart([pool], ("charged",)),
        course_chart(BudgetStatus(amount=D("5.00"), spent=D("3.00")), [], day, 2, Fraction(1), "CNY"),
    ]  # fmt: skip
    shown = [json.loads(chart.json) for chart in charts]
    assert [(one["across"], one["axis"]) for one in shown] == [
        ("Month", "CNY"), ("Day", "GPU-hours"), ("Pool", "GPU-h"), ("Day", "CNY"),
    ]  # fmt: skip


def test_a_day_without_use_has_its_place_between_the_others() -> None:
    days = [(date(2026, 10, 7), D("2"), D("20.00")), (date(2026, 10, 9), D("1"), D("10.00"))]
    shown = json.loads(days_chart(days, "GPU-hours", "CNY", "gpu").json)
    assert shown["labels"] == ["2026-10-07", "2026-10-08", "2026-10-09"]
    assert shown["series"][0]["values"] == ["2", None, "1"]
    assert json.loads(days_chart([], "GPU-hours", "CNY", "gpu").json)["labels"] == []


def test_the_course_of_a_budget_ends_where_the_forecast_says() -> None:
    standing = BudgetStatus(
        amount=D("500.00"), spent=D("35.00"), forecast_p10=D("90.00"), forecast_p50=D("100.00"), forecast_p90=D("120.00")
    )
    first = date(2026, 11, 1)
    rows = day_rows([(first, D("10.00")), (date(2026, 11, 3), D("20.00"))], first, 3)
    assert [row.total for row in rows] == [D("10.00"), D("10.00"), D("30.00")]
    shown = json.loads(course_chart(standing, rows, first, 5, Fraction(7, 2), "CNY").json)
    values = {(series["kind"], series["name"]): series["values"] for series in shown["series"]}
    assert (shown["labels"][0], shown["labels"][-1]) == ("2026-11-01", "2026-11-05")
    assert list(values.values()) == [
        ["10.00", "10.00", "30.00", "35.00", None],
        ["500.00"] * 5,
        [None, None, None, "35.00", "100.00"],
        [None, None, None, "35.00", "90.00"],
        [None, None, None, "35.00", "120.00"],
    ]
    assert [kind for kind, _name in values] == ["line", "limit", "dashed", "edge", "band"]


def test_a_period_that_is_over_ends_with_what_was_spent() -> None:
    standing = BudgetStatus(amount=D("5.00"), spent=D("3.00"))
    first = date(2026, 11, 1)
    rows = day_rows([(first, D("1.00"))], first, 2)
    shown = json.loads(course_chart(standing, rows, first, 2, Fraction(2), "CNY").json)
    assert [series["values"] for series in shown["series"]] == [["1.00", "3.00"], ["5.00", "5.00"]]


def test_a_month_leads_to_its_page_and_an_unknown_part_of_a_pool_is_not_zero() -> None:
    trend = trend_chart([TrendPoint("2026-09", D("1234.50")), TrendPoint("2026-10", D("7"))], "2026-10", "CNY")
    assert (trend.links, trend.series[0].texts) == (["?month=2026-09", "?month=2026-10"], ["1,234.50", "7.00"])
    pool = {"accelerator": "A", "cluster": "c", "charged": 7200, "idle": None}
    assert [series.values for series in pools_chart([pool], ("charged", "idle")).series] == [[D(2)], [None]]
