"""PURE: share of a physical device behind one unit of an extended resource, and the product of the device.

One unit of `nvidia.com/gpu` may be a card, a MIG slice, a time slice or a HAMi slice. The name alone does not decide; the
node's labels and the scheduler's annotation on the pod do. A share that neither states stays None: it is never taken for
a whole device nor for nothing. The table of names is data: `accelerator_resources`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Final

from metering.accelerator_resources import (
    AMD_CPX_BY_PRODUCT,
    AMD_MOST_CARDS,
    AMD_PARTITIONABLE,
    AMD_PARTITIONS,
    ASCEND_CORES_OF_CHIP,
    ASCEND_CORES_OF_TEMPLATE,
    CARD_COUNT_LABELS,
    CARDS_OF_INSTANCE,
    COUNTED,
    DISCOVERED,
    FALLBACK_PRODUCT_LABEL,
    GKE_SHARING,
    KOORDINATOR_SHARE,
    MIG_CARDS,
    NEURON_CHIPS,
    NEURON_CORES_OF_INSTANCE,
    PRODUCT_LABELS,
    ROWS,
    SHARING_OFF,
    VGPU_CARD_GB,
    Kind,
    Row,
    ShareRule,
)

MIG: Final = re.compile(r"(?:^|/|-)(?:mig|MIG)-(([1-7])g\.\d+gb)(?:[.+-][A-Za-z.+-]+)?$")
PRODUCT_SUFFIX: Final = re.compile(r"(?:-MIG-[0-9A-Za-z.+]+)?(?:-SHARED)?\Z")
INTEL_COUNT: Final = re.compile(r"gpu\.intel\.com/device-id\.[0-9a-f]{4}-[0-9a-f]{4}\.count")
FRACTION_PLACES: Final = 12
"""Decimals of a device fraction that the ledger keeps."""
NODE_WORDS: Final = ("kubernetes.io", "k8s.io")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Description of a node when a pod was bound: labels, capacity per resource name, and the annotations in which the node
    lists the devices that it shares.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Requested:
    """Extended resources of a pod, sorted by kind. Only `counted` is billed; a person must look at `unknown`."""

    counted: Mapping[str, int]
    unknown: Mapping[str, int]


@cache
def resource_row(resource: str) -> Row:
    """Return the table's row for a resource name; a row of kind UNKNOWN where none matches.

    >>> resource_row("nvidia.com/gpumem").kind.value, resource_row("example.com/fpga").kind.value
    ('memory', 'unknown')
    """
    for row in ROWS:
        if match := re.fullmatch(row.pattern, resource):
            # Names of grants and registers may quote a group of the pattern.
            return replace(row, grants=tuple(map(match.expand, row.grants)), register=match.expand(row.register))
    return Row(re.escape(resource), "", Kind.UNKNOWN, ShareRule.NONE)


CLAIMED_AMD: Final = "dra/gpu.amd.com/"
"""Prefix of claimed partitions, as `metering.claims` names their resources."""


def is_extended(resource: str) -> bool:
    """Return True if a name is an extended resource: one with a domain that is not Kubernetes' own.

    Source: Kubernetes, IsExtendedResourceName. Names that DRA generates (`deviceclass.resource.kubernetes.io/...`)
    are not; their devices are counted by the claim.
    """
    domain, slash, _ = resource.partition("/")
    native = any(domain == word or domain.endswith(f".{word}") for word in NODE_WORDS)
    return bool(slash) and not native and not resource.startswith("requests.")


def is_part(resource: str) -> bool:
    """Return True if the name alone says that a resource is a slice or a shared unit of a device.

    >>> is_part("nvidia.com/mig-1g.10gb"), is_part("nvidia.com/gpu"), is_part("dra/gpu.nvidia.com/1g.10gb")
    (True, False, True)
    """
    return resource_row(resource).kind in (Kind.SLICE, Kind.SHARED) or re.fullmatch(r"dra/[^/]+/.+", resource) is not None


def split_request(requests: Mapping[str, int]) -> Requested:
    """Sort a pod's effective requests by kind, without zero requests and names that are no extended resource.

    A modifier describes a counted name of the same vendor and is left out beside one. A modifier without one says that a
    device is allocated, but not how much of it: unknown. Cores and memory of one share are counted by the cores, and all
    requests to Koordinator by the devices.
    """
    counted: dict[str, int] = {}
    unknown: dict[str, int] = {}
    asked = {name: units for name, units in requests.items() if units > 0 and is_extended(name)}
    if of_koordinator := {name: units for name, units in asked.items() if resource_row(name).vendor == "koordinator"}:
        counted[KOORDINATOR_SHARE] = koordinator_devices(of_koordinator)
        asked = {name: units for name, units in asked.items() if name not in of_koordinator}
    asked = {name: units for name, units in asked.items() if not _is_memory_of(resource_row(name), name, asked)}
    vendors = {row.vendor for row in map(resource_row, asked) if row.kind in COUNTED}
    for resource, quantity in asked.items():
        row = resource_row(resource)
        if row.kind in COUNTED:
            counted[resource] = quantity
        elif row.kind is Kind.UNKNOWN or (row.kind is not Kind.IGNORE and row.vendor not in vendors):
            unknown[resource] = quantity
    return Requested(counted, unknown)


def koordinator_devices(requests: Mapping[str, int]) -> int:
    """Return the number of devices of which a pod requests a share from Koordinator.

    >>> koordinator_devices({"koordinator.sh/gpu": 200}), koordinator_devices({"koordinator.sh/gpu-memory-ratio": 50})
    (2, 1)

    Source: koordinator-sh/koordinator pkg/scheduler/plugins/deviceshare/devicehandler_gpu.go.
    """
    if shared := requests.get("koordinator.sh/gpu.shared"):
        return shared
    percent = requests.get("koordinator.sh/gpu") or requests.get("koordinator.sh/gpu-memory-ratio", 0)
    return percent // 100 if percent > 100 and percent % 100 == 0 else 1


def _is_memory_of(row: Row, resource: str, asked: Mapping[str, int]) -> bool:
    """Return True if `resource` is the memory of a share whose cores are requested as well."""
    return row.share is ShareRule.PERCENT and resource == row.memory and row.cores in asked


def device_share(resource: str) -> Fraction:
    """Return the share of a physical device behind one unit of `resource`, by the name alone; 0 for modifiers.

    Shared units and names that the table does not know count as whole devices here: capacity is reported in them.

    >>> device_share("nvidia.com/mig-3g.40gb"), device_share("nvidia.com/gpu"), device_share("nvidia.com/gpumem")
    (Fraction(3, 7), Fraction(1, 1), Fraction(0, 1))

    Source: NVIDIA MIG user guide (compute slices of seven; of four on A30).
    """
    profile = mig_share(resource)
    if profile is not None:
        return profile
    # The profile of a claimed partition is the device plugin's resource name, in capitals.
    if resource.startswith(CLAIMED_AMD):
        resource = f"amd.com/{resource.removeprefix(CLAIMED_AMD).lower()}"
    row = resource_row(resource)
    if row.kind in (Kind.MEMORY, Kind.CORES, Kind.IGNORE):
        return Fraction(0)
    if row.share in (ShareRule.ASCEND_TEMPLATE, ShareRule.AMD_PARTITION):
        return unit_share(resource, NodeFacts()) or Fraction(1)
    return Fraction(1)


def unit_share(resource: str, node: NodeFacts) -> Fraction | None:
    """Return the share of a physical device behind one unit on this node; None if neither name nor node states it.

    >>> unit_share("nvidia.com/gpu", NodeFacts({"nvidia.com/gpu.replicas": "10"}))
    Fraction(1, 10)
    """
    row = resource_row(resource)
    match row.share:
        case ShareRule.WHOLE:
            return Fraction(1)
        case ShareRule.NVIDIA:
            return _nvidia_share(resource, node, row)
        case ShareRule.ASCEND_TEMPLATE:
            return _ascend_template_share(resource)
        case ShareRule.ASCEND_CORES:
            return _ascend_core_share(resource, node)
        case ShareRule.AMD_PARTITION:
            return _amd_share(resource.partition("/")[2], node)
        case ShareRule.AMD_NODE:
            mode = node.labels.get("amd.com/compute-memory-partition", "")
            return _amd_share(mode, node) if mode else None if _may_be_cut(resource, node) else Fraction(1)
        case ShareRule.NEURON_CORES:
            return _neuron_share(resource, node)
        case ShareRule.NODE_RATIO:
            devices, units = node.capacity.get(row.devices or "", 0), node.capacity.get(resource, 0)
            return Fraction(devices, units) if 0 < devices <= units else None
        case ShareRule.VGPU:
            return vgpu_share(resource)
        case ShareRule.INTEL:
            return _intel_share(resource, node)
    return None


def vgpu_share(resource: str) -> Fraction | None:
    """Return the share of a card that an NVIDIA vGPU type has; None if its name does not name the card.

    >>> vgpu_share("nvidia.com/GRID_T4-2Q"), vgpu_share("nvidia.com/NVIDIA_A100-2-10C"), vgpu_share("nvidia.com/GRID_Z9-2Q")
    (Fraction(1, 8), Fraction(2, 7), None)

    Source: NVIDIA Virtual GPU Software User Guide, Virtual GPU Types.
    """
    match = re.search(r"(?:GRID_|NVIDIA_)(?:TESLA_)?([A-Za-z0-9]+)-(?:([1-7])-)?(\d+)[ABCQ](?:ME)?\Z", resource)
    card = VGPU_CARD_GB.get(match.group(1)) if match else None
    if match is None or card is None:
        return None
    if match.group(2):
        slices = mig_slices(f"{match.group(2)}g.{match.group(3)}gb", f"-{match.group(1)}")
        return Fraction(int(match.group(2)), slices) if slices else None
    gigabytes = int(match.group(3))
    return Fraction(gigabytes, card) if 0 < gigabytes <= card else None


def device_fraction(share: Fraction) -> Decimal:
    """Round a share to the ledger's 12 decimals, half up.

    >>> device_fraction(Fraction(1, 7))
    Decimal('0.142857142857')
    """
    return decimal_of(share, FRACTION_PLACES)


def decimal_of(value: Fraction, places: int) -> Decimal:
    """Round a ratio to `places` decimals, half up."""
    # Integers only: a quotient of Decimals is rounded to the context's precision first, so a tie could round twice.
    scale: int = 10**places
    units = (2 * scale * value.numerator + value.denominator) // (2 * value.denominator)
    return Decimal(units).scaleb(-places).normalize() + Decimal(0)  # without an exponent where that writes 10 as 1E+1


def accelerator_name(resource: str, labels: Mapping[str, str]) -> str | None:
    """Return the product that the node's labels name, without -SHARED and -MIG-...; None if no label names one.

    >>> accelerator_name("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"})
    'NVIDIA-A100-SXM4-40GB'

    Source: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery.
    """
    keys = (*PRODUCT_LABELS.get(resource_row(resource).vendor, ()), FALLBACK_PRODUCT_LABEL)
    found = next((labels[key].strip() for key in keys if labels.get(key, "").strip()), None)
    return found and normalised_product(found)


def is_discovered(resource: str, labels: Mapping[str, str]) -> bool:
    """Return True if a node has the labels of its vendor's discovery, or if the vendor has none.

    >>> is_discovered("nvidia.com/gpu", {}), is_discovered("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-H800"})
    (False, True)
    """
    keys = DISCOVERED.get(resource_row(resource).vendor, ())
    return not keys or any(labels.get(key) for key in keys)


def normalised_product(product: str) -> str:
    """Return a product name as price lists write it: without the suffixes of sharing and of single MIG."""
    return PRODUCT_SUFFIX.sub("", product, count=1)


def mig_share(name: str, product: str = "") -> Fraction | None:
    """Return the compute slices of a MIG resource or product name, divided by those of its card; None if the name has no
    profile, or if the number of the card's slices is unknown.

    >>> mig_share("nvidia.com/mig-1g.6gb"), mig_share("nvidia.com/mig-1g.10gb.shared")
    (Fraction(1, 4), Fraction(1, 7))
    """
    match = MIG.search(name)
    slices = mig_slices(match.group(1), product) if match else None
    return Fraction(int(match.group(2)), slices) if match and slices and int(match.group(2)) <= slices else None


def mig_slices(profile: str, product: str = "") -> int | None:
    """Return the compute slices of the card that a profile is cut from; None if neither profile nor product states it.

    >>> mig_slices("2g.12gb"), mig_slices("2g.20gb"), mig_slices("1g.24gb", "NVIDIA-RTX-PRO-5000-Blackwell")
    (4, 7, 2)
    >>> mig_slices("1g.24gb"), mig_slices("1g.10gb", "NVIDIA-Z9")
    (None, None)
    """
    cards = [card for card in MIG_CARDS if not product or re.search(card.product, product)]
    found = {card.slices for card in cards if profile in card.profiles}
    return found.pop() if len(found) == 1 else None


def _nvidia_share(resource: str, node: NodeFacts, row: Row) -> Fraction | None:
    """Return the slice of the resource name, product label or GKE partition label, divided by the pods that share it."""
    labels, product = node.labels, accelerator_product(node.labels)
    single = resource.startswith("nvidia.com/gpu")
    if single and is_undescribed(resource, node):
        return _of_stated_cards(node.capacity[resource], labels, product, shared=row.kind is Kind.SHARED)
    names = [resource, *((labels.get("nvidia.com/gpu.product", ""), gke_profile(labels)) if single else ())]
    slices = {share for name in names if (share := mig_share(name, product)) is not None}
    # The card is cut, but into slices of unknown size.
    if not slices and (_is_cut(labels) if single else MIG.search(resource.removesuffix(".shared"))):
        return None
    replicas = {_replicas(resource.removesuffix(".shared"), labels, shared=row.kind is Kind.SHARED), _gke_clients(labels)}
    # GKE and feature discovery may both describe the node. A count of 1 yields to a larger one; two larger ones contradict.
    replicas -= {1} if len(replicas) > 1 else set()
    count = replicas.pop() if len(replicas) == 1 else None
    if count is None or len(slices) > 1 or (single and _surplus(resource, node, count)):
        return None
    return (slices.pop() if slices else Fraction(1)) / count


def is_undescribed(resource: str, node: NodeFacts) -> bool:
    """Return True if a node offers units, but no label of feature discovery or GKE describes how its cards are shared.

    >>> is_undescribed("nvidia.com/gpu", NodeFacts({}, {"nvidia.com/gpu": 10}))
    True
    """
    described = ("nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "cloud.google.com/gke-accelerator")
    return resource_row(resource).share is ShareRule.NVIDIA and bool(node.capacity.get(resource)) and not any(
        node.labels.get(name) for name in described
    )  # fmt: skip


def stated_cards(labels: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the number of cards that a node's cloud states, and their name in MIG_CARDS ("" if unknown); else None."""
    machine = labels.get(FALLBACK_PRODUCT_LABEL, "")
    table = next(((cards, product) for name, cards, product in CARDS_OF_INSTANCE if name.fullmatch(machine)), None)
    text = next((labels[key] for key in CARD_COUNT_LABELS if labels.get(key)), "")
    if text.isascii() and text.isdecimal() and int(text):
        return int(text), table[1] if table else ""
    return None if text else table


def _of_stated_cards(units: int, labels: Mapping[str, str], product: str, *, shared: bool) -> Fraction | None:
    """Return the share of a card behind a unit of a node that states only its number of cards; None if uncertain.

    Two, three or four units per card may be time slices or slices of MIG, which are different parts of a card: on a card of
    seven compute slices, 3g is three of them, and two fit on it.
    """
    stated = stated_cards(labels)
    if stated is None:
        return None
    cards, known_as = stated
    each, rest = divmod(units, cards)
    if each <= 1 and not (each and rest) and not shared:
        return Fraction(1)  # as many as there are cards, or fewer where some are broken
    if rest or not each:
        return None
    cut = {card.slices for card in MIG_CARDS if not (product or known_as) or re.search(card.product, product or known_as)}
    uncertain = not shared and max(cut, default=0) == 7 and each in (2, 3, 4)
    return None if uncertain else Fraction(1, each)


def accelerator_product(labels: Mapping[str, str]) -> str:
    """Return the product of the node's NVIDIA card by its labels, "" if no label names one."""
    return next((labels[key] for key in PRODUCT_LABELS["nvidia"] if labels.get(key)), "")


def _is_cut(labels: Mapping[str, str]) -> bool:
    """Return True if labels say that cards are cut, but not how (`-MIG-INVALID`, an unknown profile)."""
    wanted = labels.get("nvidia.com/mig.config", "") if labels.get("nvidia.com/mig.strategy") == "single" else ""
    cut = "-MIG-" in labels.get("nvidia.com/gpu.product", "") or labels.get("cloud.google.com/gke-gpu-partition-size")
    return bool(cut) or wanted not in SHARING_OFF


def gke_profile(labels: Mapping[str, str]) -> str:
    """Return the MIG profile of a GKE node's cards as the ending of a product name, "" if there is none."""
    profile = labels.get("cloud.google.com/gke-gpu-partition-size", "")
    return f"mig-{profile}" if profile else ""


def _gke_clients(labels: Mapping[str, str]) -> int | None:
    """Return the pods that may use one GPU of a GKE node at a time; None if the node shares without saying how many.

    Source: GKE, GPU sharing strategies.
    """
    strategy = labels.get("cloud.google.com/gke-gpu-sharing-strategy", "")
    clients = labels.get("cloud.google.com/gke-max-shared-clients-per-gpu", "")
    if not strategy and not clients:
        return 1
    return int(clients) if strategy in {"", *GKE_SHARING} and clients.isdecimal() and int(clients) > 0 else None


def _surplus(resource: str, node: NodeFacts, replicas: int) -> bool:
    """Return True if the labels do not explain the node's units: more units than its cards yield, an unreadable number of
    cards, or a sharing configuration that is only named.
    """
    count, units = node.labels.get("nvidia.com/gpu.count", ""), node.capacity.get(resource, 0)
    named = node.labels.get("nvidia.com/device-plugin.config", "").lower() not in {*SHARING_OFF, "default"}
    unread = bool(count) and not count.isdecimal()
    more = count.isdecimal() and units > int(count) * replicas
    return unread or more or (named and "nvidia.com/gpu.replicas" not in node.labels)


def _replicas(resource: str, labels: Mapping[str, str], *, shared: bool) -> int | None:
    """Return the units per device; None if the node shares without saying how often. A label of 0 means: not shared."""
    strategy = labels.get(f"{resource}.sharing-strategy", "none") or "none"
    text = labels.get(f"{resource}.replicas", "")
    if text.isdecimal() and (int(text) > 1 or not shared):
        return max(int(text), 1)
    is_shared = shared or strategy != "none" or labels.get(f"{resource}.product", "").endswith("-SHARED")
    return None if text or is_shared else 1


def _ascend_template_share(resource: str) -> Fraction | None:
    match = re.search(r"Ascend(910|310P)-(\d+)c", resource)
    cores = match and ASCEND_CORES_OF_TEMPLATE[match.group(1)].get(int(match.group(2)))
    return Fraction(int(match.group(2)), cores) if match and cores else None


def _ascend_core_share(resource: str, node: NodeFacts) -> Fraction | None:
    chip = accelerator_name(resource, node.labels) or ""
    return next((Fraction(1, cores) for name, cores in ASCEND_CORES_OF_CHIP.items() if name in chip), None)


def _neuron_share(resource: str, node: NodeFacts) -> Fraction | None:
    """Return chips per core: by the chips that the node offers too, since cores may be logical, else by instance family."""
    chips = next((units for name in NEURON_CHIPS if (units := node.capacity.get(name, 0))), 0)
    if chips and (units := node.capacity.get(resource, 0)):
        return Fraction(chips, units) if units % chips == 0 else None
    cores = NEURON_CORES_OF_INSTANCE.get(node.labels.get(FALLBACK_PRODUCT_LABEL, "").partition(".")[0])
    return Fraction(1, cores) if cores else None


def _may_be_cut(resource: str, node: NodeFacts) -> bool:
    """Return True if a node without a partition label offers more units than a machine has cards of its kind."""
    product = accelerator_name(resource, node.labels) or ""
    return node.capacity.get(resource, 0) > AMD_MOST_CARDS and AMD_PARTITIONABLE.search(product) is not None


def _intel_share(resource: str, node: NodeFacts) -> Fraction | None:
    """Return devices per unit, by the devices that labels count; None if the node has none of the vendor's labels.

    The plugin may offer each device several times (`-shared-dev-num`), so units alone do not show the devices.
    """
    given = node.labels.get("gpu.intel.com/device.count")
    counts = [given] if given else [count for name, count in node.labels.items() if INTEL_COUNT.fullmatch(name)]
    units = node.capacity.get(resource, 0)
    devices = sum(int(count) for count in counts if count.isascii() and count.isdecimal())
    if units and not any(name.startswith("gpu.intel.com/") for name in node.labels):
        return None
    if not devices or units <= devices:
        return Fraction(1)
    return Fraction(devices, units) if units % devices == 0 else None


def _amd_share(mode: str, node: NodeFacts) -> Fraction | None:
    compute = mode.lower().partition("_")[0]
    product = accelerator_name("amd.com/gpu", node.labels) or ""
    fewer = next((count for name, count in AMD_CPX_BY_PRODUCT.items() if name in product), None)
    partitions = fewer if fewer and compute == "cpx" else AMD_PARTITIONS.get(compute)
    return Fraction(1, partitions) if partitions else None
