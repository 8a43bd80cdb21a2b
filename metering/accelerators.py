"""PURE: what one unit of an extended resource is of a physical device, and of which product.

One unit of `nvidia.com/gpu` may be a card, a MIG slice, a time slice or a HAMi slice; the name alone does not tell, the
node's labels and the scheduler's annotation on the pod do. What nobody says stays None: a share that is not known is
never taken for a whole device nor for nothing. The names themselves are data: `accelerator_resources`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Final

from metering.accelerator_resources import (
    AMD_CPX_BY_PRODUCT,
    AMD_PARTITIONS,
    ASCEND_CORES_OF_CHIP,
    ASCEND_CORES_OF_TEMPLATE,
    COUNTED,
    FALLBACK_PRODUCT_LABEL,
    MIG_COMPUTE_SLICES,
    MIG_FOUR_COMPUTE_SLICES,
    MIG_FOUR_SLICE_PRODUCTS,
    MIG_FOUR_SLICE_PROFILES,
    NEURON_CORES_OF_INSTANCE,
    PRODUCT_LABELS,
    ROWS,
    Kind,
    Row,
    ShareRule,
)

MIG: Final = re.compile(r"(?:^|/|-)(?:mig|MIG)-(([1-7])g\.\d+gb)(?:[.+-][A-Za-z.+-]+)?$")
PRODUCT_SUFFIX: Final = re.compile(r"(?:-MIG-[0-9A-Za-z.+]+)?(?:-SHARED)?\Z")
FRACTION_PLACES: Final = 12
"""Decimals of a device fraction that the ledger keeps."""
NODE_WORDS: Final = ("kubernetes.io", "k8s.io")


class GrantError(ValueError):
    """A scheduler's annotation that does not say what was granted."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node said of itself when a pod was bound: labels, and capacity per resource name."""

    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Requested:
    """Extended resources of a pod by what they are. Only `counted` is billed; `unknown` must be seen by somebody."""

    counted: Mapping[str, int]
    modifiers: Mapping[str, int]
    unknown: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Grant:
    """A piece of one device that a sharing scheduler gave: MiB and percent of its cores; 0 means: not limited."""

    device: str
    type: str
    memory_mib: int
    cores: int


@cache
def resource_row(resource: str) -> Row:
    """The row of the table for a resource name; kind UNKNOWN where no row speaks of it.

    >>> resource_row("nvidia.com/gpumem").kind.value, resource_row("example.com/fpga").kind.value
    ('memory', 'unknown')
    """
    for row in ROWS:
        if re.fullmatch(row.pattern, resource):
            return row
    return Row(re.escape(resource), "", Kind.UNKNOWN, ShareRule.NONE)

CLAIMED_AMD: Final = "dra/gpu.amd.com/"
"""Partitions that are claimed, as `metering.claims` names them."""


def is_extended(resource: str) -> bool:
    """Whether a name is an extended resource: with a domain that is not Kubernetes' own.

    Source: Kubernetes, IsExtendedResourceName. Names that DRA generates (`deviceclass.resource.kubernetes.io/...`)
    are not; their devices are counted by the claim.
    """
    domain, slash, _ = resource.partition("/")
    native = any(domain == word or domain.endswith(f".{word}") for word in NODE_WORDS)
    return bool(slash) and not native and not resource.startswith("requests.")


def split_request(requests: Mapping[str, int]) -> Requested:
    """Sort a pod's effective requests by kind; zero requests and what is no extended resource are left out."""
    groups: tuple[dict[str, int], dict[str, int], dict[str, int]] = ({}, {}, {})
    for resource, quantity in requests.items():
        kind = resource_row(resource).kind
        if quantity > 0 and is_extended(resource) and kind is not Kind.IGNORE:
            place = 0 if kind in COUNTED else 2 if kind is Kind.UNKNOWN else 1
            groups[place][resource] = quantity
    return Requested(*groups)


def device_share(resource: str) -> Fraction:
    """Share of a physical device behind one unit of `resource`, as far as the name says it; 0 for modifiers.

    Shared units and names that the table does not know count as whole devices here: capacity is reported in them.

    >>> device_share("nvidia.com/mig-3g.40gb"), device_share("nvidia.com/gpu"), device_share("nvidia.com/gpumem")
    (Fraction(3, 7), Fraction(1, 1), Fraction(0, 1))

    Source: NVIDIA MIG user guide (compute slices of seven; of four on A30).
    """
    profile = mig_share(resource)
    if profile is not None:
        return profile
    if resource.startswith(CLAIMED_AMD):
        resource = f"amd.com/{resource.removeprefix(CLAIMED_AMD).lower()}"
    row = resource_row(resource)
    if row.kind in (Kind.MEMORY, Kind.CORES, Kind.IGNORE):
        return Fraction(0)
    if row.share in (ShareRule.ASCEND_TEMPLATE, ShareRule.AMD_PARTITION):
        return unit_share(resource, NodeFacts()) or Fraction(1)
    return Fraction(1)


def unit_share(resource: str, node: NodeFacts) -> Fraction | None:
    """Share of a physical device behind one unit on this node; None where neither name nor node tells.

    >>> unit_share("nvidia.com/gpu", NodeFacts({"nvidia.com/gpu.replicas": "10"}))
    Fraction(1, 10)
    """
    row = resource_row(resource)
    rule = SHARES.get(row.share)
    return rule(resource, node, row) if rule else None


def granted_share(
    resource: str, quantity: int, annotations: Mapping[str, str], device_memory_mib: int | None
) -> Fraction | None:
    """Mean share of a device per requested unit, from what the scheduler granted; None where it granted nothing.

    A grant is the larger of its memory share and its core share: what it leaves over on the card nobody can count on.
    Cores of 0 mean no limit on cores, so memory decides. `device_memory_mib` is the memory of one whole device.
    Raises GrantError.  Source: Project-HAMi/HAMi pkg/device/devices.go.
    """
    text = annotations.get(resource_row(resource).grant or "")
    grants = [grant for container in parse_grants(text or "") for grant in container]
    if not grants:
        return None
    shares = [_grant_share(grant, device_memory_mib) for grant in grants]
    known = [share for share in shares if share is not None]
    return sum(known, Fraction(0)) / quantity if len(known) == len(shares) and quantity > 0 else None


def _grant_share(grant: Grant, device_memory_mib: int | None) -> Fraction | None:
    cores = Fraction(min(grant.cores, 100), 100)
    if grant.memory_mib == 0 or cores == 1:
        return cores or Fraction(1)
    if not device_memory_mib:
        return None
    return max(cores, min(Fraction(grant.memory_mib, device_memory_mib), Fraction(1)))


def parse_grants(text: str) -> list[list[Grant]]:
    """Grants per container of `uuid,type,mem,cores:uuid,...:;...`.  Raises GrantError.

    >>> parse_grants("GPU-1,NVIDIA,3000,30:;")
    [[Grant(device='GPU-1', type='NVIDIA', memory_mib=3000, cores=30)]]
    """
    containers = [[_grant(piece) for piece in part.split(":") if piece] for part in text.split(";")]
    return [grants for grants in containers if grants]


def _grant(piece: str) -> Grant:
    fields = piece.split(",")
    if len(fields) < 4 or not (fields[2].isdecimal() and fields[3].isdecimal()):
        raise GrantError(f"grant {piece[:80]!r} must be written uuid,type,memory,cores")
    return Grant(fields[0], fields[1], int(fields[2]), int(fields[3]))


def device_fraction(share: Fraction) -> Decimal:
    """A share as the ledger keeps it: 12 decimals, half up.

    >>> device_fraction(Fraction(1, 7))
    Decimal('0.142857142857')
    """
    scale: int = 10**FRACTION_PLACES
    units = (2 * scale * share.numerator + share.denominator) // (2 * share.denominator)
    return Decimal(units).scaleb(-FRACTION_PLACES).normalize()


def accelerator_name(resource: str, labels: Mapping[str, str]) -> str | None:
    """Product that the node's labels name for this resource, without -SHARED and -MIG-...; None where none does.

    >>> accelerator_name("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"})
    'NVIDIA-A100-SXM4-40GB'

    Source: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery.
    """
    keys = (*PRODUCT_LABELS.get(resource_row(resource).vendor, ()), FALLBACK_PRODUCT_LABEL)
    found = next((labels[key].strip() for key in keys if labels.get(key, "").strip()), None)
    return found and normalised_product(found)


def normalised_product(product: str) -> str:
    """A product name as price lists write it: without the suffixes of sharing and of single MIG."""
    return PRODUCT_SUFFIX.sub("", product, count=1)


def mig_share(name: str, product: str = "") -> Fraction | None:
    """Compute slices of a MIG resource or product name, of the slices of its card; None where it names no profile.

    >>> mig_share("nvidia.com/mig-1g.6gb"), mig_share("nvidia.com/mig-1g.10gb.shared")
    (Fraction(1, 4), Fraction(1, 7))
    """
    match = MIG.search(name)
    if match is None:
        return None
    return min(Fraction(int(match.group(2)), mig_slices(match.group(1), product)), Fraction(1))


def mig_slices(profile: str, product: str = "") -> int:
    """Compute slices of the card that a profile is cut from: four of an A30 or an RTX PRO 6000, seven of the others.

    >>> mig_slices("2g.12gb"), mig_slices("2g.20gb"), mig_slices("1g.24gb", "NVIDIA-RTX-PRO-6000-Blackwell")
    (4, 7, 4)
    """
    four = profile in MIG_FOUR_SLICE_PROFILES or re.search(MIG_FOUR_SLICE_PRODUCTS, product)
    return MIG_FOUR_COMPUTE_SLICES if four else MIG_COMPUTE_SLICES


def _nvidia_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    product = node.labels.get("nvidia.com/gpu.product", "")
    single = product if resource.startswith("nvidia.com/gpu") else ""
    base = mig_share(resource, product) or mig_share(single, product)
    if base is None and "-MIG-" in single:
        return None  # `-MIG-INVALID`: the card is cut, but feature discovery does not know how
    replicas = _replicas(resource.removesuffix(".shared"), node.labels, shared=row.kind is Kind.SHARED)
    return None if replicas is None else (base or Fraction(1)) / replicas


def _replicas(resource: str, labels: Mapping[str, str], *, shared: bool) -> int | None:
    """Units per device, or None where the node shares without saying how often; a label of 0 means: not shared."""
    strategy = labels.get(f"{resource}.sharing-strategy", "none") or "none"
    text = labels.get(f"{resource}.replicas", "")
    if text.isdecimal() and (int(text) > 1 or not shared):
        return max(int(text), 1)
    is_shared = shared or strategy != "none" or labels.get(f"{resource}.product", "").endswith("-SHARED")
    return None if text or is_shared else 1


def _ascend_template_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    match = re.search(r"Ascend(910|310P)-(\d+)c", resource)
    cores = match and ASCEND_CORES_OF_TEMPLATE[match.group(1)].get(int(match.group(2)))
    return Fraction(int(match.group(2)), cores) if match and cores else None


def _ascend_core_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    chip = accelerator_name(resource, node.labels) or ""
    return next((Fraction(1, cores) for name, cores in ASCEND_CORES_OF_CHIP.items() if name in chip), None)


def _amd_partition_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    return _amd_mode_share(resource.partition("/")[2], node)


def _amd_node_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    mode = node.labels.get("amd.com/compute-memory-partition", "")
    return _amd_mode_share(mode, node) if mode else Fraction(1)


def _amd_mode_share(mode: str, node: NodeFacts) -> Fraction | None:
    compute = mode.lower().partition("_")[0]
    product = accelerator_name("amd.com/gpu", node.labels) or ""
    fewer = next((count for name, count in AMD_CPX_BY_PRODUCT.items() if name in product), None)
    partitions = fewer if fewer and compute == "cpx" else AMD_PARTITIONS.get(compute)
    return Fraction(1, partitions) if partitions else None


def _neuron_core_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    cores = NEURON_CORES_OF_INSTANCE.get(node.labels.get(FALLBACK_PRODUCT_LABEL, "").partition(".")[0])
    return Fraction(1, cores) if cores else None


def _node_ratio(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    devices, units = node.capacity.get(row.devices or "", 0), node.capacity.get(resource, 0)
    return Fraction(devices, units) if 0 < devices <= units else None


def _whole(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    return Fraction(1)


SHARES: Final[Mapping[ShareRule, Callable[[str, NodeFacts, Row], Fraction | None]]] = {
    ShareRule.WHOLE: _whole,
    ShareRule.NVIDIA: _nvidia_share,
    ShareRule.ASCEND_TEMPLATE: _ascend_template_share,
    ShareRule.ASCEND_CORES: _ascend_core_share,
    ShareRule.AMD_PARTITION: _amd_partition_share,
    ShareRule.AMD_NODE: _amd_node_share,
    ShareRule.NEURON_CORES: _neuron_core_share,
    ShareRule.NODE_RATIO: _node_ratio,
}
