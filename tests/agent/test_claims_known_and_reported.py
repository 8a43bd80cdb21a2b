"""What an agent knows of claims, keeps, forgets and reports: through restarts, refusals and what it cannot meter."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from metering.intervals import to_us
from metering.k8s.api import RefusedError
from metering.k8s.description import Scope
from metering.k8s.stream import claim_kinds
from metering.spool import open_state
from tests.agent.claims import GPU, H100, MIG, PRODUCT, claims, device_seconds, held, launch, second
from tests.agent.cluster import START, stamp
from tests.agent.rig import Rig, rig


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite", claims=True) as made:
        made.cluster.add_node("n-1", 0)
        made.cluster.add_slice("n-1", {"gpu-0": H100, "gpu-1": H100, "gpu-2": H100, "mig-0": MIG})
        made.settle()
        yield made


def test_what_is_known_of_claims_outlives_the_agent(here: Rig) -> None:
    """The claim was read before the agent died; when it is back, claim and slice are gone, and the pod goes on."""
    here.cluster.allocate("one", "gpu-0")
    launch(here, "u", "one")
    here.read("slices", "claims")
    here.kill()
    here.cluster.remove("resourceclaims", "claim-one")
    here.cluster.remove("resourceslices", "slice-n-1-gpu.nvidia.com")
    here.cluster.compact()
    here.cluster.advance(60)
    here.start()
    here.settle()
    here.deliver()
    assert held(here, "u") == [(GPU, PRODUCT, 1, "1", 0, 60, "open")]


def test_a_pod_waits_for_its_claims_to_be_reported_and_the_watermark_with_it(here: Rig) -> None:
    here.cluster.advance(60)
    here.cluster.allocate("one", "gpu-0")
    launch(here, "u", "one")
    here.read("pods")
    here.cluster.advance(600)
    here.read("nodes", "pods")
    here.deliver()
    assert held(here, "u") == []
    assert here.platform.watermark <= stamp(START + timedelta(seconds=60))
    here.report()
    assert held(here, "u") == [(GPU, PRODUCT, 1, "1", 60, 660, "open")]
    assert here.platform.watermark == stamp(START + timedelta(seconds=660))


def test_a_claim_that_is_not_reported_is_a_problem_and_is_metered_once_it_is(here: Rig) -> None:
    here.cluster.launch("u", 1, **claims("late"))
    here.watch()
    here.cluster.advance(600)
    here.report()
    assert held(here, "u") == [("nvidia.com/gpu", "NVIDIA-H800", 1, "1", 0, 600, "open")]
    assert here.platform.agent["problems"] == {"pod nlp/u (u), 2026-10": "claim late: not seen as reserved for the pod"}
    here.cluster.allocate("late", "gpu-0")
    here.cluster.reserve("late", "u")
    here.report()
    assert held(here, "u")[0] == (GPU, PRODUCT, 1, "1", 0, 600, "open")


def test_an_unknown_driver_is_reported_and_a_configured_one_counts(tmp_path: Path) -> None:
    for number, drivers in enumerate(({}, {"fpga.example.com": "example"}, {"fpga.example.com": ""})):
        with rig(tmp_path / f"{number}.sqlite", claims=True, scope=Scope("hq-1", drivers=drivers)) as made:
            made.cluster.add_node("n-1", 0)
            made.cluster.add_slice("n-1", {"f-0": {"model": {"string": "F1"}}}, driver="fpga.example.com")
            made.settle()
            made.cluster.allocate("odd", "f-0", driver="fpga.example.com")
            launch(made, "u", "odd")
            made.cluster.advance(60)
            made.report()
            counted = [("dra/fpga.example.com", "F1", 1, "1", 0, 60, "open")]
            assert held(made, "u") == (counted if number == 1 else [])
            unknown = made.platform.agent.get("unknown_resources")
            assert unknown == ({"dra/fpga.example.com": 1} if number == 0 else None)


def test_a_device_of_an_unknown_driver_is_unknown_for_as_long_as_it_is_held(here: Rig) -> None:
    """Held from 10 October to 10 November: what was decided of October says nothing of November, and nothing of December."""
    here.cluster.add_slice("n-1", {"f-0": {"model": {"string": "F1"}}}, driver="fpga.example.com")
    here.cluster.allocate("odd", "f-0", driver="fpga.example.com")
    launch(here, "u", "odd")
    here.report()
    for days in (20, 11):
        here.cluster.advance(days * 86_400)
        here.report()
    here.cluster.finish("u")
    here.report()
    here.cluster.advance(30 * 86_400)
    here.report()
    note = here.agent.store.unknown_resources()["dra/fpga.example.com"]
    assert (note.since, note.until) == (START, START + timedelta(days=31))


def test_what_an_earlier_version_noted_goes_on_under_its_subject(tmp_path: Path) -> None:
    """It named the month at the end of a subject; version 1 did not."""
    connection = open_state(tmp_path / "agent.sqlite")
    connection.execute("CREATE TABLE problem (subject TEXT PRIMARY KEY, text TEXT NOT NULL, seen_us INTEGER NOT NULL)")
    rows = [("pod nlp/a (a), 2026-09", 1), ("pod nlp/a (a), 2026-10", 5), ("pods: half", 3)]
    connection.executemany("INSERT INTO problem VALUES (?, 'why', ?)", rows)
    connection.commit()
    connection.close()
    with rig(tmp_path / "agent.sqlite") as made:
        made.restart()
        noted = {subject: (to_us(note.since), to_us(note.until)) for subject, note in made.agent.store.problems().items()}
    assert noted == {"pod nlp/a (a)": (1, 5), "pods: half": (3, 3)}


def test_a_claim_that_is_reserved_for_something_else_than_pods_is_a_problem(here: Rig) -> None:
    here.cluster.allocate("group", "gpu-0")
    item = here.cluster.objects["resourceclaims"]["claim-group"]
    item["status"]["reservedFor"] = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]
    here.cluster.put("resourceclaims", item)
    here.report()
    assert here.platform.agent["problems"] == {
        "claim nlp/group, 2026-10": "claim group: reserved for podgroups, whose pods were not reported"
    }


def test_a_piece_too_small_to_be_billed_is_a_problem_and_stops_nobody(here: Rig) -> None:
    here.cluster.put(
        "resourceslices",
        {
            "metadata": {"name": "s", "uid": "slice-s"},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": "n-1", "pool": {"name": "lent", "generation": 1},
                     "devices": [{"name": "g", "attributes": H100, "capacity": {"memory": {"value": "80Gi"}}}]},
        },
    )  # fmt: skip
    for name, memory in (("dust", "1"), ("half", "40Gi")):
        here.cluster.allocate(name, "g", node="lent", result={"shareID": name, "consumedCapacity": {"memory": memory}})
        launch(here, f"with-{name}", name)
    here.watch()
    here.cluster.advance(200)
    here.report()
    assert held(here, "with-dust") == []
    assert held(here, "with-half") == [(GPU, PRODUCT, 1, "0.5", 0, 200, "open")]
    assert here.platform.agent["problems"] == {
        "pod nlp/with-dust (with-dust), 2026-10": "device gpu.nvidia.com/lent/g: its share is too small"
    }


def test_a_day_after_they_are_gone_pods_and_their_claims_are_forgotten(here: Rig) -> None:
    here.cluster.allocate("one", "gpu-0")
    launch(here, "u", "one")
    launch(here, "v", "one")
    here.cluster.finish("u")
    here.cluster.delete("u")
    here.watch()
    for hours, kept in ((23, 2), (2, 1)):
        here.deliver()
        here.cluster.advance(hours * 3600)
        found = here.scan()
        here.watch()
        assert here.judge(found).pods == 0
        tables = ("pod", "claimant", "reservation")
        counts = [here.connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables]
        assert counts == [kept] * 3
    here.deliver()
    assert device_seconds(here, "u", "v") == 25 * 3600


def test_the_scan_counts_a_claim_as_a_unit(here: Rig) -> None:
    here.cluster.allocate("one", "gpu-0", "gpu-1")
    launch(here, "u", "one", gpus=4)
    here.watch()
    found = here.scan()
    here.watch()
    difference = here.judge(found)
    assert (difference.scanned_units, difference.differing_units) == (5, 0)


def test_a_cluster_without_claims_is_recognised_and_one_that_refuses_is_not_taken_for_it(tmp_path: Path) -> None:
    with rig(tmp_path / "agent.sqlite") as made:
        assert claim_kinds(made.api) == ()
        made.server.fail = [(403, {})]
        with pytest.raises(RefusedError, match="403"):
            claim_kinds(made.api)
        made.cluster.add_claims()
        assert [kind.path for kind in claim_kinds(made.api)] == [
            "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/resourceclaims",
        ]  # fmt: skip


def test_a_refused_stream_is_a_problem_that_is_reported(here: Rig) -> None:
    here.server.fail = [(403, {})]
    here.read("claims")
    error = here.streams["claims"].error
    assert isinstance(error, RefusedError)
    here.agent.refused("claims", error, here.api.clock.now())
    here.deliver()
    forbidden = "/apis/resource.k8s.io/v1/resourceclaims: 403 Fault"
    assert here.platform.agent["problems"] == {"reading claims, 2026-10": forbidden}


def capacity(here: Rig) -> list[tuple[Any, ...]]:
    """Resource, product, units, from second, until second of what nodes offer to claims."""
    assert here.platform.conflicts == []
    found = [item for item in here.platform.capacity.values() if item["resource"].startswith("dra/")]
    return [
        (item["resource"], item["accelerator"], item["quantity"], second(item["from"]), second(item["until"]))
        for item in found
    ]


def test_capacity_follows_slices_that_change_and_go(here: Rig) -> None:
    """Three cards and a partition; a card fails at 100 s; the slice goes at 200 s, which only a list reports."""
    here.cluster.advance(100)
    here.cluster.add_slice("n-1", {"gpu-0": H100, "gpu-1": H100, "mig-0": MIG}, generation=2)
    here.report()
    here.cluster.advance(100)
    here.cluster.remove("resourceslices", "slice-n-1-gpu.nvidia.com")
    here.cluster.compact()
    here.cluster.advance(50)
    here.settle()
    here.deliver()
    assert capacity(here) == [
        (GPU, PRODUCT, 3, 0, 100), (f"{GPU}/mig-1g.10gb", PRODUCT, 1, 0, 250), (GPU, PRODUCT, 2, 100, 250),
    ]  # fmt: skip


def test_what_a_node_offers_to_claims_does_not_end_with_what_it_offers_to_requests(here: Rig) -> None:
    here.cluster.remove("nodes", "node-n-1")
    here.cluster.advance(100)
    here.report()
    assert [item[2:] for item in capacity(here)] == [(3, 0, 100), (1, 0, 100)]
    (requested,) = [item for item in here.platform.capacity.values() if item["resource"] == "nvidia.com/gpu"]
    assert (requested["quantity"], second(requested["until"])) == (0, 100)


def test_cards_that_a_plugin_and_a_driver_both_list_are_offered_once(here: Rig) -> None:
    """A node moves from its plugin to the driver: two cards in both lists from 100 s, a third in the driver's from 200 s,
    and at 300 s the plugin lets go. Two cards, then three, were never five.
    """
    cards = {"a": H100, "b": H100}
    here.cluster.add_node("n-2", 2, PRODUCT)
    here.report()
    for more, gpus in (({}, 2), ({"c": H100}, 2), ({"c": H100}, 0)):
        here.cluster.advance(100)
        here.cluster.add_slice("n-2", {**cards, **more}, generation=gpus + len(more))
        here.cluster.add_node("n-2", gpus, PRODUCT)
        here.report()
    here.cluster.advance(100)
    here.report()
    offered = [item for item in here.platform.capacity.values() if item["node"] == "n-2"]
    assert [(item["resource"], item["quantity"], second(item["from"]), second(item["until"])) for item in offered] == [
        ("nvidia.com/gpu", 2, 0, 300), (GPU, 0, 100, 200), (GPU, 1, 200, 300), (GPU, 3, 300, 400),
        ("nvidia.com/gpu", 0, 300, 400),
    ]  # fmt: skip
