"""What a sheet reports beyond its price: bars that add up, swings that are real prices, recovery at the break-even."""

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.cost_sheet import COMPLETE, SIMPLE, CostSheetError
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from pricing.training_plan import TrainingPlanError, parse_training_plan
from pricing.what_if import (
    WhatIfError,
    at_sold_share,
    break_even,
    chart_data,
    compared,
    exact_price,
    sensitivity,
    simple_sheet,
    waterfall,
)
from tests.golden.registry import SHEET

FULL = {
    **SHEET, "residual_ratio": "0.10", "cost_of_capital": "0.08", "maintenance_ratio_per_year": "0.04",
    "installed_gpus": "1024", "spare_gpus": "32", "availability": "0.98", "sold_share": "0.70",
    "demand_charge_per_kw_month": "40", "fabric_price": "25000000", "fabric_gpus": "1024", "scratch_tb_per_gpu": "2",
    "storage_price_per_tb_month": "300", "reserve_ratio": "0.05",
}  # fmt: skip
shares = st.fractions(Fraction(1, 100), 1)
OTHERWISE = {
    **{name: value for name, value in FULL.items() if name != "markup"}, "margin": "0.20", "rack_power_kw": "40",
    "cluster_capital": "270000000", "licence_per_gpu_month": "365", "metered_kwh_per_gpu_hour": "1.1",
    "capital_method": "mean-book-value",
}  # fmt: skip
"""The other way of saying what FULL says, where there is one."""

BY_SHARE = {**FULL, "operations_share": "0.30", "pool_gpus": "512"}
DEARER = {"sold_share": -1, "availability": -1, "life_years": -1, "residual_ratio": -1, "installed_gpus": -1}
CHEAPER_WITH_MORE = ("gpus_per_server", "gpus_per_rack", "cluster_gpus", "hours_per_month", "fabric_gpus", *DEARER)
CHEAPER_OTHERWISE = ("rack_power_kw", "cluster_capital", "pool_gpus")


@pytest.mark.parametrize("fields", [SHEET, FULL, OTHERWISE, BY_SHARE], ids=["simple", "complete", "otherwise", "by share"])
def test_the_bars_stand_on_each_other_and_end_at_the_price(fields: dict[str, str]) -> None:
    sheet = parse_cost_sheet(fields)
    bars = waterfall(cost_of_gpu_hour(sheet))
    assert bars[0].start == 0
    assert all(one.start + one.amount == other.start for one, other in pairwise(bars))
    assert bars[-1].name == "markup"
    assert bars[-1].start + bars[-1].amount == exact_price(sheet)


def test_every_input_moves_the_price_in_the_direction_it_must() -> None:
    seen = set()
    for fields in (FULL, OTHERWISE, BY_SHARE):
        for swing in sensitivity(parse_cost_sheet(fields)):
            if not swing.width:  # said in another way in this sheet
                continue
            seen.add(swing.field)
            rises = swing.price_at_high - swing.price_at_low
            falls = swing.field in (*CHEAPER_WITH_MORE, *CHEAPER_OTHERWISE)
            assert rises < 0 if falls else rises > 0, swing.field
    assert seen == set(SIMPLE) | set(COMPLETE)


def test_the_widest_swing_comes_first_and_is_the_price_of_that_sheet() -> None:
    swings = sensitivity(parse_cost_sheet(SHEET))
    assert [swing.width for swing in swings] == sorted((swing.width for swing in swings), reverse=True)
    dear = next(swing for swing in swings if swing.field == "gpu_price")
    # 200 000 -> 220 000: depreciation + 20 000 / (5 x 8760), markup 20 %
    assert dear.high == 220_000
    assert dear.price_at_high - exact_price(parse_cost_sheet(SHEET)) == Fraction(20_000, 5 * 8760) * Fraction(6, 5)
    assert dear.price_at_high == exact_price(parse_cost_sheet({**SHEET, "gpu_price": "220000"}))


def test_an_input_stays_in_its_range() -> None:
    swings = {swing.field: swing for swing in sensitivity(parse_cost_sheet({**FULL, "pue": "1.02", "spare_gpus": "1023"}))}
    assert (swings["pue"].low, swings["availability"].high) == (1, 1)
    assert swings["spare_gpus"].high == 1023
    assert swings["installed_gpus"].low == 1024
    assert (swings["gpus_per_server"].low, swings["gpus_per_server"].high) == (7, 9)


@given(shares)
def test_a_price_made_at_a_sold_share_breaks_even_there(share: Fraction) -> None:
    sheet = at_sold_share(parse_cost_sheet(FULL), share)
    assert break_even(sheet, cost_of_gpu_hour(sheet).cost) == share


@given(shares, st.integers(1, 10**7))
def test_price_times_sold_hours_is_cost_with_markup(share: Fraction, installed_hours: int) -> None:
    """Fixed cost is paid for every installed hour, energy for the sold ones; the income is that with the markup."""
    simple = parse_cost_sheet(SHEET)
    energy = next(part for part in cost_of_gpu_hour(simple).components if part.name == "power").cost_per_gpu_hour
    fixed = cost_of_gpu_hour(simple).cost - energy
    sold = share * installed_hours
    income = exact_price(at_sold_share(simple, share)) * sold
    assert income == (fixed * installed_hours + energy * sold) * (1 + simple["markup"])


@given(shares, st.sampled_from(["0.5", "0.98", "1"]), st.integers(1, 10**7))
def test_the_complete_price_recovers_every_installed_hour_with_markup_and_reserve(
    share: Fraction, available: str, sellable_hours: int
) -> None:
    """What is bought for the cards that are sold and spare comes back from the hours that were both available and sold."""
    sheet = at_sold_share(parse_cost_sheet({**FULL, "availability": available}), share)
    parts = {part.name: part.cost_per_gpu_hour for part in cost_of_gpu_hour(sheet).components}
    energy, reserve = parts.pop("power"), parts.pop("reserve")
    installed = sum(amount for name, amount in parts.items() if name not in ("spares", "unsold"))
    per_card = installed * Fraction(1024, 1024 - 32)
    sold = sheet["availability"] * share * sellable_hours
    cost = (per_card * sellable_hours + energy * sold) * (1 + sheet["reserve_ratio"])
    assert reserve == (sum(parts.values()) + energy) * sheet["reserve_ratio"]
    assert exact_price(sheet) * sold == cost * (1 + sheet["markup"])


def test_a_fifth_of_markup_breaks_even_at_five_sixths_without_energy() -> None:
    sheet = parse_cost_sheet({**SHEET, "electricity_price_per_kwh": "0"})
    assert break_even(sheet, exact_price(sheet)) == Fraction(5, 6)
    assert break_even(parse_cost_sheet(SHEET), Fraction("1.326")) is None


def test_the_simple_model_of_a_complete_sheet_is_that_of_the_source() -> None:
    assert cost_of_gpu_hour(simple_sheet(parse_cost_sheet(FULL))) == cost_of_gpu_hour(parse_cost_sheet(SHEET))
    reported = chart_data(parse_cost_sheet(FULL))["models"]["simple"]
    assert reported == {"cost_per_gpu_hour": "9.655097103311", "price_per_gpu_hour": "11.5861"}


def test_a_comparison_adds_up_to_the_difference_of_the_costs() -> None:
    old, new = (cost_of_gpu_hour(parse_cost_sheet(fields)) for fields in (SHEET, FULL))
    rows = compared(old, new)
    assert sum(row.difference for row in rows) == new.cost - old.cost
    assert {row.name for row in rows if row.old is None} >= {"capital", "unsold", "reserve"}
    assert [row.name for row in rows if row.new is None] == ["hardware"]


@pytest.mark.parametrize("share", [Fraction(0), Fraction(65), Fraction(-1, 2)])
def test_a_sold_share_in_percent_is_refused(share: Fraction) -> None:
    with pytest.raises(WhatIfError, match=r"must be above 0 and at most 1: 65 % is 0\.65"):
        at_sold_share(parse_cost_sheet(SHEET), share)


@given(st.sampled_from(["gpu_power_kw", "server_other_power_kw"]), st.decimals("210", "99999", places=1))
def test_watts_are_refused_where_kilowatts_belong(field: str, watts: Decimal) -> None:
    with pytest.raises(CostSheetError, match=rf"{field}: {watts} must be a number from 0 to .*kW of .* W is "):
        parse_cost_sheet({**SHEET, field: watts})


@given(
    st.sampled_from(
        ["availability", "sold_share", "residual_ratio", "cost_of_capital", "markup", "reserve_ratio",
         "maintenance_ratio_per_year"]
    ),
    st.integers(3, 100),
)
def test_percents_are_refused_where_ratios_belong(field: str, percent: int) -> None:
    with pytest.raises(CostSheetError, match=rf"{field}: {percent} must be a number .*% is 0\."):
        parse_cost_sheet({**SHEET, field: percent})


@given(st.sampled_from(["mfu", "mfu_low", "mfu_high", "goodput"]), st.integers(2, 100))
def test_percents_are_refused_where_a_plan_wants_ratios(field: str, percent: int) -> None:
    with pytest.raises(TrainingPlanError, match=rf"{field}: {percent} must be a number above 0 .*\(ratio"):
        parse_training_plan({field: percent})


@given(st.fractions(1, 100))
def test_an_mfu_of_one_or_more_is_refused(mfu: Fraction) -> None:
    with pytest.raises(TrainingPlanError, match=r"mfu: .* must be a number above 0 to below 1"):
        parse_training_plan({"mfu": mfu})


def test_one_missing_one_contradictory_and_one_absurd_input_get_a_message_each() -> None:
    fields: dict[str, object] = {**SHEET, "installed_gpus": "32", "spare_gpus": "40", "gpu_power_kw": 700}
    del fields["gpu_price"]
    with pytest.raises(CostSheetError) as refused:
        parse_cost_sheet(fields)
    assert refused.value.messages == [
        "gpu_price: is missing, must be a number from 0 to 1e9 (currency per GPU)",
        "gpu_power_kw: 700 must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7",
        "spare_gpus: 40 must be below installed_gpus 32",
    ]
