"""Products and numbers of devices that a node says in another way than by feature discovery."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from metering.accelerators import NodeFacts
from metering.allocation import Hold, Rule
from metering.k8s.capacity import devices_behind, offers
from metering.k8s.description import Scope, Surroundings, allocations_of
from metering.k8s.objects import Metadata, Node, NodeStatus, PodFacts
from metering.records import GpuAllocation

MONDAY = datetime(2026, 10, 5, tzinfo=UTC)
REGISTER = "hami.io/node-nvidia-register"
GRANTS = "hami.io/vgpu-devices-allocated"


def card(name: str, product: str, memory: int = 24_576) -> dict[str, object]:
    return {"id": name, "count": 10, "devmem": memory, "devcore": 100, "type": product, "health": True}


def allocation(resource: str, node: NodeFacts, grants: str = "", scheduler: str = "hami-scheduler") -> GpuAllocation:
    pod = PodFacts("nlp", "p", "u", {resource: 1}, annotations={GRANTS: grants} if grants else {}, scheduler=scheduler)
    hold = Hold("u", "n-1", MONDAY, Rule.POD_SCHEDULED, MONDAY)
    [found] = allocations_of(pod, hold, node, Scope("hq-1"), Surroundings())
    return found


def hami(*cards: dict[str, object]) -> NodeFacts:
    return NodeFacts({}, {"nvidia.com/gpu": 10 * len(cards)}, {REGISTER: json.dumps(list(cards))})


RTX, V100 = card("GPU-1", "NVIDIA-NVIDIA GeForce RTX 4090"), card("GPU-2", "NVIDIA-Tesla V100-PCIE-32GB", 32_768)


@pytest.mark.parametrize(("node", "grants", "product", "share"), [
    (hami(RTX), "GPU-1,NVIDIA,12288,0:;", "NVIDIA-GeForce-RTX-4090", Decimal("0.5")),
    (hami(RTX, V100), "GPU-2,NVIDIA,8192,0:;", "Tesla-V100-PCIE-32GB", Decimal("0.25")),
    (hami(RTX, V100), "", "unknown", None),  # nothing says which of the two
    (hami(card("GPU-1", "")), "GPU-1,NVIDIA,12288,0:;", "unknown", Decimal("0.5")),
    (NodeFacts({}, {}, {REGISTER: "GPU-1,10,24576,100,NVIDIA-NVIDIA A10,0,true:"}), "GPU-1,NVIDIA,6144,0:;", "NVIDIA-A10",
     Decimal("0.25")),
])  # fmt: skip
def test_a_list_of_the_node_names_the_product(node: NodeFacts, grants: str, product: str, share: Decimal | None) -> None:
    found = allocation("nvidia.com/gpu", node, grants)
    assert (found.accelerator, found.device_fraction) == (product, share)


def test_a_label_that_names_the_product_goes_before() -> None:
    node = NodeFacts({"nvidia.com/gpu.product": "NVIDIA-H800"}, {}, {REGISTER: json.dumps([RTX])})
    assert allocation("nvidia.com/gpu", node, "GPU-1,NVIDIA,12288,0:;").accelerator == "NVIDIA-H800"


def test_capacity_has_the_product_of_the_list() -> None:
    given = {"nvidia.com/gpu": "20"}
    metadata = Metadata("n-1", "n", "1", annotations={REGISTER: json.dumps([RTX, {**RTX, "id": "GPU-3"}])})
    rows = offers(Node(metadata, status=NodeStatus(given, given)), MONDAY, Scope("hq-1"))
    assert [(row.accelerator, row.quantity) for row in rows.values()] == [("NVIDIA-GeForce-RTX-4090", 2)]


MAX = {"gpu.intel.com/product": "Max_1550", "gpu.intel.com/family": "Max_Series"}
FOUR = {**MAX, "gpu.intel.com/device-id.0380-0bd5.count": "4", "gpu.intel.com/device-id.0380-0bd5.present": "true"}


@pytest.mark.parametrize(("labels", "units", "share", "devices"), [
    (MAX, 4, Decimal(1), 4),
    (FOUR, 4, Decimal(1), 4),
    (FOUR, 3, Decimal(1), 3),  # one is broken
    (FOUR, 40, Decimal("0.1"), 4),  # -shared-dev-num=10
    (FOUR, 30, None, None),
])  # fmt: skip
@pytest.mark.parametrize("resource", ["gpu.intel.com/i915", "gpu.intel.com/xe"])
def test_devices_of_intel_that_several_pods_share_are_parts(
    resource: str, labels: Mapping[str, str], units: int, share: Decimal | None, devices: int | None
) -> None:
    node = NodeFacts(labels, {resource: units})
    found = allocation(resource, node, scheduler="default-scheduler")
    assert (found.accelerator, found.device_fraction) == ("Max_1550", share)
    assert devices_behind(resource, units, node) == devices


@pytest.mark.parametrize("model", ["mlu", "mlu370", "mlu590"])
def test_cards_of_cambricon_in_pieces_are_counted_whatever_their_model(model: str) -> None:
    pieces = {f"cambricon.com/{model}.smlu.vcore": 800, f"cambricon.com/{model}.smlu.vmemory": 768}
    assert devices_behind("cambricon.com/vmlu", 80, NodeFacts({}, {"cambricon.com/vmlu": 80, **pieces})) == 8
