"""What the browser gets to draw: exact decimals written out, a text for every value."""

import json
from datetime import date
from decimal import Decimal
from fractions import Fraction

from billing.budgets.models import BudgetStatus
from billing.portal.bridge import Bridge, Effect
from billing.portal.charts import bridge_chart, course_chart, day_rows, pools_chart, trend_chart
from billing.portal.selectors import TrendPoint

D = Decimal


def test_a_bridge_hangs_every_effect_where_the_one_before_ended() -> None:
    bridge = Bridge(D("100.00"), D("130.00"), [Effect("price", D("-20.00")), Effect("usage", D("50.00"))], [])
    shown = json.loads(bridge_chart(bridge, "CNY").json)
    (series,) = shown["series"]
    assert series["values"] == [["0", "100.00"], ["100.00", "80.00"], ["80.00", "130.00"], ["0", "130.00"]]
    assert series["texts"] == ["100.00", "−20.00", "+50.00", "130.00"]
    assert series["colours"] == ["gpu", "jade", "unowned", "gpu"]


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
