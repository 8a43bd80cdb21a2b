"""Golden numbers of pricing: each case of `pricing_vectors.json` that a room of `pricing` covers is a test of its own.

Keys: `_amount` and `_total` have 2 decimals, `_list` 4, all others are exact or rounded to 12 decimals.
"""

import json
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from metering.intervals import Interval, billing_month
from pricing.efficiency import EfficiencyPolicy, hfu_with_full_recomputation, judge, mfu_of, weighted_mean
from pricing.money import Money, round_amount, round_price, round_to, split_amount
from pricing.rate_card import GpuPrice, PriceVersion, RateCard
from pricing.rating import GpuUsage, TokenSum, rate_gpu, rate_tokens
from pricing.tco import (
    CostSheet,
    capital_per_gpu,
    cost_of_gpu_hour,
    hardware_cost,
    hosting_cost,
    operations_cost,
    parse_cost_sheet,
    power_cost,
    power_kw,
    price_with_margin,
)
from pricing.token_price import (
    LatencyBounds,
    LoadPoint,
    cost_inside_price,
    cost_per_million,
    price_per_million,
    ratio_costs,
    sustainable_point,
    token_fee,
)

VECTORS = {v["id"]: v for v in json.loads((Path(__file__).parent / "pricing_vectors.json").read_text())["vectors"]}
Case = Callable[[dict[str, Any]], dict[str, object]]
CASES: dict[str, Case] = {}

SHEET = {
    "accelerator": "NVIDIA-H800", "currency": "CNY", "gpus_per_server": "8", "server_price": "400000",
    "gpu_price": "200000", "network_price_per_port": "20000", "ports_per_gpu": "1", "gpus_per_rack": "16",
    "cluster_gpus": "1024", "markup": "0.20", "life_years": "5", "gpu_power_kw": "0.7",
    "server_other_power_kw": "4.6", "pue": "1.3", "electricity_price_per_kwh": "0.8", "rack_rent_per_month": "12000",
    "bandwidth_per_month": "2000", "labour_per_month": "500000", "software_per_month": "200000",
    "hours_per_month": "720",
}  # fmt: skip
BANDS = EfficiencyPolicy(
    "bands-v1", datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")), Decimal("0.20"), Decimal("0.20"), Decimal("0.50"),
    Decimal("0.10"),
)  # fmt: skip


def case(identifier: str) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        CASES[identifier] = function
        return function

    return register


def sheet(**changed: str) -> CostSheet:
    return parse_cost_sheet({**SHEET, **changed})


def gpu_charges(prices: list[tuple[str, str]], spans: list[tuple[str, str]], gpus: int) -> Any:
    """Charges of one namespace whose spans are priced at (from, price); spans are cut at price changes."""
    starts = [datetime.fromisoformat(at) for at, _ in prices]
    versions = [
        PriceVersion(f"v{n}", starts[n], starts[n + 1] if n + 1 < len(prices) else None, (GpuPrice(Decimal(price), "X"),))
        for n, (_, price) in enumerate(prices)
    ]
    card = RateCard(versions)
    usages = []
    for lo, hi in spans:
        for piece in Interval(datetime.fromisoformat(lo), datetime.fromisoformat(hi)).cut(card.changes()):
            held = Decimal(gpus * piece.microseconds)
            usages.append(GpuUsage("t", False, "c", "n", "X", "r", piece.start, held, held, "2026-03"))
    return rate_gpu(usages, card).charges


def one_fee(price: str, gpus: int, seconds: int) -> tuple[Fraction, Decimal]:
    charges = gpu_charges([("2026-01-01T00:00+00:00", price)], [_span(seconds)], gpus) if seconds else []
    return (charges[0].quantity, charges[0].amount) if charges else (Fraction(0), Decimal("0.00"))


def _span(seconds: int) -> tuple[str, str]:
    start = datetime(2026, 3, 2, tzinfo=ZoneInfo("UTC"))
    return start.isoformat(), datetime.fromtimestamp(start.timestamp() + seconds, tz=ZoneInfo("UTC")).isoformat()


@case("A01")
def _(i: dict[str, Any]) -> dict[str, object]:
    hours, fee = one_fee(i["price_per_gpu_hour"], int(i["gpus"]), int(i["hours"]) * 3600)
    return {"gpu_hours": hours, "fee_amount": fee}


@case("A02")
def _(i: dict[str, Any]) -> dict[str, object]:
    hours, fee = one_fee(i["price_per_gpu_hour"], int(i["gpus"]), int(i["seconds"]))
    return {"gpu_hours": hours, "fee_amount": fee}


@case("A04")
def _(i: dict[str, Any]) -> dict[str, object]:
    charges = gpu_charges([("2026-01-01T00:00+00:00", "10")], [], 8)
    return {"gpu_hours": Fraction(0), "fee_amount": Decimal("0.00"), "lines": len(charges)}


@case("A05")
def _(i: dict[str, Any]) -> dict[str, object]:
    prices = [(p["from"], p["price"]) for p in i["prices"]]
    old, new = gpu_charges(prices, [(i["start"], i["end"])], int(i["gpus"]))
    return {
        "gpu_hours_old": old.quantity, "gpu_hours_new": new.quantity, "line_old_amount": old.amount,
        "line_new_amount": new.amount, "fee_total": old.amount + new.amount,
    }  # fmt: skip


@case("A06")
def _(i: dict[str, Any]) -> dict[str, object]:
    prices = [("2026-03-01T00:00+00:00", i["price_old"]), ("2026-03-02T14:00+00:00", i["price_new"])]
    charges = gpu_charges(prices, [("2026-03-02T13:30+00:00", "2026-03-02T15:15+00:00")], 1)
    return {"fee_amount": sum(charge.amount for charge in charges)}


@case("A07")
def _(i: dict[str, Any]) -> dict[str, object]:
    def hours(label: str) -> int:
        zone, month = label.split()
        return billing_month(month, zone).microseconds // 3_600_000_000

    return {label: hours(label) for label in VECTORS["A07"]["expected"]}


@case("A08")
def _(i: dict[str, Any]) -> dict[str, object]:
    pod = Interval(datetime.fromisoformat(i["start"]), datetime.fromisoformat(i["end"]))

    def hours(month: str) -> Fraction:
        part = pod.overlap(billing_month(month, i["billing_tz"]))
        return Fraction(int(i["gpus"]) * (part.microseconds if part else 0), 3_600_000_000)

    return {"gpu_hours_2026_02": hours("2026-02"), "gpu_hours_2026_03": hours("2026-03")}


@case("A09")
def _(i: dict[str, Any]) -> dict[str, object]:
    def local(text: str) -> datetime:
        at, zone = text.split()
        return datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(zone))

    day = Interval(local(i["start"]), local(i["end"]))
    seconds = day.microseconds // 1_000_000
    return {"hours": Fraction(seconds, 3600), "fee_amount": one_fee(i["price_per_gpu_hour"], int(i["gpus"]), seconds)[1]}


@case("A10")
def _(i: dict[str, Any]) -> dict[str, object]:
    month = billing_month(i["month"], i["billing_tz"])
    return {
        "billing_period_start": month.start.isoformat().replace("+00:00", "Z"),
        "billing_period_end": month.end.isoformat().replace("+00:00", "Z"),
    }


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
    cost, rate = Fraction(i["cost"]), Fraction(i["rate"])
    markup = cost * (1 + rate)
    return {
        "price_markup": markup, "price_margin": price_with_margin(cost, rate),
        "margin_implied_by_markup": (markup - cost) / markup,
    }  # fmt: skip


@case("B32")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"annual_cny": round_amount(int(i["gpus"]) * power_cost(sheet()) * int(i["hours"]))}


@case("C01")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost = cost_per_million(Decimal(i["gpu_hour_cost"]), Decimal(i["tokens_per_second"]))
    price = cost * (1 + Fraction(i["markup"]))
    return {
        "cost_per_second": Fraction(i["gpu_hour_cost"]) / 3600, "cost_per_1m": cost, "price_per_1m": price,
        "price_per_1m_list": price_per_million(cost, Decimal(i["markup"])), "seed_chained": Fraction("6.7"),
        "seed_error_relative": (Fraction("6.7") - price) / price,
    }  # fmt: skip


@case("C02")
def _(i: dict[str, Any]) -> dict[str, object]:
    markup = Decimal(i["markup_inside"])
    cost = cost_inside_price(Decimal(i["gpu_hour_price"]), markup)
    price = cost_per_million(cost, Decimal(i["tokens_per_second"])) * (1 + Fraction(markup))
    return {"gpu_hour_cost": cost, "price_per_1m": price, "double_markup_factor": (1 + Fraction(markup)) ** 2}


@case("C03")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost = cost_per_million(
        Decimal(i["gpu_hour_cost"]), Decimal(i["tokens_per_second_at_sla"]), Decimal(i["serving_utilisation"])
    )
    return {"cost_per_1m": cost, "price_per_1m": cost * (1 + Fraction(i["markup"]))}


@case("C04")
def _(i: dict[str, Any]) -> dict[str, object]:
    points = [
        LoadPoint(*(Fraction(run[name]) for name in (
            "offered_rps", "completed_rps", "in_tps", "out_tps", "ttft_p99", "tpot_p99", "err")))
        for run in i["runs"]
    ]  # fmt: skip
    sla = i["sla"]
    bounds = LatencyBounds(*(Fraction(sla[n]) for n in ("ttft_p99_ms", "tpot_p99_ms", "error_rate", "completed_over_offered")))
    point = sustainable_point(points, bounds)
    return {
        "selected_offered_rps": point.offered_rps, "selected_in_tps": point.input_tps, "selected_out_tps": point.output_tps,
    }  # fmt: skip


@case("C05")
def _(i: dict[str, Any]) -> dict[str, object]:
    costs = ratio_costs(
        Decimal(i["gpu_hour_cost"]), uncached_tps=int(i["in_tps"]), output_tps=int(i["out_tps"]),
        output_ratio=Decimal(i["ratio"]),
    )  # fmt: skip
    recovered = (costs.input * int(i["in_tps"]) + costs.output * int(i["out_tps"])) * 3600 / 10**6
    return {"in_per_1m": costs.input, "out_per_1m": costs.output, "recovered_per_hour": recovered}


@case("C06")
def _(i: dict[str, Any]) -> dict[str, object]:
    costs = ratio_costs(
        Decimal(i["gpu_hour_cost"]), uncached_tps=int(i["uncached_tps"]), cached_tps=int(i["cached_tps"]),
        output_tps=int(i["out_tps"]), output_ratio=Decimal(i["r"]), cached_ratio=Decimal(i["q"]),
    )  # fmt: skip
    return {"in_per_1m": costs.input, "cached_per_1m": costs.cache_read, "out_per_1m": costs.output}


@case("C11")
def _(i: dict[str, Any]) -> dict[str, object]:
    price = Fraction(i["price_per_1m"])
    error = round_amount((Fraction("6.7") - price) * 1000)
    return {
        "half_up_4": round_price(price), "half_up_2": round_amount(price),
        "ceil_2": Decimal(-(-price * 100 // 1)) / 100, "error_per_1e9_tokens_at_6.7_cny": error,
    }  # fmt: skip


@case("C12")
def _(i: dict[str, Any]) -> dict[str, object]:
    card, tokens = _token_card(i["prices_per_1m"]), {
        "input": int(i["uncached"]), "cache_read": int(i["cached"]), "output": int(i["out"])
    }  # fmt: skip
    at = datetime(2026, 3, 5, tzinfo=ZoneInfo("UTC"))
    charges = {c.key.token_class: c for c in rate_tokens([TokenSum("t", "k", "m", at, tokens, "2026-03")], card).charges}
    exact = {name: token_fee(charge.unit_price, tokens[name]) for name, charge in charges.items()}
    return {
        "in_exact": exact["input"], "cached_exact": exact["cache_read"], "out_exact": exact["output"],
        "in_amount": charges["input"].amount, "cached_amount": charges["cache_read"].amount,
        "out_amount": charges["output"].amount,
        "sum_of_rounded_lines_total": sum(charge.amount for charge in charges.values()),
        "rounded_sum_total": round_amount(sum(exact.values(), Fraction(0))),
    }  # fmt: skip


def _token_card(prices: dict[str, str]) -> RateCard:
    names = {"in": "input", "cached": "cache_read", "out": "output"}
    start = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))
    return RateCard([PriceVersion("v", start, None, (), {("m", names[k]): Decimal(p) for k, p in prices.items()})])


@case("C13")
def _(i: dict[str, Any]) -> dict[str, object]:
    from tests.golden.records import token_usage

    record = token_usage(int(i["prompt_tokens"]), int(i["cached_tokens_within_prompt"]))
    return {"uncached": record.uncached_input_tokens, "cached": record.cache_read_input_tokens}


@case("C14")
def _(i: dict[str, Any]) -> dict[str, object]:
    price, count = Decimal(i["price_per_1m"]), int(i["requests"])
    return {
        "per_request_rounded_total": round_amount(token_fee(price, int(i["tokens_each"]))) * count,
        "aggregated_total": round_amount(token_fee(price, count * int(i["tokens_each"]))),
    }


@case("D01")
def _(i: dict[str, Any]) -> dict[str, object]:
    answers: dict[str, object] = {}
    for hfu, mfu in i["cases_hfu_mfu"]:
        verdict = _verdict(mfu, hfu)
        answers[f"hfu={hfu},mfu={mfu}"] = f"{verdict.multiplier.normalize()} {verdict.reason}"
    return answers


def _verdict(mfu: str, hfu: str, coverage: str = "1", minutes: str = "60") -> Any:
    return judge(
        BANDS, gpu_seconds=Decimal(72_000), minutes=Decimal(minutes), coverage=Decimal(coverage), mfu=Decimal(mfu),
        hfu=Decimal(hfu),
    )  # fmt: skip


@case("D02")
@case("D03")
@case("D04")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"mfu": _mfu(i)}


def _mfu(i: dict[str, Any]) -> Fraction:
    return mfu_of(
        tokens_per_second=Fraction(i["tokens_per_second"]), active_params=int(i["active_params"]), gpus=int(i["gpus"]),
        peak_flops=Fraction(i["peak_flops"]),
    )  # fmt: skip


@case("D06")
def _(i: dict[str, Any]) -> dict[str, object]:
    verdict = _verdict(i["mfu"], i["hfu"], coverage=i["coverage"])
    return {"multiplier": verdict.multiplier, "reason": verdict.reason}


@case("D07")
def _(i: dict[str, Any]) -> dict[str, object]:
    verdict = _verdict(i["mfu"], i["hfu"], minutes=i["minutes"])
    return {"multiplier": verdict.multiplier, "reason": verdict.reason}


@case("D09")
def _(i: dict[str, Any]) -> dict[str, object]:
    usage = round_amount(Fraction(i["gpu_hours"]) * Fraction(i["price"]))
    rebate = round_amount(Fraction(i["gpu_hours"]) * Fraction(i["price"]) * (Fraction(i["multiplier"]) - 1))
    return {"usage_amount": usage, "rebate_amount": rebate, "invoice_total": usage + rebate}


@case("D11")
def _(i: dict[str, Any]) -> dict[str, object]:
    parts = [(Fraction(s) * Fraction(g), Fraction(Decimal(peak)), Fraction(mfu)) for s, g, peak, mfu in i["phases"]]
    seconds = [(weight, Fraction(1), value) for weight, _, value in parts]
    return {"mfu": weighted_mean(parts), "naive_time_average": weighted_mean(seconds)}


@case("D12")
def _(i: dict[str, Any]) -> dict[str, object]:
    answers: dict[str, object] = {}
    for mfu in i["mfu"]:
        hfu = hfu_with_full_recomputation(Fraction(mfu))
        answers[f"hfu_at_mfu_{mfu}"] = hfu
        answers[f"multiplier_{mfu}"] = _verdict(mfu, format(round_to(hfu, 12), "f")).multiplier
    return answers


@case("F01")
def _(i: dict[str, Any]) -> dict[str, object]:
    even = {f"half_even {v}": Decimal(v).quantize(Decimal("0.01"), ROUND_HALF_EVEN) for v in ("2.665", "2.675")}
    return {f"half_up {value}": round_amount(Decimal(value)) for value in i["values"]} | even


@case("F02")
def _(i: dict[str, Any]) -> dict[str, object]:
    lines = [round_amount(Decimal(value)) for value in i["lines"]]
    return {
        "line_amount": lines[0], "invoice_total": sum(lines),
        "not_the_rounded_sum_amount": round_amount(sum(Decimal(value) for value in i["lines"])),
    }  # fmt: skip


@case("F03")
@case("F04")
@case("F05")
@case("F16")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"shares": split_amount(Decimal(i["total"]), [int(weight) for weight in i["weights"]])}


@case("F06")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"shares": split_amount(Decimal(i["idle"]), [int(weight) for weight in i["gpu_hours"]])}


@case("F14")
def _(i: dict[str, Any]) -> dict[str, object]:
    debit = Money(Decimal(i["invoice"]), "CNY")
    return {"debit_CC-210": debit.amount, "credit_CC-900": debit.amount, "net": (debit - debit).amount}


LATER = {
    "A03": "a minimum billable duration is a policy that no price list has yet",
    "B02": "the literal wording that must not ship: the sheet divides the server by its GPUs",
    "B08": "watts for kilowatts are refused by the sheet's bounds (test_tco)",
    "F07": "credit notes", "F08": "late usage: test_closing bills it at the price of its own time", "F15": "credit notes",
    **dict.fromkeys(("F09", "F10", "F11", "F12", "F17"), "budgets and forecasts"),
    **dict.fromkeys(("F13", "F18"), "commitments and service credits"),
    **dict.fromkeys(("B04", "B05", "B06", "B17", "B18", "B19", "B20", "B21", "B31", "B33"), "the complete cost model"),
    **dict.fromkeys(("B09", "B10", "B11", "B12"), "hourly tariffs"),
    **dict.fromkeys(("B22", "B23", "B24", "B25", "B26", "B27", "B28", "B29", "B30"), "the complete cost model"),
    **dict.fromkeys(("C07", "C08", "C09", "C10", "C15", "C16"), "phase and least-squares methods"),
    **dict.fromkeys(("D05", "D08", "D10"), "linear and neutral-pool policies"),
    **dict.fromkeys(tuple(f"E{n:02d}" for n in range(1, 12)), "training plan and carbon"),
}  # fmt: skip
"""Cases of formulas that the project does not have yet: named here so that none is forgotten in silence."""


@pytest.mark.parametrize("identifier", sorted(CASES))
def test_vector(identifier: str) -> None:
    vector = VECTORS[identifier]
    answers = CASES[identifier](vector["inputs"])
    expected = vector["expected"]
    for key in expected:
        assert _text(answers[key], expected[key]) == _wanted(expected[key]), key
        if key in vector.get("exact", {}):
            assert answers[key] == Fraction(vector["exact"][key]), key


def test_every_vector_is_covered_or_named() -> None:
    assert CASES.keys() | LATER.keys() == VECTORS.keys()
    assert not CASES.keys() & LATER.keys()


def _wanted(expected: Any) -> Any:
    return [str(item) for item in expected] if isinstance(expected, list) else str(expected)


def _text(answer: object, expected: Any) -> Any:
    """The answer as the vectors write it: with as many decimals as they have."""
    if isinstance(answer, list):
        return [_text(item, wanted) for item, wanted in zip(answer, expected, strict=True)]
    if isinstance(answer, str):
        return answer
    assert isinstance(answer, Fraction | Decimal | int)
    places = len(str(expected).partition(".")[2])
    return format(round_to(answer, places), "f")
