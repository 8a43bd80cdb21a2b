"""Group B: cost of a GPU-hour."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pricing.energy import counted_millijoules, kwh_of
from pricing.listing import converted_list_price, true_up
from pricing.mig import slice_fraction, slice_list_price
from pricing.money import round_amount
from pricing.storage import parse_store_use
from pricing.tariff import demand_charge_per_gpu_hour
from pricing.tco import (
    annuity_per_year,
    capital_cost,
    capital_per_gpu,
    capital_recovery_factor,
    cost_of_gpu_hour,
    fabric_cost,
    facility_power_kw,
    fixed_components,
    hardware_cost,
    hosting_cost,
    maintenance_cost,
    operations_cost,
    power_cost,
    power_kw,
    scratch_cost,
    spares_uplift,
    straight_line,
)
from pricing.what_if import break_even, exact_price
from tests.golden.registry import case, sheet

RATIOS = {"peak": "1.6", "flat": "1", "valley": "0.4"}


@case("B01")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"capex_per_gpu": capital_per_gpu(sheet()), "c_hw": hardware_cost(sheet())}


@case("B03")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {f"c_hw_{years}y": hardware_cost(sheet(life_years=years)) for years in i["years"].split(",")}


@case("B07")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"kw_per_gpu": power_kw(sheet()), "c_power": power_cost(sheet())}


@case("B13")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {f"c_idc_{hours}h": hosting_cost(sheet(hours_per_month=hours)) for hours in ("720", "730", "672", "744")}


@case("B14")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"c_sw_om": operations_cost(sheet())}


@case("B15")
def _(i: dict[str, Any]) -> dict[str, object]:
    result = cost_of_gpu_hour(sheet())
    return {"cost": result.cost, "price": result.cost * Fraction("1.2"), "gpu_hour_list": result.price}


@case("B16")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost = Fraction(i["cost"])
    marked_up = cost * (1 + sheet(markup=i["rate"]).markup)
    return {
        "price_markup": marked_up, "price_margin": cost * (1 + sheet(markup=None, margin=i["rate"]).markup),
        "margin_implied_by_markup": (marked_up - cost) / marked_up,
    }  # fmt: skip


@case("B32")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"annual_cny": round_amount(int(i["gpus"]) * power_cost(sheet()) * int(i["hours"]))}


@case("B02")
def _(i: dict[str, Any]) -> dict[str, object]:
    undivided = capital_per_gpu(sheet(server_price=str(int(i["server_excl_gpu"]) * int(i["gpus_per_server"]))))
    literal = straight_line(undivided, Fraction(i["years"]))
    return {"c_hw_literal": literal, "overstatement_factor": literal / hardware_cost(sheet())}


@case("B04")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"c_hw": hardware_cost(sheet(residual_ratio=i["residual"]))}


@case("B05")
def _(i: dict[str, Any]) -> dict[str, object]:
    rate, years, residual = Fraction(i["rate"]), Fraction(i["years"]), Fraction(i["residual"])
    charged = capital_cost(sheet(cost_of_capital=i["rate"], residual_ratio=i["residual"]))
    return {
        "crf": capital_recovery_factor(rate, years), "c_cap": charged,
        "annuity_year": annuity_per_year(Fraction(i["capex"]), rate, years, residual),
        "financing_component": charged - straight_line(Fraction(i["capex"]), years, residual),
    }  # fmt: skip


@case("B06")
def _(i: dict[str, Any]) -> dict[str, object]:
    one = sheet(cost_of_capital=i["rate"], residual_ratio=i["residual"], capital_method="mean-book-value")
    assert capital_per_gpu(one) == int(i["capex"])
    return {"c_cap_simple": capital_cost(one)}


@case("B08")
def _(i: dict[str, Any]) -> dict[str, object]:
    """What the bounds of the sheet refuse (test_tco): a thousand times the cost."""
    kilo = {"gpu_power_kw": Fraction(i["gpu_w"]), "server_other_power_kw": Fraction(i["server_other_w"])}
    right = sheet()
    wrong = type(right)(right.accelerator, right.currency, {**right.numbers, **kilo}, right.tariff)
    return {"c_power_wrong": power_cost(wrong), "error_factor": power_cost(wrong) / power_cost(right)}


def _mean(base: str, periods: object) -> Fraction:
    return sheet(electricity_price_per_kwh=base, tariff=periods).tariff.price_per_kwh


def _day(unit: str, weights: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"ratio": RATIOS[name], unit: weight} for name, weight in weights.items()}


@case("B09")
@case("B12")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"avg_tariff": _mean(i["base_tariff"], _day("hours", i["hours"]))}


@case("B10")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"avg_tariff": _mean(i["base_tariff"], _day("kwh", i["kwh"]))}


@case("B11")
def _(i: dict[str, Any]) -> dict[str, object]:
    hours, uplift = Fraction(i["critical_hours"]), Fraction(i["critical_uplift"])
    day: dict[str, object] = {**_day("hours", dict.fromkeys(RATIOS, "8"))}
    day["peak"] = {"ratio": RATIOS["peak"], "hours": 8 - hours}
    day["critical"] = {"ratio": Fraction(RATIOS["peak"]) * (1 + uplift), "hours": hours}
    return {"avg_tariff": _mean(i["base_tariff"], day)}


@case("B17")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost = cost_of_gpu_hour(sheet(availability=i["availability"], sold_share=i["sold_share"])).cost
    fixed = cost_of_gpu_hour(sheet()).cost - power_cost(sheet())
    return {"fixed": fixed, "cost_recovering": cost}


@case("B18")
def _(i: dict[str, Any]) -> dict[str, object]:
    """Without energy: what only used hours cost is not spread over the others."""
    shares: dict[str, object] = {}
    for markup in i["markups"].split(","):
        one = sheet(electricity_price_per_kwh="0", markup=markup)
        shares[f"u_{int(Fraction(markup) * 100)}"] = break_even(one, exact_price(one))
    return {**shares, "recovery_at_u70_markup20": Fraction("0.70") * Fraction("1.20")}


@case("B19")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"uplift": spares_uplift(sheet(installed_gpus=i["installed"], spare_gpus=i["spares"]))}


@case("B20")
def _(i: dict[str, Any]) -> dict[str, object]:
    assert capital_per_gpu(sheet()) == int(i["capex"])
    return {"c_maint": maintenance_cost(sheet(maintenance_ratio_per_year=i["rate"]))}


@case("B21")
def _(i: dict[str, Any]) -> dict[str, object]:
    facility_kw = Fraction(i["kw_per_gpu"]) * Fraction(i["pue"])
    return {
        "c_demand": demand_charge_per_gpu_hour(facility_kw, Fraction(i["demand_charge_kw_month"]), Fraction(i["hours"]))
    }


@case("B22")
def _(i: dict[str, Any]) -> dict[str, object]:
    profiles = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    fractions = {f"{profile}_fraction": slice_fraction(profile) for profile in profiles}
    return fractions | {f"{profile}_list": slice_list_price(int(i["full_price"]), profile) for profile in profiles}


@case("B23")
def _(i: dict[str, Any]) -> dict[str, object]:
    price = slice_list_price(int(i["full_price"]), "1g.10gb")
    assert price == Decimal(i["list_1g_10gb"])
    return {"sum_at_list": price * int(i["count"]), "delta": price * int(i["count"]) - int(i["full_price"])}


@case("B24")
def _(i: dict[str, Any]) -> dict[str, object]:
    gpus, hours = int(i["gpus"]), Fraction(i["hours"])
    counted = {
        "gpu_hours": str(gpus * hours), "devices_mj": [["0", i["delta_mj_per_gpu"]]] * gpus,
        "host_kwh": str(Decimal(i["host_kw"]) * int(hours)),
    }  # fmt: skip
    one = sheet(metered_energy=counted, pue=i["pue"], electricity_price_per_kwh=i["tariff_per_kwh"])
    assert one.metered is not None
    return {
        "gpu_kwh": one.metered.device_kwh, "it_kwh": one.metered.per_gpu_hour * gpus * hours,
        "facility_kwh": facility_power_kw(one) * gpus * hours,
        "energy_amount": round_amount(power_cost(one) * gpus * hours),
        "nameplate_amount": round_amount(gpus * hours * power_cost(sheet())),
    }  # fmt: skip


@case("B25")
def _(i: dict[str, Any]) -> dict[str, object]:
    counted = counted_millijoules([int(reading) for reading in i["samples_mj"]])
    return {"delta_mj": counted, "kwh": kwh_of(counted)}


@case("B26")
def _(i: dict[str, Any]) -> dict[str, object]:
    price, rate, hours = Decimal(i["usd_price"]), Decimal(i["fx"]), int(i["gpu_hours"])
    listed = converted_list_price(price, rate)
    return {
        "unit_cny_list": listed, "amount_from_list_cny": round_amount(listed * hours),
        "amount_unrounded_cny": round_amount(price * rate * hours),
    }  # fmt: skip


@case("B27")
def _(i: dict[str, Any]) -> dict[str, object]:
    tiers = (("hot_low", "hot", 150), ("hot_high", "hot", 300), ("warm", "warm", 23), ("cold", "cold", 1))
    kept = [{"tier": name, "tb_months": i[f"{tier}_tb"], "price_per_tb_month": price} for name, tier, price in tiers]
    return {f"{name}_usd": amount for _, name, amount in parse_store_use({"storage": kept}).lines()}


@case("B28")
def _(i: dict[str, Any]) -> dict[str, object]:
    prices = {"get": "0.0004", "put": "0.005"}
    asked = [{"class": name, "count": i["requests"], "price_per_1000": price} for name, price in prices.items()]
    return {f"{name}_usd": amount for _, name, amount in parse_store_use({"requests": asked}).lines()}


@case("B29")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost, recovered = Decimal(i["actual_cost"]), Decimal(i["recovered"])
    return {
        "deficit_amount": round_amount(cost - recovered),
        "rate_adjustment": true_up(cost, recovered, int(i["planned_gpu_hours"])),
    }


@case("B30")
def _(i: dict[str, Any]) -> dict[str, object]:
    capital = str(sum(int(cards) * int(each) for _, cards, each in i["pools"]))
    (_, _, dear), (_, _, cheap) = i["pools"]
    bought = {"server_price": "0", "network_price_per_port": "0", "cluster_capital": capital}
    pools = {name: sheet(gpu_price=each, **bought) for name, each in (("pool_A", dear), ("pool_B", cheap))}
    return {"equal_per_card": operations_cost(sheet()), **{name: operations_cost(one) for name, one in pools.items()}}


@case("B31")
def _(i: dict[str, Any]) -> dict[str, object]:
    full = sheet(
        cost_of_capital="0.08", residual_ratio="0.10", maintenance_ratio_per_year="0.04", hours_per_month=i["idc_om_hours"],
        demand_charge_per_kw_month="40", installed_gpus="1024", spare_gpus="32", availability=i["availability"],
        sold_share=i["sold_share"], electricity_price_per_kwh="0.65", markup=i["markup"],
        tariff={
            "critical": {"ratio": "1.92", "hours": "3"}, "peak": {"ratio": "1.6", "hours": "5"},
            "flat": {"ratio": "1", "hours": "8"}, "valley": {"ratio": "0.4", "hours": "8"},
        },
    )  # fmt: skip
    result = cost_of_gpu_hour(full)
    energy = next(part.cost_per_gpu_hour for part in result.components if part.name == "power")
    return {
        "fixed_per_installed_hour": sum(part.cost_per_gpu_hour for part in fixed_components(full)),
        "fixed_per_sold_hour": result.cost - energy, "energy": energy, "cost": result.cost, "gpu_hour_list": result.price,
    }  # fmt: skip


@case("B33")
def _(i: dict[str, Any]) -> dict[str, object]:
    full = sheet(
        fabric_price=i["fabric_capex"], fabric_gpus=i["gpus"], life_years=i["years"], hours_per_month=i["hours"],
        scratch_tb_per_gpu=i["scratch_tb_per_gpu"], storage_price_per_tb_month=i["price_tb_month"],
    )  # fmt: skip
    return {"c_fabric": fabric_cost(full), "c_scratch": scratch_cost(full)}
