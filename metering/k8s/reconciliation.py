"""The hourly scan: an independent list, compared with what the agent holds. It changes nothing; it finds out.

A list is newer than what the watch has told, so a difference counts only if it is still there when the watch has passed
the version of the list. Then events were lost, and the streams list again.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from metering.k8s.api import Api, UnreachableError
from metering.k8s.description import Scope, counted_requests
from metering.k8s.objects import items_of, pod_object, pod_page, seen_pod
from metering.k8s.store import Store
from metering.k8s.stream import PAGE, PODS
from metering.observations import TERMINAL


@dataclass(frozen=True, slots=True)
class Scan:
    """Pods that hold accelerators according to a list, by uid, as of a version."""

    version: int
    at: datetime
    holding: frozenset[str]
    suspects: frozenset[str] = field(default_factory=frozenset)


def scan(api: Api, scope: Scope) -> Scan:
    """List all pods.  Raises ApiError."""
    at = api.clock.now()
    holding: set[str] = set()
    version = 0
    parameters = {"limit": str(PAGE)}
    while True:
        metadata, pods, _ = items_of(api.get(PODS.path, parameters), pod_page, pod_object)
        if not metadata.resource_version.isdecimal():
            raise UnreachableError(f"{PODS.path}: the list names no version")
        version = version or int(metadata.resource_version)
        for pod in pods:
            found = seen_pod(pod)
            bound = found and found.node and found.status.phase not in TERMINAL
            if found and bound and counted_requests(found.facts.requests, scope)[0]:
                holding.add(found.facts.uid)
        if not metadata.continue_:
            return Scan(version, at, frozenset(holding))
        parameters = {"limit": str(PAGE), "continue": metadata.continue_}


def suspects(found: Scan, store: Store) -> frozenset[str]:
    """Pods on which list and store do not agree now; some only because the watch is behind the list."""
    return found.holding ^ frozenset(store.open_versions())


def confirmed(found: Scan, store: Store) -> dict[str, Any] | None:
    """The difference once the watch has passed the list; None while it has not.

    A pod that the watch has changed since the list was made is no difference: both were right at their time.
    """
    version = store.cursor("pods").version
    if version is None or int(version) < found.version:
        return None
    open_now = store.open_versions()
    unseen = sorted(uid for uid in found.suspects & found.holding if uid not in open_now and store.pod(uid) is None)
    stale = sorted(
        uid for uid in found.suspects - found.holding if open_now.get(uid, found.version + 1) <= found.version
    )
    unended = sorted(
        uid for uid in found.suspects & found.holding
        if uid not in open_now and (row := store.pod(uid)) is not None and row.version <= found.version
    )  # fmt: skip
    return {
        "at": found.at, "holding": len(found.holding), "unseen": len(unseen), "stale": len(stale),
        "ended_too_early": len(unended), "examples": [*unseen, *stale, *unended][:10],
    }  # fmt: skip
