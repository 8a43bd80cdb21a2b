"""An API server whose store was restored from a backup, with versions that go on from there.

Such a server takes a watch from a version that it has not reached yet, and sends nothing on it, not even bookmarks, until it
has (kubernetes#107457). Seconds are counted from 10:00:00, when the first list is complete; the backup is of 10, the restore
at 60, and the list that finds it at 100.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metering.k8s.stream import ListPage
from tests.agent.claims import GPU, H100, launch, second
from tests.agent.cluster import ApiServer
from tests.agent.rig import Rig
from tests.agent.rig import rig as rig_of


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "agent.sqlite", silence_s=0.3)
    made.cluster.add_node("n-1")
    made.cluster.launch("kept", 8)
    made.cluster.launch("ended", 4)
    made.settle()
    made.deliver()
    yield made
    made.stop()


def restored(rig: Rig) -> None:
    """`lost` begins after the backup and is in no version of the restored store; `ended` runs again according to it."""
    cluster = rig.cluster
    cluster.advance(10)
    backup = cluster.backup()
    cluster.advance(10)
    cluster.launch("lost", 2)
    for uid in ("kept", "lost"):
        cluster.run(uid)
    cluster.advance(10)
    cluster.finish("ended")
    cluster.advance(10)
    rig.watch()
    cluster.advance(20)
    cluster.restore(backup)
    cluster.advance(40)


def told(rig: Rig, uid: str) -> tuple[object, ...]:
    record = rig.platform.hold(uid)
    until = second(record["ended_at"] or record["observed_until"])
    if not record["ended_at"]:
        return until, "open"
    estimate = (second(record["end_earliest"]), second(record["end_latest"])) if record["end_estimated"] else ()
    return (until, record["end_rule"], *estimate)


def the_gap_is_noted(rig: Rig) -> None:
    assert told(rig, "lost") == (100, "absent from list", 20, 100)
    assert [(second(item["from"]), second(item["until"])) for item in rig.platform.unwatched] == [(40, 100)]


@pytest.mark.parametrize("silent_s", [0.0, 1.0], ids=["the watch ends", "the watch stays silent"])
def test_the_agent_lists_anew_and_says_what_nobody_watched(rig: Rig, silent_s: float) -> None:
    """The end of `ended` stays as it was reported; what it holds now under its old identity is nobody's bill: a problem."""
    restored(rig)
    rig.server.silent_s = silent_s
    rig.watch(3)
    rig.server.silent_s = 0.0
    rig.deliver()
    assert told(rig, "kept") == (100, "open")
    assert told(rig, "ended") == (30, "finishedAt")
    assert rig.platform.problems == {"pod nlp/ended (ended), 2026-10"}
    the_gap_is_noted(rig)


def test_what_happens_afterwards_is_exact_though_versions_are_those_of_before(rig: Rig) -> None:
    restored(rig)
    rig.watch(3)
    rig.cluster.launch("new")
    rig.cluster.advance(20)
    rig.cluster.finish("new")
    rig.cluster.finish("kept")
    rig.cluster.advance(5)
    rig.watch()
    rig.deliver()
    assert told(rig, "kept") == (120, "finishedAt")
    assert told(rig, "new") == (120, "finishedAt")
    assert second(rig.platform.hold("new")["started_at"]) == 100
    assert rig.platform.watermark == "2026-10-10T10:02:05Z"
    assert rig.streams["pods"].relists == 2


def test_a_pod_that_was_forgotten_and_runs_again_is_a_problem_too(rig: Rig) -> None:
    """It ended and vanished at 20, and the backup of 10 is restored more than a day later."""
    cluster = rig.cluster
    cluster.advance(10)
    backup = cluster.backup()
    cluster.advance(10)
    cluster.finish("ended")
    cluster.delete("ended")
    rig.watch()
    rig.deliver()
    cluster.advance(25 * 3600)
    found = rig.scan()
    rig.watch()
    rig.judge(found)
    assert rig.agent.store.pod("ended") is None
    cluster.restore(backup)
    cluster.advance(60)
    rig.watch(3)
    cluster.launch("new")
    rig.watch()
    rig.deliver()
    assert told(rig, "ended")[0] == 20
    assert rig.platform.problems == {"pod nlp/ended (ended), 2026-10"}


def test_a_pod_that_was_bound_only_after_the_restore_is_no_problem(rig: Rig) -> None:
    cluster = rig.cluster
    cluster.create("waits")
    cluster.advance(10)
    backup = cluster.backup()
    cluster.advance(10)
    cluster.launch("lost")
    rig.watch()
    cluster.restore(backup)
    cluster.advance(60)
    cluster.bind("waits")
    cluster.advance(20)
    rig.watch(3)
    rig.deliver()
    assert (second(rig.platform.hold("waits")["started_at"]), rig.platform.seconds("waits")) == (80, 20)
    assert rig.platform.problems == set()


def test_nodes_are_followed_though_their_versions_are_those_of_before(rig: Rig) -> None:
    """The node was changed after the backup, so its version in the store of the agent is newer than any that comes."""
    cluster = rig.cluster
    backup = cluster.backup()
    cluster.advance(10)
    cluster.add_node("n-1", 8, "NVIDIA-H800", rack="b")
    rig.watch()
    cluster.advance(10)
    cluster.restore(backup)
    rig.watch(3)
    cluster.advance(10)
    cluster.add_node("n-1", 4)
    rig.watch()
    assert [row.quantity for row in rig.agent.store.open_capacity("n-1").values()] == [4]


def test_slices_and_claims_are_followed_though_their_versions_are_those_of_before(tmp_path: Path) -> None:
    with rig_of(tmp_path / "agent.sqlite", claims=True) as made:
        cluster = made.cluster
        cluster.add_node("n-1", 0)
        cluster.allocate("own", "a")
        cluster.add_slice("n-1", {"a": H100, "b": H100})
        made.settle()
        backup = cluster.backup()
        cluster.add_slice("n-1", {"a": H100})
        cluster.allocate("own", "b")
        cluster.reserve("own", "before")
        made.watch()
        cluster.restore(backup)
        made.watch(3)
        assert made.agent.store.open_capacity("n-1")[GPU].quantity == 2
        cluster.add_slice("n-1", {"a": H100, "b": H100, "c": H100})
        launch(made, "u", "own")
        cluster.advance(30)
        made.watch()
        made.deliver()
        assert made.agent.store.open_capacity("n-1")[GPU].quantity == 3
        assert (made.platform.seconds("u"), made.platform.hold("u")["quantity"]) == (30, 1)


def test_a_silent_watch_of_a_server_that_was_not_restored_costs_no_list(rig: Rig) -> None:
    rig.server.silent_s, rig.server.bookmarks = 1.0, False
    rig.watch(3)
    rig.server.silent_s, rig.server.bookmarks = 0.0, True
    rig.cluster.advance(20)
    rig.watch()
    rig.deliver()
    assert rig.streams["pods"].relists == 1
    assert rig.platform.unwatched == []
    assert told(rig, "kept") == (20, "open")


def test_a_server_that_sends_what_is_before_the_version_that_was_asked_for_was_restored(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server without a watch cache passes on the bookmarks of its store."""
    restored(rig)
    events = ApiServer.events
    monkeypatch.setattr(ApiServer, "events", lambda server, kind, version: events(server, kind, 0))
    rig.watch()
    monkeypatch.undo()
    rig.watch(2)
    rig.deliver()
    the_gap_is_noted(rig)


def test_an_agent_that_dies_within_the_list_learns_it_again(rig: Rig) -> None:
    restored(rig)
    rig.watch(1)
    for step in rig.streams["pods"].steps():
        rig.agent.apply("pods", step)
        if isinstance(step, ListPage):
            break
    rig.restart()
    rig.watch(3)
    rig.deliver()
    assert told(rig, "kept") == (100, "open")
    the_gap_is_noted(rig)
