"""PURE: model and hardware FLOP utilisation, and what a policy makes of them.

Bands (FM1): HFU strictly below the lower bound costs a penalty, MFU strictly above the upper one earns a reward;
equality is neutral, values are compared unrounded. Missing or contradictory telemetry never changes a price.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pricing.money import Number, fraction_of, round_to

DENSE_PEAK_TFLOPS: Final[dict[str, dict[str, str]]] = {
    "A100": {"bf16": "312"},
    "A800": {"bf16": "312"},
    "H100-PCIE": {"bf16": "756"},
    "H100-NVL": {"bf16": "835"},
    "H100": {"bf16": "989.4", "fp8": "1978.9"},
    "H800": {"bf16": "989.4", "fp8": "1978.9"},
    "H200": {"bf16": "989.4", "fp8": "1978.9"},
    "H20": {"bf16": "148"},
    "L40S": {"bf16": "362"},
    "L40": {"bf16": "181"},
    "L20": {"bf16": "119.5"},
    "A40": {"bf16": "149.7"},
    "A10": {"bf16": "125"},
    "B200": {"bf16": "2250", "fp8": "4500"},
    "GB200": {"bf16": "2500", "fp8": "5000"},
    "MI250X": {"bf16": "191.5"},
    "MI355X": {"bf16": "2500"},
    "ASCEND910A": {"bf16": "256"},
    "TPU-V4": {"bf16": "275"},
    "TPU-V5E": {"bf16": "197"},
    "TPU-V5P": {"bf16": "459"},
    "TPU-V6E": {"bf16": "918"},
}
"""Dense peaks per device in TFLOP/s, without sparsity (vendors often print twice that).

Source: torchtitan and verl device tables, which cite the vendors; glennklockwood.com/garden/processors/h100. Left out
because public sources disagree: B300, GB300, MI300X, MI325X and the bins of Ascend 910B.
"""

SAME_PEAK: Final = {"fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "float8": "fp8", "fp8_e4m3": "fp8"}
SECONDS_PER_GPU_HOUR: Final = 3600
MULTIPLIER_PLACES: Final = 12


@dataclass(frozen=True, slots=True)
class EfficiencyPolicy:
    """Bands in force from `valid_from`; all ratios from 0 to 1, `penalty` and `reward` as shares of the price."""

    name: str
    valid_from: datetime
    hfu_below: Decimal
    penalty: Decimal
    mfu_above: Decimal
    reward: Decimal
    min_minutes: int = 30
    min_coverage: Decimal = Decimal("0.95")
    min_gpu_seconds: int = SECONDS_PER_GPU_HOUR


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the GPU-hours of a job are multiplied with, and why."""

    multiplier: Decimal
    reason: str


NEUTRAL: Final = Decimal(1)


def judge(
    policy: EfficiencyPolicy,
    *,
    gpu_seconds: Decimal,
    minutes: Decimal,
    coverage: Decimal | None,
    mfu: Decimal | None,
    hfu: Decimal | None,
) -> Verdict:
    """Verdict on one job of one billing month (FM1 with the eligibility of FM3).

    >>> from datetime import UTC
    >>> bands = EfficiencyPolicy("bands", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.20"), Decimal("0.20"),
    ...                          Decimal("0.50"), Decimal("0.10"))
    >>> judge(bands, gpu_seconds=Decimal(7200), minutes=Decimal(60), coverage=Decimal(1), mfu=Decimal("0.15"),
    ...       hfu=Decimal("0.1999"))
    Verdict(multiplier=Decimal('1.20'), reason='penalty')
    """
    reason = _ineligible(policy, gpu_seconds, minutes, coverage, mfu, hfu)
    if reason or mfu is None or hfu is None:
        return Verdict(NEUTRAL, reason or "neutral:missing")
    if hfu < policy.hfu_below:
        return Verdict(NEUTRAL + policy.penalty, "penalty")
    if mfu > policy.mfu_above:
        return Verdict(NEUTRAL - policy.reward, "reward")
    return Verdict(NEUTRAL, "neutral")


def judge_linear(
    policy: EfficiencyPolicy,
    *,
    gpu_seconds: Decimal,
    minutes: Decimal,
    coverage: Decimal | None,
    mfu: Decimal | None,
    hfu: Decimal | None,
    width: Decimal = Decimal("0.10"),
) -> Verdict:
    """Verdict without a cliff: penalty and reward grow over `width` outside of the bands.

    multiplier = 1 + penalty x clamp((hfu_below - HFU) / width) - reward x clamp((MFU - mfu_above) / width)

    An HFU of 0.1999 costs 1.0002 here and 1.20 with bands.  Source: FM4, linear alternative.
    """
    reason = _ineligible(policy, gpu_seconds, minutes, coverage, mfu, hfu)
    if reason or mfu is None or hfu is None:
        return Verdict(NEUTRAL, reason or "neutral:missing")
    waste = _clamped(Fraction(policy.hfu_below) - Fraction(hfu), width) * Fraction(policy.penalty)
    merit = _clamped(Fraction(mfu) - Fraction(policy.mfu_above), width) * Fraction(policy.reward)
    multiplier = round_to(1 + waste - merit, MULTIPLIER_PLACES).normalize()
    return Verdict(multiplier, "penalty" if waste else "reward" if merit else "neutral")


def _clamped(excess: Fraction, width: Decimal) -> Fraction:
    return min(max(excess / Fraction(width), Fraction(0)), Fraction(1))


def _ineligible(
    policy: EfficiencyPolicy,
    gpu_seconds: Decimal,
    minutes: Decimal,
    coverage: Decimal | None,
    mfu: Decimal | None,
    hfu: Decimal | None,
) -> str:
    """Why a job is not judged, or empty text (FM3).

    Without a metric there is nothing to say but that it is missing: even the minutes are measured minutes. A short job
    need not be covered. Values out of range and MFU above HFU are data errors where enough was measured to say so.
    """
    if mfu is None or hfu is None:
        return "neutral:missing"
    if minutes < policy.min_minutes or gpu_seconds < policy.min_gpu_seconds:
        return "neutral:short"
    if coverage is None:
        return "neutral:missing"
    if coverage < policy.min_coverage:
        return "neutral:coverage"
    return "neutral:inconsistent" if mfu < 0 or hfu > 1 or mfu > hfu or coverage > 1 else ""


def neutral_pool_rate(penalties: Number, reward_base: Number, cap: Number) -> Fraction:
    """Rebate rate that penalties pay for: min(cap, penalties / base); without a base, 0.

    >>> neutral_pool_rate(6000, 90_000, Decimal("0.10"))
    Fraction(1, 15)

    Source: FM6, revenue-neutral pool.
    """
    base = fraction_of(reward_base)
    return min(fraction_of(cap), fraction_of(penalties) / base) if base > 0 else Fraction(0)


def mfu_of(*, tokens_per_second: Fraction, active_params: int, gpus: int, peak_flops: Fraction) -> Fraction:
    """Model FLOP utilisation: MFU = 6 x N_active x tokens/s / (GPUs x dense peak FLOP/s).

    N is the active parameters, not the total of a mixture of experts; the peak is that of the precision the matrix
    products run in.  Source: FS9; PaLM, arXiv 2204.02311, appendix B.

    >>> mfu_of(tokens_per_second=Fraction(1_200_000), active_params=10**10, gpus=256,
    ...        peak_flops=Fraction(989_400_000_000_000))
    Fraction(1875, 6596)
    """
    return 6 * active_params * tokens_per_second / (gpus * peak_flops)


def hfu_with_full_recomputation(mfu: Fraction) -> Fraction:
    """HFU where the forward pass is repeated: 8 instead of 6 FLOP per parameter and token.

    >>> hfu_with_full_recomputation(Fraction("0.16"))
    Fraction(16, 75)

    Source: FS9; arXiv 2205.05198.
    """
    return mfu * Fraction(8, 6)


def dense_peak_tflops(accelerator: str, dtype: str) -> Decimal | None:
    """Dense peak of a product name such as "NVIDIA-H800-80GB" for a precision, or None where it is not known.

    Names match as whole words, so that "H20" is not found in "H200", "A10" not in "A1000", "B200" not in "GB200";
    where several match, the longest is meant ("H100-NVL" before "H100").

    >>> dense_peak_tflops("NVIDIA-H200", "bf16"), dense_peak_tflops("NVIDIA-H20", "fp16")
    (Decimal('989.4'), Decimal('148'))
    """
    name = re.sub(r"[^A-Z0-9]+", "-", accelerator.upper())
    precision = SAME_PEAK.get(dtype.lower(), dtype.lower())
    for product in sorted(DENSE_PEAK_TFLOPS, key=len, reverse=True):
        if re.search(rf"(?<![A-Z0-9]){product}(?![A-Z0-9])", name):
            peak = DENSE_PEAK_TFLOPS[product].get(precision)
            return Decimal(peak) if peak else None
    return None


def weighted_mean(parts: Sequence[tuple[Fraction, Fraction, Fraction]]) -> Fraction | None:
    """Mean of (gpu_seconds, dense peak, value), weighted by GPU-seconds x peak; None without weight.

    value = sum of s x p x value / sum of s x p

    >>> weighted_mean([(Fraction(100), Fraction(1), Fraction("0.15")), (Fraction(900), Fraction(1), Fraction("0.25"))])
    Fraction(6, 25)

    Source: FM2, weighting by GPU-seconds and the dense peak of the phase's precision.
    """
    weight = sum((seconds * peak for seconds, peak, _ in parts), Fraction(0))
    return sum((s * p * value for s, p, value in parts), Fraction(0)) / weight if weight else None
