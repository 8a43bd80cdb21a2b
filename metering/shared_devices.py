"""PURE: annotations of sharing schedulers: pieces of devices that a pod was given, and devices that a node shares.

Source: Project-HAMi/HAMi pkg/device (devices.go and one folder per vendor), docs/develop/protocol.md; volcano-sh/volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from metering.accelerator_resources import Row
from metering.accelerators import NodeFacts
from metering.requests import Phase, Slot


class ShareUnknownError(ValueError):
    """Share of a device that is not stated, or not in a form that is fully understood; the message says why."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Piece of one device that a sharing scheduler gave: MiB and percent of its cores; 0 cores: not limited."""

    device: str
    type: str
    memory_mib: int
    cores: int


BLANK: Final = Grant("", "", 0, 0)


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """Device that is given in pieces: its memory as its scheduler counts it, and its product ("": not stated)."""

    memory_mib: int
    healthy: bool = True
    product: str = ""


def parse_grants(text: str) -> list[list[Grant]]:
    """Parse grants per container of `uuid,type,mem,cores:uuid,...:;...`; a container without any is empty or `,,0,0`.

    >>> parse_grants(";,,0,0:;GPU-1,NVIDIA,3000,30:;")
    [[], [], [Grant(device='GPU-1', type='NVIDIA', memory_mib=3000, cores=30)]]

    Raises ShareUnknownError.
    """
    written = [[_grant(piece) for piece in part.split(":") if piece] for part in text.removesuffix(";").split(";")]
    return [[grant for grant in grants if grant != BLANK] for grants in written]


def _grant(piece: str) -> Grant:
    fields = piece.split(",")
    if len(fields) != 4 or not (_is_count(fields[2]) and _is_count(fields[3])):
        raise ShareUnknownError(f"grant {piece[:80]!r} is not written uuid,type,memory,cores")
    return Grant(fields[0], fields[1], int(fields[2]), int(fields[3]))


def paired_grants(
    written: Sequence[Sequence[Grant]], slots: Sequence[Slot], resource: str, units: int
) -> list[tuple[Phase, Sequence[Grant]]]:
    """Pair each container's grants with its phase, in the order of the pod; all are MAIN if the containers are unknown.

    The number of a container's pieces must equal its request. HAMi 2.10 leaves out blank slots before those of containers,
    and before 2.9 it gave nothing to init containers, which then use the main containers' pieces.  Raises ShareUnknownError.
    """
    given = [grants for grants in written if grants]
    asking = [slot for slot in slots if slot.requests.get(resource)]
    main = [slot for slot in asking if slot.phase is Phase.MAIN]
    # Tries the three layouts in turn: one entry per container, none for blank slots, none for init containers either.
    for holders, pieces in ((slots, written), (asking, given), (main, given)):
        pairs = list(zip(holders, pieces, strict=False))
        fits = len(holders) == len(pieces) and all(slot.requests.get(resource, 0) == len(part) for slot, part in pairs)
        if slots and fits and (holders is not main or sum(map(len, given)) == units):
            return [(slot.phase, part) for slot, part in pairs]
    count = sum(map(len, given))
    if slots or count != units:
        raise ShareUnknownError(f"{count} pieces were granted for {units} units")
    return [(Phase.MAIN, grants) for grants in given]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12


def shared_devices(row: Row, node: NodeFacts) -> Mapping[str, SharedDevice] | None:
    """Return the devices of a node that are given in pieces, by uuid; None if the node lists none.

    Raises ShareUnknownError for an unreadable list.
    """
    text = node.annotations.get(row.register, "") if row.register else ""
    if text:
        return _registered(row.register, text)
    return _of_capacity(row, node.capacity)


def _registered(name: str, text: str) -> dict[str, SharedDevice]:
    read = READERS.get(name, _hami_devices)
    try:
        found = list(read(text))
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ShareUnknownError(f"the node's annotation {name} cannot be read: {error}"[:200]) from error
    if not found or len(dict(found)) != len(found) or any(device.memory_mib < 0 for _, device in found):
        raise ShareUnknownError(f"the node's annotation {name} lists no devices, or one twice")
    return dict(found)


def _of_capacity(row: Row, capacity: Mapping[str, int]) -> dict[str, SharedDevice] | None:
    """Return cards by the units of their cores, for plugins that register nothing else (Cambricon, Moore Threads)."""
    units = {NUMBERED_MLU.sub("cambricon.com/mlu.", name): count for name, count in capacity.items()}
    cores, memory = units.get(row.cores, 0), units.get(row.memory, 0)
    if not row.cores or not cores:
        return None
    cards, rest = divmod(cores, row.cores_per_card)
    if rest or not cards or memory % cards:
        raise ShareUnknownError(f"{cores} {row.cores} and {memory} {row.memory} of the node are no whole number of cards")
    return {str(card): SharedDevice(memory // cards * row.memory_unit_mib) for card in range(cards)}


NUMBERED_MLU: Final = re.compile(r"cambricon\.com/mlu\d+\.(?=smlu\.)")
"""Pattern of names of Cambricon's plugin that contain the model; the pieces are the same."""


def registered_product(row: Row, node: NodeFacts, annotations: Mapping[str, str], scheduler: str) -> str | None:
    """Return the product that a node's list names for a pod's devices; None if it names none or several.

    On a node of several products it is the product of the devices that the pod's scheduler gave to the pod.
    """
    try:
        listed = shared_devices(row, node) or {}
        products = {device.product for device in listed.values()}
        if len(products) > 1 and scheduler in row.schedulers:
            texts = {annotations[name] for name in row.grants if name in annotations}
            given = {grant.device for text in texts for grants in parse_grants(text) for grant in grants}
            products = {listed[device].product for device in given if device in listed} if given <= listed.keys() else set()
    except ShareUnknownError:
        return None
    return products.pop() or None if len(products) == 1 else None


def _product(text: str) -> str:
    """Return the product as node labels write it: HAMi puts `NVIDIA-` before the driver's name.

    >>> _product("NVIDIA-NVIDIA GeForce RTX 4090"), _product("NVIDIA-Tesla V100-PCIE-32GB"), _product("NVIDIA L40S")
    ('NVIDIA-GeForce-RTX-4090', 'Tesla-V100-PCIE-32GB', 'NVIDIA-L40S')
    """
    return re.sub(r"\s+", "-", text.removeprefix("NVIDIA-").strip())


Found = Iterable[tuple[str, SharedDevice]]


def _hami_devices(text: str) -> Found:
    """Yield devices of JSON, or of `uuid,count,memory,cores,type,numa,healthy[,index,mode]:` (Iluvatar and older)."""
    if text.lstrip().startswith("["):
        for item in msgspec.json.decode(text):
            memory, healthy = int(item.get("devmem", 0)), bool(item.get("health", False))
            yield str(item["id"]), SharedDevice(memory, healthy, _product(str(item.get("type", ""))))
        return
    for fields in _lines(text, (7, 9)):
        yield fields[0], SharedDevice(int(fields[2]), fields[6].lower() == "true", _product(fields[4]))


def _volcano_devices(text: str) -> Found:
    """Yield devices of `uuid,count,memory,type,healthy,mode:`."""
    for fields in _lines(text, (5, 6)):
        yield fields[0], SharedDevice(int(fields[2]), fields[4].lower() == "true", _product(fields[3]))


def _metax_devices(text: str) -> Found:
    for item in msgspec.json.decode(text):
        yield str(item["uuid"]), SharedDevice(int(item.get("totalVRam", 0)), bool(item.get("healthy", False)))


def _enflame_devices(text: str) -> Found:
    """Yield cards; the largest profile in which a card may be cut is the whole card."""
    content: dict[str, Any] = msgspec.json.decode(text)
    largest = max(int(match.group(1)) for name in content["profiles"] if (match := re.search(r"\.(\d+)gb", name.lower())))
    for item in content["devices"]:
        yield f"drs-{item['index']}", SharedDevice(largest * 1024)


def _lines(text: str, lengths: tuple[int, ...]) -> Iterable[list[str]]:
    for line in filter(None, text.split(":")):
        fields = line.split(",")
        if len(fields) not in lengths:
            raise ValueError(f"{line[:80]!r} has {len(fields)} fields")
        yield fields


READERS: Final[Mapping[str, Callable[[str], Found]]] = {
    "volcano.sh/node-vgpu-register": _volcano_devices,
    "metax-tech.com/node-gpu-devices": _metax_devices,
    "enflame.com/gcu-drs-capacity": _enflame_devices,
}
"""Readers by the annotation of a node's list; all other lists are written as HAMi writes them."""
