"""PURE: share of a device behind each unit that a pod requested: the one rule, which agent and backfill both call.

The scheduler that gave a piece reports its share (HAMi, Volcano, KAI), else the name of the resource and the node do.
A share that is not fully understood raises ShareUnknownError: it is never taken for a whole device, nor for nothing.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from metering.accelerator_resources import (
    COUNTED,
    KNOWN_SHARING,
    KOORDINATOR_GRANT,
    KOORDINATOR_SCHEDULERS,
    SHARING_OFF,
    SHARING_WORDS,
    Kind,
    Row,
    ShareRule,
)
from metering.accelerators import NodeFacts, device_fraction, is_undescribed, resource_row, unit_share
from metering.kai import kai_share
from metering.requests import Phase, Slot
from metering.shared_devices import (
    Grant,
    SharedDevice,
    ShareUnknownError,
    paired_grants,
    parse_grants,
    shared_devices,
)

CARD: Final = "nvidia.com/gpu"


def allocated_share(
    resource: str,
    quantity: int,
    requests: Mapping[str, int],
    annotations: Mapping[str, str],
    node: NodeFacts | None,
    scheduler: str = "",
    slots: Sequence[Slot] = (),
) -> Fraction:
    """Return the mean share of a device behind one unit of `resource`, above 0 and at most 1.

    `requests`: all requests of the pod, by resource; `annotations`: of the pod; `node`: as it was when the pod was bound, or
    None if it was never seen; `scheduler`: the one that placed the pod ("": the default one), whose annotations alone are
    believed; `slots`: the pod's containers, empty where they are not known.

    Raises ShareUnknownError, whose message names what is unknown.
    """
    row = resource_row(resource)
    if row.kind not in COUNTED:
        raise ShareUnknownError(WHY_NOT_COUNTED.get(row.kind, "an extended resource that nobody knows"))
    if node is None:
        raise ShareUnknownError("the node was never seen")
    share = _granted(resource, row, quantity, annotations, node, scheduler, slots)
    if share is None:
        match row.share:
            case ShareRule.KAI:
                share = _kai_share(annotations, node)
            case ShareRule.PERCENT:
                share = _percent_share(row, quantity, requests, node, slots)
            case ShareRule.KOORDINATOR:
                share = _koordinator_share(quantity, requests, annotations, node, scheduler)
            case _:
                share = _ungranted(resource, row, requests, node)
    # A share that rounds to 0 in the ledger's decimals would be free.
    if not 0 < share <= 1 or not device_fraction(share):
        raise ShareUnknownError(f"a share of {share} is no share of a device")
    return share


WHY_NOT_COUNTED: Final = {
    Kind.MEMORY: "device memory was asked for without a device",
    Kind.CORES: "device cores were asked for without a device",
}


def _granted(
    resource: str,
    row: Row,
    quantity: int,
    annotations: Mapping[str, str],
    node: NodeFacts,
    scheduler: str,
    slots: Sequence[Slot],
) -> Fraction | None:
    """Return the mean share that a scheduler gave per unit to the containers of a pod; None if it wrote none.

    Of each device a pod holds the larger of two amounts: the most that one init container needs together with the sidecars
    before it, and the sum of its sidecars and main containers.  Source: Project-HAMi/HAMi pkg/device/initContainer.go,
    docs/develop/sidecarContainer-design.md.

    Users may write any annotation on their own pods, so an annotation is ignored or refused where another scheduler placed
    the pod, and refused where each unit of the node is a card.
    """
    texts = {annotations[name] for name in row.grants if name in annotations}
    if not texts:
        return None
    if scheduler not in row.schedulers:
        if row.share is ShareRule.GRANT or shared_devices(row, node) is not None:
            placed = f"{scheduler or 'the default scheduler'} placed the pod"
            raise ShareUnknownError(f"{' or '.join(row.grants)} is written on the pod, and {placed}"[:400])
        return None
    if len(texts) > 1:
        raise ShareUnknownError(f"{' and '.join(row.grants)} contradict each other")
    if row.kind is Kind.DEVICE and shared_devices(row, node) is None and _gives_whole(resource, node):
        raise ShareUnknownError(f"{' or '.join(row.grants)} is written on the pod, and its node gives whole cards")
    steady: dict[str, Fraction] = defaultdict(Fraction)
    peak: dict[str, Fraction] = defaultdict(Fraction)
    for phase, grants in paired_grants(parse_grants(texts.pop()), slots, resource, quantity):
        held: dict[str, Fraction] = defaultdict(Fraction)
        for grant in grants:
            held[grant.device] += _grant_share(grant, _device_of(grant, row, node))
        for device, share in held.items():
            if phase is Phase.INIT:
                # An init container runs beside the sidecars that started before it.
                peak[device] = max(peak[device], steady[device] + share)
            else:
                steady[device] += share
    return sum((max(peak[device], steady[device]) for device in {**peak, **steady}), Fraction(0)) / quantity


def _gives_whole(resource: str, node: NodeFacts) -> bool:
    """Return True if labels say that a node offers no more units than it has cards."""
    return "nvidia.com/gpu.count" in node.labels and unit_share(resource, node) == 1


def _device_of(grant: Grant, row: Row, node: NodeFacts) -> SharedDevice:
    """Return the device of a piece from the node's list; any device of the list if all have the same memory."""
    listed = shared_devices(row, node)
    if listed:
        found = listed.get(re.sub(r"\[.*\]\Z", "", grant.device))
        alike = {device.memory_mib for device in listed.values()}
        if found is None and len(alike) > 1:
            raise ShareUnknownError(f"device {grant.device[:60]} is not in the list of its node")
        return found or SharedDevice(alike.pop())
    memory = node.labels.get("nvidia.com/gpu.memory", "") if row.vendor == "nvidia" else ""
    of_slice = "-MIG-" in node.labels.get("nvidia.com/gpu.product", "")
    return SharedDevice(int(memory) if memory.isascii() and memory.isdecimal() and not of_slice else 0)


def _grant_share(grant: Grant, device: SharedDevice) -> Fraction:
    """Return the larger of memory share and core share: no other pod can rely on the rest of the card.

    Cores of 0 mean no limit on cores, so memory decides; all cores are the whole device.
    Source: Project-HAMi/HAMi pkg/device/devices.go.
    """
    if grant.cores == 100:
        return Fraction(1)
    if grant.cores > 100 or not grant.memory_mib:
        raise ShareUnknownError(f"a piece of {grant.memory_mib} MiB and {grant.cores} % of the cores is not understood")
    if not device.memory_mib:
        raise ShareUnknownError(f"{grant.memory_mib} MiB of a {grant.type[:60]}: the node does not say how much one has")
    if grant.memory_mib > device.memory_mib:
        raise ShareUnknownError(f"{grant.memory_mib} MiB of a {grant.type[:60]} of {device.memory_mib} MiB")
    return max(Fraction(grant.cores, 100), Fraction(grant.memory_mib, device.memory_mib))


def _ungranted(resource: str, row: Row, requests: Mapping[str, int], node: NodeFacts) -> Fraction:
    """Return the share of a unit by resource name and node, where no scheduler gave pieces."""
    if row.share is ShareRule.GRANT:
        raise ShareUnknownError("no scheduler wrote on the pod what it granted")
    parts = sorted(name for name, units in requests.items() if units and _modifies(row, name))
    if parts:
        raise ShareUnknownError(f"{', '.join(parts)} ask for a part, and no scheduler wrote on the pod what it granted")
    if row.register and shared_devices(row, node) is not None:
        raise ShareUnknownError("the node gives its devices in pieces, and none is written on the pod")
    if states := unread_states(node):
        raise ShareUnknownError(f"labels of the node that nobody knows: {', '.join(states)}"[:400])
    share = unit_share(resource, node)
    if share is None and is_undescribed(resource, node):
        raise ShareUnknownError("no label of the node says how many cards its units are, nor how they are shared")
    if share is None:
        raise ShareUnknownError("the node does not say how much of a device a unit is")
    return share


def _modifies(row: Row, name: str) -> bool:
    other = resource_row(name)
    return other.kind in (Kind.MEMORY, Kind.CORES) and other.vendor == row.vendor


def unread_states(node: NodeFacts) -> list[str]:
    """Return labels that seem to say how devices are shared and that no rule reads, as `key=value`.

    >>> unread_states(NodeFacts({"kubernetes.azure.com/gpu-sharing": "time-slicing", "kubernetes.io/os": "linux"}))
    ['kubernetes.azure.com/gpu-sharing=time-slicing']
    """
    return sorted(
        f"{key}={value}" for key, value in node.labels.items()
        if value.lower() not in SHARING_OFF and SHARING_WORDS.fullmatch(key.lower()) and not KNOWN_SHARING.fullmatch(key)
    )  # fmt: skip


def _kai_share(annotations: Mapping[str, str], node: NodeFacts) -> Fraction:
    """Return the share of a unit of nvidia.com/gpu that a pod requests from KAI, times the unit's share of a card.

    KAI reserves the unit with a pod of its own, which is not billed, for all pods that share it.
    """
    return kai_share(annotations, node.labels) * _ungranted(CARD, resource_row(CARD), {}, node)


def _percent_share(
    row: Row, quantity: int, requests: Mapping[str, int], node: NodeFacts, slots: Sequence[Slot]
) -> Fraction:
    """Return the mean share per unit that the containers hold at one time, each by the larger of cores and memory."""
    asking = [slot for slot in slots if slot.requests.get(row.cores) or slot.requests.get(row.memory)]
    steady = peak = Fraction(0)
    for slot in asking or (Slot(Phase.MAIN, requests),):
        held = _larger_part(row, slot.requests, node)
        peak = max(peak, steady + held)
        steady += Fraction(0) if slot.phase is Phase.INIT else held
    return max(peak, steady) / quantity


def _larger_part(row: Row, requests: Mapping[str, int], node: NodeFacts) -> Fraction:
    cores, memory = Fraction(requests.get(row.cores, 0), row.cores_per_card), requests.get(row.memory, 0)
    if not memory or (cores and cores.denominator == 1):
        return cores  # all cores of a card are the card
    cards = {device.memory_mib for device in (shared_devices(row, node) or {}).values()}
    label = node.labels.get("nvidia.com/gpu.memory", "")
    card = cards.pop() if len(cards) == 1 else int(label) if label.isascii() and label.isdecimal() else 0
    if not card:
        raise ShareUnknownError(f"{memory} {row.memory}: the node does not say how much a card has")
    held = Fraction(memory * row.memory_unit_mib, card)
    if held > 1:
        raise ShareUnknownError(f"{memory} {row.memory} of a card of {card} MiB")
    return max(cores, held)


def _koordinator_share(
    devices: int, requests: Mapping[str, int], annotations: Mapping[str, str], node: NodeFacts, scheduler: str
) -> Fraction:
    """Return the share that a pod requests from Koordinator of each of so many devices: the larger of cores and memory."""
    asked = {name.removeprefix("koordinator.sh/"): units for name, units in requests.items() if units}
    if "huawei.com/npu-core" in asked:
        raise ShareUnknownError("huawei.com/npu-core beside koordinator.sh/gpu-*: which is the share nobody says")
    parts = [Fraction(asked[name], 100) for name in ("gpu", "gpu-core", "gpu-memory-ratio") if name in asked]
    memory = asked.get("gpu-memory")
    if memory and "gpu-memory-ratio" not in asked:
        # Koordinator counts a hundred units per card; the node's memory in bytes is the sum over its cards.
        cards = Fraction(node.capacity.get("koordinator.sh/gpu-core") or node.capacity.get("koordinator.sh/gpu", 0), 100)
        offered, label = node.capacity.get("koordinator.sh/gpu-memory", 0), node.labels.get("nvidia.com/gpu.memory", "")
        if cards and offered:
            parts.append(memory * cards / offered)
        elif label.isascii() and label.isdecimal() and int(label):
            parts.append(Fraction(memory, int(label) * 2**20))
        else:
            parts.append(_of_koordinators_grant(annotations if scheduler in KOORDINATOR_SCHEDULERS else {}))
    if not parts:
        raise ShareUnknownError("how much of a device is asked of Koordinator nobody says")
    return max(parts) / devices


def _of_koordinators_grant(annotations: Mapping[str, str]) -> Fraction:
    """Return the memory of the devices that Koordinator wrote on the pod, in cards."""
    try:
        given = msgspec.json.decode(annotations.get(KOORDINATOR_GRANT, ""))["gpu"]
        percent = [Fraction(str(item["resources"]["koordinator.sh/gpu-memory-ratio"])) for item in given]
        return sum(percent, Fraction(0)) / 100
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError) as error:
        raise ShareUnknownError("koordinator.sh/gpu-memory: neither node nor scheduler says how much a card has") from error
