"""Efficiency verdicts at the edges; the bands themselves are golden cases."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pricing.efficiency import EfficiencyPolicy, dense_peak_tflops, judge

BANDS = EfficiencyPolicy(
    "bands", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.20"), Decimal("0.20"), Decimal("0.50"), Decimal("0.10")
)


def reason(**changed: Decimal | None) -> str:
    facts: dict[str, Decimal | None] = {
        "gpu_seconds": Decimal(72_000), "minutes": Decimal(60), "coverage": Decimal(1), "mfu": Decimal("0.60"),
        "hfu": Decimal("0.70"),
    } | changed  # fmt: skip
    return judge(BANDS, **facts).reason  # type: ignore[arg-type]


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
