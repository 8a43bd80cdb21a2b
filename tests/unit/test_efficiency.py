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


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mfu": None}, "neutral:missing"), ({"hfu": None}, "neutral:missing"), ({"coverage": None}, "neutral:missing"),
        ({"mfu": None, "hfu": None, "minutes": "0", "coverage": "0"}, "neutral:missing"),  # not short
        ({"minutes": "5", "coverage": None}, "neutral:short"),
        ({"mfu": "0.71"}, "neutral:inconsistent"), ({"mfu": "1.2", "hfu": "1.3"}, "neutral:inconsistent"),
        ({"coverage": "1.01"}, "neutral:inconsistent"),
        ({"coverage": "0.95", "minutes": "30"}, "reward"), ({"coverage": "0.9499"}, "neutral:coverage"),
        ({"minutes": "29.999"}, "neutral:short"),
        ({"gpu_seconds": "3600"}, "reward"), ({"gpu_seconds": "3599.9"}, "neutral:short"),
    ],
)  # fmt: skip
def test_what_is_not_measured_well_enough_is_neutral_with_its_reason(changed: dict[str, str | None], reason: str) -> None:
    assert verdict(**{name: text and Decimal(text) for name, text in changed.items()}).reason == reason  # type: ignore[misc]


@pytest.mark.parametrize(
    ("accelerator", "dtype", "peak"),
    [
        ("NVIDIA-H800", "bf16", "989.4"), ("NVIDIA-H200-141GB", "bf16", "989.4"), ("NVIDIA-H20", "bf16", "148"),
        ("NVIDIA-GB200", "bf16", "2500"), ("NVIDIA-B200", "bf16", "2250"), ("NVIDIA-L40S", "bf16", "362"),
        ("NVIDIA-L40", "bf16", "181"), ("NVIDIA-A100-SXM4-80GB", "bf16", "312"), ("NVIDIA H100 NVL", "bfloat16", "835"),
        ("NVIDIA-H100-PCIe", "fp16", "756"), ("nvidia_h100_80gb_hbm3", "FP8", "1978.9"), ("Tesla A10", "bf16", "125"),
        ("huawei-Ascend910A", "fp16", "256"), ("Ascend910A", "fp8", None), ("NVIDIA-A100", "fp8", None),
        # unknown products, most with a known name within their own
        ("ANY", "bf16", None), ("", "bf16", None), ("NVIDIA-RTX-A1000", "bf16", None), ("RTX A4000", "bf16", None),
        ("NVIDIA-GH200", "bf16", None), ("NVIDIA-B300", "bf16", None), ("AMD-MI300X", "bf16", None),
    ],
)  # fmt: skip
def test_product_names_find_their_dense_peak(accelerator: str, dtype: str, peak: str | None) -> None:
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
