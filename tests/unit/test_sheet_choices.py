"""Cost sheets that say something in another way, or more: each by numbers worked out by hand."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing.fields import InputError
from pricing.tco import GpuHourCost, cost_of_gpu_hour, parse_cost_sheet
from pricing.what_if import break_even, exact_price, simple_sheet
from tests.golden.registry import SHEET

COUNTED = {"gpu_hours": 32, "devices_mj": [[0, 9_072_000_000]] * 8, "host_kwh": "18.4"}
"""8 devices of 2.52 kWh each and 18.4 kWh of hosts: 38.56 kWh over 32 GPU-hours, 1.205 each."""


def sheet(**changed: Any) -> dict[str, Any]:
    return {name: value for name, value in {**SHEET, **changed}.items() if value is not None}


def cost(**changed: Any) -> GpuHourCost:
    return cost_of_gpu_hour(parse_cost_sheet(sheet(**changed)))


def part(found: GpuHourCost, name: str) -> Fraction:
    return next(one.cost_per_gpu_hour for one in found.components if one.name == name)


def problems(**changed: Any) -> list[str]:
    with pytest.raises(InputError) as refused:
        parse_cost_sheet(sheet(**changed))
    return refused.value.messages


def test_operations_go_by_capital() -> None:
    """700,000 a month; the card is 270,000 of a cluster of 800 x 270,000 + 224 x 60,000 = 229,440,000; 720 hours."""
    found = cost(cluster_capital="229440000")
    assert part(found, "operations") == Fraction(700_000 * 270_000, 229_440_000 * 720) == Fraction(4375, 3824)
    inputs = next(one.inputs for one in found.components if one.name == "operations")
    assert "cluster_capital" in inputs
    assert "cluster_gpus" not in inputs


def test_operations_go_by_share_of_the_kind() -> None:
    """30 % of 700,000 over 200 cards and 720 hours."""
    assert part(cost(operations_share="0.30", pool_gpus="200"), "operations") == Fraction(210_000, 200 * 720)


def test_a_licence_per_gpu_is_a_component_of_its_own() -> None:
    found = cost(licence_per_gpu_month="360")
    assert part(found, "licences") == Fraction(1, 2)
    assert found.cost == cost().cost + Fraction(1, 2)


def test_a_mixed_rack_is_shared_by_power() -> None:
    """1.275 of 25.5 kW is a twentieth of 14,000 a month, over 720 hours."""
    assert part(cost(rack_power_kw="25.5"), "hosting") == Fraction(700, 720)


def test_a_rent_that_includes_power_leaves_power_out() -> None:
    found = cost(rent_includes_power="true", electricity_price_per_kwh=None)
    assert part(found, "power") == 0
    assert found.cost == cost().cost - Fraction("1.326")
    assert found.facility_kw == Decimal("1.657500")
    plain = simple_sheet(parse_cost_sheet(sheet(rent_includes_power=True, electricity_price_per_kwh=None)))
    assert cost_of_gpu_hour(plain).cost == found.cost


def test_interest_may_go_by_the_mean_book_value() -> None:
    """(270,000 x 0.9 / 5 + 8 % of (270,000 + 27,000) / 2) / 8760 = (48,600 + 11,880) / 8760."""
    found = cost(cost_of_capital="0.08", residual_ratio="0.10", capital_method="mean-book-value")
    assert part(found, "capital") == Fraction(60_480, 8760) == Fraction(504, 73)


def test_a_margin_is_a_share_of_the_price() -> None:
    found = cost(markup=None, margin="0.20")
    assert found.markup == Fraction(1, 4)
    assert found.cost == (1 - Fraction("0.20")) * exact_price(parse_cost_sheet(sheet(markup=None, margin="0.20")))


def test_counted_energy_takes_the_place_of_the_nameplate() -> None:
    found = cost(metered_energy=COUNTED)
    assert part(found, "power") == Fraction("1.205") * Fraction("1.3") * Fraction("0.8")
    assert found.facility_kw == Decimal("1.566500")
    assert [one.name for one in found.components] == ["hardware", "power", "hosting", "operations"]


def test_a_counter_that_began_anew_counts_its_end() -> None:
    """1 kWh up to the reload of the driver and 2 kWh after it."""
    readings = [0, 3_600_000_000, 0, 7_200_000_000]
    found = cost(metered_energy={"gpu_hours": "3", "devices_mj": [readings]})
    assert part(found, "power") == 1 * Fraction("1.3") * Fraction("0.8")


def test_what_the_building_counted_beyond_is_shared() -> None:
    """41.76 kWh at the PDU are 3.2 more than 38.56: a tenth of a kWh per GPU-hour, x 1.3 x 0.8."""
    fields = sheet(metered_energy={**COUNTED, "pdu_kwh": "41.76"})
    found = cost_of_gpu_hour(parse_cost_sheet(fields))
    assert part(found, "energy_gap") == Fraction("0.104")
    assert found.variable_cost == part(found, "power") + Fraction("0.104")
    assert break_even(parse_cost_sheet({**fields, "markup": "0"}), found.cost) == 1


def test_the_list_is_in_its_own_currency_at_the_rate_of_a_day() -> None:
    """9.655097103311 x 1.2 = 11.586116523973; + 0.50 of last year = 12.086116...; x 7.1234 = 86.0942; tiers of that."""
    found = cost(
        currency="USD", list_currency="CNY", exchange_rate="7.1234", rate_date="2026-10-01", actual_cost="10000000",
        recovered="9400000", planned_gpu_hours="1200000", reserved_ratio="0.80", preemptible_ratio="0.05",
    )  # fmt: skip
    assert found.as_dict()["list_prices"] == {
        "currency": "CNY", "exchange_rate": "7.12340000", "rate_date": "2026-10-01",
        "true_up_per_gpu_hour": "0.500000000000", "on_demand": "86.0942", "reserved": "68.8754", "preemptible": "9.4456",
    }  # fmt: skip
    assert (found.list_price, found.list_currency, found.price) == (Decimal("86.0942"), "CNY", Decimal("11.5861"))


def test_the_price_of_the_sheet_follows_from_that_of_the_list() -> None:
    listing = cost(currency="USD", list_currency="CNY", exchange_rate="8", rate_date="2026-10-01").listing
    assert listing.price_of_sheet(Fraction(80)) == 10
    trued = cost(actual_cost="100", recovered="40", planned_gpu_hours="30").listing
    assert trued.price_of_sheet(Fraction(12)) == 10


def test_a_used_hour_shows_its_energy_and_its_carbon() -> None:
    """1.6575 kWh x 0.5306 = 0.8794695 kg; 2,190 kg over 43,800 hours are 0.05."""
    found = cost(carbon_kg_per_kwh="0.5306", carbon_market_kg_per_kwh="0.6096", embodied_kg_per_gpu="2190")
    assert found.as_dict()["footprint"] == {
        "kwh": "1.657500000000", "kg_operational": "0.879469500000", "kg_operational_market": "1.010412000000",
        "kg_embodied": "0.050000000000", "kg_co2": "0.929469500000",
    }  # fmt: skip
    assert found.cost == cost().cost
    assert "footprint" not in cost().as_dict()


def test_a_region_and_a_year_give_the_official_factor() -> None:
    region = {"carbon_region": "CN-East", "carbon_year": "2023"}
    assert cost(**region).footprint["kg_operational"] == Fraction("1.6575") * Fraction("0.55")
    lifecycle = {"carbon_region": "CN", "carbon_year": 2024, "carbon_basis": "lifecycle"}
    assert cost(**lifecycle).footprint["kg_operational"] == Fraction("1.6575") * Fraction("0.5575")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"carbon_region": "CN", "carbon_year": "2021"},
         "carbon_region: no official average carbon factor of 'CN' for 2021, known are CN 2022, CN 2023, CN-Central 2023, "
         "CN-East 2023, CN-North 2023, CN-Northeast 2023, CN-Northwest 2023, CN-South 2023, CN-Southwest 2023"),
        ({"carbon_year": "2023"}, "carbon_region: is missing, but carbon_year is given"),
        ({"carbon_region": "CN"}, "carbon_year: is missing, must be a whole number from 2000 to 2199 (year)"),
        ({"carbon_region": "CN", "carbon_year": "2023", "carbon_kg_per_kwh": "0.5"},
         "carbon_kg_per_kwh: '0.5' is given beside carbon_region: give one of them"),
        ({"margin": "0.2"}, "margin: '0.2' is given beside markup: give one of them"),
        ({"markup": None, "margin": "20"},
         "margin: '20' must be a number from 0 to below 1 (ratio of the price, in place of markup): 20 % is 0.20"),
        ({"markup": None}, "markup: is missing, must be a number from 0 to 2 (ratio on cost): 10 % is 0.10"),
        ({"operations_share": "0.3"}, "pool_gpus: is missing, but operations_share is given"),
        ({"operations_share": "0.3", "pool_gpus": "2000"}, "pool_gpus: 2000 must be at most cluster_gpus 1024"),
        ({"operations_share": "30", "pool_gpus": "200"},
         "operations_share: '30' must be a number from 0 to 1 (ratio of labour and software): 30 % is 0.30"),
        ({"cluster_capital": "1000"}, "cluster_capital: '1000' must be at least the 270000.00 of one GPU"),
        ({"cluster_capital": "1e9", "operations_share": "0.3", "pool_gpus": "200"},
         "cluster_capital: '1e9' is given beside operations_share: give one of them"),
        ({"rack_power_kw": "5"}, "rack_power_kw: '5' must be at least the 10.200 kW of one server"),
        ({"rack_power_kw": "40000"},
         "rack_power_kw: '40000' must be a number above 0 up to 1e4 (kW that the rack may draw): 40000 W are 40"),
        ({"rent_includes_power": "true"},
         "electricity_price_per_kwh: '0.8' must be left out: rent_includes_power, the rent pays it"),
        ({"rent_includes_power": "perhaps"}, "rent_includes_power: 'perhaps' must be true or false"),
        ({"capital_method": "annuity"}, "cost_of_capital: is missing, but capital_method is given"),
        ({"capital_method": "guess", "cost_of_capital": "0.08"},
         "capital_method: 'guess' must be annuity or mean-book-value"),
        ({"metered_energy": COUNTED, "metered_kwh_per_gpu_hour": "1"},
         f"metered_energy: {repr(COUNTED)[:59]}… is given beside metered_kwh_per_gpu_hour: give one of them"),
        ({"metered_energy": {"device_kwh": "20"}},
         "metered_energy.gpu_hours: is missing, must be a number above 0 up to 1e12 (GPU-hours that the energy was "
         "counted over)"),
        ({"metered_energy": {"gpu_hours": 32}}, "metered_energy.devices_mj: give exactly one of devices_mj, device_kwh"),
        ({"metered_energy": {"gpu_hours": 32, "devices_mj": [[0, -1]]}},
         "metered_energy.devices_mj[0][1]: -1 must be a whole number from 0 to 1e30 (mJ of one device since its driver was "
         "loaded)"),
        ({"metered_energy": {**COUNTED, "pdu_kwh": "30"}},
         "metered_energy.pdu_kwh: '30' must be at least the 38.56 kWh of devices and hosts"),
        ({"metered_energy": {**COUNTED, "gpu_hours": 1}},
         "metered_energy.gpu_hours: 38.56 kWh over 1 GPU-hours: each must be a number above 0 up to 20 (kWh per GPU-hour "
         "before PUE): 1275 Wh are 1.275"),
        ({"metered_energy": "1.2"}, "metered_energy: must be a mapping of the fields of metered energy, not '1.2'"),
        ({"exchange_rate": "7"}, "list_currency: is missing, but exchange_rate is given"),
        ({"list_currency": "CNY", "exchange_rate": "1", "rate_date": "2026-10-01"},
         "list_currency: 'CNY' must differ from currency: the sheet is in it already"),
        ({"list_currency": "USD", "exchange_rate": "7", "rate_date": "tomorrow"},
         "rate_date: 'tomorrow' must be a day such as 2026-10-01"),
        ({"actual_cost": "0", "recovered": "9e9", "planned_gpu_hours": "1"},
         "recovered: last year's surplus, spread over the planned GPU-hours, is more than the price"),
        ({"reserved_ratio": "80"},
         "reserved_ratio: '80' must be a number above 0 up to 1 (ratio of the on-demand price): 80 % is 0.80"),
        ({"carbon_kg_per_kwh": "530"},
         "carbon_kg_per_kwh: '530' must be a number from 0 to 3 (kg per kWh): 530 g are 0.530"),
    ],
)  # fmt: skip
def test_a_contradictory_or_absurd_field_is_named(changed: dict[str, Any], says: str) -> None:
    assert says in problems(**changed)
