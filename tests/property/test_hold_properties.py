"""Holds of pods: any repetition and any order of arrival of the same observations report the same hold."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from metering.allocation import Rule, hold_of, remember
from metering.observations import Condition, ContainerState, Observation, PodDeleted, PodMissing, PodSnapshot

ORIGIN = datetime(2026, 10, 10, tzinfo=UTC)
ZERO = datetime(1, 1, 1, tzinfo=UTC)
instants = st.integers(min_value=0, max_value=7200).map(lambda seconds: ORIGIN + timedelta(seconds=seconds))
stamps = st.one_of(st.none(), st.just(ZERO), instants)
DISRUPTIONS = ["PreemptionByScheduler", "TerminationByKubelet", "DeletionByPodGC", "Other"]
PHASES = ["Pending", "Running", "Unknown", "Succeeded", "Failed"]


@st.composite
def snapshots(draw: st.DrawFn, version: int, phases: list[str] = PHASES) -> PodSnapshot:
    conditions = [Condition("PodScheduled", draw(st.sampled_from(["True", "False"])), draw(stamps))]
    if draw(st.booleans()):
        conditions.append(Condition("DisruptionTarget", "True", draw(stamps), draw(st.sampled_from(DISRUPTIONS))))
    states = st.builds(ContainerState, st.just("c"), st.booleans(), st.booleans(), stamps)
    return PodSnapshot(
        uid="u", version=version, observed_at=draw(instants), phase=draw(st.sampled_from(phases)),
        node=draw(st.sampled_from(["", "n-1"])), reason=draw(st.sampled_from(["", "Evicted", "UnexpectedAdmissionError"])),
        conditions=tuple(conditions), containers=tuple(draw(st.lists(states, max_size=3))), start_time=draw(stamps),
        deletion_timestamp=draw(stamps), deletion_grace_seconds=draw(st.sampled_from([None, 0, 30])),
    )  # fmt: skip


@st.composite
def observations(draw: st.DrawFn, version: int) -> list[Observation]:
    """One version: the object, perhaps seen again later, or how it vanished."""
    pod = draw(snapshots(version))
    kind = draw(st.sampled_from(["seen", "seen", "seen", "deleted", "missing"]))
    if kind == "deleted":
        return [PodDeleted("u", version, draw(instants), draw(st.sampled_from([None, pod])))]
    if kind == "missing":
        return [PodMissing("u", version, draw(instants))]
    times = draw(st.lists(instants, min_size=1, max_size=4))
    return [msgspec.structs.replace(pod, observed_at=at) for at in times]


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    return [item for version in range(draw(st.integers(1, 6))) for item in draw(observations(version))]


@given(histories(), st.data())
def test_repetition_and_order_of_arrival_do_not_matter(history: list[Observation], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(history), max_size=6))
    arrived = data.draw(st.permutations(history + again))
    assert hold_of(arrived) == hold_of(history)


@given(histories(), st.data())
def test_what_an_agent_keeps_reports_the_same_hold_in_any_order(history: list[Observation], data: st.DataObject) -> None:
    kept: tuple[Observation, ...] = ()
    for observation in data.draw(st.permutations(history)):
        kept = remember(kept, observation)
    assert hold_of(kept) == hold_of(history)


@given(histories(), st.data())
def test_a_closed_hold_never_changes_with_what_comes_later(history: list[Observation], data: st.DataObject) -> None:
    before = hold_of(history)
    later = [item for version in (10, 11, 12) for item in data.draw(observations(version))]
    if before is not None and before.ending is not None:
        assert hold_of(history + later) == before


@given(histories(), st.data())
def test_an_open_hold_keeps_its_start_and_only_grows(history: list[Observation], data: st.DataObject) -> None:
    """... unless the start had to be guessed from the first time it was seen, or is reported now."""
    before = hold_of(history)
    later = data.draw(snapshots(10, ["Pending", "Running"]))
    after = hold_of([*history, later])
    if before is not None and before.start_rule is Rule.POD_SCHEDULED and after is not None:
        assert after.start == before.start
        assert after.observed_until >= before.observed_until


A_SECOND_AHEAD = PodSnapshot(
    uid="u", version=0, observed_at=ORIGIN, phase="Succeeded", node="n-1", reason="",
    conditions=(
        Condition("PodScheduled", "True", None),
        Condition("DisruptionTarget", "True", ORIGIN + timedelta(seconds=1), "PreemptionByScheduler"),
    ),
    containers=(), start_time=None, deletion_timestamp=None, deletion_grace_seconds=None,
)  # fmt: skip
"""Preempted, by a clock that is a second ahead of the one that saw it."""


@given(histories())
@example([A_SECOND_AHEAD])
def test_a_hold_is_never_negative_and_its_end_lies_within_its_bounds(history: list[Observation]) -> None:
    hold = hold_of(history)
    if hold is None:
        return
    assert hold.observed_until >= hold.start
    assert hold.start.year == 2026
    if hold.ending is not None:
        assert hold.start <= hold.ending.earliest <= hold.ending.at <= hold.ending.latest
        assert hold.ending.estimated or hold.ending.earliest == hold.ending.latest
