"""PURE: capacity of a node, and the continuation of its record when it is seen again.

An interval lasts while product, quantity and condition stay the same, so that an unchanged node is one row whose `until`
moves on.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from metering.accelerator_resources import COUNTED, NODE_REGISTERS, SAME_CHIPS
from metering.accelerators import (
    NodeFacts,
    accelerator_name,
    device_share,
    is_undescribed,
    resource_row,
    unit_share,
)
from metering.k8s.description import UNKNOWN, Scope
from metering.k8s.objects import NO_ALIASES, Node, node_condition, node_quantities
from metering.k8s.store import CapacityRow
from metering.mig_capacity import WHOLE_CARDS, cards_of_mixed, cards_of_single, mixed_resources
from metering.records import NodeCapacity
from metering.shared_devices import ShareUnknownError, registered_product, shared_devices
from metering.shares import CARD, unread_states

CLAIMED: Final = "dra/"
"""Prefix of resources that are offered to claims: ResourceSlices report them, not nodes."""


NOT_YET_KNOWN: Final = -1
"""Quantity of a node's offer before labels say how many devices it is; such a row is not reported."""


def node_facts(node: Node, aliases: Mapping[str, str] = NO_ALIASES) -> NodeFacts:
    """Return labels and extended resources of a node, and the annotations in which it lists the devices that it shares."""
    annotations = node.metadata.annotations or {}
    listed = {name: text for name, text in annotations.items() if NODE_REGISTERS.fullmatch(name)}
    return NodeFacts(node.metadata.labels or {}, node_quantities(node.status.capacity, aliases), listed)


def offers(node: Node, at: datetime, scope: Scope) -> dict[str, CapacityRow]:
    """Return the node's offer from `at` on, by resource, in units of the ledger.

    Units that several pods share are counted as the devices behind them: allocations are fractions of those. Devices that a
    node has but cannot allocate (unhealthy ones) are no capacity. Where the number of devices behind the units is unknown,
    nothing is offered: slots are never taken for devices. A node that offers MIG slices under names of their own is counted
    in cards.
    """
    facts = node_facts(node, scope.aliases)
    condition = node_condition(node)
    found: dict[str, CapacityRow] = {}
    allocatable = node_quantities(node.status.allocatable, scope.aliases)
    # A node that offers the same chips under several names would count twice; only the first name of SAME_CHIPS counts.
    again = {name for names in SAME_CHIPS for name in [name for name in names if name in allocatable][1:]}
    mixed = mixed_resources(facts.capacity) - scope.extra_resources.keys()
    if CARD in mixed and (cards := cards_of_mixed(facts, allocatable)) is not None:
        product = accelerator_name(CARD, facts.labels) or UNKNOWN
        found[CARD] = CapacityRow(node.metadata.name, CARD, at, None, product, cards, condition)
    for resource, units in sorted(allocatable.items()):
        if resource in again or resource in mixed:
            continue
        if resource_row(resource).kind not in COUNTED and resource not in scope.extra_resources:
            continue
        named = scope.extra_resources.get(resource) or accelerator_name(resource, facts.labels)
        product = named or registered_product(resource_row(resource), facts, {}, "") or UNKNOWN
        quantity = units if resource in scope.extra_resources else devices_behind(resource, units, facts)
        if quantity is None and is_undescribed(resource, facts):
            quantity = NOT_YET_KNOWN
        if quantity is None:
            continue
        found[resource] = CapacityRow(node.metadata.name, resource, at, None, product, quantity, condition)
    return found


def devices_behind(resource: str, units: int, node: NodeFacts) -> int | None:
    """Return the ledger units behind a node's allocatable units: named slices, else devices; None if unknown."""
    try:
        listed = shared_devices(resource_row(resource), node)
    except ShareUnknownError:
        return None
    if listed is not None:
        return sum(device.healthy for device in listed.values())
    own, share = device_share(resource), unit_share(resource, node)
    if share is None or not own or unread_states(node):
        return None
    devices = cards_of_single(units * share, node) if resource in WHOLE_CARDS else units * share / own
    return int(devices) if devices is not None and devices.denominator == 1 else None


def capacity_records(
    rows: Iterable[CapacityRow], nodes_until: datetime, slices_until: datetime | None, scope: Scope
) -> list[NodeCapacity]:
    """Return records of intervals; an open one reaches to where its stream was read. Empty ones are left out."""
    return [
        NodeCapacity(
            scope.cluster, row.node, row.accelerator, row.resource, row.quantity, row.start, until, row.condition or None
        )
        for row in rows
        if row.quantity != NOT_YET_KNOWN and (until := row.until or _read_until(row, nodes_until, slices_until)) > row.start
    ]


def _read_until(row: CapacityRow, nodes_until: datetime, slices_until: datetime | None) -> datetime:
    return (slices_until or row.start) if row.resource.startswith(CLAIMED) else nodes_until
