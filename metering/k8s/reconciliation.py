"""Scan of all pods, once an hour: an independent list, compared with the agent's open allocations. It changes nothing.

A list is newer than the events that the watch has reported, so a difference counts only if it is still there when the watch
has passed the version of the list. Then events were lost, and the streams list again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from metering.k8s.api import Api, UnreachableError
from metering.k8s.description import Scope, SlurmPods, counted_requests, is_of_slurm
from metering.k8s.objects import Complaint, Metadata, Pod, PodFacts, complaint, kai_groups, kept_for, seen_pod
from metering.k8s.store import Store
from metering.k8s.stream import PAGE, PODS
from metering.observations import TERMINAL
from metering.requests import RequestError

KEPT_BEFORE: Final = timedelta(minutes=2)
"""Longest time for which KAI may keep a device before the pods that share it are bound."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Pods that hold accelerators according to a list, with their units by uid, as of a version.

    `suspects`: pods on which list and store differed then; some only because the watch was behind the list. `unreadable`:
    problems of pods that cannot be read, or for which KAI keeps a device though none is metered.
    """

    version: int
    at: datetime
    holding: Mapping[str, int]
    suspects: frozenset[str]
    unreadable: tuple[Complaint, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Result of a scan: pods, and units of extended resources, that only the list or only the agent knew.

    `unseen`: pods that the agent never saw; `stale`: pods that it takes for open; `ended_too_early`: pods that it has ended.
    """

    at: datetime
    holding: int
    unseen: int
    stale: int
    ended_too_early: int
    examples: tuple[str, ...]
    watched_units: int
    scanned_units: int
    differing_units: int

    @property
    def pods(self) -> int:
        """Return the number of pods that differ."""
        return self.unseen + self.stale + self.ended_too_early


def scan(api: Api, scope: Scope, store: Store) -> Scan:
    """List all pods, and compare them with the open ones of the store.  Raises ApiError."""
    at = api.clock.now()
    holding: dict[str, int] = {}
    unreadable: list[Complaint] = []
    kept: dict[str, Metadata] = {}
    shared: set[str] = set()
    version = 0
    parameters = {"limit": str(PAGE)}
    while True:
        metadata, pods, bad = PODS.items(api.get(PODS.path, parameters))
        if not metadata.resource_version.isdecimal():
            raise UnreachableError(f"{PODS.path}: the list names no version")
        version = version or int(metadata.resource_version)
        holding |= _holding(pods, scope, unreadable, shared)
        unreadable += bad
        kept |= {group: found[0] for pod in pods if (found := kept_for(pod)) for group in found[1]}
        if not metadata.continue_:
            suspects = frozenset(holding.keys() ^ store.open_versions().keys())
            unreadable += [
                (f"pod {pod.namespace}/{pod.name} ({pod.uid})", f"KAI keeps a card for {group}, of which no pod is metered")
                for group, pod in kept.items()
                if group not in shared and at - (pod.creation_timestamp or at) > KEPT_BEFORE
            ]
            return Scan(version, at, holding, suspects, tuple(unreadable))
        parameters = {"limit": str(PAGE), "continue": metadata.continue_}


def _holding(
    pods: Iterable[Pod], scope: Scope, unreadable: list[Complaint], shared: set[str]
) -> dict[str, int]:
    """Return units by uid of the pods that hold any; add complaints about unreadable pods to `unreadable`, and groups of
    pods that share a device of KAI to `shared`.
    """
    found = {}
    for pod in pods:
        try:
            seen = seen_pod(pod, scope.aliases)
        except (msgspec.DecodeError, RequestError) as error:
            unreadable.append(complaint(PODS.name, msgspec.json.decode(pod.metadata), error))
            continue
        if seen and scope.slurm_pods is SlurmPods.LEAVE_OUT and is_of_slurm(seen.facts):
            continue
        if seen and seen.node and seen.status.phase not in TERMINAL:
            found[seen.facts.uid] = _units_of(seen.facts, scope)
            shared |= kai_groups(seen.facts.labels)
    return {uid: units for uid, units in found.items() if units}


def confirmed(found: Scan, store: Store, scope: Scope) -> Difference | None:
    """Return the difference once the watch has passed the list; None while it has not.

    A pod that the watch has changed since the list was made is no difference: both were right at their time.
    """
    version = store.cursor("pods").version
    if version is None or int(version) < found.version:
        return None
    open_now, listed = store.open_versions(), found.suspects & found.holding.keys()
    unseen = sorted(uid for uid in listed if uid not in open_now and store.pod(uid) is None)
    # A pod that changed after the list, or that is no longer open, is not stale.
    stale = sorted(uid for uid in found.suspects - listed if open_now.get(uid, found.version + 1) <= found.version)
    unended = sorted(
        uid for uid in listed if uid not in open_now and (row := store.pod(uid)) is not None and row.version <= found.version
    )
    only_listed = sum(found.holding[uid] for uid in (*unseen, *unended))
    only_watched = sum(_units(store, uid, scope) for uid in stale)
    scanned = sum(found.holding.values())
    return Difference(
        found.at, len(found.holding), len(unseen), len(stale), len(unended), tuple([*unseen, *stale, *unended][:10]),
        scanned - only_listed + only_watched, scanned, only_listed + only_watched,
    )  # fmt: skip


def _units(store: Store, uid: str, scope: Scope) -> int:
    row = store.pod(uid)
    return _units_of(row.facts, scope) if row else 0


def _units_of(facts: PodFacts, scope: Scope) -> int:
    """Return the units of extended resources; a claim counts as one, since a list of pods does not show its devices."""
    counted, unknown = counted_requests(facts.requests, scope)
    return sum(counted.values()) + sum(unknown.values()) + len(facts.claims.counted)
