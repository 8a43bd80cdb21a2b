"""PURE: units of each extended resource that a pod as a whole requests.

The pod holds the largest amount that it needs at one time, for its whole life: a container that finished early gives
nothing back, and a request cannot be resized. Pod-level `spec.resources` covers only cpu, memory and huge pages, so the
containers alone decide about devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from metering.accelerators import is_extended


class RequestError(ValueError):
    """Quantity that no extended resource can have; the message names container and resource."""


@dataclass(frozen=True, slots=True)
class Container:
    """Container of a pod spec; `restartable`: an init container with `restartPolicy: Always` (a sidecar)."""

    name: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    restartable: bool = False

    def needs(self, resource: str) -> int:
        """Return the request, or the limit if only that is given, which the API server takes as the request."""
        return self.requests.get(resource, self.limits.get(resource, 0))


class Phase(StrEnum):
    """Phases in which a container runs: before the others, beside them from before they start, or as one of them."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Slot:
    """Container in the order of schedulers, init containers first, with its requests for extended resources."""

    phase: Phase
    requests: Mapping[str, int]


def slots_of(containers: Sequence[Container], init_containers: Sequence[Container] = ()) -> tuple[Slot, ...]:
    """Return a pod's containers in the order in which HAMi and Volcano write their grants."""
    init = [(Phase.SIDECAR if item.restartable else Phase.INIT, item) for item in init_containers]
    return tuple(
        Slot(phase, {name: item.needs(name) for name in {**item.limits, **item.requests}})
        for phase, item in (*init, *((Phase.MAIN, item) for item in containers))
    )


def effective_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    overhead: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return the units that the pod holds, per extended resource; resources without a request are left out.

    With C = containers, R = restartable init containers and I_k = init containers in their order:
        run      = sum(C) + sum(R)
        peak_k   = sum(R up to and with k)          if I_k is restartable
                 = I_k + sum(R before k)            otherwise
        request  = max(run, max peak_k) + overhead

    >>> gpus = lambda count, **more: Container(requests={"nvidia.com/gpu": count}, **more)
    >>> effective_requests([gpus(2)], [gpus(1, restartable=True), gpus(4)])
    {'nvidia.com/gpu': 5}

    Source: kubernetes/component-helpers resource/helpers.go; KEP-753.
    """
    extra = overhead or {}
    everything = (*containers, *init_containers)
    named = {name for item in everything for name in (*item.requests, *item.limits)} | set(extra)
    totals = {name: _effective(name, containers, init_containers) + extra.get(name, 0) for name in sorted(named)}
    return {name: total for name, total in totals.items() if total > 0 and is_extended(name)}


def _effective(resource: str, containers: Sequence[Container], init_containers: Sequence[Container]) -> int:
    sidecars = peak = 0
    for item in init_containers:
        need = item.needs(resource)
        peak = max(peak, sidecars + need)  # a sidecar stays beside its successors, any other leaves before they start
        sidecars += need if item.restartable else 0
    return max(peak, sidecars + sum(item.needs(resource) for item in containers))


def quantities_of(given: object, container: str = "") -> dict[str, int]:
    """Return quantities of the extended resources in a resource list; other names are not read.  Raises RequestError.

    >>> quantities_of({"nvidia.com/gpu": "8", "cpu": "500m", "aliyun.com/gpu-mem": "1k"})
    {'nvidia.com/gpu': 8, 'aliyun.com/gpu-mem': 1000}
    """
    items = given.items() if isinstance(given, Mapping) else ()
    return {str(name): _whole(str(name), value, container) for name, value in items if is_extended(str(name))}


SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def _whole(resource: str, value: object, container: str) -> int:
    """Parse the whole units of a Kubernetes quantity; memory-like counts may have a suffix."""
    text = str(value)
    digits = text.rstrip("kKMGi")
    factor = SUFFIXES.get(text[len(digits) :])
    if not digits.isdecimal() or not digits.isascii() or factor is None or isinstance(value, bool):
        raise RequestError(f"container {container!r}: {resource} {text!r} is not a whole number")
    return int(digits) * factor
