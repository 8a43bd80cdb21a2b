"""PURE: devices that a pod holds through claims of dynamic resource allocation (DRA).

Claims and slices are those of resource.k8s.io, as the API server shows them in JSON. A pod holds a claim's devices while the
claim is reserved for it; the caller, which knows the allocations, divides a claim among pods that share it. Access for
administrators holds nothing.

An extended resource that is backed by DRA appears twice, as request of the pod and as hidden claim that the scheduler made
for it. The request counts: it has the same name, and so the same price, on nodes with and without DRA. Only names that
Kubernetes makes of a device class, and that no node offers, are counted by their claim.

Claims that were generated for a pod vanish with it, so they are read while the pod lives.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from metering.accelerators import NodeFacts, is_extended, mig_share, unit_share

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
DEVICE_DRIVERS: Final[Mapping[str, str]] = {
    "gpu.nvidia.com": "nvidia",
    "gpu.amd.com": "amd",
    "gpu.intel.com": "intel",
    "neuron.aws.com": "aws",
    "tpu.google.com": "google",
    "npu.huawei.com": "huawei",
    "gaudi.intel.com": "habana",
    "hami-core-gpu.project-hami.io": "nvidia",
    "ascend.project-hami.io": "huawei",
}
"""Vendors of accelerators, by driver; HAMi's drivers give parts of a device by consumable capacity.
Source: NVIDIA/k8s-dra-driver-gpu; intel/intel-resource-drivers-for-kubernetes doc/gaudi; Project-HAMi/k8s-dra-driver; all
others as commonly seen."""
OTHER_DRIVERS: Final = frozenset({"compute-domain.nvidia.com", "dra.net", "dra.cpu", "cpu.dra.k8s.io"})
"""Drivers of devices that are no accelerators: memory domains, network cards, processors."""
SMALLEST: Final = Fraction(1, 10**9)
"""Least share of a device that is counted: it divides among the 256 pods of a claim and still shows in twelve decimals."""
PRODUCT_ATTRIBUTES: Final = ("productName", "model", "acceleratorType", "instanceType")
PROFILE_ATTRIBUTES: Final = ("profile", "partitionProfile")


CUT: Final = frozenset(DEVICE_DRIVERS.values())
"""Vendors whose profiles say how a card is cut; devices of a driver that an operator added count as they are."""


class ClaimError(ValueError):
    """Claim or slice that cannot be counted, or that breaks the API's form."""


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Meta(_Camel, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Result(_Camel, frozen=True, omit_defaults=True):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    consumed_capacity: dict[str, str | int] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")

    @property
    def place(self) -> "Place":
        return self.driver, self.pool, self.device


class _Results(_Camel, frozen=True):
    results: tuple[_Result, ...] = ()


class _Allocation(_Camel, frozen=True):
    devices: _Results = _Results()


class _Consumer(_Camel, frozen=True):
    resource: str
    uid: str
    name: str = ""


class _ClaimStatus(_Camel, frozen=True):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] | None = None


class Claim(_Camel, frozen=True):
    """ResourceClaim, reduced to the fields that are read."""

    metadata: _Meta
    status: _ClaimStatus | None = None

    @property
    def hidden(self) -> bool:
        """Return True if the scheduler made the claim for an extended resource."""
        return EXTENDED_RESOURCE_CLAIM in (self.metadata.annotations or {})

    @property
    def results(self) -> tuple[_Result, ...]:
        """Return the allocated devices; empty while nothing is allocated."""
        return self.status.allocation.devices.results if self.status and self.status.allocation else ()

    @property
    def pods(self) -> frozenset[str]:
        """Return the UIDs of the pods that the claim is reserved for."""
        return frozenset(item.uid for item in self._consumers if item.resource == "pods")

    @property
    def problem(self) -> str:
        """Return why the claim cannot be counted, which is a consumer that is no pod; "" where it can."""
        kinds = sorted({item.resource for item in self._consumers} - {"pods"})
        return f"claim {self.metadata.name}: reserved for {kinds[0]}, whose pods were not reported" if kinds else ""

    @property
    def _consumers(self) -> tuple[_Consumer, ...]:
        return (self.status.reserved_for or ()) if self.status else ()


class PodClaim(_Camel, frozen=True, gc=False):
    """Entry of spec.resourceClaims[] or status.resourceClaimStatuses[] of a pod, and the claim that it names."""

    name: str
    resource_claim_name: str | None = None


class _Mapping(_Camel, frozen=True, gc=False):
    request_name: str
    resource_name: str


class HiddenClaim(_Camel, frozen=True, gc=False):
    """Claim behind a pod's extended resources: its status.extendedResourceClaimStatus."""

    resource_claim_name: str
    request_mappings: tuple[_Mapping, ...] = ()


class PodClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """Claims of a pod by name, in its namespace.

    `hidden`: the claim that the scheduler made for extended resources, of which only the requests `by_class` are counted.
    """

    names: tuple[str, ...] = ()
    hidden: str = ""
    by_class: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the claims in which the pod may hold a device that no request of it counts."""
        return tuple(name for name in self.names if name != self.hidden or self.by_class)


class Device(msgspec.Struct, frozen=True):
    """Device of a ResourceSlice: attributes and capacities by their unqualified names."""

    attributes: dict[str, str]
    capacity: dict[str, Fraction]


class ClaimedDevices(msgspec.Struct, frozen=True, order=True):
    """Equal devices of one claim (by UID): `quantity` units, each of which is `share` of a physical device.

    `share` is what a slice is of its card, undivided among the pods of the claim. `resource`: `dra/DRIVER`, for a slice
    `dra/DRIVER/mig-1g.10gb`. `accelerator`: product as node labels write it, empty where the slice does not name it.
    """

    claim: str
    resource: str
    accelerator: str
    quantity: int
    share: Fraction


class Claimed(msgspec.Struct, frozen=True):
    """Devices that a pod holds through claims, problems in words for a person (`unknown`), devices by unknown driver."""

    held: tuple[ClaimedDevices, ...] = ()
    unknown: tuple[str, ...] = ()
    drivers: Mapping[str, int] = {}


Place = tuple[str, str, str]
Devices = Mapping[Place, Device]


def devices_of(spec: Mapping[str, Any]) -> dict[Place, Device]:
    """Return the devices of a ResourceSlice's spec by (driver, pool, device).

    Raises KeyError, TypeError, ValueError or AttributeError where it breaks the API's form.
    """
    driver, pool = str(spec["driver"]), str(spec["pool"]["name"])
    return {(driver, pool, str(device["name"])): _device(device) for device in spec.get("devices") or ()}


def allocated_through_claims(
    pod: PodClaims,
    claims: Mapping[str, Claim],
    devices: Devices,
    *,
    drivers: Mapping[str, str] | None = None,
) -> Claimed:
    """Return the devices of a pod's claims that no request of it counts, undivided among the pods of each claim.

    `claims`: those that are or were reserved for the pod, by name in its namespace; a missing one is in `unknown`.
    `devices`: at least those that the claims were given. `drivers`: vendors of further drivers; an empty vendor means that
    the devices are no accelerators.

    Add these to the pod's `effective_requests` of extended resources: no device is in both.
    """
    vendors = {**DEVICE_DRIVERS, **(drivers or {}), **dict.fromkeys(OTHER_DRIVERS, "")}
    unknown = {f"claim {name}: not seen as reserved for the pod" for name in pod.counted if name not in claims}
    units: Counter[tuple[str, str, str, Fraction]] = Counter()
    foreign: Counter[str] = Counter()
    for claim in (claims[name] for name in pod.counted if name in claims):
        foreign_claim = claim.hidden and claim.metadata.name != pod.hidden
        if claim.problem or foreign_claim:
            unknown.add(claim.problem or f"claim {claim.metadata.name}: of an extended resource, and not of this pod's")
            continue
        for result in _billed_results(claim, pod):
            vendor = vendors.get(result.driver)
            if vendor is None:
                foreign[result.driver] += 1
            elif vendor:
                try:
                    units[claim.metadata.uid, *_unit(result, devices.get(result.place), vendor)] += 1
                except ClaimError as error:
                    unknown.add(f"device {'/'.join(result.place)}: {error}")
    held = (ClaimedDevices(uid, resource, product, count, share) for (uid, resource, product, share), count in units.items())
    return Claimed(tuple(sorted(held)), tuple(sorted(unknown)), foreign)


def places_of(claim: Claim) -> set[Place]:
    """Return (driver, pool, device) of every device that a claim was given."""
    return {item.place for item in claim.results}


def claims_named(
    entries: Iterable[PodClaim] | None, statuses: Iterable[PodClaim] | None, hidden: HiddenClaim | None
) -> PodClaims:
    """Return the claims that a pod's spec and status name; an entry for which none was generated names none."""
    generated = {item.name: item.resource_claim_name for item in statuses or ()}
    named = {item.resource_claim_name or generated.get(item.name) for item in entries or ()}
    behind = hidden.resource_claim_name if hidden else ""
    mappings = hidden.request_mappings if hidden else ()
    by_class = {item.request_name for item in mappings if not is_extended(item.resource_name)}
    return PodClaims(tuple(sorted({name for name in (*named, behind) if name})), behind, tuple(sorted(by_class)))


def _billed_results(claim: Claim, pod: PodClaims) -> list[_Result]:
    """Return allocated devices that no request of the pod counts already."""
    results = [item for item in claim.results if not item.admin_access]
    if pod.hidden != claim.metadata.name:
        return results
    return [item for item in results if item.request in pod.by_class]


def _unit(result: _Result, device: Device | None, vendor: str) -> tuple[str, str, Fraction]:
    """Return resource, product ("" if unknown) and share of a card for one device.  Raises ClaimError."""
    if device is None:
        raise ClaimError("in no ResourceSlice")
    resource, accelerator, share = kind_of(result.driver, device, vendor)
    consumed = _consumed(result, device)
    if consumed is None:
        raise ClaimError("its share of the card is not reported")
    if share * consumed < SMALLEST:
        raise ClaimError("its share is too small")
    return resource, accelerator or "", share * consumed


def kind_of(driver: str, device: Device, vendor: str) -> tuple[str, str | None, Fraction]:
    """Return resource name, product and share of its card of a device, before any division among claims.

    Raises ClaimError for a slice whose part of its card is unknown.
    """
    product = next((device.attributes[key] for key in PRODUCT_ATTRIBUTES if device.attributes.get(key)), None)
    accelerator = re.sub(r"\s+", "-", product.strip()) if product else None
    profile = next((device.attributes[key] for key in PROFILE_ATTRIBUTES if device.attributes.get(key)), "")
    resource, share = f"dra/{driver}", Fraction(1)
    slice_share = _slice_share(profile, vendor, accelerator or "")
    if slice_share is None and ((profile and vendor in CUT) or device.attributes.get("type") == "mig"):
        raise ClaimError(f"a slice of profile {profile[:40]!r}, of which nobody knows how much of its card it is")
    if slice_share is not None and slice_share != 1:
        resource, share = f"{resource}/{'mig-' if vendor == 'nvidia' else ''}{profile}", slice_share
    return resource, accelerator, share


def _slice_share(profile: str, vendor: str, product: str) -> Fraction | None:
    if not profile:
        return None
    if vendor == "amd":
        return unit_share(f"amd.com/{profile.lower()}", NodeFacts({"amd.com/gpu.product-name": product}))
    return mig_share(f"mig-{profile}", product)


def _consumed(result: _Result, device: Device) -> Fraction | None:
    """Return the part of a shared device that a claim consumes, by its largest capacity; None if it is not reported."""
    if result.consumed_capacity is None:
        return None if result.share_id else Fraction(1)
    taken = [
        quantity_of(amount) / device.capacity[_unqualified(name)]
        for name, amount in result.consumed_capacity.items()
        if device.capacity.get(_unqualified(name))
    ]
    return min(max(taken), Fraction(1)) if taken and max(taken) > 0 else None


def _device(given: Mapping[str, Any]) -> Device:
    basic = given.get("basic") or given  # v1beta1 nests them
    attributes = {
        _unqualified(name): str(next(iter(value.values()), "")) for name, value in (basic.get("attributes") or {}).items()
    }
    capacity = {
        _unqualified(name): quantity_of(value["value"] if isinstance(value, Mapping) else value)
        for name, value in (basic.get("capacity") or {}).items()
    }
    return Device(attributes, capacity)


SCALES: Final = {
    "": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20),
    "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip


def quantity_of(given: object) -> Fraction:
    """Parse a Kubernetes quantity, exactly.

    >>> quantity_of("40Gi") / quantity_of("80Gi"), quantity_of("1500m")
    (Fraction(1, 2), Fraction(3, 2))

    Raises ClaimError.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([mkMGTPE]|[KMGTPE]i)?", str(given))
    if match is None:
        raise ClaimError(f"quantity {given!r} is not written as Kubernetes writes one")
    return Fraction(match.group(1)) * SCALES[match.group(2) or ""]


def _unqualified(name: str) -> str:
    return name.rpartition("/")[2]
