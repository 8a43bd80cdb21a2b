"""The fake API server before the official client, and the agent's streams before every fault that it can make."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kubernetes import client as official
from kubernetes import watch as official_watch

from metering.k8s.api import ClusterClock, RefusedError, UnreachableError
from metering.k8s.leader import Leader
from metering.k8s.reconciliation import Difference, confirmed
from metering.k8s.stream import LONGEST_WAIT_S, Changes
from tests.agent.cluster import START
from tests.agent.rig import Rig, rig


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path / "agent.sqlite", page=2, silence_s=0.5) as made:
        made.cluster.add_node("n-1")
        yield made


@pytest.fixture
def core(here: Rig) -> Iterator[official.CoreV1Api]:
    client = official.ApiClient(official.Configuration(host=here.server.address))
    yield official.CoreV1Api(client)
    client.rest_client.pool_manager.clear()


def test_the_official_client_lists_in_pages_of_one_version(here: Rig, core: official.CoreV1Api) -> None:
    for number in range(5):
        here.cluster.create(f"u{number}")
    names, token, versions = [], None, set()
    while True:
        page = core.list_pod_for_all_namespaces(limit=2, **({"_continue": token} if token else {}))
        names += [item.metadata.uid for item in page.items]
        versions.add(page.metadata.resource_version)
        here.cluster.create(f"later-{len(names)}")
        token = page.metadata._continue
        if not token:
            break
    assert names == ["u0", "u1", "u2", "u3", "u4"]
    assert len(versions) == 1


def test_the_official_client_watches_from_a_version_and_learns_that_it_is_gone(
    here: Rig, core: official.CoreV1Api
) -> None:
    version = core.list_pod_for_all_namespaces().metadata.resource_version
    here.cluster.launch("u")
    here.cluster.delete("u")
    here.server.bookmarks = False
    events = official_watch.Watch().stream(core.list_pod_for_all_namespaces, resource_version=version, timeout_seconds=1)
    assert [(event["type"], event["object"].metadata.uid) for event in events] == [
        ("ADDED", "u"), ("MODIFIED", "u"), ("DELETED", "u"),
    ]  # fmt: skip
    here.cluster.compact()
    with pytest.raises(official.ApiException) as refused:
        list(official_watch.Watch().stream(core.list_pod_for_all_namespaces, resource_version=version, timeout_seconds=1))
    assert refused.value.status == 410


def test_events_before_the_first_bookmark_are_the_past(here: Rig) -> None:
    stream = here.streams["pods"]
    list(stream.steps())
    here.cluster.create("u")
    changes = [step for step in stream.steps() if isinstance(step, Changes)]
    reported = [(len(step.events), step.current) for step in changes]
    assert reported[0] == (1, False)
    assert reported[-1] == (0, True)


def test_waits_grow_and_are_spread(here: Rig) -> None:
    stream = here.streams["pods"]
    here.server.down = True
    waits = []
    for _ in range(9):
        list(stream.steps())
        assert isinstance(stream.error, UnreachableError)
        waits.append(stream.wait_s)
    for attempt, wait in enumerate(waits, start=1):
        longest = min(LONGEST_WAIT_S, 0.5 * 2**attempt)
        assert longest / 2 <= wait <= longest
    here.server.down = False
    list(stream.steps())
    assert (stream.error, stream.wait_s) == (None, 0.0)


def test_missing_rights_are_reported_and_asked_for_again(here: Rig) -> None:
    stream = here.streams["pods"]
    here.server.fail = [(403, {})]
    list(stream.steps())
    assert isinstance(stream.error, RefusedError)
    assert stream.error.status == 403
    assert stream.wait_s > 0


def test_an_object_that_cannot_be_read_costs_none_of_its_neighbours(here: Rig) -> None:
    here.cluster.create("bad", containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "half"}}}])
    here.cluster.create("worse", containers="none")
    here.cluster.launch("u")
    here.settle()
    here.deliver()
    assert here.platform.hold("u")["quantity"] == 1
    assert len(here.platform.agent["problems"]) == 2


def test_a_pod_that_cannot_be_read_is_a_problem_of_every_month_though_no_event_comes(here: Rig) -> None:
    here.cluster.create("bad", containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "half"}}}])
    here.settle()
    here.deliver()
    here.cluster.advance(40 * 86_400)
    here.scan()
    here.report()
    assert {subject[-7:] for subject in here.platform.problems} == {"2026-10", "2026-11"}


def test_the_scan_finds_a_lost_event_and_not_one_that_is_on_its_way(here: Rig) -> None:
    here.settle()
    for uid in ("a", "b"):
        here.cluster.launch(uid)
    here.watch()
    here.cluster.delete("a")
    here.server.drop.add(here.cluster.version)
    here.cluster.launch("c")
    judged = here.scan()
    assert judged.suspects == {"a", "c"}
    assert confirmed(judged, here.agent.store, here.agent.scope) is None
    here.watch()
    assert confirmed(judged, here.agent.store, here.agent.scope) == Difference(
        judged.at, holding=2, unseen=0, stale=1, ended_too_early=0, examples=("a",), watched_units=3, scanned_units=2,
        differing_units=1,
    )  # fmt: skip
    here.streams["pods"].list_next()
    here.settle()
    here.deliver()
    assert here.platform.hold("a")["end_estimated"]


def test_scans_wait_on_disk_until_they_are_reported_and_are_reported_once(here: Rig) -> None:
    here.settle()
    here.cluster.launch("a", gpus=8)
    here.watch()
    for _ in range(2):
        here.cluster.advance(3600)
        judged = here.scan()
        here.watch()
        assert here.judge(judged).pods == 0
    here.restart()
    here.settle()
    here.deliver()
    here.deliver()
    assert here.platform.scans == [
        {"at": "2026-10-10T11:00:00Z", "watched": 8, "scanned": 8, "differing": 0},
        {"at": "2026-10-10T12:00:00Z", "watched": 8, "scanned": 8, "differing": 0},
    ]


def test_a_pod_that_cannot_be_read_does_not_end_the_scan(here: Rig) -> None:
    here.cluster.create("bad", node="n-1", containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "half"}}}])
    here.cluster.launch("u", gpus=3)
    here.settle()
    assert here.scan().holding == {"u": 3}


def test_one_of_two_agents_speaks_and_the_other_takes_over_when_it_falls_silent(here: Rig) -> None:
    first = Leader(here.api, namespace="suanpan", name="agent", identity="one")
    second = Leader(here.api, namespace="suanpan", name="agent", identity="two")
    assert (first.renew(), second.renew()) == (True, False)
    here.cluster.advance(50)
    assert (first.renew(), second.renew()) == (True, False)
    here.cluster.advance(61)
    assert (second.renew(), first.renew()) == (True, False)


def test_an_agent_whose_clock_is_ahead_leaves_the_lease_to_its_holder(tmp_path: Path) -> None:
    with rig(tmp_path / "agent.sqlite", skew_s=3600) as made:
        made.settle()
        assert Leader(made.api, namespace="suanpan", name="agent", identity="one").renew()
        made.restart()
        assert not Leader(made.api, namespace="suanpan", name="agent", identity="two").renew()


def test_a_wrong_clock_is_corrected_by_what_the_server_says() -> None:
    clock = ClusterClock(lambda: START)
    clock.hear("Sat, 10 Oct 2026 11:00:00 GMT")
    assert clock.now() == START + timedelta(hours=1)
    for without in (None, "nonsense", "Sat, 10 Oct 2026 10:00:01 GMT"):
        clock = ClusterClock(lambda: START)
        clock.hear(without)
        assert clock.now() == START
