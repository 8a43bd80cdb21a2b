"""PURE: allocation of a pod from its observations: start, end, reason of the end, and the rules that decided each.

A pod holds devices from binding until its phase is terminal or the object is gone. Pending, CrashLoopBackOff and
Terminating pods hold devices; `phase == Running` is never asked. The first observation that ends the allocation ends it
for good: a finished pod's status may still change (a restarted kubelet turns Succeeded into Failed, kubernetes#117955),
and that bills nothing again.

Start and end come from different clocks, to the second. So a node's time is used only if the agent's own clock does not
contradict it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from metering.observations import (
    Condition,
    Observation,
    PodDeleted,
    PodMissing,
    PodSnapshot,
    known,
    order,
)

TOLERANCE: Final = timedelta(seconds=5)
"""Largest disagreement between the clocks of node, API server and agent at which a time is still believed."""

ADMISSION_REFUSALS: Final = frozenset({
    "AppArmor", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeAffinity", "NodeName", "NodePorts",
    "NodeShutdown", "PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TaintToleration",
    "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason",
})  # fmt: skip
"""Reasons with which a kubelet rejects a bound pod before any device is given (besides `OutOf<resource>`).
Source: kubernetes pkg/kubelet, admissionRejectionReasons, and the predicates behind them."""
REFUSAL_MESSAGES: Final = ("Pod was rejected: ", "Pod The node had condition")
"""First words of the messages of such pods, whatever the reason; older kubelets write only `Pod `. A node under pressure
refuses with the reason of an eviction, `Evicted`.  Source: kubernetes pkg/kubelet, rejectPod; eviction/helpers.go."""


class EndReason(StrEnum):
    """Reasons why an allocation ended, in the words of the contract."""

    COMPLETED = "completed"
    FAILED = "failed"
    DELETED = "deleted"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    RECLAIMED = "reclaimed"
    NODE_LOST = "node lost"
    ADMISSION_FAILED = "admission failed"
    UNKNOWN = "unknown"


REASONS: Final[Mapping[str, EndReason]] = {
    "PreemptionByScheduler": EndReason.PREEMPTED,
    "Preempting": EndReason.PREEMPTED,
    "TerminationByKubelet": EndReason.EVICTED,
    "EvictionByEvictionAPI": EndReason.EVICTED,
    "DeletionByTaintManager": EndReason.EVICTED,
    "Evicted": EndReason.EVICTED,
    "DeletionByPodGC": EndReason.NODE_LOST,
    "NodeLost": EndReason.NODE_LOST,
}
"""End reasons by the reason of DisruptionTarget or of the pod status.  Source: kubernetes/api core/v1 types.go, podgc."""


INTERRUPTIONS: Final = frozenset({
    EndReason.EVICTED.value, EndReason.PREEMPTED.value, EndReason.RECLAIMED.value, EndReason.NODE_LOST.value,
})  # fmt: skip
"""Ends not caused by the pod's owner: a policy may charge such time to another team."""


class Rule(StrEnum):
    """Sources of the instant chosen as start or end."""

    POD_SCHEDULED = "PodScheduled"
    START_TIME = "status.startTime"
    FIRST_SEEN = "first seen bound"
    FINISHED_AT = "finishedAt"
    DISRUPTION_TARGET = "DisruptionTarget"
    TERMINAL_SEEN = "terminal phase seen"
    DELETED_SEEN = "deletion seen"
    DELETION_TIMESTAMP = "deletionTimestamp"
    LIST = "absent from list"
    NOT_ADMITTED = "not admitted"
    SHARE_CHANGED = "share of a claim changed"


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of an allocation. `estimated`: the instant was not reported; it lies within [earliest, latest]."""

    at: datetime
    reason: str
    rule: str
    estimated: bool
    earliest: datetime
    latest: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """Allocation of a pod's devices: start, and end or None; while open, known until `observed_until`."""

    uid: str
    node: str
    start: datetime
    start_rule: Rule
    observed_until: datetime
    ending: Ending | None = None


def hold_of(observations: Iterable[Observation], created_at: datetime | None = None) -> Hold | None:
    """Return the allocation that observations of one pod show, in whatever order and however often they came.

    None if the pod was never bound, and if all observations show that its node rejected it: a node that reboots does so with
    pods that ran, for an unknown time. A pod that was rejected after it was seen bound has an empty allocation at
    its start, so that one that was reported open can be closed.  Raises ValueError for observations of several pods.

    `created_at`: when the API server made the pod; a node that stamps an earlier start has a clock that is behind.

    Source: the life of a pod in kubernetes pod-lifecycle; KEP-3329 (DisruptionTarget).
    """
    history = until_end(observations)
    seen = [item for item in (_snapshot(observation) for observation in history) if item is not None]
    bound = [item for item in seen if item.node]
    if not bound:
        return None
    start, start_rule = _start(bound)
    start = max(start, known(created_at) or start)
    # The final state inside a deletion is no sighting of a living pod: it came with the deletion.
    alive = [item.observed_at for item in bound if not item.terminal and item in history]
    if not alive and _refused(seen[-1], seen):
        return None
    last_alive = max([start, *alive])
    ending = _end(history[-1], seen, start, last_alive)
    until = ending.at if ending else last_alive
    return Hold(bound[0].uid, bound[0].node, start, start_rule, until, ending)


def until_end(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Return distinct observations in order, up to and including the first that ends the allocation.  Raises ValueError."""
    history = sorted(set(observations), key=order)
    if len({observation.uid for observation in history}) > 1:
        raise ValueError(f"observations of several pods: {sorted({item.uid for item in history})}")
    ends = (place for place, observation in enumerate(history) if _ends(observation))
    return tuple(history[: next(ends, len(history)) + 1])


def remember(history: Sequence[Observation], observation: Observation) -> tuple[Observation, ...]:
    """Return the history that an agent must keep: the same allocation, without repeated sightings of an unchanged pod.

    The first and the last of observations that differ only in their time are kept; observations after the end are not.
    """
    ordered = until_end((*history, observation))
    last: dict[object, int] = {}
    first: dict[object, int] = {}
    for place, item in enumerate(ordered):
        unchanged = msgspec.structs.replace(item, observed_at=ordered[0].observed_at)
        first.setdefault(unchanged, place)
        last[unchanged] = place
    kept = {*first.values(), *last.values()}
    return tuple(item for place, item in enumerate(ordered) if place in kept)


def _ends(observation: Observation) -> bool:
    return not isinstance(observation, PodSnapshot) or observation.terminal


def _snapshot(observation: Observation) -> PodSnapshot | None:
    if isinstance(observation, PodDeleted):
        return observation.final
    return observation if isinstance(observation, PodSnapshot) else None


def _start(bound: Sequence[PodSnapshot]) -> tuple[datetime, Rule]:
    """Return the API server's binding time; for static pods the node's own start; else the first sighting."""
    scheduled = (known(found.at) for item in bound if (found := item.condition("PodScheduled")))
    if at := next((at for at in scheduled if at), None):
        return at, Rule.POD_SCHEDULED
    if at := next((at for item in bound if (at := known(item.start_time))), None):
        return at, Rule.START_TIME
    return min(item.observed_at for item in bound), Rule.FIRST_SEEN


def _end(closing: Observation, seen: Sequence[PodSnapshot], start: datetime, last_alive: datetime) -> Ending | None:
    """Return how the closing observation ends an allocation, never before its start; None if it does not end it."""
    if not _ends(closing):
        return None
    latest = seen[-1]
    if isinstance(closing, PodMissing):
        found = _end_of_missing(closing, seen, last_alive)
    elif isinstance(closing, PodDeleted) and not latest.terminal:
        found = _end_of_deleted(closing, seen, last_alive)
    elif _refused(latest, seen):
        found = Ending(start, EndReason.ADMISSION_FAILED, Rule.NOT_ADMITTED, False, start, start)
    else:
        found = _end_of_terminal(latest, closing.observed_at, start, last_alive)
    at, earliest, last = (max(start, instant) for instant in (found.at, found.earliest, found.latest))
    return msgspec.structs.replace(found, at=at, earliest=earliest, latest=last)


def _end_of_terminal(pod: PodSnapshot, observed_at: datetime, start: datetime, last_alive: datetime) -> Ending:
    """Choose the last container's end; else the disruption, which begins the grace period; else the sighting."""
    finished, complete = _finished(pod)
    reason = _reason(pod, finished)
    behind = (known(pod.start_time) or start) < start - TOLERANCE  # the node's clock: no pod starts before it is bound
    if finished and complete and not behind and _believable(finished, start, observed_at):
        return Ending(finished, reason, Rule.FINISHED_AT, False, finished, finished)
    disruption = pod.condition("DisruptionTarget")
    at = known(disruption.at) if disruption else None
    if at and _believable(at, start, observed_at):
        return Ending(at, reason, Rule.DISRUPTION_TARGET, True, at, max(at, observed_at))
    return Ending(observed_at, reason, Rule.TERMINAL_SEEN, True, min(last_alive, observed_at), observed_at)


def _end_of_deleted(deleted: PodDeleted, seen: Sequence[PodSnapshot], last_alive: datetime) -> Ending:
    """Choose the time at which the deletion was read, or, if it was read late, the time of a forced deletion."""
    at, reason = deleted.observed_at, _ended_by(seen[-1]) or EndReason.DELETED
    there_until = max(last_alive, deleted.watched_until or last_alive)
    forced_at = _forced_at(seen)
    if deleted.watched_until and forced_at and there_until - TOLERANCE <= forced_at <= at:
        return Ending(forced_at, reason, Rule.DELETION_TIMESTAMP, True, forced_at, at)
    return Ending(at, reason, Rule.DELETED_SEEN, True, min(there_until, at), at)


def _end_of_missing(missing: PodMissing, seen: Sequence[PodSnapshot], last_alive: datetime) -> Ending:
    """Choose the end of a pod that vanished unwatched: its deletion timestamp, unless the pod was there after it.

    A pod of a lost node stays Terminating long past its deletion timestamp, so only the list bounds the end.
    """
    at, due = missing.observed_at, known(seen[-1].deletion_timestamp)
    reason = _ended_by(seen[-1]) or (EndReason.DELETED if due else EndReason.UNKNOWN)
    there_until = max(last_alive, missing.watched_until or last_alive)
    # A forced deletion is stamped at its request, by another clock: that may be just before the last sighting.
    earliest_due = there_until - TOLERANCE if _forced_at(seen) else there_until
    if due and earliest_due <= due < at:
        return Ending(due, reason, Rule.DELETION_TIMESTAMP, True, min(last_alive, due), at)
    return Ending(at, reason, Rule.LIST, True, min(last_alive, at), at)


def _forced_at(seen: Sequence[PodSnapshot]) -> datetime | None:
    """Return when a pod was deleted without a grace period, else None.

    A shortened grace period moves the timestamp back to the time of the deletion request, so the timestamp of a pod that had
    a grace period does not show when it ended.  Source: kubernetes apiserver/pkg/registry/rest/delete.go, BeforeDelete.
    """
    if any(item.deletion_timestamp and item.deletion_grace_seconds != 0 for item in seen):
        return None
    return known(seen[-1].deletion_timestamp)


def _believable(at: datetime, start: datetime, observed_at: datetime) -> bool:
    return start - TOLERANCE <= at <= observed_at + TOLERANCE


def _finished(pod: PodSnapshot) -> tuple[datetime | None, bool]:
    """Return the latest end among the containers, and True if every container that ran reported its end."""
    reported = [known(item.finished_at) for item in pod.containers if item.terminated]
    complete = None not in reported and not any(item.started and not item.terminated for item in pod.containers)
    return max((at for at in reported if at), default=None), complete


def _refused(pod: PodSnapshot, seen: Sequence[PodSnapshot]) -> bool:
    """Return True if the node rejected the pod, so that it was bound but never held a device.

    A node reports containers of a living pod once it has admitted it; when it reboots it may still refuse the pod.
    """
    admitted = any(item.started or not pod.terminal for pod in seen for item in pod.containers)
    refusal = pod.reason in ADMISSION_REFUSALS or pod.reason.startswith("OutOf") or pod.message.startswith(REFUSAL_MESSAGES)
    return not admitted and pod.phase == "Failed" and refusal


def _reason(pod: PodSnapshot, finished: datetime | None) -> EndReason:
    if disruption := _ended_by(pod):
        return disruption
    requested = pod.deletion_requested_at
    # Containers that finished before the deletion was requested finished by themselves.
    if requested and (finished is None or finished >= requested):
        return EndReason.DELETED
    return EndReason.COMPLETED if pod.phase == "Succeeded" else EndReason.FAILED


def _ended_by(pod: PodSnapshot) -> EndReason | None:
    """Return why another actor ended the pod, by its conditions or its reason (`NodeLost` of a lost node); else None."""
    return _disruption(pod) or REASONS.get(pod.reason)


def _disruption(pod: PodSnapshot) -> EndReason | None:
    """Return the reason of the disruption. Volcano reclaims under the reason of preemption and says so in the message."""
    target = pod.condition("DisruptionTarget")
    reason = REASONS.get(target.reason) if target else None
    evict = pod.condition("Ready", "False")
    reported: list[Condition] = [item for item in (target, evict if evict and evict.reason == "Evict" else None) if item]
    if reason is EndReason.PREEMPTED and any("reclaim" in item.message.lower() for item in reported):
        return EndReason.RECLAIMED
    return reason
