"""Cost sheets: every bad field gets its own message, and what is shown adds up."""

from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.tco import CostSheetError, cost_of_gpu_hour, parse_cost_sheet
from tests.golden.registry import SHEET


def problems(**changed: str | None) -> list[str]:
    fields = {key: value for key, value in {**SHEET, **changed}.items() if value is not None}
    with pytest.raises(CostSheetError) as caught:
        parse_cost_sheet(fields)
    return caught.value.messages


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("gpu_power_kw", "700", "700 W is 0.7"),
        ("server_other_power_kw", "4600", "4600 W is 4.6"),
        ("markup", "20", "10 % is 0.10"),
        ("pue", "0.9", "from 1 to 5"),
        ("life_years", "0", "above 0"),
        ("gpus_per_server", "2.5", "whole number"),
        ("gpu_price", "-1", "from 0"),
        ("gpu_price", "abc", "from 0"),
        ("gpu_price", "NaN", "from 0"),
        ("labour_per_month", None, "is missing"),
        ("accelerator", None, "is missing"),
        ("colour", "red", "is no field"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_range(field: str, value: str | None, says: str) -> None:
    (message,) = problems(**{field: value})
    assert message.startswith(f"{field}:")
    assert says in message
    assert value is None or field == "colour" or repr(value) in message


FULL = {
    "residual_ratio": "0.10", "cost_of_capital": "0.08", "maintenance_ratio_per_year": "0.04", "installed_gpus": "1024",
    "spare_gpus": "32", "availability": "0.98", "sold_share": "0.70", "demand_charge_per_kw_month": "40",
    "fabric_price": "25000000", "fabric_gpus": "1024", "scratch_tb_per_gpu": "2", "storage_price_per_tb_month": "300",
    "reserve_ratio": "0.05",
}  # fmt: skip


def test_the_complete_part_adds_components_that_add_up() -> None:
    cost = cost_of_gpu_hour(parse_cost_sheet({**SHEET, **FULL}))
    assert [part.name for part in cost.components] == [
        "capital", "power", "maintenance", "hosting", "operations", "demand_charge", "fabric", "scratch", "spares",
        "unsold", "reserve",
    ]  # fmt: skip
    assert sum(part.cost_per_gpu_hour for part in cost.components) == cost.cost
    assert sum(part.share_of(cost.cost) for part in cost.components) == 1
    known = SHEET.keys() | FULL.keys()
    assert all(known >= set(part.inputs) for part in cost.components)
    shown = cost.as_dict()
    assert sum(Decimal(part["cost_per_gpu_hour"]) for part in shown["components"]) == Decimal(shown["cost_per_gpu_hour"])


def test_the_reserve_is_a_share_of_everything_else() -> None:
    plain, reserved = (cost_of_gpu_hour(parse_cost_sheet({**SHEET, **more})) for more in ({}, {"reserve_ratio": "0.05"}))
    assert reserved.cost == plain.cost * Fraction("1.05")


def test_without_cost_of_capital_it_is_called_hardware() -> None:
    for more in ({}, {"cost_of_capital": "0"}, {"residual_ratio": "0.1"}):
        assert cost_of_gpu_hour(parse_cost_sheet({**SHEET, **more})).components[0].name == "hardware"


def test_half_years_of_life_have_an_annuity_too() -> None:
    costs = [
        cost_of_gpu_hour(parse_cost_sheet({**SHEET, "cost_of_capital": "0.08", "life_years": years})).cost
        for years in ("5", "5.5", "6")
    ]
    assert costs[0] > costs[1] > costs[2]


def test_metered_energy_takes_the_place_of_the_nameplate() -> None:
    cost = cost_of_gpu_hour(parse_cost_sheet({**SHEET, "metered_kwh_per_gpu_hour": "1"}))
    power = next(part for part in cost.components if part.name == "power")
    assert power.cost_per_gpu_hour == Fraction("1.3") * Fraction("0.8")
    assert cost.facility_kw == Decimal("1.300000")
    assert power.inputs[0] == "metered_kwh_per_gpu_hour"


@pytest.mark.parametrize(
    "tariff",
    [
        "0.65", [Decimal("0.26"), "1.04"], {"hourly": ["0.26", "1.04"], "load_kwh": [1, 1]},
        [{"name": "peak", "price_per_kwh": "1.04", "hours": 8}, {"price_per_kwh": "0.26", "hours": 8}],
        {"peak": {"ratio": "1.3", "kwh": 1}, "valley": {"ratio": "0.325", "kwh": 1}},
        {"periods": {"peak": {"price_per_kwh": "0.65", "hours": 24}}},
    ],
)  # fmt: skip
def test_a_tariff_may_be_flat_hourly_or_by_named_periods(tariff: object) -> None:
    assert parse_cost_sheet({**SHEET, "tariff": tariff}).tariff.price_per_kwh == Fraction("0.65")


def test_a_tariff_with_prices_needs_no_flat_price() -> None:
    fields = {key: value for key, value in SHEET.items() if key != "electricity_price_per_kwh"}
    assert parse_cost_sheet({**fields, "tariff": ["0.5"]}).tariff.price_per_kwh == Fraction(1, 2)


@pytest.mark.parametrize(
    ("changed", "field", "says"),
    [
        ({"life_years": "60"}, "life_years", "60 months are 5"),
        ({"electricity_price_per_kwh": "650"}, "electricity_price_per_kwh", "650 per MWh is 0.65"),
        ({"currency": "yuan"}, "currency", "three capital letters"),
        ({"gpus_per_rack": "2"}, "gpus_per_rack", "counts GPUs, not servers"),
        ({"cluster_gpus": "4"}, "cluster_gpus", "counts GPUs, not servers"),
        ({"residual_ratio": "10"}, "residual_ratio", "10 % is 0.10"),
        ({"cost_of_capital": "8"}, "cost_of_capital", "8 % is 0.08"),
        ({"availability": "98"}, "availability", "98 % is 0.98"),
        ({"sold_share": "0"}, "sold_share", "above 0"),
        ({"metered_kwh_per_gpu_hour": "1275"}, "metered_kwh_per_gpu_hour", "1275 Wh are 1.275"),
        ({"spare_gpus": "32"}, "installed_gpus", "is missing, but spare_gpus is given"),
        ({"spare_gpus": "32", "installed_gpus": "32"}, "spare_gpus", "must be below installed_gpus 32"),
        ({"fabric_price": "1"}, "fabric_gpus", "is missing, but fabric_price is given"),
        ({"fabric_gpus": "1"}, "fabric_price", "is missing, but fabric_gpus is given"),
        ({"scratch_tb_per_gpu": "1"}, "storage_price_per_tb_month", "is missing"),
        ({"gpu_power": "0.7"}, "gpu_power", "did you mean gpu_power_kw?"),
        ({"pue": "1e999999999"}, "pue", "from 1 to 5"),
        ({"pue": "1.3 "}, "", ""),
        ({"pue": 1.3}, "pue", "from 1 to 5"),
        ({"pue": ["1.3"]}, "pue", "from 1 to 5"),
        ({"pue": "１.３"}, "pue", "from 1 to 5"),
        ({"gpu_price": "200,000"}, "gpu_price", "from 0"),
        ({"tariff": "abc"}, "tariff", "must be a price, a list of hourly prices"),
        ({"tariff": []}, "tariff.hourly", "is an empty list"),
        ({"tariff": {}}, "tariff", "sum above 0"),
        ({"tariff": {"peak": {"hours": 8}}}, "tariff.peak.price_per_kwh", "give either"),
        ({"tariff": {"peak": {"hours": 8, "ratio": 1, "price_per_kwh": 1}}}, "tariff.peak.price_per_kwh", "give either"),
        ({"tariff": {"peak": {"price_per_kwh": 1}}}, "tariff.peak.hours", "give either hours or kwh"),
        ({"tariff": {"a": {"price_per_kwh": 1, "kwh": 1}, "b": {"ratio": 1, "hours": 1}}}, "tariff", "by the same"),
        ({"tariff": {"hourly": [1, 2], "load_kwh": [1]}}, "tariff.load_kwh", "has 1 hours, hourly has 2"),
        ({"tariff": [1, "x"]}, "tariff.hourly[1]", "must be a number"),
        ({"tariff": [-3, 1]}, "tariff", "the mean price must not be below 0"),
        ({"tariff": [650, 650]}, "tariff", "650 per MWh is 0.65"),
    ],
)  # fmt: skip
def test_unit_traps_and_contradictions_are_named(changed: dict[str, str], field: str, says: str) -> None:
    if not field:
        assert parse_cost_sheet({**SHEET, **changed})
        return
    (message,) = problems(**changed)
    assert message.startswith(f"{field}: ")
    assert says in message


@pytest.mark.parametrize("given", [None, [], "text", 5])
def test_what_is_no_mapping_is_no_sheet(given: object) -> None:
    with pytest.raises(CostSheetError, match="must be a mapping"):
        parse_cost_sheet(given)


def test_an_empty_sheet_names_every_required_field() -> None:
    with pytest.raises(CostSheetError) as caught:
        parse_cost_sheet({})
    assert {message.split(":")[0] for message in caught.value.messages} == SHEET.keys() - {"hours_per_month"}
