"""PURE: devices that a node offers to claims, by its ResourceSlices of dynamic resource allocation.

The slice of a card that can be cut on demand lists it whole and in every way in which it may be cut, all drawing on the same
counters: such a card is counted once, whole. A card that is cut for good is listed by its partitions alone. A device that
its driver has tainted cannot be allocated, and is no capacity.

A device plugin and a driver on one node both list all of its cards, and neither knows what the other gave away. Vendors
refuse to install both at once; while a node moves from one to the other, or where an administrator forces both, its cards
are the larger of the two lists, not their sum.
Source: AMD GPU Operator, Device Plugin ("cannot be enabled at the same time"); NVIDIA GPU Operator, Comparison: DRA and
Device Plugin ("but not both").
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final

import msgspec

from metering.accelerators import device_share, resource_row
from metering.claims import DEVICE_DRIVERS, OTHER_DRIVERS, ClaimError, Devices, kind_of

KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


class SliceOffer(msgspec.Struct, frozen=True):
    """Offer of one slice: (resource, product or None where it names none, units), within a pool, on a node."""

    driver: str
    pool: str
    generation: int
    units: tuple[tuple[str, str | None, int], ...]
    node: str = ""


def slice_offer(spec: Mapping[str, Any], devices: Devices, drivers: Mapping[str, str] | None = None) -> SliceOffer:
    """Return the devices that a slice offers to claims; none if its driver is no driver of accelerators.

    `spec`: of the ResourceSlice. `devices`: `claims.devices_of` it. `drivers`: vendors of further drivers of accelerators.
    Devices that are not of one node belong to a node that is named after their pool.
    """
    driver, pool = str(spec["driver"]), spec["pool"]
    vendor = "" if driver in OTHER_DRIVERS else {**DEVICE_DRIVERS, **(drivers or {})}.get(driver, "")
    units: Counter[tuple[str, str | None]] = Counter()
    for given in spec.get("devices") or () if vendor else ():
        basic = given.get("basic") or given  # v1beta1 nests them
        try:
            resource, product, share = kind_of(driver, devices[driver, str(pool["name"]), str(given["name"])], vendor)
        except ClaimError:
            continue  # claims of it are a problem of their pods
        tainted = any(taint.get("effect") in KEEPS_AWAY for taint in basic.get("taints") or ())
        if not tainted and (share == 1 or not basic.get("consumesCounters")):
            units[resource, product] += 1
    node = str(spec.get("nodeName") or f"pool {pool['name']}")
    counted = tuple((resource, product, count) for (resource, product), count in units.items())
    return SliceOffer(driver, str(pool["name"]), int(pool.get("generation", 0)), counted, node)


def offered_by(slices: Iterable[SliceOffer]) -> dict[str, tuple[str | None, int]]:
    """Return product and units by resource of a node, from the latest generation of each pool.

    Where a node has several products of a resource, each is a resource of its own, `RESOURCE@PRODUCT`.
    """
    known = list(slices)
    latest: dict[tuple[str, str], int] = {}
    for item in known:
        latest[item.driver, item.pool] = max(item.generation, latest.get((item.driver, item.pool), item.generation))
    found: dict[str, Counter[str | None]] = defaultdict(Counter)
    for item in known:
        if item.generation == latest[item.driver, item.pool]:
            for resource, product, count in item.units:
                found[resource][product] += count
    return {
        resource if len(products) == 1 else f"{resource}@{product}": (product, count)
        for resource, products in found.items() for product, count in products.items()
    }  # fmt: skip


def beyond_the_plugin(
    offered: Mapping[str, tuple[str | None, int]], plugin: Mapping[str, int], drivers: Mapping[str, str] | None = None
) -> dict[str, tuple[str | None, int]]:
    """Return what claims can get beyond the units that device plugins of the same vendor offer on the node.

    `plugin`: units of the node's own resources. They reduce whole cards first; all taken means zero units.

    >>> beyond_the_plugin({"dra/gpu.nvidia.com": ("NVIDIA-H800", 8)}, {"nvidia.com/gpu": 7})
    {'dra/gpu.nvidia.com': ('NVIDIA-H800', 1)}
    """
    vendors = {**DEVICE_DRIVERS, **(drivers or {})}
    known: dict[str, Fraction] = defaultdict(Fraction)
    for resource, units in plugin.items():
        known[resource_row(resource).vendor] += units * device_share(resource)
    found = {}
    for resource, (product, units) in sorted(offered.items(), key=lambda item: -device_share(item[0])):
        vendor, share = vendors[resource.split("/")[1].partition("@")[0]], device_share(resource)
        taken = min(units, ceil(known[vendor] / share))
        known[vendor] = max(known[vendor] - taken * share, Fraction(0))
        found[resource] = (product, units - taken)
    return found
