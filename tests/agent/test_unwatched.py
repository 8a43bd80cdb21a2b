"""What the agent says of time in which its watch was broken: all of it, and nothing of a watch that goes on.

Seconds are counted from 10:00:00, when the first list is complete.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metering.k8s.stream import Stream
from tests.agent.claims import second
from tests.agent.cluster import START
from tests.agent.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "agent.sqlite")
    made.cluster.add_node("n-1")
    made.settle()
    made.deliver()
    yield made
    made.stop()


def unwatched(rig: Rig) -> list[tuple[int, int]]:
    rig.deliver()
    return [(second(item["from"]), second(item["until"])) for item in rig.platform.unwatched]


def end_of(rig: Rig, uid: str) -> tuple[int, str, bool]:
    rig.deliver()
    record = rig.platform.hold(uid)
    return second(record["ended_at"]), record["end_rule"], record["end_estimated"]


@pytest.mark.parametrize("outage", [1, 75, 119, 7200])
def test_an_outage_that_a_list_ends_is_reported_whatever_its_length(rig: Rig, outage: int) -> None:
    """A pod that lived and died within it is in no report."""
    rig.cluster.advance(30)
    rig.watch()
    rig.cluster.launch("lost")
    rig.cluster.advance(outage)
    rig.cluster.force("lost")
    rig.cluster.compact()
    rig.settle()
    assert unwatched(rig) == [(30, 30 + outage)]
    assert rig.platform.holds == {}


def test_a_watch_that_goes_on_where_it_was_leaves_no_gap_nor_does_the_first_list(rig: Rig) -> None:
    rig.cluster.launch("whole")
    rig.cluster.advance(3600)
    rig.cluster.finish("whole")
    rig.cluster.delete("whole")
    rig.restart()
    rig.settle()
    assert unwatched(rig) == []
    assert end_of(rig, "whole") == (3600, "finishedAt", False)


def test_a_list_beside_a_watch_is_no_gap_and_what_happens_between_them_is_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of 40 s begins after the watch has caught up and is gone before the list is made."""
    listed = Stream._listed

    def meanwhile(stream: Stream) -> Iterator[object]:
        if stream is rig.streams["pods"] and "between" not in rig.cluster.objects["pods"]:
            rig.cluster.launch("between")
            rig.cluster.advance(40)
            rig.cluster.force("between")
        yield from listed(stream)

    monkeypatch.setattr(Stream, "_listed", meanwhile)
    rig.streams["pods"].list_next()
    rig.watch()
    monkeypatch.undo()
    assert rig.streams["pods"].relists == 2
    rig.restart()
    rig.watch()
    assert unwatched(rig) == []
    assert end_of(rig, "between") == (40, "deletionTimestamp", True)


def test_a_list_beside_a_watch_that_expires_between_its_pages_breaks_no_watch(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "agent.sqlite", page=1)
    rig.cluster.add_node("n-1")
    for uid in ("a", "b"):
        rig.cluster.launch(uid)
    rig.settle()
    rig.server.expire_pages = 1
    rig.streams["pods"].list_next()
    rig.cluster.advance(20)
    rig.watch(2)
    rig.cluster.advance(20)
    rig.watch()
    assert rig.streams["pods"].relists == 3
    assert unwatched(rig) == []
    rig.stop()


def test_every_report_says_since_when_its_state_was_kept(rig: Rig) -> None:
    rig.cluster.advance(50)
    rig.restart()
    rig.report()
    assert rig.platform.watched_since == [START.isoformat().replace("+00:00", "Z")]
    rig.lose_volume()
    rig.cluster.advance(10)
    rig.settle()
    rig.deliver()
    assert [second(text) for text in rig.platform.watched_since] == [0, 60]


def test_a_state_from_before_says_that_it_was_kept_since_its_last_list(rig: Rig) -> None:
    rig.connection.execute("DROP TABLE watched_since")
    rig.connection.commit()
    rig.cluster.advance(50)
    rig.restart()
    rig.report()
    assert rig.platform.watched_since == [START.isoformat().replace("+00:00", "Z")]


def test_a_pod_whose_deletion_was_asked_for_before_and_that_was_forced_while_away_ends_within_a_gap(rig: Rig) -> None:
    """Its timestamp goes back to when the deletion was asked for, and says nothing of when it was gone."""
    rig.cluster.launch("stuck")
    rig.cluster.ask_deletion("stuck", grace=30)
    rig.cluster.advance(600)
    rig.watch()
    rig.kill()
    rig.cluster.advance(600)
    rig.cluster.force("stuck")
    rig.cluster.advance(3000)
    rig.start()
    rig.watch()
    assert end_of(rig, "stuck") == (4200, "deletion seen", True)
    assert unwatched(rig) == [(600, 4200)]


def test_a_pod_that_is_reported_to_have_ended_without_when_while_the_agent_was_away_ends_within_a_gap(rig: Rig) -> None:
    rig.cluster.launch("dark")
    rig.watch()
    rig.kill()
    rig.cluster.advance(600)
    rig.cluster.finish("dark", "Failed", lost=True)
    rig.cluster.advance(3000)
    rig.start()
    rig.watch()
    assert end_of(rig, "dark") == (3600, "terminal phase seen", True)
    assert unwatched(rig) == [(0, 3600)]


def test_a_pod_that_was_there_after_its_deletion_was_due_ends_within_the_gap_that_the_list_closes(rig: Rig) -> None:
    """Of a lost node: due at 30 s, still there at 600 s as the watch knows, gone from the list at 700 s."""
    rig.cluster.launch("stuck")
    rig.watch()
    rig.cluster.ask_deletion("stuck", grace=30)
    rig.watch()
    rig.cluster.advance(600)
    rig.watch()
    rig.cluster.advance(50)
    rig.cluster.force("stuck")
    rig.cluster.compact()
    rig.cluster.advance(50)
    rig.settle()
    assert end_of(rig, "stuck") == (700, "absent from list", True)
    assert unwatched(rig) == [(600, 700)]


def test_a_pod_that_a_list_found_unchanged_ended_after_that_list(rig: Rig) -> None:
    rig.cluster.launch("lost")
    rig.watch()
    rig.cluster.advance(60)
    rig.streams["pods"].list_next()
    rig.watch()
    rig.cluster.force("lost")
    rig.cluster.compact()
    rig.cluster.advance(40)
    rig.settle()
    assert end_of(rig, "lost") == (100, "absent from list", True)
    record = rig.platform.hold("lost")
    assert (second(record["end_earliest"]), second(record["end_latest"])) == (60, 100)


def test_a_pod_whose_forced_deletion_was_read_before_the_watch_broke_ends_when_it_was_deleted(rig: Rig) -> None:
    rig.cluster.launch("forced")
    rig.cluster.advance(100.7)
    rig.watch()
    rig.cluster.force("forced")
    rig.server.drop.add(rig.cluster.version)
    rig.watch()
    rig.cluster.advance(500)
    rig.cluster.compact()
    rig.settle()
    assert end_of(rig, "forced") == (100, "deletionTimestamp", True)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"containers": [{"name": "train", "resources": {"requests": {"nvidia.com/gpu": "half"}}}]}, "half"),
        ({"containers": "none"}, "Expected `array | null`"),
    ],
)
def test_two_pods_that_cannot_be_read_for_the_same_reason_are_two_problems(
    rig: Rig, broken: dict[str, object], text: str
) -> None:
    for uid in ("a", "b"):
        rig.cluster.launch(uid)
    for uid in ("a", "b"):
        pod = rig.cluster.pod(uid)
        pod["spec"] |= broken
        rig.cluster.put("pods", pod)
    rig.watch()
    watched = dict(rig.agent.store.problems())
    assert sorted(watched) == ["pod nlp/a (a)", "pod nlp/b (b)"]
    assert all(text in note.text for note in watched.values())
    assert sorted(subject for subject, _ in rig.scan().unreadable) == sorted(watched), "a list names them alike"
    rig.restart()
    rig.streams["pods"].list_next()
    rig.watch()
    assert sorted(rig.agent.store.problems()) == sorted(watched)
