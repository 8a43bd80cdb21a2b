"""Group E: training budget and carbon."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

from pricing.carbon import LIFECYCLE, OFFICIAL, RESIDUAL, carbon_factor, kg_co2
from pricing.money import round_amount
from pricing.training_plan import (
    attention_flop_per_token,
    budget_multiplier,
    budget_multiplier_as_reserve,
    compute_optimal,
    days_of,
    gpu_hours_of,
    model_flop,
    optimizer_steps,
)
from tests.golden.registry import VECTORS, case

SEED_FLOP = model_flop(Fraction(10**10), Fraction(10**13))
TERA = 10**12


def _days(peak_flops: Fraction, mfu: str, flop: Fraction = SEED_FLOP) -> Fraction:
    return days_of(gpu_hours_of(flop, peak_flops=peak_flops, mfu=Fraction(mfu)), Fraction(256))


@case("E01")
def _(i: dict[str, Any]) -> dict[str, object]:
    flop = model_flop(Fraction(i["n"]), Fraction(i["d"]))
    seed = Fraction(10) * flop
    whole_exaflops = Fraction(10**18, 256)
    return {
        "flops": flop, "seed_claimed_flops": seed, "seed_overstatement": seed / flop,
        "days_peak_1e18": _days(whole_exaflops, i["mfu"]), "days_fp8_sparse_3958": _days(Fraction(3958 * TERA), i["mfu"]),
        "days_fp8_dense_1979": _days(Fraction(1979 * TERA), i["mfu"]),
        "days_bf16_dense_989_5": _days(Fraction("989.5") * TERA, i["mfu"]),
        "seed_days": _days(whole_exaflops, i["mfu"], seed), "tflops_needed_at_seed": 3958 * Fraction(i["mfu"]),
    }  # fmt: skip


@case("E02")
def _(i: dict[str, Any]) -> dict[str, object]:
    tokens, sequences, length = Fraction(i["tokens"]), int(i["sequences"]), int(i["seq_len"])
    return {
        "tokens_per_step": sequences * length, "steps_exact": tokens / (sequences * length),
        "steps": optimizer_steps(tokens, sequences_per_step=sequences, seq_len=length),
        "steps_if_4_000_000": tokens / 4_000_000,
        "steps_if_batch_read_as_tokens": tokens / (sequences * length) / length,
    }  # fmt: skip


@case("E03")
def _(i: dict[str, Any]) -> dict[str, object]:
    lines = {str(number): Fraction(item) for number, item in enumerate(i["items"][1:])}
    contingency = Fraction(i["contingency"])
    return {
        "base": 1 + sum(lines.values()), "multiplier": budget_multiplier(lines, contingency),
        "multiplier_as_reserve": budget_multiplier_as_reserve(lines, contingency),
        "base_needed_for_1_86": Fraction("1.86") / (1 + contingency),
    }  # fmt: skip


@case("E04")
def _(i: dict[str, Any]) -> dict[str, object]:
    price, seed = Fraction(i["price"]), Fraction(i["gpus"]) * Fraction(i["seed_days"]) * 24
    hours = gpu_hours_of(SEED_FLOP, peak_flops=Fraction(1979 * TERA), mfu=Fraction("0.55"))
    multiplier = Fraction("1.74")
    return {
        "seed_gpu_hours": seed, "seed_total": round_amount(seed * price),
        "seed_times_174_total": round_amount(seed * price * multiplier),
        "seed_times_186_total": round_amount(seed * price * Fraction("1.86")), "corrected_gpu_hours": hours,
        "corrected_total": round_amount(hours * price),
        "corrected_times_174_total": round_amount(hours * price * multiplier),
    }  # fmt: skip


@case("E05")
def _(i: dict[str, Any]) -> dict[str, object]:
    (n1, d1), (n2, d2) = ([Fraction(Decimal(value)) for value in i[name]] for name in ("scenario1", "scenario2"))
    budget = Fraction(Decimal(i["budget"]))
    return {
        "s1_nd": n1 * d1, "s1_flops": model_flop(n1, d1), "s1_over_budget": model_flop(n1, d1) / budget,
        "s2_flops": model_flop(n2, d2), "s2_over_budget": model_flop(n2, d2) / budget, "s2_tokens_per_param": d2 / n2,
    }  # fmt: skip


@case("E06")
def _(i: dict[str, Any]) -> dict[str, object]:
    params, tokens = compute_optimal(int(Decimal(i["budget"])), int(i["tokens_per_param"]))
    return {"n_opt": params, "d_opt": tokens}


@case("E07")
def _(i: dict[str, Any]) -> dict[str, object]:
    kwh = Fraction(i["gpu_hours"]) * Fraction(i["kw_per_gpu"]) * Fraction(i["pue"])
    factors = {
        "CN_2023": ("CN", 2023, OFFICIAL), "CN_excl_traded_green": ("CN", 2023, RESIDUAL),
        "EU_2024": ("EU", 2024, LIFECYCLE), "SE_2024": ("SE", 2024, LIFECYCLE),
    }  # fmt: skip
    given = {Fraction(value) for value in i["factors_kg_per_kwh"].values()}
    assert {carbon_factor(*key) for key in factors.values()} == given
    return {"facility_kwh": kwh, **{f"kg_{name}": kg_co2(kwh, carbon_factor(*key)) for name, key in factors.items()}}


@case("E08")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"kg_co2": kg_co2(Fraction(i["facility_kwh"]), Fraction(i["factor"]))}


@case("E09")
def _(i: dict[str, Any]) -> dict[str, object]:
    hours = gpu_hours_of(
        SEED_FLOP, peak_flops=Fraction(Decimal(i["peak_flops"])), mfu=Fraction(i["mfu"]), goodput=Fraction(i["goodput"])
    )
    return {"days": days_of(hours, Fraction(i["gpus"])), "gpu_hours": hours}


@case("E10")
def _(i: dict[str, Any]) -> dict[str, object]:
    extra = attention_flop_per_token(Fraction(i["layers"]), Fraction(i["d_model"]), Fraction(i["seq_len"]))
    return {"extra_flops_per_token": extra, "relative": extra / (6 * int(VECTORS["E10"]["inputs"]["n"]))}
