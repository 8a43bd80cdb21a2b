"""PURE: share of one or more cards that a pod requests from KAI by annotations alone.

`gpu-fraction` asks for a part of a card and `gpu-memory` for MiB of one, on `gpu-fraction-num-devices` cards. NvFractions,
KAI's sharing since 0.18, names the container: `nvidia.com/container.NAME.gpu-memory.request: 20Gi`, or only its `.limit`,
which then is the request as well. KAI writes the request beside a `gpu-fraction`, and the part of the card's cores that it
took as `.gpu-compute.portion`. It grants memory in whole hundredths of a card.
Source: kai-scheduler/KAI-Scheduler docs/gpu-sharing, pkg/common/resources (nv_fractions.go, gpu_sharing.go),
pkg/scheduler/api/node_info/gpu_sharing_node_info.go, pkg/binder/plugins/nvfractions.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Final

from metering.claims import ClaimError, quantity_of
from metering.shared_devices import ShareUnknownError

FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
OF_CONTAINER: Final = "nvidia.com/container."
"""Prefix of annotations of NvFractions; the container's name and one of PARTS follow."""
PARTS: Final = ("gpu-memory.request", "gpu-memory.limit", "gpu-compute.request", "gpu-compute.portion")
MIB: Final = 2**20


def speaks_of_share(annotation: str) -> bool:
    """Return True if an annotation is part of a pod's request to KAI.

    >>> speaks_of_share("gpu-fraction"), speaks_of_share("nvidia.com/container.main.gpu-memory.request")
    (True, True)
    """
    return annotation in (FRACTION, MEMORY, DEVICES) or (annotation.startswith(OF_CONTAINER) and annotation.endswith(PARTS))


def kai_devices(annotations: Mapping[str, str]) -> int:
    """Return the devices of which KAI gave a share to the pod; 0 if the pod requests none, 1 if the number is unreadable."""
    if not any(speaks_of_share(name) and name != DEVICES for name, text in annotations.items() if text):
        return 0
    text = annotations.get(DEVICES, "1")
    return int(text) if re.fullmatch(r"[1-9]\d{0,3}", text, re.ASCII) else 1


def kai_share(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Fraction:
    """Return the share of each card that a pod requests from KAI, the larger of memory and cores.  Raises ShareUnknownError.

    `labels`: of the node, which says with `nvidia.com/gpu.memory` how many MiB a card has.

    >>> kai_share({"gpu-memory": "4096"}, {"nvidia.com/gpu.memory": "15360"})
    Fraction(27, 100)
    """
    said = {name: text for name, text in annotations.items() if text and speaks_of_share(name)}
    fraction, devices, parts = said.get(FRACTION), said.get(DEVICES, "1"), _of_one_container(said)
    asked = parts.get("gpu-memory.request") or parts.get("gpu-memory.limit")
    memories = {_mib(text) for text in (said.get(MEMORY) and f"{said[MEMORY]}Mi", asked) if text}
    if str(kai_devices(annotations)) != devices or len(memories) > 1 or (fraction and MEMORY in said):
        raise ShareUnknownError(", ".join(f"{name} {text}" for name, text in sorted(said.items()))[:400])
    shares = [_decimal(part, parts[part]) for part in PARTS if part.startswith("gpu-compute") and part in parts]
    if fraction:
        shares.append(_decimal(FRACTION, fraction))
    if memories:
        exact = _of_card(memories.pop(), labels.get("nvidia.com/gpu.memory", ""))
        if not fraction or exact > shares[-1]:  # what KAI writes beside a fraction is that fraction, rounded down
            shares.append(Fraction(ceil(exact * 100), 100))
    share = max(shares)
    if not 0 < share <= 1:
        raise ShareUnknownError(f"more than a card, or nothing: {', '.join(map(': '.join, sorted(said.items())))}"[:400])
    return share


def _of_one_container(said: Mapping[str, str]) -> dict[str, str]:
    """Return NvFractions' annotations of the one container that they name; KAI gives a share to one container of a pod."""
    found: dict[str, dict[str, str]] = {}
    for name, text in said.items():
        if name.startswith(OF_CONTAINER):
            part = next(part for part in PARTS if name.endswith(part))
            found.setdefault(name.removeprefix(OF_CONTAINER).removesuffix(part), {})[part] = text
    if len(found) > 1:
        raise ShareUnknownError(f"NvFractions of {len(found)} containers: {', '.join(sorted(said))}"[:400])
    return next(iter(found.values()), {})


def _mib(text: str) -> Fraction:
    try:
        return quantity_of(text) / MIB
    except ClaimError as error:
        raise ShareUnknownError(f"GPU memory {text[:40]!r} is no quantity") from error


def _of_card(mib: Fraction, label: str) -> Fraction:
    if not re.fullmatch(r"[1-9]\d{0,8}", label, re.ASCII):
        raise ShareUnknownError(f"{mib} MiB of a card of {label[:40] or 'unknown'} MiB")
    return mib / int(label)


def _decimal(name: str, text: str) -> Fraction:
    if not re.fullmatch(r"\d{0,3}(\.\d{1,24})?", text, re.ASCII) or not any(map(str.isdecimal, text)):
        raise ShareUnknownError(f"{name} {text[:40]!r} is no decimal")
    return Fraction(text)
