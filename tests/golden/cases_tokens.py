"""Group C: prices of tokens."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pricing.money import round_amount, round_price
from pricing.rate_card import PriceVersion, RateCard
from pricing.rating import TokenSum, rate_tokens
from pricing.token_price import (
    ClassCosts,
    LatencyBounds,
    LoadPoint,
    MeasuredRun,
    cost_per_million,
    fit_gpu_seconds,
    output_only_costs,
    phase_costs,
    ratio_costs,
    sustainable_point,
)
from tests.golden.records import token_usage
from tests.golden.registry import case


@case("C01")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost = cost_per_million(Decimal(i["gpu_hour_cost"]), Decimal(i["tokens_per_second"]))
    price = cost * (1 + Fraction(i["markup"]))
    return {
        "cost_per_second": Fraction(i["gpu_hour_cost"]) / 3600, "cost_per_1m": cost, "price_per_1m": price,
        "price_per_1m_list": round_price(price), "seed_chained": Fraction("6.7"),
        "seed_error_relative": (Fraction("6.7") - price) / price,
    }  # fmt: skip


@case("C02")
def _(i: dict[str, Any]) -> dict[str, object]:
    markup = Decimal(i["markup_inside"])
    cost = Fraction(i["gpu_hour_price"]) / (1 + Fraction(markup))
    price = cost_per_million(cost, Decimal(i["tokens_per_second"])) * (1 + Fraction(markup))
    return {"gpu_hour_cost": cost, "price_per_1m": price, "double_markup_factor": (1 + Fraction(markup)) ** 2}


@case("C03")
def _(i: dict[str, Any]) -> dict[str, object]:
    at_load = output_only_costs(Decimal(i["gpu_hour_cost"]), output_tps=Decimal(i["tokens_per_second_at_sla"]))
    cost = at_load.at_utilisation(Decimal(i["serving_utilisation"])).output
    return {"cost_per_1m": cost, "price_per_1m": cost * (1 + Fraction(i["markup"]))}


@case("C04")
def _(i: dict[str, Any]) -> dict[str, object]:
    points = [
        LoadPoint(*(Fraction(run[name]) for name in (
            "offered_rps", "completed_rps", "in_tps", "out_tps", "ttft_p99", "tpot_p99", "err")))
        for run in i["runs"]
    ]  # fmt: skip
    sla = i["sla"]
    names = ("ttft_p99_ms", "tpot_p99_ms", "error_rate", "completed_over_offered")
    bounds = LatencyBounds(*(Fraction(sla[name]) for name in names))
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
    at = datetime(2026, 3, 5, tzinfo=UTC)
    charges = {c.key.token_class: c for c in rate_tokens([TokenSum("t", "k", "m", at, tokens, "2026-03")], card).charges}
    exact = {name: charge.quantity * Fraction(charge.unit_price) for name, charge in charges.items()}
    return {
        "in_exact": exact["input"], "cached_exact": exact["cache_read"], "out_exact": exact["output"],
        "in_amount": charges["input"].amount, "cached_amount": charges["cache_read"].amount,
        "out_amount": charges["output"].amount,
        "sum_of_rounded_lines_total": sum(charge.amount for charge in charges.values()),
        "rounded_sum_total": round_amount(sum(exact.values(), Fraction(0))),
    }  # fmt: skip


def _token_card(prices: dict[str, str]) -> RateCard:
    names = {"in": "input", "cached": "cache_read", "out": "output"}
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return RateCard([PriceVersion("v", start, None, (), {("m", names[k]): Decimal(p) for k, p in prices.items()})])


@case("C13")
def _(i: dict[str, Any]) -> dict[str, object]:
    record = token_usage(int(i["prompt_tokens"]), int(i["cached_tokens_within_prompt"]))
    return {"uncached": record.uncached_input_tokens, "cached": record.cache_read_input_tokens}


@case("C14")
def _(i: dict[str, Any]) -> dict[str, object]:
    card, at = _token_card({"in": i["price_per_1m"]}), datetime(2026, 3, 5, tzinfo=UTC)

    def amount(count: int) -> Decimal:
        (charge,) = rate_tokens([TokenSum("t", "k", "m", at, {"input": count}, "2026-03")], card).charges
        return charge.amount

    each, count = int(i["tokens_each"]), int(i["requests"])
    return {"per_request_rounded_total": amount(each) * count, "aggregated_total": amount(each * count)}


@case("C07")
def _(i: dict[str, Any]) -> dict[str, object]:
    uncached, output = Fraction(i["in_tokens"]) / 3600, Fraction(i["out_tokens"]) / 3600
    costs = phase_costs(
        Decimal(i["gpu_hour_cost"]), prefill_share=Decimal(i["prefill_share"]), uncached_tps=uncached, output_tps=output
    )
    recovered = costs.recovered_per_hour(uncached_tps=uncached, output_tps=output)
    return {"in_per_1m": costs.input, "out_per_1m": costs.output, "recovered_per_hour": recovered}


@case("C08")
def _(i: dict[str, Any]) -> dict[str, object]:
    """Each phase by itself; the node is the unit, and the published days rebuild within 0.05 %."""
    cost, prefill, decode = (Fraction(i[name]) for name in ("node_hour_cost", "prefill_tps", "decode_tps"))
    tokens = {name: Fraction(Decimal(i[f"{name}_tokens"])) for name in ("in", "out")}
    per_input, per_output = cost_per_million(cost, prefill), cost_per_million(cost, decode)
    days = {"prefill": tokens["in"] / prefill / 86_400, "decode": tokens["out"] / decode / 86_400}
    share = days["prefill"] / sum(days.values())
    return {
        "in_per_1m": per_input, "out_per_1m": per_output, "out_in_ratio": per_output / per_input,
        "node_days_prefill": days["prefill"], "node_days_decode": days["decode"], "node_days": sum(days.values()),
        "prefill_share": share, "published_avg_nodes": Fraction("226.75"),
        "published_daily_cost_usd": round_amount(Fraction("226.75") * 24 * cost),
    }  # fmt: skip


def _runs(rows: list[list[str]]) -> list[MeasuredRun]:
    """Rows of tokens in millions; without a column of cached input there is none."""
    whole = [row if len(row) == 4 else [row[0], "0", *row[1:]] for row in rows]
    return [MeasuredRun(*(Fraction(value) for value in row)) for row in whole]


@case("C09")
def _(i: dict[str, Any]) -> dict[str, object]:
    fitted = fit_gpu_seconds(_runs(i["runs_in_cached_out_gpuseconds"]))
    costs = fitted.costs(Decimal(i["gpu_hour_cost"]))
    return {
        "a_s_per_1m": fitted.input, "k_s_per_1m": fitted.cache_read, "b_s_per_1m": fitted.output,
        "in_per_1m": costs.input, "cached_per_1m": costs.cache_read, "out_per_1m": costs.output,
    }  # fmt: skip


@case("C10")
def _(i: dict[str, Any]) -> dict[str, object]:
    runs = _runs(i["runs_in_out_gpuseconds"])
    fitted = fit_gpu_seconds(runs)
    before = ClassCosts(fitted.input, fitted.cache_read, fitted.output).times(Fraction(i["gpu_hour_cost"]) / 3600)
    costs = fitted.costs(Decimal(i["gpu_hour_cost"]))
    assert costs == before.times(fitted.fit.recovery_scale)
    recovered = sum(run.input_millions * costs.input + run.output_millions * costs.output for run in runs)
    assert recovered == sum(run.gpu_seconds for run in runs) * Fraction(i["gpu_hour_cost"]) / 3600
    return {
        "a_s_per_1m": fitted.input, "b_s_per_1m": fitted.output, "in_per_1m": before.input, "out_per_1m": before.output,
        "fitted_gpu_seconds_sum": fitted.fit.fitted_sum, "true_gpu_seconds_sum": fitted.fit.true_sum,
        "recovery_scale": fitted.fit.recovery_scale,
    }  # fmt: skip


@case("C15")
def _(i: dict[str, Any]) -> dict[str, object]:
    used = Fraction(i["avg"]) / int(i["peak"])
    uplift = ClassCosts(*[Fraction(1)] * 3).at_utilisation(used).input
    return {"autoscaled_utilisation": used, "uplift_if_peak_is_reserved": uplift}


@case("C16")
def _(i: dict[str, Any]) -> dict[str, object]:
    cost = Decimal(i["gpu_hour_cost"])
    methods = {
        "seed": output_only_costs(cost, output_tps=500), "R": ratio_costs(cost, uncached_tps=5000, output_tps=500),
    }  # fmt: skip
    mixes = {"A": i["mix_A_in_out"], "B": i["mix_B_in_out"]}
    totals = {
        f"{name}_{mix}_total": costs.input * Fraction(given[0]) + costs.output * Fraction(given[1])
        for name, costs in methods.items()
        for mix, given in mixes.items()
    }
    rounded: dict[str, object] = {name: round_amount(total) for name, total in totals.items()}
    return {**rounded, "overcharge_B": totals["seed_B_total"] / totals["R_B_total"]}
