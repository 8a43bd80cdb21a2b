"""How much of a device a pod holds: exact where scheduler and node report it, unknown with the reason everywhere else."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from metering.accelerator_resources import KAI_SHARE, NODE_REGISTERS
from metering.accelerators import NodeFacts
from metering.allocation import Hold, Rule
from metering.k8s.capacity import devices_behind
from metering.k8s.description import Scope, Surroundings, allocations_of
from metering.k8s.objects import KEPT_DOMAINS, PodFacts
from metering.requests import Phase, Slot
from metering.shared_devices import ShareUnknownError
from metering.shares import allocated_share

MONDAY = datetime(2026, 10, 5, tzinfo=UTC)
H800 = {"nvidia.com/gpu.product": "NVIDIA-H800"}


def share_of(
    resource: str, quantity: int = 1, *, annotations: Mapping[str, str] | None = None, node: NodeFacts | None = None,
    scheduler: str = "hami-scheduler",
) -> Fraction | str:  # fmt: skip
    """The share, or the reason why it is not known."""
    try:
        return allocated_share(resource, quantity, {resource: quantity}, annotations or {}, node or NodeFacts(), scheduler)
    except ShareUnknownError as error:
        return str(error)


def described(requests: dict[str, int], annotations: dict[str, str], node: NodeFacts | None, scope: Scope) -> list[object]:
    """Resource, quantity, fraction and reason of each allocation that the agent makes of a pod."""
    facts = PodFacts("nlp", "pod", "uid-1", requests, annotations=annotations)
    hold = Hold("uid-1", "node-1", MONDAY, Rule.POD_SCHEDULED, MONDAY)
    return [
        (item.resource, item.quantity, item.device_fraction, item.share_unknown)
        for item in allocations_of(facts, hold, node, scope, Surroundings())
    ]


def register(*devices: tuple[str, int]) -> str:
    """The list of a node as HAMi writes it in 2026."""
    return json.dumps([
        {"id": uuid, "count": 10, "devmem": memory, "devcore": 100, "type": "T", "mode": "hami-core", "health": True}
        for uuid, memory in devices
    ])  # fmt: skip


QUARTER_ASCEND = {"hami.io/Ascend910B3-devices-allocated": "u1,Ascend910B3,16384,0:;"}


def test_a_quarter_of_an_ascend_is_a_quarter_where_its_node_lists_its_memory() -> None:
    node = NodeFacts({}, {}, {"hami.io/node-register-Ascend910B3": register(("u1", 65_536))})
    assert share_of("huawei.com/Ascend910B3", annotations=QUARTER_ASCEND, node=node) == Fraction(1, 4)


def test_a_piece_of_an_ascend_is_unknown_where_no_node_lists_its_memory() -> None:
    why = share_of("huawei.com/Ascend910B3", annotations=QUARTER_ASCEND)
    assert why == "16384 MiB of a Ascend910B3: the node does not say how much one has"


def test_a_slice_in_mib_is_unknown_on_a_node_that_does_not_say_its_memory() -> None:
    annotations = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4096,0:;"}
    known = NodeFacts({**H800, "nvidia.com/gpu.memory": "81920"})
    assert share_of("nvidia.com/gpu", annotations=annotations, node=known) == Fraction(1, 20)
    why = share_of("nvidia.com/gpu", annotations=annotations, node=NodeFacts(H800))
    assert why == "4096 MiB of a NVIDIA: the node does not say how much one has"


def test_a_slice_that_somebody_wrote_on_a_pod_is_none_where_its_node_gives_whole_cards() -> None:
    """One MiB of 80 GiB would be 0.0012 % of the card that the pod holds. HAMi offers ten units of a card, or lists them."""
    forged = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,0:;"}
    labels = {**H800, "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": "8"}
    why = share_of("nvidia.com/gpu", annotations=forged, node=NodeFacts(labels, {"nvidia.com/gpu": 8}))
    assert why == "hami.io/vgpu-devices-allocated is written on the pod, and its node gives whole cards"
    of_hami = NodeFacts(labels, {"nvidia.com/gpu": 80})
    assert share_of("nvidia.com/gpu", annotations=forged, node=of_hami) == Fraction(1, 81920)


VENDORS = [
    # resource, annotation of the pod, piece, what the node reports, share (HAMi pkg/device/*/device.go of August 2026)
    ("nvidia.com/gpu", "hami.io/vgpu-devices-allocated", "u1,NVIDIA,20480,30:;",
     {"hami.io/node-nvidia-register": register(("u1", 81_920))}, {}, Fraction(3, 10)),
    ("amd.com/gpu", "hami.io/amd-devices-allocated", "u1,AMD,98304,50:;",
     {"hami.io/node-amd-register": register(("u1", 196_608))}, {}, Fraction(1, 2)),
    ("cambricon.com/vmlu", "hami.io/cambricon-mlu-devices-allocated", "n-cambricon-mlu-0,MLU,8192,25:;",
     {}, {"cambricon.com/mlu.smlu.vcore": 800, "cambricon.com/mlu.smlu.vmemory": 768}, Fraction(1, 3)),
    ("hygon.com/dcunum", "hami.io/dcu-devices-allocated", "DCU-0,DCU,16384,20:;",
     {"hami.io/node-dcu-register": register(("DCU-0", 65_536))}, {}, Fraction(1, 4)),
    ("metax-tech.com/sgpu", "hami.io/metax-sgpu-devices-allocated", "GPU-a,Metax-SGPU,16384,10:;",
     {"metax-tech.com/node-gpu-devices": '[{"uuid": "GPU-a", "totalVRam": 65536, "healthy": true}]'}, {}, Fraction(1, 4)),
    ("mthreads.com/vgpu", "hami.io/mthreads-vgpu-devices-allocated", "n-mthreads-1,Mthreads,8192,0:;",
     {}, {"mthreads.com/sgpu-core": 32, "mthreads.com/sgpu-memory": 192}, Fraction(1, 6)),
    ("enflame.com/drs-gcu", "hami.io/enflame-vgpu-devices-allocated", "n-enflame-drs-0,Enflame,24576,50:;",
     {"enflame.com/gcu-drs-capacity": '{"devices": [{"index": "0", "minor": "0", "capacity": "6"}], '
      '"profiles": {"1g.8gb": "0", "3g.24gb": "1", "6g.48gb": "2"}}'}, {}, Fraction(1, 2)),
    ("iluvatar.ai/BI-V150-vgpu", "hami.io/BI-V150-devices-allocated", "GPU-b,BI-V150,8192,10:;",
     {"hami.io/node-BI-V150-register": "GPU-b,10,32768,100,BI-V150,0,true:GPU-c,10,32768,100,BI-V150,0,true:"}, {},
     Fraction(1, 4)),
    ("kunlunxin.com/vxpu", "hami.io/xpu-devices-allocated", "XPU-1,XPU,24576,25:;",
     {"hami.io/node-register-xpu": register(("XPU-1", 98_304))}, {}, Fraction(1, 4)),
    ("volcano.sh/vgpu-number", "volcano.sh/vgpu-ids-new", "GPU-1,NVIDIA,8192,0:",
     {"volcano.sh/node-vgpu-register": "GPU-1,10,32768,NVIDIA-V100,true,hami-core:"}, {}, Fraction(1, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "name", "piece", "listed", "capacity", "share"), VENDORS, ids=[v[0] for v in VENDORS])
def test_each_vendor_writes_its_pieces_and_its_devices_under_names_of_its_own(
    resource: str, name: str, piece: str, listed: dict[str, str], capacity: dict[str, int], share: Fraction
) -> None:
    node = NodeFacts({}, capacity, listed)
    assert name.partition("/")[0] in KEPT_DOMAINS  # the agent keeps it of a pod, and of a node what follows
    assert all(NODE_REGISTERS.fullmatch(annotation) for annotation in listed)
    placed_by = "volcano" if resource.startswith("volcano.sh/") else "hami-scheduler"
    assert share_of(resource, annotations={name: piece}, node=node, scheduler=placed_by) == share
    assert isinstance(share_of(resource, annotations={name: piece}, scheduler=placed_by), str)  # nobody lists the devices
    for other in ("", "default-scheduler", "kai-scheduler", "koord-scheduler"):
        why = share_of(resource, annotations={name: piece}, node=node, scheduler=other)
        assert f"is written on the pod, and {other or 'the default scheduler'} placed the pod" in str(why)


@pytest.mark.parametrize(
    ("resource", "name", "piece"),
    [
        ("nvidia.com/gpu", "hami.io/vgpu-devices-allocated", "u1,NVIDIA,1,0:;"),
        ("amd.com/gpu", "hami.io/amd-devices-allocated", "u1,AMD,1,0:;"),
        ("huawei.com/Ascend910B3", "hami.io/Ascend910B3-devices-allocated", "u1,Ascend910B3,1,0:;"),
    ],
)
def test_a_piece_is_nothing_on_a_pod_that_its_writer_did_not_place(resource: str, name: str, piece: str) -> None:
    """One MiB of a card would be next to nothing. HAMi lists the devices of the nodes on which it gives pieces."""
    node = NodeFacts(H800, {resource: 8})
    for scheduler in ("default-scheduler", "kai-scheduler", "my-scheduler"):
        assert share_of(resource, annotations={name: piece}, node=node, scheduler=scheduler) == 1


def test_volcano_writes_pieces_of_an_ascend_as_hami_does() -> None:
    node = NodeFacts({}, {}, {"hami.io/node-register-Ascend910B3": register(("u1", 65_536))})
    assert share_of("huawei.com/Ascend910B3", annotations=QUARTER_ASCEND, node=node, scheduler="volcano") == Fraction(1, 4)


@pytest.mark.parametrize(
    ("resource", "listed", "capacity", "units", "devices"),
    [
        ("nvidia.com/gpu", {"hami.io/node-nvidia-register": register(*((f"u{n}", 81_920) for n in range(8)))}, {}, 80, 8),
        ("volcano.sh/vgpu-number", {"volcano.sh/node-vgpu-register": "a,10,32768,V100,true,hami-core:"
                                    "b,10,32768,V100,false,hami-core:"}, {}, 10, 1),
        ("cambricon.com/vmlu", {}, {"cambricon.com/mlu.smlu.vcore": 800, "cambricon.com/mlu.smlu.vmemory": 768}, 80, 8),
        ("hygon.com/dcunum", {}, {}, 40, None),
        ("nvidia.com/gpu", {"hami.io/node-nvidia-register": "[{]"}, {}, 80, None),
        ("nvidia.com/gpu", {}, {}, 8, 8),
        ("nvidia.com/mig-3g.40gb", {}, {}, 2, 2),
    ],
)  # fmt: skip
def test_capacity_is_counted_in_devices_never_in_slots(
    resource: str, listed: dict[str, str], capacity: dict[str, int], units: int, devices: int | None
) -> None:
    assert devices_behind(resource, units, NodeFacts({}, capacity, listed)) == devices


@pytest.mark.parametrize(
    ("piece", "units", "why"),
    [
        ("u1,NVIDIA,4096,0:;", 2, "1 pieces were granted for 2 units"),
        ("u1,NVIDIA,4096,0:u1,NVIDIA,4096,0:;", 1, "2 pieces were granted for 1 units"),
        (";;", 1, "0 pieces were granted for 1 units"),
        ("u1,NVIDIA,90000,0:;", 1, "90000 MiB of a NVIDIA of 81920 MiB"),
        ("u1,NVIDIA,4096,200:;", 1, "a piece of 4096 MiB and 200 % of the cores is not understood"),
        ("u1,NVIDIA,0,0:;", 1, "a piece of 0 MiB and 0 % of the cores is not understood"),
        ("u1,NVIDIA,4096:;", 1, "grant 'u1,NVIDIA,4096' is not written uuid,type,memory,cores"),
        ("u1,NVIDIA,x,0:;", 1, "grant 'u1,NVIDIA,x,0' is not written uuid,type,memory,cores"),
        ("u1,NVIDIA,4096,0,7:;", 1, "grant 'u1,NVIDIA,4096,0,7' is not written uuid,type,memory,cores"),
    ],
)
def test_pieces_that_do_not_add_up_to_what_was_asked_for_are_unknown(piece: str, units: int, why: str) -> None:
    node = NodeFacts(H800, {}, {"hami.io/node-nvidia-register": register(("u1", 81_920))})
    assert share_of("nvidia.com/gpu", units, annotations={"hami.io/vgpu-devices-allocated": piece}, node=node) == why


A, B = "GPU-1,NVIDIA,8192,0:", "GPU-1,NVIDIA,20480,0:"
OTHER = "GPU-2,NVIDIA,8192,0:"
INIT, SIDECAR, MAIN = Phase.INIT, Phase.SIDECAR, Phase.MAIN


@pytest.mark.parametrize(
    ("text", "containers", "units", "share"),
    [
        # blank slots: HAMi issues 991, 1932, 2899
        (f"{B};;,,0,0:;,,0,0:;,,0,0:;", [(MAIN, 1), (MAIN, 0), (MAIN, 0), (MAIN, 0), (MAIN, 0)], 1, Fraction(1, 4)),
        (f",,0,0:;{B};,,0,0:;", [(MAIN, 0), (MAIN, 1), (MAIN, 0)], 1, Fraction(1, 4)),
        (f";{B};", [(INIT, 0), (MAIN, 1)], 1, Fraction(1, 4)),
        (f";{A};{B};", [(INIT, 0), (MAIN, 1), (MAIN, 1)], 2, Fraction(7, 40)),
        (f"{A};{B};", [(INIT, 0), (MAIN, 1), (MAIN, 1)], 2, Fraction(7, 40)),
        (f"{B};", [(INIT, 0), (INIT, 0), (MAIN, 1)], 1, Fraction(1, 4)),
        # one after the other: HAMi issue 1942
        (f"{A};{A};{A};{B};", [(INIT, 1), (INIT, 1), (INIT, 1), (MAIN, 1)], 1, Fraction(1, 4)),
        (f"{B};{A};", [(INIT, 1), (MAIN, 1)], 1, Fraction(1, 4)),
        (f"{OTHER};{B};", [(INIT, 1), (MAIN, 1)], 1, Fraction(7, 20)),  # another card, which nobody else can have either
        # a sidecar stays beside its successors: HAMi pull request 2723
        (f"{A};{B};", [(SIDECAR, 1), (MAIN, 1)], 2, Fraction(7, 40)),
        (f"{A};{B};{A};", [(SIDECAR, 1), (INIT, 1), (MAIN, 1)], 2, Fraction(7, 40)),
        (f"{B};{A};{A};", [(INIT, 1), (SIDECAR, 1), (MAIN, 1)], 2, Fraction(1, 8)),
        (f"{B};", [(INIT, 1), (MAIN, 1)], 1, Fraction(1, 4)),  # nothing for init containers, before HAMi 2.9
        # what does not fit
        (f"{B};", [(INIT, 2), (MAIN, 1)], 2, "1 pieces were granted for 2 units"),
        (f"{A};{A};", [(MAIN, 1), (MAIN, 2)], 3, "2 pieces were granted for 3 units"),
        (f"{A}{A};{A};", [(MAIN, 1), (MAIN, 1)], 2, "3 pieces were granted for 2 units"),
        (",,0,0:;", [(MAIN, 1)], 1, "0 pieces were granted for 1 units"),
    ],
)
def test_a_pod_holds_what_its_containers_hold_at_one_time(
    text: str, containers: list[tuple[Phase, int]], units: int, share: Fraction | str
) -> None:
    """The larger of the init containers' peak and of what sidecars and the others hold together; cards of 81,920 MiB."""
    node = NodeFacts(H800, {}, {"hami.io/node-nvidia-register": register(("GPU-1", 81_920), ("GPU-2", 81_920))})
    slots = [Slot(phase, {"nvidia.com/gpu": count} if count else {}) for phase, count in containers]
    annotations = {"hami.io/vgpu-devices-allocated": text}
    try:
        found: Fraction | str = allocated_share("nvidia.com/gpu", units, {}, annotations, node, "hami-scheduler", slots)
    except ShareUnknownError as error:
        found = str(error)
    assert found == share


def test_a_piece_is_measured_by_its_own_device_where_those_of_a_node_differ() -> None:
    node = NodeFacts({}, {}, {"hami.io/node-nvidia-register": register(("u1", 81_920), ("u2", 40_960))})
    for uuid, share in (("u1", Fraction(1, 4)), ("u2", Fraction(1, 2)), ("u3", "device u3 is not in the list of its node")):
        annotations = {"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,20480,0:;"}
        assert share_of("nvidia.com/gpu", annotations=annotations, node=node) == share


@pytest.mark.parametrize(
    "node",
    [
        NodeFacts(H800, {}, {"hami.io/node-nvidia-register": register(("u1", 81_920))}),  # given in pieces by HAMi
        NodeFacts({**H800, "nvidia.com/gpu.count": "8"}, {"nvidia.com/gpu": 80}),  # 80 units of 8 cards
        NodeFacts({**H800, "nvidia.com/gpu.count": "many"}, {"nvidia.com/gpu": 80}),  # of how many cards nobody can read
        NodeFacts({**H800, "nvidia.com/device-plugin.config": "shared-10"}),  # a configuration that nobody reads
        NodeFacts({**H800, "nvidia.com/mig.strategy": "single", "nvidia.com/mig.config": "all-1g.10gb"}),
        NodeFacts({**H800, "kubernetes.azure.com/gpu-sharing-mode": "time-slicing"}),
        NodeFacts({**H800, "example.com/vgpu-slices": "4"}),
        NodeFacts({**H800, "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}),  # shared, by nobody knows how many
        NodeFacts({**H800, "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
                   "cloud.google.com/gke-gpu-sharing-strategy": "new-kind"}),
        NodeFacts({**H800, "cloud.google.com/gke-gpu-partition-size": "half"}),
        NodeFacts({**H800, "nvidia.com/gpu.replicas": "10", "cloud.google.com/gke-max-shared-clients-per-gpu": "4"}),
    ],
)  # fmt: skip
def test_a_sharing_state_that_is_not_understood_makes_no_whole_device(node: NodeFacts) -> None:
    assert isinstance(share_of("nvidia.com/gpu", node=node), str)


@pytest.mark.parametrize(
    ("labels", "share"),
    [
        ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
          "cloud.google.com/gke-max-shared-clients-per-gpu": "4"}, Fraction(1, 4)),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, Fraction(1, 7)),
        ({"cloud.google.com/gke-gpu-partition-size": "3g.20gb", "cloud.google.com/gke-gpu-sharing-strategy": "mps",
          "cloud.google.com/gke-max-shared-clients-per-gpu": "2"}, Fraction(3, 14)),
        ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/mps.capable": "true",
          "nvidia.com/device-plugin.config": "mps4"}, Fraction(1, 4)),
        ({"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.config": "all-balanced",
          "nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/gpu.count": "8"}, Fraction(1)),
    ],
)  # fmt: skip
def test_sharing_labels_of_clouds_are_read_exactly(labels: dict[str, str], share: Fraction) -> None:
    assert share_of("nvidia.com/gpu", node=NodeFacts({"cloud.google.com/gke-accelerator": "nvidia-a100", **labels})) == share


def test_a_part_that_was_asked_for_and_not_granted_is_unknown() -> None:
    requests = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4096}
    with pytest.raises(ShareUnknownError, match=r"nvidia\.com/gpumem ask for a part"):
        allocated_share("nvidia.com/gpu", 1, requests, {}, NodeFacts(H800))


KAI_NODE = NodeFacts({**H800, "nvidia.com/gpu.memory": "80000"})
ASKED = "nvidia.com/container.main.gpu-memory.request"
LIMIT = "nvidia.com/container.main.gpu-memory.limit"
PORTION = "nvidia.com/container.main.gpu-compute.portion"


@pytest.mark.parametrize(
    ("annotations", "devices", "fraction"),
    [
        ({"gpu-fraction": "0.5"}, 1, Decimal("0.5")),
        ({"gpu-fraction": ".25", "gpu-fraction-num-devices": "2"}, 2, Decimal("0.25")),
        ({"gpu-memory": "20000"}, 1, Decimal("0.25")),
        ({"gpu-memory": "20001"}, 1, Decimal("0.26")),
        ({"gpu-memory": "79999"}, 1, Decimal(1)),
        ({"gpu-memory": "1"}, 1, Decimal("0.01")),
        ({ASKED: "20000Mi"}, 1, Decimal("0.25")),
        ({ASKED: "4G"}, 1, Decimal("0.05")),  # 3,814.7 MiB, 4.77 hundredths
        ({ASKED: "20000Mi", LIMIT: "40000Mi"}, 1, Decimal("0.25")),
        ({LIMIT: "40000Mi"}, 1, Decimal("0.5")),
        ({ASKED: "20000Mi", "gpu-fraction-num-devices": "2"}, 2, Decimal("0.25")),
        ({ASKED: "20000Mi", "gpu-memory": "20000"}, 1, Decimal("0.25")),
        ({"gpu-fraction": "0.333", ASKED: "26639Mi", PORTION: "0.333"}, 1, Decimal("0.333")),  # as KAI's binder writes them
        ({ASKED: "20000Mi", PORTION: "0.5"}, 1, Decimal("0.5")),
        ({"gpu-fraction": "0.5", "nvidia.com/container.main.gpus.devices": "GPU-1"}, 1, Decimal("0.5")),
        ({"gpu-fraction": "1.5"}, 1, None),
        ({"gpu-fraction": "."}, 1, None),
        ({"gpu-fraction": "0.5", "gpu-memory": "20000"}, 1, None),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "two"}, 1, None),
        ({"gpu-memory": "90000"}, 1, None),
        ({"gpu-memory": "20Gi"}, 1, None),
        ({ASKED: "90000Mi"}, 1, None),
        ({ASKED: "much"}, 1, None),
        ({ASKED: "20000Mi", "gpu-memory": "30000"}, 1, None),
        ({ASKED: "20000Mi", "nvidia.com/container.side.gpu-memory.request": "1Gi"}, 1, None),
    ],
)
def test_a_share_of_kai_is_held_by_the_pod_that_asks_for_it(
    annotations: dict[str, str], devices: int, fraction: Decimal | None
) -> None:
    [(resource, quantity, found, why)] = described({KAI_SHARE: devices}, annotations, KAI_NODE, Scope("hq-1"))  # type: ignore[misc]
    assert (resource, quantity, found) == (KAI_SHARE, devices, fraction)
    assert (why is None) is (fraction is not None)


def test_a_share_of_kai_on_a_time_sliced_card_is_a_share_of_the_slice() -> None:
    node = NodeFacts({**H800, "nvidia.com/gpu.replicas": "2"})
    [(_, _, fraction, _)] = described({KAI_SHARE: 1}, {"gpu-fraction": "0.5"}, node, Scope("hq-1"))  # type: ignore[misc]
    assert fraction == Decimal("0.25")


def test_twenty_gib_of_an_eighty_gib_card_are_a_quarter_and_kai_grants_whole_hundredths() -> None:
    for asked, card, fraction in (("20Gi", "81920", "0.25"), ("4Gi", "15360", "0.27")):
        node = NodeFacts({**H800, "nvidia.com/gpu.memory": card})
        [(_, _, found, _)] = described({KAI_SHARE: 1}, {ASKED: asked}, node, Scope("hq-1"))  # type: ignore[misc]
        assert found == Decimal(fraction)
    [(_, _, _, why)] = described({KAI_SHARE: 1}, {ASKED: "20Gi"}, NodeFacts(H800), Scope("hq-1"))  # type: ignore[misc]
    assert why == "20480 MiB of a card of unknown MiB"


def test_what_nobody_knows_is_an_allocation_with_its_quantity_until_it_is_declared() -> None:
    requests = {"example.com/gpu-core": 50, "rdma/hca": 1, "example.com/nic": 2, "nvidia.com/gpu": 1}
    node = NodeFacts(H800)
    why = "an extended resource that nobody knows"
    assert described(requests, {}, node, Scope("hq-1")) == [
        ("example.com/gpu-core", 50, None, why),
        ("example.com/nic", 2, None, why),
        ("nvidia.com/gpu", 1, Decimal(1), None),
    ]
    reported = Scope("hq-1", {"example.com/gpu-core": "H800-core"}, no_accelerators=frozenset({"example.com/nic"}))
    assert described(requests, {}, node, reported) == [
        ("example.com/gpu-core", 50, Decimal(1), None), ("nvidia.com/gpu", 1, Decimal(1), None),
    ]  # fmt: skip


def test_cores_and_memory_that_are_asked_for_alone_are_noted() -> None:
    requests = {"cambricon.com/mlu.smlu.vcore": 25, "cambricon.com/mlu.smlu.vmemory": 32}
    assert described(requests, {}, NodeFacts(), Scope("hq-1")) == [
        ("cambricon.com/mlu.smlu.vcore", 25, None, "device cores were asked for without a device"),
        ("cambricon.com/mlu.smlu.vmemory", 32, None, "device memory was asked for without a device"),
    ]


def test_nothing_is_whole_on_a_node_that_nobody_saw() -> None:
    assert described({"nvidia.com/gpu": 1}, {}, None, Scope("hq-1")) == [
        ("nvidia.com/gpu", 1, None, "the node was never seen")
    ]
