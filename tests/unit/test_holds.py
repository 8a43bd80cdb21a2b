"""From what was seen of a pod to the time it held its devices: each awkward end, with instants computed by hand.

The pod of these stories is bound at 10:00:00. Minutes and seconds of that hour are written m(min, sec).
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from metering.allocation import EndReason, Hold, Rule, hold_of, remember
from metering.observations import Condition, ContainerState, Observation, PodDeleted, PodMissing, PodSnapshot

YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)


def m(minute: int, second: int = 0) -> datetime:
    return datetime(2026, 10, 10, 10, minute, second, tzinfo=UTC)


BOUND = Condition("PodScheduled", "True", m(0))
RUNS = (ContainerState("train", started=True),)


def seen(version: int, at: datetime, **facts: Any) -> PodSnapshot:
    facts = {"phase": "Running", "node": "n-1", "conditions": (BOUND,), "containers": RUNS, **facts}
    return PodSnapshot(uid="u", version=version, observed_at=at, **facts)


def ended(version: int, at: datetime, finished: datetime | None, phase: str = "Succeeded", **facts: Any) -> PodSnapshot:
    containers = (ContainerState("train", started=True, terminated=True, finished_at=finished),)
    return seen(version, at, phase=phase, **{"containers": containers, **facts})


def disrupted(reason: str, at: datetime | None, message: str = "") -> tuple[Condition, ...]:
    return (BOUND, Condition("DisruptionTarget", "True", at, reason, message))


def hold(*observations: Observation) -> Hold:
    found = hold_of(observations)
    assert found is not None
    return found


def end_of(found: Hold) -> tuple[datetime | None, Rule | None, EndReason | None, bool]:
    return found.ending.at, found.ending.rule, found.ending.reason, found.ending.estimated


def test_the_end_of_a_node_whose_clock_is_behind_is_not_believed() -> None:
    """It acknowledged the pod ten minutes before the pod was bound: its clock is ten minutes behind, and so is its end."""
    behind = m(0) - timedelta(minutes=10)
    found = hold(seen(2, m(1), start_time=behind), ended(3, m(30, 1), m(20), start_time=behind))
    assert (found.start, end_of(found)) == (m(0), (m(30, 1), Rule.TERMINAL_SEEN, EndReason.COMPLETED, True))
    assert (found.ending.earliest, found.ending.latest) == (m(1), m(30, 1))
    near = hold(seen(2, m(1), start_time=m(0) - timedelta(seconds=5)), ended(3, m(30, 1), m(30), start_time=m(0)))
    assert end_of(near) == (m(30), Rule.FINISHED_AT, EndReason.COMPLETED, False)


def test_a_pod_that_its_node_says_began_before_it_was_created_began_when_it_was_created() -> None:
    """Nobody bound it (it was created with its node), so all its times are of the node, whose clock is an hour behind."""
    behind = m(0) - timedelta(hours=1)
    stamped = (Condition("PodScheduled", "True", behind),)
    runs = seen(2, m(1), conditions=stamped, start_time=behind)
    done = ended(3, m(30, 1), m(30) - timedelta(hours=1), conditions=stamped, start_time=behind)
    found = hold_of([runs, done], m(0))
    assert found is not None
    assert (found.start, end_of(found)) == (m(0), (m(30, 1), Rule.TERMINAL_SEEN, EndReason.COMPLETED, True))
    assert hold_of([runs], m(0)).observed_until == m(1)


def test_an_unbound_pod_holds_nothing_though_it_is_nominated() -> None:
    waiting = seen(1, m(0), phase="Pending", node="", conditions=(Condition("PodScheduled", "False", m(0)),))
    assert hold_of([waiting]) is None
    assert hold_of([waiting, PodDeleted("u", 2, m(5))]) is None
    assert hold_of([PodMissing("u", 9, m(5))]) is None


def test_a_pod_holds_from_binding_also_while_it_pulls_its_image() -> None:
    pulling = seen(2, m(1), phase="Pending", containers=(ContainerState("train"),), start_time=m(0, 2))
    found = hold(pulling)
    assert (found.start, found.start_rule, found.ending, found.observed_until) == (m(0), Rule.POD_SCHEDULED, None, m(1))


def test_crash_looping_and_terminating_pods_hold() -> None:
    looping = seen(3, m(20), containers=(ContainerState("train", True, True, m(19, 50)),))
    leaving = seen(4, m(30), deletion_timestamp=m(25), deletion_grace_seconds=30)
    found = hold(looping, leaving)
    assert (found.ending, found.observed_until) == (None, m(30))


@pytest.mark.parametrize(
    ("conditions", "start_time", "start", "rule"),
    [
        ((BOUND,), m(0, 3), m(0), Rule.POD_SCHEDULED),
        ((), m(0, 3), m(0, 3), Rule.START_TIME),  # static pod
        ((Condition("PodScheduled", "True", YEAR_ONE),), m(0, 3), m(0, 3), Rule.START_TIME),
        ((Condition("PodScheduled", "False", m(0)),), YEAR_ONE, m(4), Rule.FIRST_SEEN),
    ],
)
def test_the_start_says_which_rule_chose_it(
    conditions: tuple[Condition, ...], start_time: datetime, start: datetime, rule: Rule
) -> None:
    found = hold(seen(1, m(4), conditions=conditions, start_time=start_time), seen(1, m(9), conditions=conditions))
    assert (found.start, found.start_rule) == (start, rule)


def test_a_finished_pod_ends_with_its_last_container() -> None:
    containers = (
        ContainerState("init", True, True, m(1)),
        ContainerState("a", True, True, m(40)),
        ContainerState("b", True, True, m(41)),
    )
    found = hold(seen(1, m(2)), seen(5, m(41, 7), phase="Succeeded", containers=containers))
    assert end_of(found) == (m(41), Rule.FINISHED_AT, EndReason.COMPLETED, False)
    assert (found.start, found.observed_until) == (m(0), m(41))


def test_a_failed_pod_failed_and_a_pod_that_failed_after_its_deletion_was_deleted() -> None:
    assert hold(ended(5, m(41), m(40), "Failed")).ending.reason is EndReason.FAILED
    leaving = {"deletion_timestamp": m(40, 20), "deletion_grace_seconds": 30}  # asked for at 10:39:50
    assert hold(ended(5, m(41), m(40), "Failed", **leaving)).ending.reason is EndReason.DELETED
    assert hold(ended(5, m(41), m(39, 40), "Succeeded", **leaving)).ending.reason is EndReason.COMPLETED


def test_a_closed_hold_stays_closed_when_a_restarted_kubelet_fails_the_finished_pod() -> None:
    done = ended(5, m(41), m(40))
    turned = seen(9, m(55), phase="Failed", reason="UnexpectedAdmissionError", containers=())
    assert hold(done, turned) == hold(done)
    assert hold(done, PodDeleted("u", 10, m(58), turned)) == hold(done)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("UnexpectedAdmissionError", ""),
        ("OutOfnvidia.com/gpu", ""),
        ("OutOfcpu", ""),
        ("NodeAffinity", ""),
        ("NodeShutdown", "Pod Pod was rejected as the node is shutting down."),
        ("SysctlForbidden", ""),
        ("AppArmor", ""),
        ("PodOSNotSupported", ""),
        ("Evicted", "Pod was rejected: The node had condition: [DiskPressure]. "),
        ("Evicted", "Pod The node had condition: [DiskPressure]. "),  # older kubelets
        ("SMTAlignmentError", "Pod was rejected: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    ],
)
def test_a_pod_that_its_node_turned_away_holds_nothing(reason: str, message: str) -> None:
    """Where the agent first sees the refusal, as it may after it was away, nobody knows whether the pod had run before."""
    bound = seen(2, m(0, 1), phase="Pending", containers=())
    refused = seen(3, m(20), phase="Failed", reason=reason, message=message, containers=(ContainerState("train"),))
    found = hold(bound, refused)
    assert end_of(found) == (m(0), Rule.NOT_ADMITTED, EndReason.ADMISSION_FAILED, False)
    assert found.observed_until == m(0)
    assert hold_of([refused]) is None


def test_a_pod_that_its_node_had_admitted_and_refuses_after_a_reboot_held_until_then() -> None:
    pulling = seen(2, m(3), phase="Pending", containers=(ContainerState("train"),))
    refused = seen(3, m(20), phase="Failed", reason="UnexpectedAdmissionError", containers=())
    found = hold(pulling, refused)
    assert end_of(found) == (m(20), Rule.TERMINAL_SEEN, EndReason.FAILED, True)
    assert (found.ending.earliest, found.ending.latest) == (m(3), m(20))


def test_a_pod_that_is_evicted_while_it_pulls_its_image_was_admitted_and_held_until_then() -> None:
    pulling = seen(2, m(3), phase="Pending", containers=(ContainerState("train"),))
    evicted = seen(
        3, m(4, 2), phase="Failed", reason="Evicted", message="The node was low on resource: ephemeral-storage. ",
        containers=(ContainerState("train"),), conditions=disrupted("TerminationByKubelet", m(4)),
    )  # fmt: skip
    assert end_of(hold(pulling, evicted)) == (m(4), Rule.DISRUPTION_TARGET, EndReason.EVICTED, True)


def test_a_pod_that_ran_is_billed_whatever_its_node_says_later() -> None:
    refused = seen(3, m(30), phase="Failed", reason="UnexpectedAdmissionError", containers=())
    found = hold(seen(2, m(20)), refused)
    assert end_of(found) == (m(30), Rule.TERMINAL_SEEN, EndReason.FAILED, True)


def test_a_force_deleted_pod_ends_when_its_deletion_was_seen_and_the_end_is_estimated() -> None:
    found = hold(seen(2, m(20)), PodDeleted("u", 3, m(22), seen(3, m(22))))
    assert end_of(found) == (m(22), Rule.DELETED_SEEN, EndReason.DELETED, True)
    assert (found.ending.earliest, found.ending.latest) == (m(20), m(22))


def test_a_deletion_that_carries_the_finished_pod_ends_with_its_containers() -> None:
    found = hold(seen(2, m(20)), PodDeleted("u", 4, m(22), ended(4, m(22), m(21))))
    assert end_of(found) == (m(21), Rule.FINISHED_AT, EndReason.COMPLETED, False)


@pytest.mark.parametrize(
    ("condition", "message", "reason"),
    [
        ("PreemptionByScheduler", "preempted to accommodate a higher priority pod", EndReason.PREEMPTED),
        ("PreemptionByScheduler", "Pod is evicted, because of reclaim", EndReason.RECLAIMED),
        ("TerminationByKubelet", "", EndReason.EVICTED),
        ("EvictionByEvictionAPI", "", EndReason.EVICTED),
        ("DeletionByTaintManager", "", EndReason.EVICTED),
        ("DeletionByPodGC", "", EndReason.NODE_LOST),
        ("SomethingNew", "", EndReason.FAILED),
    ],
)
def test_a_victim_holds_through_its_grace_period_and_says_why(condition: str, message: str, reason: EndReason) -> None:
    victim = seen(3, m(30), conditions=disrupted(condition, m(30), message))
    gone = ended(4, m(30, 26), m(30, 25), "Failed", conditions=disrupted(condition, m(30), message))
    found = hold(victim, gone)
    assert end_of(found) == (m(30, 25), Rule.FINISHED_AT, reason, False)


def test_volcano_reports_a_reclaim_in_the_ready_condition() -> None:
    conditions = (*disrupted("PreemptionByScheduler", m(30)), Condition("Ready", "False", m(30), "Evict", "reclaim"))
    assert hold(ended(4, m(31), m(30, 25), "Failed", conditions=conditions)).ending.reason is EndReason.RECLAIMED


def test_a_pod_collected_from_a_lost_node_ends_with_its_disruption() -> None:
    dark = seen(3, m(20), deletion_timestamp=m(11), deletion_grace_seconds=30)
    collected = seen(
        4, m(25, 3), phase="Failed", conditions=disrupted("DeletionByPodGC", m(25)), deletion_timestamp=m(11)
    )
    found = hold(dark, collected)
    assert end_of(found) == (m(25), Rule.DISRUPTION_TARGET, EndReason.NODE_LOST, True)
    assert (found.ending.earliest, found.ending.latest) == (m(25), m(25, 3))


@pytest.mark.parametrize("finished", [None, YEAR_ONE])
def test_a_lost_container_record_leaves_the_time_at_which_the_end_was_seen(finished: datetime | None) -> None:
    found = hold(seen(2, m(20)), ended(3, m(33), finished, "Failed"))
    assert end_of(found) == (m(33), Rule.TERMINAL_SEEN, EndReason.FAILED, True)
    assert (found.ending.earliest, found.ending.latest) == (m(20), m(33))


def test_one_lost_record_among_others_is_not_outvoted_by_those_that_ended_earlier() -> None:
    containers = (ContainerState("a", True, True, m(5)), ContainerState("b", True, True, None))
    assert hold(seen(3, m(33), phase="Failed", containers=containers)).ending.at == m(33)


@pytest.mark.parametrize(
    ("finished", "end", "rule"),
    [
        (m(40, 4), m(40, 4), Rule.FINISHED_AT),  # the node is up to five seconds ahead of the agent
        (m(50), m(40), Rule.TERMINAL_SEEN),  # ten minutes ahead: not believed
        (datetime(2026, 10, 10, 9, 59, 58, tzinfo=UTC), m(0), Rule.FINISHED_AT),  # just before the start: clamped
        (datetime(2026, 10, 10, 9, 0, tzinfo=UTC), m(40), Rule.TERMINAL_SEEN),  # an hour behind: not believed
    ],
)
def test_the_node_is_believed_within_five_seconds(finished: datetime, end: datetime, rule: Rule) -> None:
    found = hold(ended(5, m(40), finished))
    assert (found.ending.at, found.ending.rule) == (end, rule)


def test_a_missed_deletion_ends_at_the_deletion_timestamp_within_bounds() -> None:
    leaving = seen(3, m(20), deletion_timestamp=m(20, 30), deletion_grace_seconds=30)
    found = hold(leaving, PodMissing("u", 99, m(50)))
    assert end_of(found) == (m(20, 30), Rule.DELETION_TIMESTAMP, EndReason.DELETED, True)
    assert (found.ending.earliest, found.ending.latest) == (m(20), m(50))


def test_a_pod_seen_alive_after_its_deletion_timestamp_ends_with_the_list() -> None:
    dark = seen(3, m(40), deletion_timestamp=m(20, 30))
    found = hold(dark, PodMissing("u", 99, m(50)))
    assert end_of(found) == (m(50), Rule.LIST, EndReason.DELETED, True)
    assert (found.ending.earliest, found.ending.latest) == (m(40), m(50))


def test_a_pod_that_vanished_without_a_trace_ends_with_the_list_for_unknown_reasons() -> None:
    found = hold(seen(3, m(20)), seen(3, m(40)), PodMissing("u", 99, m(50)))
    assert end_of(found) == (m(50), Rule.LIST, EndReason.UNKNOWN, True)
    assert (found.ending.earliest, found.ending.latest) == (m(40), m(50))


def test_observations_of_two_pods_are_no_history() -> None:
    other = PodMissing("other", 9, m(5))
    with pytest.raises(ValueError, match="several pods"):
        hold_of([seen(1, m(1)), other])


def test_what_an_agent_keeps_does_not_grow_while_nothing_changes() -> None:
    history: tuple[Observation, ...] = ()
    for minute in range(60):
        history = remember(history, seen(3, m(minute)))
    assert history == (seen(3, m(0)), seen(3, m(59)))
