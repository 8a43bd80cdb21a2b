"""`python -m pricing training-plan` and `storage`: what a run and a month of a store come to."""

from decimal import Decimal
from typing import Any

import pytest

from tests.pricing_cli import PLAN, Desk, desk

__all__ = ["desk"]


def test_a_training_plan_has_low_base_and_high(desk: Desk) -> None:
    answer = desk.json("training-plan", desk.file("a.json", PLAN))
    base = answer["base"]
    assert {name: answer[name] for name in base} == base
    assert base == {
        "flop": "600000000000000000000000", "gpu_hours": "435277.159248934485", "days": "70.845891804840",
        "main_cost": "4352771.59", "total_cost": "7573822.57", "kwh": "721471.891455108909",
        "kg_co2": "382812.985606080787",
    }  # fmt: skip
    for field in ("gpu_hours", "days", "main_cost", "total_cost", "kwh", "kg_co2"):
        assert Decimal(answer["low"][field]) <= Decimal(base[field]) <= Decimal(answer["high"][field])


STORE = {
    "storage": [
        {"tier": "hot", "tb_months": "200", "price_per_tb_month": "150"},
        {"tier": "warm", "byte_seconds": 3 * 10**12 * 1_339_200, "price_per_tb_month": "23"},
    ],
    "requests": [
        {"class": "GET", "count": 2_500_000_000, "price_per_1000": "0.0004"},
        {"class": "PUT", "count": 2_500_000_000, "price_per_1000": "0.005"},
    ],
    "month_seconds": 2_678_400,
}  # fmt: skip


def test_a_month_of_a_store_is_priced_by_tier_and_class(desk: Desk) -> None:
    """200 x 150; 3 TB over half of 31 days are 1.5 TB-months x 23; 2.5 million x 0.0004 and x 0.005."""
    path = desk.file("a.json", STORE)
    assert desk.json("storage", path) == {
        "lines": [
            {"kind": "storage", "name": "hot", "amount": "30000.00"},
            {"kind": "storage", "name": "warm", "amount": "34.50"},
            {"kind": "requests", "name": "GET", "amount": "1000.00"},
            {"kind": "requests", "name": "PUT", "amount": "12500.00"},
        ],
        "total": "43534.50",
    }
    assert desk.run("storage", path)[1].splitlines()[-1] == "total           43534.50"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"storage": None, "requests": None}, "storage: is missing, and so is requests: give at least one of them"),
        ({"month_seconds": None}, "storage[1].byte_seconds: needs month_seconds of the document"),
        ({"month_seconds": 2764800}, "month_seconds: 2764800 must be a whole number from 2419200 to 2682000"),
        ({"month_seconds": 31}, "month_seconds: 31 must be a whole number from 2419200 to 2682000 (seconds of the month)"),
        ({"storage": [{"tier": "a", "tb_months": 1, "byte_seconds": 1, "price_per_tb_month": 1}]},
         "storage[0].byte_seconds: is given beside tb_months: give one of them"),
        ({"storage": [{"tier": "a", "price_per_tb_month": 1}]},
         "storage[0].tb_months: is missing, must be a number from 0 to 1e9 (decimal TB over the whole month, 0.2 PB are"),
        ({"requests": [{"class": "GET", "count": "1.5", "price_per_1000": "1"}]},
         "requests[0].count: '1.5' must be a whole number from 0 to 1e18 (requests)"),
        ({"requests": {"GET": 1}}, "requests: {'GET': 1} must be a list"),
    ],
)  # fmt: skip
def test_a_bad_month_of_a_store_is_named(desk: Desk, changed: dict[str, Any], says: str) -> None:
    fields = {name: value for name, value in {**STORE, **changed}.items() if value is not None}
    err = desk.refused("storage", desk.file("a.json", fields))
    assert [line for line in err if says in line], err


def test_a_plan_stores_by_tier_says_its_steps_and_what_its_flop_are_best_spent_on(desk: Desk) -> None:
    """70.8458918 days are 2.32918... months of 730 h; 1024 x 4096 tokens a step; 6e23 FLOP: N = sqrt(C / 120)."""
    bare = desk.json("training-plan", desk.file("a.json", PLAN))
    store = {name: STORE[name] for name in ("requests",)} | {"storage": STORE["storage"][:1]}  # type: ignore[index]
    reported = desk.json("training-plan", desk.file("b.json", PLAN | store | {"sequences_per_step": 1024, "seq_len": 4096}))
    stored = Decimal(bare["days"]) * 24 / 730 * 30_000 + 13_500
    assert abs(Decimal(reported["total_cost"]) - Decimal(bare["total_cost"]) - stored * Decimal("1.2")) < Decimal("0.01")
    assert reported["optimizer_steps"] == 2_384_186
    assert bare["compute_optimal"] == {"active_params": "70710678119", "tokens": "1414213562373"}
    assert "optimizer_steps" not in bare


def test_a_plan_stores_bytes_over_the_seconds_of_a_month(desk: Desk) -> None:
    """3 TB over half of 31 days are 1.5 TB a month: 1.5 x 23 for each of 2.32918... months of 730 h, and its contingency."""
    bare = desk.json("training-plan", desk.file("a.json", PLAN))
    kept = {"storage": STORE["storage"][1:], "month_seconds": 2_678_400}  # type: ignore[index]
    reported = desk.json("training-plan", desk.file("b.json", PLAN | kept))
    stored = Decimal(bare["days"]) * 24 / 730 * Decimal("34.5")
    assert abs(Decimal(reported["total_cost"]) - Decimal(bare["total_cost"]) - stored * Decimal("1.2")) < Decimal("0.01")


def test_contingency_may_be_a_share_of_the_total(desk: Desk) -> None:
    """1.45 / 0.8 = 1.8125 in place of 1.45 x 1.2 = 1.74."""
    reported = desk.json("training-plan", desk.file("a.json", PLAN | {"contingency_method": "share-of-total"}))
    assert abs(Decimal(reported["main_cost"]) * Decimal("1.8125") - Decimal(reported["total_cost"])) < Decimal("0.01")
    status, _, err = desk.run("training-plan", desk.file("b.json", PLAN | {"contingency_method": "guess"}))
    assert (status, err[0].partition(": ")[2]) == (2, "contingency_method: 'guess' must be on-base or share-of-total")


def test_a_plan_with_layers_counts_attention(desk: Desk) -> None:
    layers = {"layers": 40, "model_width": 4608, "seq_len": 4096}
    full = desk.json("training-plan", desk.file("a.json", PLAN | layers))
    causal = desk.json("training-plan", desk.file("b.json", PLAN | layers | {"attention": "causal"}))
    assert int(full["flop"]) == 10**13 * (6 * 10**10 + 9_059_696_640)
    assert int(causal["flop"]) == 10**13 * (6 * 10**10 + 9_059_696_640 // 2)


def test_a_plan_may_give_its_own_range_and_peak(desk: Desk) -> None:
    ranges = {"mfu_low": "0.50", "mfu_high": "0.40", "goodput_low": "0.95", "goodput_high": "0.80"}
    own = PLAN | ranges | {"peak_tflops": "989.4"}
    answer = desk.json("training-plan", desk.file("a.json", own))
    ratios = {name: Decimal(answer[name]["gpu_hours"]) / Decimal(answer["base"]["gpu_hours"]) for name in ("low", "high")}
    assert round(ratios["low"], 9) == round(Decimal("0.387") / Decimal("0.475"), 9)
    assert round(ratios["high"], 9) == round(Decimal("0.387") / Decimal("0.32"), 9)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"mfu": "43"}, "mfu: '43' must be a number above 0 to below 1 (ratio): 55 % is 0.55"),
        ({"accelerator": "NVIDIA-X1"}, "accelerator: 'NVIDIA-X1' has no known dense peak for 'bf16': give peak_tflops"),
        ({"layers": 40}, "seq_len: is missing"),
        ({"overheads": {"data": "20"}}, "overheads.data: '20' must be a number from 0 to 10"),
        ({"overheads": ["0.2"]}, "overheads: must be a mapping"),
        ({"mfu_low": "0.3"}, "mfu_low: must be at least mfu"),
        ({"goodput_high": "0.95"}, "goodput_high: must be at most goodput"),
        ({"attention": "half"}, "attention: 'half' must be full or causal"),
        ({"total_parameters": "1e11"}, "total_parameters: is no field of a training plan, did you mean total_params?"),
    ],
)
def test_a_bad_training_plan(desk: Desk, changed: dict[str, Any], says: str) -> None:
    err = desk.refused("training-plan", desk.file("a.json", {**PLAN, **changed}))
    assert says in err[0]
