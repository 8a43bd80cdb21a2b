"""The hourly scan: an independent list, compared with what the agent holds. It changes nothing; it finds out.

A list is newer than what the watch has reported, so a difference counts only if it is still there when the watch has passed
the version of the list. Then events were lost, and the streams list again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from metering.k8s.api import Api, UnreachableError
from metering.k8s.description import Scope, counted_requests
from metering.k8s.objects import Complaint, Pod, PodFacts, complaint, seen_pod
from metering.k8s.store import Store
from metering.k8s.stream import PAGE, PODS
from metering.observations import TERMINAL
from metering.requests import RequestError


@dataclass(frozen=True, slots=True)
class Scan:
    """Pods that hold accelerators according to a list, with their units by uid, as of a version.

    `suspects`: pods on which list and store did not agree then; some only because the watch was behind the list.
    `unreadable`: what is wrong with pods that cannot be read.
    """

    version: int
    at: datetime
    holding: Mapping[str, int]
    suspects: frozenset[str]
    unreadable: tuple[Complaint, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """What a scan found: pods, and units of extended resources, that only the list or only the agent knew.

    `unseen`: pods that the agent never saw; `stale`: that it still holds; `ended_too_early`: that it holds no more.
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
        """How many pods differ."""
        return self.unseen + self.stale + self.ended_too_early


def scan(api: Api, scope: Scope, store: Store) -> Scan:
    """List all pods, and compare them with the open ones of the store.  Raises ApiError."""
    at = api.clock.now()
    holding: dict[str, int] = {}
    unreadable: list[Complaint] = []
    version = 0
    parameters = {"limit": str(PAGE)}
    while True:
        metadata, pods, bad = PODS.items(api.get(PODS.path, parameters))
        if not metadata.resource_version.isdecimal():
            raise UnreachableError(f"{PODS.path}: the list names no version")
        version = version or int(metadata.resource_version)
        holding |= _holding(pods, scope, unreadable)
        unreadable += bad
        if not metadata.continue_:
            suspects = frozenset(holding.keys() ^ store.open_versions().keys())
            return Scan(version, at, holding, suspects, tuple(unreadable))
        parameters = {"limit": str(PAGE), "continue": metadata.continue_}


def _holding(pods: Iterable[Pod], scope: Scope, unreadable: list[Complaint]) -> dict[str, int]:
    """Units by uid of the pods that hold any; what is wrong with those that cannot be read is added to `unreadable`."""
    found = {}
    for pod in pods:
        try:
            seen = seen_pod(pod)
        except (msgspec.DecodeError, RequestError) as error:
            unreadable.append(complaint(PODS.name, msgspec.json.decode(pod.metadata), error))
            continue
        if seen and seen.node and seen.status.phase not in TERMINAL:
            found[seen.facts.uid] = _units_of(seen.facts, scope)
    return {uid: units for uid, units in found.items() if units}


def confirmed(found: Scan, store: Store, scope: Scope) -> Difference | None:
    """The difference once the watch has passed the list; None while it has not.

    A pod that the watch has changed since the list was made is no difference: both were right at their time.
    """
    version = store.cursor("pods").version
    if version is None or int(version) < found.version:
        return None
    open_now, listed = store.open_versions(), found.suspects & found.holding.keys()
    unseen = sorted(uid for uid in listed if uid not in open_now and store.pod(uid) is None)
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
    """Units of extended resources; a claim counts as one, for a list of pods does not show what is in it."""
    counted, unknown = counted_requests(facts.requests, scope)
    return sum(counted.values()) + sum(unknown.values()) + len(facts.claims.counted)
