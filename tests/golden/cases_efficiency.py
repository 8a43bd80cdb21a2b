"""Group D: efficiency adjustments."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

from metering.peaks import dense_peak_tflops
from pricing.efficiency import (
    hfu_with_full_recomputation,
    judge,
    linear_verdict,
    mfu_of,
    weighted_mean,
)
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import round_amount, round_to
from pricing.neutral_pool import paid_out, payout_of
from pricing.rate_card import GPU_HOURS
from pricing.rating import Charge, LineKey
from tests.golden.registry import BANDS, case


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


@case("D05")
def _(i: dict[str, Any]) -> dict[str, object]:
    price, jobs = Fraction(i["price"]), [(Fraction(hours), Fraction(hfu)) for hours, hfu in i["jobs"]]
    weighted = weighted_mean([(hours, Fraction(1), hfu) for hours, hfu in jobs])
    unweighted = weighted_mean([(Fraction(1), Fraction(1), hfu) for _, hfu in jobs])
    assert weighted is not None

    def multiplier(hfu: Fraction) -> Fraction:
        return Fraction(_verdict("0.1", format(round_to(hfu, 6), "f")).multiplier)

    return {
        "weighted_hfu": weighted, "unweighted_hfu": unweighted,
        "per_job_policy_total": round_amount(sum((hours * price * multiplier(hfu) for hours, hfu in jobs), Fraction(0))),
        "tenant_average_policy_total": round_amount(
            sum((hours for hours, _ in jobs), Fraction(0)) * price * multiplier(weighted)
        ),
    }  # fmt: skip


@case("D08")
def _(i: dict[str, Any]) -> dict[str, object]:
    answers: dict[str, object] = {}
    for hfu, mfu in i["cases_hfu_mfu"]:
        answers[f"hfu={hfu},mfu={mfu}"] = linear_verdict(BANDS, used=Decimal(hfu), mfu=Decimal(mfu)).multiplier
    return answers


@case("D10")
def _(i: dict[str, Any]) -> dict[str, object]:
    """Lines of the pool as a month has them: one penalty, and a reward of the cap on a base at a price of 1."""
    base, cap = Decimal(i["reward_base"]), Decimal(i["cap"])
    lines = [_pool_line("a", Decimal(i["penalty_pool"]), Decimal(1)), _pool_line("b", base, -cap)]
    payout = payout_of(lines)
    assert payout is not None
    return {"rebate_rate": Fraction(cap) * payout.share, "rebate_total": paid_out(lines, payout)[1].amount}


def _pool_line(namespace: str, hours: Decimal, change: Decimal) -> Charge:
    key = LineKey("t", False, False, "2026-10", "efficiency", "c", namespace, unit=GPU_HOURS)
    return Charge(key, hours * MICROSECONDS_PER_HOUR, change)


@case("E11")
def _(i: dict[str, Any]) -> dict[str, object]:
    rate = Fraction(i["tokens_per_second"])

    def mfu(dtype: str) -> Fraction:
        peak = dense_peak_tflops("NVIDIA-H100", dtype)
        assert peak is not None
        return mfu_of(
            tokens_per_second=rate, active_params=int(i["n"]), gpus=int(i["gpus"]), peak_flops=Fraction(peak) * 10**12
        )

    return {
        "mfu_bf16_989_4": mfu("bf16"), "mfu_fp8_dense_1978_9": mfu("fp8"), "days_for_10T": 10**13 / rate / 86_400,
    }  # fmt: skip
