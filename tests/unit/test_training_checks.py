"""What a plan is asked before its budget is: each check by hand where it holds, fails, and lacks an input."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing.training_plan import TrainingPlanError, parse_training_plan

PLAN: dict[str, Any] = {
    "accelerator": "NVIDIA-H800", "dtype": "bf16", "active_params": "10e9", "tokens": "10e12", "gpus": "256", "mfu": "0.43",
    "goodput": "0.90", "price_per_gpu_hour": "10", "gpu_power_kw": "1.275", "pue": "1.3", "carbon_kg_per_kwh": "0.5306",
}  # fmt: skip


def asked(name: str, **changed: Any) -> tuple[bool | None, str]:
    checks = {check.name: check for check in parse_training_plan({**PLAN, **changed}).checks()}
    assert list(checks) == ["memory", "data", "deadline", "experience"]
    return checks[name].holds, checks[name].text


def test_memory_counts_all_experts_and_flop_only_the_active_ones() -> None:
    """671 B parameters x 16 bytes / 256 GPUs = 41.94 GB, / 64 GPUs = 167.75 GB; the FLOP stay those of 37 B."""
    experts = {"active_params": "37e9", "total_params": "671e9", "gpu_memory_gb": "80"}
    assert asked("memory", **experts) == (
        True, "weights, gradients and optimizer take 41.94 GB of each GPU's 80 GB before activations"
    )  # fmt: skip
    holds, text = asked("memory", **experts, gpus="64")
    assert holds is False
    assert text.startswith("the model does not fit: weights, gradients and optimizer take 167.75 GB of each GPU's 80 GB")
    assert asked("memory", **experts, gpus="64", bytes_per_param="6")[0] is True  # 62.91 GB
    flop = parse_training_plan({**PLAN, **experts}).flop
    assert flop == parse_training_plan({**PLAN, "active_params": "37e9"}).flop == 6 * 37 * 10**9 * 10**13


def test_what_is_not_known_is_not_passed() -> None:
    assert asked("memory", total_params="10e9")[0] is None
    assert asked("deadline") == (None, "deadline_days is not given: whether the run is done in time is not checked")
    assert asked("experience") == (None, "mfu_p90 of own runs is not known: the MFU is an assumption")


def test_total_below_active_is_a_contradiction() -> None:
    with pytest.raises(TrainingPlanError, match="total_params: 9000000000 must be at least active_params 10000000000"):
        parse_training_plan({**PLAN, "total_params": "9e9"})


@pytest.mark.parametrize(
    ("tokens", "holds", "reported"), [("200e9", True, "20 tokens"), ("199e9", False, "tokens are 19.9 times")]
)
def test_twenty_tokens_for_each_active_parameter(tokens: str, holds: bool, reported: str) -> None:
    found, text = asked("data", tokens=tokens)
    assert found is holds
    assert text.startswith(reported)


@pytest.mark.parametrize(("deadline", "holds"), [("80.85", True), ("80.84", False)])
def test_queue_and_run_must_end_before_the_deadline(deadline: str, holds: bool) -> None:
    """E09: 70.8459 days of running; 10 more in the queue."""
    found, text = asked("deadline", queue_days="10", deadline_days=deadline)
    assert found is holds
    assert text.endswith(f"10 days in the queue and 70.85 of running, deadline {deadline} days")


@pytest.mark.parametrize(("own", "holds"), [("0.43", True), ("0.42", False)])
def test_an_mfu_above_ones_own_best_tenth_is_hope(own: str, holds: bool) -> None:
    found, text = asked("experience", mfu_p90=own)
    assert found is holds
    assert f"mfu 0.43 against {own}" in text
    assert text.startswith("too hopeful: ") is not holds


def test_storage_and_requests_are_lines_of_the_budget() -> None:
    """256 x 989.4e12 x 0.43 x 0.9: 70.845892 days = 2.329180 months of 730 h, so 34 937.70 for 50 TB at 300, and 1000."""
    stored = {"storage_tb": "50", "storage_price_per_tb_month": "300", "requests_cost": "1000"}
    bare, kept = (parse_training_plan({**PLAN, "contingency_ratio": "0.2", **more}).estimate() for more in ({}, stored))
    storage = bare.days * 24 / 730 * 15_000 + 1000
    assert (bare.storage_cost, kept.storage_cost) == (Decimal("0.00"), Decimal("35937.70"))
    assert abs(Fraction(kept.total_cost) - Fraction(bare.total_cost) - storage * Fraction("1.2")) <= Fraction(1, 100)
    assert kept.main_cost == bare.main_cost
    with pytest.raises(TrainingPlanError, match="storage_price_per_tb_month: is missing, but storage_tb is given"):
        parse_training_plan({**PLAN, "storage_tb": "50"})
