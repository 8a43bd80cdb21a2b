"""Comparison of the allocated units of Volcano's queues with the agent's open pods, once an hour, as a second opinion.

Volcano counts pods that are bound or run and are not being released, in its queues without children; so does this module.
It writes its sums once per scheduling cycle, so one difference may be a delay; a lasting one is an error of either.
"""

import logging
from collections import Counter
from typing import Final

import msgspec

from metering.k8s.api import Api, RefusedError, UnreachableError
from metering.k8s.description import Scope, counted_requests
from metering.k8s.objects import node_quantities
from metering.k8s.store import PodRow, Store
from metering.observations import PodSnapshot

log = logging.getLogger(__name__)
QUEUES: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"
DEFAULT_QUEUE: Final = "default"
Held = Counter[tuple[str, str]]
"""Counter of units by queue and extended resource."""


class _Metadata(msgspec.Struct, frozen=True):
    name: str


class _Spec(msgspec.Struct, frozen=True):
    parent: str | None = None


class _Status(msgspec.Struct, frozen=True):
    allocated: dict[str, str | int] | None = None


class _Queue(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Queues(msgspec.Struct, frozen=True):
    items: tuple[_Queue, ...] = ()


def queue_difference(api: Api, store: Store, scope: Scope) -> dict[tuple[str, str], tuple[int, int]] | None:
    """Return units (by the agent, by Volcano) of each queue and resource on which they differ.

    None without Volcano, or without the right to see its queues.  Raises ApiError.
    """
    try:
        queues = msgspec.json.decode(api.get(QUEUES, {}), type=_Queues).items
    except RefusedError as error:
        log.info("queues of Volcano cannot be compared: %s", error)
        return None
    except msgspec.DecodeError as error:
        raise UnreachableError(f"{QUEUES}: the answer is no list: {error}") from error
    parents = {queue.spec.parent for queue in queues}
    leaves = [queue for queue in queues if queue.metadata.name not in parents]
    held, reported = allocated_by_queue(store, scope), _allocated(leaves, scope)
    names = {queue.metadata.name for queue in leaves}
    return {
        key: (held[key], reported[key]) for key in sorted(held.keys() | reported.keys())
        if held[key] != reported[key] and key[0] in names
    }  # fmt: skip


def allocated_by_queue(store: Store, scope: Scope) -> Held:
    """Sum the requests of open pods that Volcano scheduled, without those that are being deleted."""
    held: Held = Counter()
    for row in store.unreported(everything=True):
        if row.ended or row.facts.scheduler != "volcano" or _is_leaving(row):
            continue
        queue = (row.records[0].queue if row.records else None) or DEFAULT_QUEUE
        held.update({(queue, name): units for name, units in counted_requests(row.facts.requests, scope)[0].items()})
    return held


def _is_leaving(row: PodRow) -> bool:
    seen = [item for item in row.history if isinstance(item, PodSnapshot)]
    return bool(seen) and seen[-1].deletion_timestamp is not None


def _allocated(queues: list[_Queue], scope: Scope) -> Held:
    reported: Held = Counter()
    for queue in queues:
        counted, _ = counted_requests(node_quantities(queue.status.allocated, scope.aliases), scope)
        reported.update({(queue.metadata.name, name): units for name, units in counted.items() if units})
    return reported
