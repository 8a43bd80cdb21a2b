"""`python -m pricing efficiency`: multipliers and reasons of workloads under a policy."""

import json
from typing import Any

import pytest

from tests.pricing_cli import POLICY, Desk, desk, workload

__all__ = ["desk"]


def test_efficiency_gives_multiplier_and_reason(desk: Desk) -> None:
    cases = {
        "a": workload("a", mfu="0.15", hfu="0.1999"), "b": workload("b", mfu="0.5001", hfu="0.60"), "c": workload("c"),
        "d": workload("d", minutes=29), "e": workload("e", coverage="0.92"), "f": workload("f", mfu="0.55", hfu="0.18"),
        "g": workload("g", mfu=None), "h": workload("h", mfu="0.18", hfu="0.20"),
    }  # fmt: skip
    answer = desk.json("efficiency", desk.file("a.json", {"policy": POLICY, "workloads": list(cases.values())}))
    assert {row["id"]: (row["multiplier"], row["reason"]) for row in answer["workloads"]} == {
        "a": ("1.2", "penalty"), "b": ("0.9", "reward"), "c": ("1", "neutral"), "d": ("1", "neutral:short"),
        "e": ("1", "neutral:coverage"), "f": ("1", "neutral:inconsistent"), "g": ("1", "neutral:missing"),
        "h": ("1", "neutral"),
    }  # fmt: skip


def test_a_policy_may_penalise_on_mfu_which_recomputation_does_not_lift(desk: Desk) -> None:
    """MFU 0.16 with full recomputation is HFU 0.2133: no penalty on HFU; on MFU 1.2, or 1 + 0.2 x 0.4 without cliffs."""
    jobs = [workload("a", mfu="0.16", hfu="0.2133"), workload("b", mfu="0.20", hfu="0.2667")]
    reported = {}
    for name, changed in (
        ("hfu", {}), ("mfu", {"penalise_on": "mfu"}), ("linear", {"penalise_on": "mfu", "form": "linear"}),
        ("wide", {"penalise_on": "mfu", "form": "linear", "width": "0.16"}),
    ):  # fmt: skip
        answer = desk.json("efficiency", desk.file("a.json", {"policy": {**POLICY, **changed}, "workloads": jobs}))
        reported[name] = [row["multiplier"] for row in answer["workloads"]]
    assert reported == {"hfu": ["1", "1"], "mfu": ["1.2", "1"], "linear": ["1.08", "1"], "wide": ["1.05", "1"]}


def test_a_policy_file_has_classes_exemptions_and_suspended_teams(desk: Desk) -> None:
    classes = [
        {"name": "debug", "queues": ["debug*"], "exempt_until": "2026-10-15"},
        {"name": "small", "queues": ["small"], "mfu_above": "0.35", "reward": "0.05", "penalise_on": "mfu"},
    ]
    jobs = [
        workload("a", mfu="0.05", hfu="0.10", queue="debug-1", start="2026-10-10"),
        workload("b", mfu="0.05", hfu="0.10", queue="debug-1", start="2026-10-16"),
        workload("c", mfu="0.40", hfu="0.45", queue="small"),
        workload("d", mfu="0.19", hfu="0.30", queue="small"),
        workload("e", mfu="0.55", hfu="0.60", team="cv"),
        workload("f", gpu_seconds=3599),
    ]
    policy = {**POLICY, "classes": classes, "unrewarded": ["cv"]}
    answer = desk.json("efficiency", desk.file("a.json", {"policy": policy, "workloads": jobs}))
    assert [(row["multiplier"], row["reason"]) for row in answer["workloads"]] == [
        ("1", "neutral:exempt"), ("1.2", "penalty"), ("0.95", "reward"), ("1.2", "penalty"), ("1", "neutral:suspended"),
        ("1", "neutral:short"),
    ]  # fmt: skip
    policy["min_gpu_seconds"] = 3599
    answer = desk.json("efficiency", desk.file("a.json", {"policy": policy, "workloads": jobs}))
    assert answer["workloads"][5]["reason"] == "neutral"


def test_utilisation_is_worked_out_from_what_a_run_did(desk: Desk) -> None:
    """1.2 million tokens/s of 10^10 parameters on 256 H100: 28.43 % of 989.4 TFLOP/s; recomputation makes it 37.90 % HFU.

    Phases: 40 % at a peak of 989.4 and 25 % at 1978.9, of equal seconds: (0.4 x 989.4 + 0.25 x 1978.9) / 2968.3.
    """
    run = {"tokens_per_second": 1_200_000, "active_params": "1e10", "gpus": 256, "dtype": "bf16"}
    run["accelerator"] = "NVIDIA-H100"
    bare = {"id": "a", "gpu_seconds": 72_000, "minutes": 60, "coverage": "1"}
    phases = [
        {"gpu_seconds": 3600, "mfu": "0.4", "hfu": "0.4", "dtype": "bf16"},
        {"gpu_seconds": 3600, "mfu": "0.25", "hfu": "0.5", "peak_tflops": "1978.9"},
    ]
    jobs = [
        {**bare, **run}, {**bare, **run, "id": "b", "recomputation": "full"},
        {**bare, "id": "c", "phases": phases, "accelerator": "NVIDIA-H100"},
    ]  # fmt: skip
    rows = desk.json("efficiency", desk.file("a.json", {"policy": POLICY, "workloads": jobs}))["workloads"]
    assert rows[0] == {
        "id": "a", "multiplier": "1", "reason": "neutral", "mfu": "0.284263189812", "hfu": "0.284263189812"
    }  # fmt: skip
    assert rows[1]["hfu"] == "0.379017586416"
    assert (rows[2]["mfu"], rows[2]["hfu"]) == ("0.299998315534", "0.466667789644")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tokens_per_second": 5}, "workloads[0].mfu: '0.30' is given beside tokens_per_second: give one of them"),
        ({"mfu": None, "hfu": None, "tokens_per_second": 5}, "workloads[0].active_params: is missing"),
        ({"phases": [{"gpu_seconds": 1}]}, "workloads[0].mfu: '0.30' is given beside phases: give one of them"),
        ({"mfu": None, "hfu": None, "phases": [{"mfu": "0.1", "dtype": "bf16", "accelerator": "abacus"}]},
         "workloads[0].phases[0].accelerator: 'abacus' has no known dense peak for 'bf16': give peak_tflops"),
        ({"mfu": None, "hfu": None, "phases": [{"mfu": "0.1", "dtype": "bf16"}]},
         "workloads[0].phases[0].gpu_seconds: is missing"),
    ],
)  # fmt: skip
def test_a_run_that_says_too_little_is_named(desk: Desk, changed: dict[str, Any], says: str) -> None:
    job = {name: value for name, value in workload("a", **changed).items() if value is not None}
    err = desk.refused("efficiency", desk.file("a.json", {"policy": POLICY, "workloads": [job]}))
    assert [line for line in err if says in line], err


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"penalise_on": "gpu_util"}, "policy.penalise_on: 'gpu_util' must be hfu or mfu"),
        ({"form": "steps"}, "policy.form: 'steps' must be bands or linear"),
        ({"width": "10"}, "policy.width: '10' must be a number above 0 up to 1 (ratio): 10 % is 0.10"),
        ({"classes": [{"name": "a", "colour": "red"}]}, "policy.classes[0].colour: is no field of a class of workloads"),
        ({"classes": [{"name": "a", "mfu_above": "50"}]}, "policy.classes[0].mfu_above: '50' must be a number from 0 to 1"),
    ],
)
def test_a_bad_field_of_a_policy_is_named(desk: Desk, changed: dict[str, Any], says: str) -> None:
    status, _, err = desk.run(
        "efficiency", desk.file("a.json", {"policy": {**POLICY, **changed}, "workloads": [workload("a")]})
    )
    assert status == 2
    assert [line for line in err if says in line], err


def test_a_policy_may_begin_on_a_plain_date(desk: Desk) -> None:
    policy = POLICY | {"valid_from": "2026-10-01"}
    assert desk.json("efficiency", desk.file("a.json", {"policy": policy, "workloads": [workload("a")]}))


def test_efficiency_without_cliffs(desk: Desk) -> None:
    file = desk.file("a.json", {"policy": POLICY, "workloads": [workload("a", mfu="0.15", hfu="0.1999")]})
    assert desk.json("efficiency", file, "--linear")["workloads"][0]["multiplier"] == "1.0002"


@pytest.mark.parametrize(
    ("policy", "workloads", "says"),
    [
        ({"hfu_below": "20"}, [workload("a")], "policy.hfu_below: '20' must be a number from 0 to 1 (ratio): 20 % is 0.20"),
        ({"hfu_below": "0.6"}, [workload("a")], "policy.hfu_below: 0.6 must not be above mfu_above 0.50"),
        ({"valid_from": "2026-10-01T00"}, [workload("a")], "policy.valid_from: '2026-10-01T00' must be a time with"),
        ({}, [workload("a"), workload("a")], "workloads[1].id: 'a' is there twice"),
        ({}, [workload("a", mfu="n/a")], "workloads[0].mfu: 'n/a' must be a number"),
        ({}, [workload("a", mfy="1")], "workloads[0].mfy: is no field of a workload, did you mean mfu?"),
        ({}, [5], "workloads[0]: must be a mapping of the fields of a workload, not 5"),
        ({}, [], "workloads: is an empty list"),
    ],
)
def test_a_bad_efficiency_file(desk: Desk, policy: dict[str, str], workloads: list[Any], says: str) -> None:
    (complaint,) = desk.refused("efficiency", desk.file("a.json", {"policy": {**POLICY, **policy}, "workloads": workloads}))
    assert says in complaint


def test_a_neutral_pool_pays_rewards_from_the_penalties_of_the_file(desk: Desk) -> None:
    """D10 at one price: 30,000 GPU-hours x 0.20 pay for 90,000 x 1/15, where 90,000 x 0.10 was promised."""
    jobs = [
        workload("a", mfu="0.15", hfu="0.1999", gpu_seconds=30_000 * 3600),
        workload("b", mfu="0.60", hfu="0.60", gpu_seconds=60_000 * 3600),
        workload("c", mfu="0.55", hfu="0.60", gpu_seconds=30_000 * 3600), workload("d", gpu_seconds=10**9),
    ]  # fmt: skip
    path = desk.file("a.json", {"policy": {**POLICY, "neutral_pool": True}, "workloads": jobs})
    status, out, err = desk.run("efficiency", path, "--json")
    answer = json.loads(out)
    assert (status, err) == (0, answer["notes"])
    assert err == [f"{path}: neutral_pool: rewards are paid from the penalties of these workloads, as if at one price"]
    assert [(row["multiplier"], row["reason"]) for row in answer["workloads"]] == [
        ("1.2", "penalty"), ("0.933333333333", "reward"), ("0.933333333333", "reward"), ("1", "neutral"),
    ]  # fmt: skip


@pytest.mark.parametrize(("penalised", "paid"), [(None, ("1", "neutral")), (10**9, ("0.9", "reward"))])
def test_a_neutral_pool_pays_nothing_from_nothing_and_never_more_than_the_policy(
    desk: Desk, penalised: int | None, paid: tuple[str, str]
) -> None:
    jobs = [workload("b", mfu="0.60", hfu="0.60")]
    if penalised:
        jobs.append(workload("a", mfu="0.15", hfu="0.1999", gpu_seconds=penalised))
    path = desk.file("a.json", {"policy": {**POLICY, "neutral_pool": "true"}, "workloads": jobs})
    _, out, _ = desk.run("efficiency", path, "--json")
    row = json.loads(out)["workloads"][0]
    assert (row["multiplier"], row["reason"]) == paid


@pytest.mark.parametrize("field", ["shadow", "gather_short"])
def test_whatever_else_a_set_up_file_says_of_a_policy_is_taken(desk: Desk, field: str) -> None:
    path = desk.file("a.json", {"policy": {**POLICY, field: "true"}, "workloads": [workload("a", mfu="0.15", hfu="0.1999")]})
    assert desk.json("efficiency", path)["workloads"][0]["multiplier"] == "1.2"


def test_a_switch_of_a_policy_is_true_or_false(desk: Desk) -> None:
    path = desk.file("a.json", {"policy": {**POLICY, "neutral_pool": "perhaps"}, "workloads": [workload("a")]})
    (complaint,) = desk.refused("efficiency", path)
    assert "policy.neutral_pool: 'perhaps' must be true or false" in complaint
