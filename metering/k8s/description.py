"""PURE: reported allocations of a pod, from its hold and its node.

The identity of an allocation is described once, when the pod is first seen bound, and kept: nodes are relabelled,
repartitioned and deleted, and the platform takes a report with another content for a conflict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

import msgspec

from metering.accelerators import NodeFacts, accelerator_name, device_fraction, resource_row, split_request
from metering.allocation import Ending, Hold
from metering.attribution import Owner, PodIdentity, accounted_by_slurm, attribute
from metering.capacity_types import node_capacity_type
from metering.k8s.objects import PodFacts
from metering.records import GpuAllocation, hold_id
from metering.shared_devices import ShareUnknownError, registered_product
from metering.shares import allocated_share

UNKNOWN: Final = "unknown"
"""Accelerator that no node named: it has no price, so it is listed and blocks the close."""


class SlurmPods(StrEnum):
    """Reporter of pods for which Slurm accounts as well: this agent (count), or the one of Slurm (leave out)."""

    COUNT = "count"
    LEAVE_OUT = "leave-out"


@dataclass(frozen=True, slots=True)
class Scope:
    """Configuration of the agent: its cluster, resources beyond the table with their product, labels to pass on, drivers of
    claimed devices beyond the table with their vendor, resources that are no accelerators, and aliases: the table's name for
    a plugin's own name (`nvidia.com/vgpu`: `nvidia.com/gpu`). `slurm_pods`: the reporter of pods for which Slurm accounts as
    well; None: undecided.
    """

    cluster: str
    extra_resources: Mapping[str, str] = field(default_factory=dict)
    pod_labels: tuple[str, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    site: str | None = None
    no_accelerators: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    slurm_pods: SlurmPods | None = None

    def is_unknown(self, resource: str) -> bool:
        """Return True if an unknown resource has not been declared since."""
        driver = resource.removeprefix("dra/")
        return resource not in self.extra_resources and resource not in self.no_accelerators and driver not in self.drivers


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts of a pod's surroundings: its namespace's labels and annotations, its PodGroup's queue, and the controllers above
    its first owner, upwards. `complete`: no part is missing that a later request may bring.
    """

    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_group_queue: str | None = None
    owners: tuple[Owner, ...] = ()
    complete: bool = True


def is_of_slurm(facts: PodFacts) -> bool:
    """Return True if Slurm accounts for the pod's devices as well."""
    return accounted_by_slurm(PodIdentity(
        facts.name, facts.uid, facts.labels, facts.annotations, facts.owners, facts.scheduler
    ))  # fmt: skip


def counted_requests(requests: Mapping[str, int], scope: Scope) -> tuple[dict[str, int], dict[str, int]]:
    """Split requests into billed ones, and those of unknown resources."""
    split = split_request({name: units for name, units in requests.items() if name not in scope.no_accelerators})
    extra = {name: units for name, units in split.unknown.items() if name in scope.extra_resources}
    unknown = {name: units for name, units in split.unknown.items() if name not in scope.extra_resources}
    return {**split.counted, **extra}, unknown


def allocations_of(
    facts: PodFacts, hold: Hold, node: NodeFacts | None, scope: Scope, around: Surroundings
) -> list[GpuAllocation]:
    """Return one open allocation per resource of the pod that is an accelerator or may be one, seen at its start.

    Raises records.RecordError.
    """
    counted, unknown = counted_requests(facts.requests, scope)
    if not counted and not unknown:
        return []
    base = allocation_base(facts, hold, node, scope, around)
    return [
        msgspec.structs.replace(
            base, allocation_id=hold_id(scope.cluster, facts.uid, resource, hold.start), resource=resource,
            quantity=quantity, **_product_and_share(resource, quantity, facts, node, scope),
        )
        for resource, quantity in sorted({**counted, **unknown}.items())
    ]  # fmt: skip


def allocation_base(
    facts: PodFacts, hold: Hold, node: NodeFacts | None, scope: Scope, around: Surroundings
) -> GpuAllocation:
    """Return the allocation without its own resource, quantity, fraction and product: pod, place, workload, labels.

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
        capacity_type=node_capacity_type(node.labels if node else {}),
    )  # fmt: skip


def _product_and_share(
    resource: str, quantity: int, facts: PodFacts, node: NodeFacts | None, scope: Scope
) -> dict[str, Any]:
    """Return product and share of a device, or the reason why the share is unknown."""
    product = scope.extra_resources.get(resource) or accelerator_name(resource, node.labels if node else {})
    if product is None and node is not None:
        product = registered_product(resource_row(resource), node, facts.annotations, facts.scheduler)
    product = product or UNKNOWN
    if resource in scope.extra_resources:
        return {"accelerator": product, "device_fraction": device_fraction(Fraction(1))}
    try:
        share = allocated_share(
            resource, quantity, facts.requests, facts.annotations, node, facts.scheduler, facts.slots
        )
    except ShareUnknownError as error:
        return {"accelerator": product, "device_fraction": None, "share_unknown": str(error)}
    return {"accelerator": product, "device_fraction": device_fraction(share)}


def report_of(record: GpuAllocation, observed_until: datetime, ending: Ending | None) -> GpuAllocation:
    """Return the record as it is reported now: open and seen until `observed_until`, or ended."""
    start = record.started_at
    if ending is None:
        return msgspec.structs.replace(record, observed_until=max(observed_until, start))
    at = max(ending.at, start)
    return msgspec.structs.replace(
        record, ended_at=at, observed_until=at, end_reason=ending.reason, end_rule=ending.rule,
        end_estimated=ending.estimated, end_earliest=max(ending.earliest, start), end_latest=max(ending.latest, start),
    )  # fmt: skip
