"""Pods that ask for devices, and the allocations that they become."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from metering.accelerators import NodeFacts
from metering.allocation import Hold, Rule
from metering.k8s.description import Scope, Surroundings, allocations_of
from metering.k8s.objects import seen_pod
from metering.k8s.stream import PODS

MONDAY = datetime(2026, 10, 5, tzinfo=UTC)
Asked = dict[str, int | str]


def held(
    asked: Asked | list[Asked], node: NodeFacts, *, scheduler: str = "", annotations: Mapping[str, str] | None = None
) -> list[tuple[str, int, Decimal | None]]:
    """Resource, quantity and fraction of each allocation of a pod; one container for each of `asked`."""
    containers = [
        {"name": f"c{number}", "resources": {"limits": {name: str(units) for name, units in one.items()}}}
        for number, one in enumerate([asked] if isinstance(asked, dict) else asked)
    ]
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "nlp", "uid": "u", "resourceVersion": "1", "annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "nodeName": "n-1", "containers": containers},
        "status": {"phase": "Running"},
    }
    seen = seen_pod(PODS.decode(json.dumps(pod)))
    if seen is None:
        return []
    hold = Hold("u", "n-1", MONDAY, Rule.POD_SCHEDULED, MONDAY)
    found = allocations_of(seen.facts, hold, node, Scope("hq-1"), Surroundings())
    return [(item.resource, item.quantity, item.device_fraction) for item in found]
