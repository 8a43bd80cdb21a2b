"""Devices that pods claim (dynamic resource allocation), from the API server to what the platform holds. Numbers by hand.

A cluster with one node of H100s; `here.held(pod)` reports per allocation: resource, product, units, fraction, from second,
until second since 10:00:00 (an open one in round brackets until the last sight).
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.agent.claims import GPU, H100, MIG, PRODUCT, claims, device_seconds, held, late, launch, second
from tests.agent.cluster import START, stamp
from tests.agent.rig import Rig, rig


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite", claims=True) as made:
        made.cluster.add_node("n-1")
        made.cluster.add_slice("n-1", {"gpu-0": H100, "gpu-1": H100, "gpu-2": H100, "mig-0": MIG})
        made.settle()
        yield made


def test_a_pod_that_only_claims_is_metered_from_binding_to_its_end(here: Rig) -> None:
    here.cluster.allocate("two", "gpu-0", "gpu-1")
    here.cluster.advance(10)
    launch(here, "u", "two")
    here.cluster.advance(30)
    here.cluster.finish("u")
    here.cluster.advance(5)
    here.cluster.release("two", "u")
    here.report()
    assert held(here, "u") == [(GPU, PRODUCT, 2, "1", 10, 40, "completed")]
    reported = here.platform.hold("u")
    assert (reported["node"], reported["end_rule"], reported["end_estimated"]) == ("n-1", "finishedAt", False)
    assert here.platform.watermark == stamp(START + timedelta(seconds=45))


def test_a_claim_made_of_a_template_is_known_though_it_vanished_with_its_pod(here: Rig) -> None:
    """Claim and pod came and went between two looks of the agent; the events of the watch report both."""
    here.cluster.allocate("u-gpus-x7k2p", "gpu-0")
    here.cluster.create("u", 0, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "t"}, {"name": "unneeded"}])
    pod = here.cluster.pod("u")
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpus", "resourceClaimName": "u-gpus-x7k2p"}, {"name": "unneeded"}]
    here.cluster.put("pods", pod)
    here.cluster.reserve("u-gpus-x7k2p", "u")
    here.cluster.bind("u")
    here.cluster.advance(30)
    here.cluster.finish("u")
    here.cluster.delete("u")
    here.cluster.remove("resourceclaims", "claim-u-gpus-x7k2p")
    here.cluster.remove("resourceslices", "slice-n-1-gpu.nvidia.com")
    here.report()
    assert held(here, "u") == [(GPU, PRODUCT, 1, "1", 0, 30, "completed")]
    assert "problems" not in here.platform.agent


def test_pods_that_share_a_claim_pay_it_together_once_whenever_each_came_and_went(here: Rig) -> None:
    """`a` has the card alone for 60 s, with `b` for 40 s, with `b` and `c` for 20 s, with `c` for 10 s, then `c` alone."""
    here.cluster.allocate("one", "gpu-0")
    for uid, wait in (("a", 60), ("b", 40), ("c", 20)):
        launch(here, uid, "one")
        here.cluster.advance(wait)
        here.report()
    here.cluster.finish("b")
    here.cluster.advance(10)
    here.cluster.finish("a", "Failed")
    here.cluster.advance(30)
    here.report()
    here.deliver()
    third = "0.333333333333"
    changed = "share of a claim changed"
    assert held(here, "a") == [
        (GPU, PRODUCT, 1, third, 100, 120, changed), (GPU, PRODUCT, 1, "0.5", 60, 100, changed),
        (GPU, PRODUCT, 1, "0.5", 120, 130, "failed"), (GPU, PRODUCT, 1, "1", 0, 60, changed),
    ]  # fmt: skip
    assert held(here, "b") == [
        (GPU, PRODUCT, 1, third, 100, 120, "completed"), (GPU, PRODUCT, 1, "0.5", 60, 100, changed),
    ]  # fmt: skip
    assert held(here, "c") == [
        (GPU, PRODUCT, 1, third, 100, 120, changed), (GPU, PRODUCT, 1, "0.5", 120, 130, changed),
        (GPU, PRODUCT, 1, "1", 130, 160, "open"),
    ]  # fmt: skip
    assert round(device_seconds(here, "a", "b", "c"), 6) == 160
    before = dict(here.platform.holds)
    here.platform.replay()
    assert here.platform.holds == before


def test_who_shares_a_claim_is_reported_at_once_and_not_only_with_the_next_round_of_all(here: Rig) -> None:
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.report()
    here.cluster.advance(10)
    launch(here, "b", "one")
    here.watch()
    here.agent.report(here.api.clock.now(), refresh=False)
    here.delivery.run_once()
    assert [item[3:] for item in held(here, "a")] == [
        ("0.5", 10, 10, "open"), ("1", 0, 10, "share of a claim changed"),
    ]  # fmt: skip


def test_a_share_that_changed_while_nobody_watched_changes_when_it_did(here: Rig) -> None:
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.cluster.advance(50)
    here.report()
    here.kill()
    here.cluster.advance(50)
    launch(here, "b", "one")
    here.cluster.compact()
    here.cluster.advance(100)
    here.start()
    here.settle()
    here.deliver()
    assert held(here, "a") == [
        (GPU, PRODUCT, 1, "0.5", 100, 200, "open"), (GPU, PRODUCT, 1, "1", 0, 100, "share of a claim changed"),
    ]  # fmt: skip
    assert device_seconds(here, "a", "b") == 200


def test_a_pod_that_is_learned_of_late_corrects_the_shares_that_were_reported(here: Rig) -> None:
    late(here)
    third, changed = "0.333333333333", "share of a claim changed"
    assert [item[3:] for item in held(here, "a") if item[4] != item[5]] == [
        (third, 60, 100, "open"), ("0.5", 20, 60, changed), ("1", 0, 20, changed),
    ]  # fmt: skip
    assert [item[3:] for item in held(here, "b")] == [(third, 60, 100, "open"), ("0.5", 20, 60, changed)]
    assert [item[3:] for item in held(here, "c") if item[4] != item[5]] == [(third, 60, 100, "open")]
    assert round(device_seconds(here, "a", "b", "c"), 6) == 100


def unseen(here: Rig, ends_s: int) -> None:
    """While nobody watches, `b` shares the claim of `a` from 100 s to 160 s, `a` ends, and the claim is gone with both."""
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.cluster.advance(50)
    here.report()
    here.kill()
    here.cluster.advance(50)
    launch(here, "b", "one")
    here.cluster.finish("a", finished_at=START + timedelta(seconds=ends_s))
    here.cluster.advance(60)
    here.cluster.finish("b")
    here.cluster.remove("resourceclaims", "claim-one")
    here.cluster.compact()
    here.cluster.advance(140)
    here.start()
    here.settle()
    here.deliver()
    here.cluster.advance(180)  # longer than a claim is waited for
    here.settle()
    here.deliver()
    here.deliver()


def test_a_shared_claim_that_came_and_went_unseen_is_known_by_those_who_surely_held_it_with_the_pod(here: Rig) -> None:
    unseen(here, 110)
    changed = "share of a claim changed"
    assert held(here, "a") == [
        (GPU, PRODUCT, 1, "0.5", 100, 110, "completed"), (GPU, PRODUCT, 1, "1", 0, 100, changed),
    ]  # fmt: skip
    assert held(here, "b") == [
        (GPU, PRODUCT, 1, "0.5", 100, 110, changed), (GPU, PRODUCT, 1, "1", 110, 160, "completed"),
    ]  # fmt: skip
    assert device_seconds(here, "a", "b") == 160
    assert "problems" not in here.platform.agent


@pytest.mark.parametrize("ends_s", [90, 105])
def test_a_claim_that_others_may_have_given_back_before_is_unknown(here: Rig, ends_s: int) -> None:
    """Five seconds are what clocks may differ by: between the two pods the claim may have been given other devices."""
    unseen(here, ends_s)
    assert held(here, "a") == [(GPU, PRODUCT, 1, "1", 0, ends_s, "completed")]
    assert held(here, "b") == []
    assert here.platform.agent["problems"] == {"pod nlp/b (b), 2026-10": "claim one: not seen as reserved for the pod"}


def test_a_shared_claim_whose_pods_vanished_unseen_ends_within_bounds(here: Rig) -> None:
    """The last that was reported of them is of 20 s, and at 300 s they were gone: two estimated ends, bounded, no
    problem.
    """
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.cluster.advance(20)
    launch(here, "b", "one")
    here.cluster.advance(30)
    here.report()
    here.kill()
    for uid in ("a", "b"):
        here.cluster.delete(uid)
    here.cluster.remove("resourceclaims", "claim-one")
    here.cluster.compact()
    here.cluster.advance(250)
    here.start()
    here.settle()
    here.deliver()
    last = [item for item in here.platform.holds.values() if item["end_reason"] == "unknown"]
    assert sorted((item["pod_uid"], item["end_estimated"], second(item["end_earliest"]), second(item["end_latest"]),
                   second(item["started_at"]), item["device_fraction"]) for item in last) == [
        ("a", True, 20, 300, 20, "0.5"), ("b", True, 20, 300, 20, "0.5"),
    ]  # fmt: skip
    assert device_seconds(here, "a", "b") == 300
    assert "problems" not in here.platform.agent


def test_a_pod_of_which_one_claim_stays_unknown_is_metered_for_the_others(here: Rig) -> None:
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.cluster.create("b", 0, **claims("one", "never"))
    here.cluster.reserve("one", "b")
    here.cluster.bind("b")
    here.watch()
    here.cluster.advance(200)
    here.cluster.finish("b")
    here.cluster.advance(100)
    here.report()
    assert [item[3:6] for item in held(here, "b")] == [("0.5", 0, 200)]
    assert device_seconds(here, "a", "b") == 300
    assert here.platform.agent["problems"] == {"pod nlp/b (b), 2026-10": "claim never: not seen as reserved for the pod"}


def test_a_pod_that_its_node_turned_away_took_nothing_from_the_others(here: Rig) -> None:
    """It was bound at 20 s and refused: what was reported of a shared time is taken back to nothing."""
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.cluster.advance(20)
    here.cluster.create("b", 0, **claims("one"))
    here.cluster.reserve("one", "b")
    here.cluster.bind("b")
    here.cluster.advance(10)
    here.report()
    assert [item[3:6] for item in held(here, "b")] == [("0.5", 20, 30)]
    pod = here.cluster.pod("b")
    pod["status"] |= {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    here.cluster.put("pods", pod)
    here.cluster.advance(10)
    here.report()
    assert held(here, "b") == [(GPU, PRODUCT, 1, "0.5", 20, 20, "admission failed")]
    assert device_seconds(here, "a", "b") == 40


def test_a_pod_holds_what_its_claims_hold_together_in_one_allocation_per_product(here: Rig) -> None:
    """A whole card, and half of another that it shares: 2 units of 3/4. A slice is a resource of its own."""
    for name, device in (("own", "gpu-0"), ("shared", "gpu-1"), ("slice", "mig-0")):
        here.cluster.allocate(name, device)
    launch(here, "a", "own", "shared", "slice")
    launch(here, "b", "shared")
    here.cluster.advance(100)
    here.report()
    assert held(here, "a") == [
        (GPU, PRODUCT, 2, "0.75", 0, 100, "open"), (f"{GPU}/mig-1g.10gb", PRODUCT, 1, "0.142857142857", 0, 100, "open"),
    ]  # fmt: skip
    assert held(here, "b") == [(GPU, PRODUCT, 1, "0.5", 0, 100, "open")]


def test_cards_of_two_products_under_one_driver_are_two_allocations(here: Rig) -> None:
    here.cluster.add_slice("n-1", {"gpu-0": H100, "gpu-9": {"productName": {"string": "NVIDIA A100"}}}, generation=2)
    here.cluster.allocate("both", "gpu-0", "gpu-9")
    launch(here, "u", "both")
    here.cluster.advance(10)
    here.report()
    assert [item[:4] for item in held(here, "u")] == [(GPU, "NVIDIA-A100", 1, "1"), (GPU, PRODUCT, 1, "1")]


def test_a_slice_of_an_older_generation_that_comes_late_changes_no_device(here: Rig) -> None:
    """A driver writes the new generation of its pool before it removes the old one."""
    here.cluster.add_slice("n-1", {"gpu-0": H100}, generation=2)
    left_over = {"name": "gpu-0", "attributes": {"productName": {"string": "NVIDIA A100"}}}
    pool = {"name": "n-1", "generation": 1}
    here.cluster.put("resourceslices", {
        "metadata": {"name": "left-over", "uid": "left-over"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": "n-1", "pool": pool, "devices": [left_over]},
    })  # fmt: skip
    here.cluster.allocate("own", "gpu-0")
    launch(here, "u", "own")
    here.cluster.advance(10)
    here.watch()
    here.deliver()
    assert [item[:2] for item in held(here, "u")] == [(GPU, PRODUCT)]


def test_access_for_administrators_holds_nothing(here: Rig) -> None:
    here.cluster.allocate("watch", "gpu-0", "gpu-1", result={"adminAccess": True})
    here.cluster.allocate("work", "gpu-0")
    launch(here, "monitor", "watch")
    launch(here, "u", "work")
    here.cluster.advance(60)
    here.report()
    assert held(here, "monitor") == []
    assert held(here, "u") == [(GPU, PRODUCT, 1, "1", 0, 60, "open")]
    assert here.platform.watermark == stamp(START + timedelta(seconds=60))


HIDDEN = {"resource.kubernetes.io/extended-resource-claim": "true"}


def hide(here: Rig, uid: str, resource: str) -> None:
    """The scheduler makes a claim for an extended resource of a pod, and says so in the pod's status."""
    here.cluster.allocate(f"{uid}-extended", "gpu-0", annotations=HIDDEN, result={"request": "container-0-request-0"})
    here.cluster.reserve(f"{uid}-extended", uid)
    pod = here.cluster.pod(uid)
    mapping = {"containerName": "train", "resourceName": resource, "requestName": "container-0-request-0"}
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": f"{uid}-extended", "requestMappings": [mapping]}
    here.cluster.put("pods", pod)
    here.cluster.bind(uid)


@pytest.mark.parametrize(
    ("resource", "counted"),
    [
        ("nvidia.com/gpu", ("nvidia.com/gpu", "NVIDIA-H800")),  # by the request, the claim is the same device
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", (GPU, PRODUCT)),  # by the claim alone
    ],
)
def test_an_extended_resource_behind_which_is_a_hidden_claim_counts_once(
    here: Rig, resource: str, counted: tuple[str, str]
) -> None:
    here.cluster.create("u", 0, containers=[{"name": "train", "resources": {"requests": {resource: "1"}}}])
    hide(here, "u", resource)
    here.cluster.advance(60)
    here.report()
    assert held(here, "u") == [(*counted, 1, "1", 0, 60, "open")]


def test_a_pod_may_request_and_claim_at_once(here: Rig) -> None:
    here.cluster.allocate("own", "gpu-0")
    launch(here, "u", "own", gpus=2)
    here.cluster.advance(60)
    here.report()
    assert held(here, "u") == [
        (GPU, PRODUCT, 1, "1", 0, 60, "open"), ("nvidia.com/gpu", "NVIDIA-H800", 2, "1", 0, 60, "open"),
    ]  # fmt: skip
