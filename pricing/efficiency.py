"""PURE: model and hardware FLOP utilisation, and what a policy makes of them.

Bands (FM1): HFU strictly below the lower bound costs a penalty, MFU strictly above the upper one earns a reward;
equality is neutral, values are compared unrounded. Missing or contradictory telemetry never changes a price.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

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
}
"""Dense peaks per device in TFLOP/s, without sparsity. Source: vendor sheets as cited by torchtitan and verl."""

SAME_PEAK: Final = {"fp16": "bf16", "float16": "bf16", "bfloat16": "bf16", "float8": "fp8"}


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
    if mfu is None or hfu is None or coverage is None or not gpu_seconds:
        return Verdict(NEUTRAL, "neutral:missing")
    if mfu < 0 or hfu > 1 or mfu > hfu:
        return Verdict(NEUTRAL, "neutral:inconsistent")
    if minutes < policy.min_minutes:
        return Verdict(NEUTRAL, "neutral:short")
    if coverage < policy.min_coverage:
        return Verdict(NEUTRAL, "neutral:coverage")
    if hfu < policy.hfu_below:
        return Verdict(NEUTRAL + policy.penalty, "penalty")
    if mfu > policy.mfu_above:
        return Verdict(NEUTRAL - policy.reward, "reward")
    return Verdict(NEUTRAL, "neutral")


def mfu_of(*, tokens_per_second: Fraction, active_params: int, gpus: int, peak_flops: Fraction) -> Fraction:
    """Model FLOP utilisation (FS9): 6 x N_active x tokens/s / (GPUs x dense peak FLOP/s).

    >>> mfu_of(tokens_per_second=Fraction(1_200_000), active_params=10**10, gpus=256,
    ...        peak_flops=Fraction(989_400_000_000_000))
    Fraction(1875, 6596)
    """
    return 6 * active_params * tokens_per_second / (gpus * peak_flops)


def hfu_with_full_recomputation(mfu: Fraction) -> Fraction:
    """HFU where the forward pass is repeated: 8 instead of 6 FLOP per parameter and token."""
    return mfu * Fraction(8, 6)


def dense_peak_tflops(accelerator: str, dtype: str) -> Decimal | None:
    """Dense peak of a product name such as "NVIDIA-H800-80GB" for a precision, or None where it is not known.

    Longer names are tried first: "H20" is a prefix of "H200" and "GB200" contains "B200".

    >>> dense_peak_tflops("NVIDIA-H200", "bf16"), dense_peak_tflops("NVIDIA-H20", "fp16")
    (Decimal('989.4'), Decimal('148'))
    """
    name = accelerator.upper()
    precision = SAME_PEAK.get(dtype.lower(), dtype.lower())
    for product in sorted(DENSE_PEAK_TFLOPS, key=len, reverse=True):
        if product in name:
            peak = DENSE_PEAK_TFLOPS[product].get(precision)
            return Decimal(peak) if peak else None
    return None


def weighted_mean(parts: list[tuple[Fraction, Fraction, Fraction]]) -> Fraction | None:
    """Mean of (gpu_seconds, dense peak, value), weighted by GPU-seconds x peak (FM2); None without weight."""
    weight = sum((seconds * peak for seconds, peak, _ in parts), Fraction(0))
    return sum((s * p * value for s, p, value in parts), Fraction(0)) / weight if weight else None
