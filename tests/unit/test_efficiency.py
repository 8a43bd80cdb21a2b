"""Efficiency verdicts at the edges; the bands themselves are golden cases."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from metering.peaks import dense_peak_tflops
from pricing.efficiency import EfficiencyPolicy, Form, Verdict, judge, neutral_pool_share, weighted_mean

BANDS = EfficiencyPolicy(
    "bands", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.20"), Decimal("0.20"), Decimal("0.50"), Decimal("0.10")
)


def verdict(policy: EfficiencyPolicy = BANDS, **changed: Decimal | None) -> Verdict:
    facts: dict[str, Decimal | None] = {
        "gpu_seconds": Decimal(72_000), "minutes": Decimal(60), "coverage": Decimal(1), "mfu": Decimal("0.60"),
        "hfu": Decimal("0.70"),
    } | changed  # fmt: skip
    return judge(policy, **facts)  # type: ignore[typeddict-item]


def reason(**changed: Decimal | None) -> str:
    return verdict(**changed).reason


@pytest.mark.parametrize("missing", ["mfu", "hfu", "coverage"])
def test_missing_telemetry_is_neutral(missing: str) -> None:
    assert reason(**{missing: None}) == "neutral:missing"


def test_contradictory_telemetry_is_neutral() -> None:
    assert reason(mfu=Decimal("0.71")) == "neutral:inconsistent"
    assert reason(mfu=Decimal("1.2"), hfu=Decimal("1.3")) == "neutral:inconsistent"


def test_coverage_and_duration_at_their_bounds_count() -> None:
    assert reason(coverage=Decimal("0.95"), minutes=Decimal(30)) == "reward"
    assert reason(coverage=Decimal("0.9499")) == "neutral:coverage"
    assert reason(minutes=Decimal("29.999")) == "neutral:short"


@pytest.mark.parametrize(
    ("accelerator", "peak"),
    [
        ("NVIDIA-H800", "989.4"), ("NVIDIA-H200-141GB", "989.4"), ("NVIDIA-H20", "148"), ("NVIDIA-GB200", "2500"),
        ("NVIDIA-B200", "2250"), ("NVIDIA-L40S", "362"), ("NVIDIA-L40", "181"), ("NVIDIA-A100-SXM4-80GB", "312"),
    ],
)  # fmt: skip
def test_product_names_find_their_dense_peak(accelerator: str, peak: str) -> None:
    assert dense_peak_tflops(accelerator, "bf16") == Decimal(peak)


def test_an_unknown_product_or_precision_has_no_peak() -> None:
    assert dense_peak_tflops("ANY", "bf16") is None
    assert dense_peak_tflops("NVIDIA-A100", "fp8") is None


def test_a_gpu_hour_is_the_least_that_is_judged() -> None:
    assert reason(gpu_seconds=Decimal(3600)) == "reward"
    assert reason(gpu_seconds=Decimal("3599.9")) == "neutral:short"


def test_coverage_above_one_is_a_data_error() -> None:
    assert reason(coverage=Decimal("1.01")) == "neutral:inconsistent"


def test_a_job_without_telemetry_is_missing_and_not_short() -> None:
    assert reason(mfu=None, hfu=None, minutes=Decimal(0), coverage=Decimal(0)) == "neutral:missing"
    assert reason(minutes=Decimal(5), coverage=None) == "neutral:short"


@pytest.mark.parametrize("accelerator", ["NVIDIA-RTX-A1000", "RTX A4000", "NVIDIA-GH200", "NVIDIA-B300", "AMD-MI300X", ""])
def test_a_name_within_another_name_is_no_match(accelerator: str) -> None:
    assert dense_peak_tflops(accelerator, "bf16") is None


@pytest.mark.parametrize(
    ("accelerator", "dtype", "peak"),
    [
        ("NVIDIA H100 NVL", "bfloat16", "835"), ("NVIDIA-H100-PCIe", "fp16", "756"),
        ("nvidia_h100_80gb_hbm3", "FP8", "1978.9"),
        ("Tesla A10", "bf16", "125"), ("huawei-Ascend910A", "fp16", "256"), ("Ascend910A", "fp8", None),
    ],
)  # fmt: skip
def test_names_are_written_in_many_ways(accelerator: str, dtype: str, peak: str | None) -> None:
    assert dense_peak_tflops(accelerator, dtype) == (Decimal(peak) if peak else None)


def linear(mfu: str, hfu: str, **changed: Decimal | None) -> tuple[Decimal, str]:
    found = verdict(replace(BANDS, form=Form.LINEAR), mfu=Decimal(mfu), hfu=Decimal(hfu), **changed)
    return found.multiplier, found.reason


def test_the_linear_policy_has_no_cliff_and_the_same_eligibility() -> None:
    assert linear("0.01", "0.02") == (Decimal("1.2"), "penalty")
    assert linear("0.18", "0.20") == (Decimal(1), "neutral")
    assert linear("0.55", "0.70") == (Decimal("0.95"), "reward")
    assert linear("0.55", "0.70", coverage=Decimal("0.9")) == (Decimal(1), "neutral:coverage")


def test_a_pool_without_reward_base_pays_nothing() -> None:
    assert neutral_pool_share(6000, 0) == 1
    assert neutral_pool_share(60_000, 9_000) == 1
    assert neutral_pool_share(0, 9_000) == 0


def test_nothing_weighs_nothing() -> None:
    assert weighted_mean([]) is None
