"""PURE: a hold and the node on which it stands -> the allocations that are reported of it.

What identifies an allocation is described once, when the pod is first seen bound, and kept: nodes are relabelled,
repartitioned and deleted, and the platform takes a report with another content for a conflict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Final

import msgspec

from metering.accelerators import (
    GrantError,
    NodeFacts,
    accelerator_name,
    device_fraction,
    granted_share,
    split_request,
    unit_share,
)
from metering.allocation import Hold
from metering.attribution import Owner, PodIdentity, attribute
from metering.k8s.objects import PodFacts
from metering.k8s.store import Ending, StoredNode
from metering.records import GpuAllocation, hold_id

UNKNOWN: Final = "unknown"
"""Accelerator of a pod whose node was never seen: it has no price, so it is listed and holds the close."""
SHARE_UNKNOWN: Final = " (share unknown)"
"""Added to the accelerator where nobody says how much of a device a unit is: likewise without a price, never guessed."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the agent was told: its cluster, resources beyond the table with their product, labels to pass on, drivers of
    claimed devices beyond the table with their vendor.
    """

    cluster: str
    extra_resources: Mapping[str, str] = field(default_factory=dict)
    pod_labels: tuple[str, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    site: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a pod beside the pod itself: its namespace's labels and annotations, its PodGroup's queue, and the
    controllers above its first owner, upwards. `complete`: nothing is missing that a later request may bring.
    """

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_group_queue: str | None = None
    owners: tuple[Owner, ...] = ()
    complete: bool = True


def counted_requests(requests: Mapping[str, int], scope: Scope) -> tuple[dict[str, int], dict[str, int]]:
    """Requests that are billed, and those of names that nobody knows."""
    split = split_request(requests)
    extra = {name: units for name, units in split.unknown.items() if name in scope.extra_resources}
    unknown = {name: units for name, units in split.unknown.items() if name not in scope.extra_resources}
    return {**split.counted, **extra}, unknown


def allocations_of(
    facts: PodFacts, hold: Hold, node: StoredNode | None, scope: Scope, around: Surroundings
) -> list[GpuAllocation]:
    """One allocation per billed resource of the pod, open, seen until the hold was.  Raises records.RecordError."""
    counted, _ = counted_requests(facts.requests, scope)
    if not counted:
        return []
    base = allocation_base(facts, hold, scope, around)
    found = []
    for resource, quantity in sorted(counted.items()):
        accelerator, share = _product_and_share(resource, quantity, facts, node, scope)
        found.append(
            msgspec.structs.replace(
                base, allocation_id=hold_id(scope.cluster, facts.uid, resource, hold.start), resource=resource,
                quantity=quantity, device_fraction=device_fraction(share), accelerator=accelerator,
            )
        )  # fmt: skip
    return found


def allocation_base(facts: PodFacts, hold: Hold, scope: Scope, around: Surroundings) -> GpuAllocation:
    """Whose the pod's allocations are and where: all but resource, quantity, fraction and product.

    Raises records.RecordError.
    """
    who = attribute(
        PodIdentity(
            facts.name, facts.uid, facts.labels, facts.annotations, (*facts.owners, *around.owners),
            facts.scheduler, around.pod_group_queue, around.namespace_annotations,
        )
    )  # fmt: skip
    passed_on = {key: facts.labels[key] for key in scope.pod_labels if key in facts.labels}
    labels = {**around.namespace_labels, **passed_on, **who.attributes}
    return GpuAllocation(
        allocation_id=hold_id(scope.cluster, facts.uid, UNKNOWN, hold.start), cluster=scope.cluster,
        namespace=facts.namespace, pod=facts.name, pod_uid=facts.uid, resource=UNKNOWN, quantity=1,
        device_fraction=device_fraction(Fraction(1)), accelerator=UNKNOWN, node=hold.node, started_at=hold.start,
        observed_until=hold.start, scheduler=facts.scheduler or None, queue=who.queue, workload=who.workload,
        labels=labels or None, priority_class=facts.priority_class or None, site=scope.site,
    )  # fmt: skip


def _product_and_share(
    resource: str, quantity: int, facts: PodFacts, node: StoredNode | None, scope: Scope
) -> tuple[str, Fraction]:
    labels = node.labels if node else {}
    if resource in scope.extra_resources:
        return scope.extra_resources[resource] or accelerator_name(resource, labels) or UNKNOWN, Fraction(1)
    product = accelerator_name(resource, labels) or UNKNOWN
    share = _share(resource, quantity, facts, node)
    if share is None or not 0 < share <= 1 or not device_fraction(share):
        return product + SHARE_UNKNOWN, Fraction(1)
    return product, share


def _share(resource: str, quantity: int, facts: PodFacts, node: StoredNode | None) -> Fraction | None:
    stored = node or StoredNode()
    memory = stored.labels.get("nvidia.com/gpu.memory", "")
    try:
        granted = granted_share(resource, quantity, facts.annotations, int(memory) if memory.isdecimal() else None)
    except GrantError:
        return None
    return granted if granted is not None else unit_share(resource, NodeFacts(stored.labels, stored.capacity))


def report_of(record: GpuAllocation, observed_until: datetime, ending: Ending | None) -> GpuAllocation:
    """The record as it is reported now: still open and seen until then, or ended."""
    start = record.started_at
    if ending is None:
        return msgspec.structs.replace(record, observed_until=max(observed_until, start))
    at = max(ending.at, start)
    return msgspec.structs.replace(
        record, ended_at=at, observed_until=at, end_reason=ending.reason, end_rule=ending.rule,
        end_estimated=ending.estimated, end_earliest=max(ending.earliest, start), end_latest=max(ending.latest, start),
    )  # fmt: skip
