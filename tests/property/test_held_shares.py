"""For whatever annotations, labels and requests: a device is whole only where everything says so."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from metering.accelerator_resources import COUNTED, KAI_SHARE
from metering.accelerators import NodeFacts, device_fraction, resource_row
from metering.shared_devices import ShareUnknownError
from metering.shares import allocated_share

WORDS = st.text("abcGPU01.,:;[]{}\"- ", max_size=20)
COUNTS = st.integers(0, 200_000).map(str)
PIECE = st.tuples(st.sampled_from(["u1", "u2", "u3[0-1]", ""]), st.just("T"), COUNTS | WORDS, COUNTS | WORDS).map(",".join)
GRANTS = st.lists(PIECE, max_size=4).map(lambda pieces: ":".join(pieces) + ":;") | WORDS
RESOURCES = st.sampled_from([
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "huawei.com/Ascend910B3",
    "cambricon.com/vmlu", "hygon.com/dcunum", "iluvatar.ai/BI-V150-vgpu", "volcano.sh/vgpu-number", "enflame.com/drs-gcu",
    "metax-tech.com/sgpu", "kunlunxin.com/vxpu", "mthreads.com/vgpu", KAI_SHARE, "koordinator.sh/gpu-core",
    "tencent.com/vcuda-core", "nvidia.com/gpumem", "aliyun.com/gpu-mem",
])  # fmt: skip
LABELS = st.dictionaries(
    st.sampled_from([
        "nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.count",
        "nvidia.com/gpu.memory", "nvidia.com/mig.strategy", "nvidia.com/mig.config", "nvidia.com/device-plugin.config",
        "cloud.google.com/gke-max-shared-clients-per-gpu", "cloud.google.com/gke-gpu-sharing-strategy",
        "cloud.google.com/gke-gpu-partition-size", "kubernetes.azure.com/gpu-partition", "amd.com/compute-memory-partition",
        "example.com/npu-slices",
    ]),
    WORDS | st.sampled_from(
        ["", "0", "1", "4", "80", "81920", "none", "single", "mps", "1g.10gb", "A100-MIG-1g.10gb", "all-1g.10gb"]
    ),
)  # fmt: skip


@given(RESOURCES, st.integers(1, 8), GRANTS, LABELS, st.none() | WORDS | COUNTS, st.data())
def test_a_share_is_never_nothing_nor_more_than_a_device_and_all_else_is_unknown(
    resource: str, quantity: int, grants: str, labels: dict[str, str], kai: str | None, data: st.DataObject
) -> None:
    row = resource_row(resource)
    scheduler = data.draw(st.sampled_from([*sorted(row.schedulers), "default-scheduler", ""]))
    names = [*row.grants, "gpu-fraction", "gpu-memory"]
    annotations = data.draw(st.dictionaries(st.sampled_from(names), st.just(grants) | st.just(kai or "0.5")))
    register = data.draw(st.none() | st.just("u1,10,81920,100,T,0,true:u2,10,40960,100,T,0,true:") | WORDS)
    listed = {row.register: register} if row.register and register else {}
    requests = {resource: quantity, **data.draw(st.dictionaries(st.sampled_from(["nvidia.com/gpumem"]), st.integers(0, 9)))}
    node = data.draw(st.none() | st.just(NodeFacts(labels, {"nvidia.com/gpu": 80}, listed)))
    try:
        share = allocated_share(resource, quantity, requests, annotations, node, scheduler)
    except ShareUnknownError:
        return
    assert 0 < share <= 1
    assert device_fraction(share) > 0
    assert row.kind in COUNTED
    assert node is not None
    if share == 1:
        believed = scheduler in row.schedulers or resource == KAI_SHARE
        assert_whole(resource, quantity, annotations if believed else {}, requests, node)


def assert_whole(
    resource: str, quantity: int, annotations: dict[str, str], requests: dict[str, int], node: NodeFacts
) -> None:
    """What must be true of a device that is billed whole, said again in other words than the rule's."""
    row = resource_row(resource)
    given_text = [annotations[name] for name in row.grants if name in annotations]
    if given_text:
        pieces = [piece.split(",") for piece in given_text[0].replace(";", ":").split(":") if piece]
        assert len(pieces) == quantity
        assert all(piece[3] == "100" or int(piece[2]) in (81_920, 40_960, int(node.labels.get("nvidia.com/gpu.memory") or 0))
                   for piece in pieces)  # fmt: skip
        return
    if resource == KAI_SHARE:
        assert Fraction(annotations.get("gpu-fraction") or 1) == 1
    assert not requests.get("nvidia.com/gpumem") or row.vendor != "nvidia" or resource == KAI_SHARE
    assert node.labels.get("kubernetes.azure.com/gpu-partition", "").lower() in {"", "0", "1", "none"}
    assert node.labels.get("example.com/npu-slices", "").lower() in {"", "0", "1", "none"}
    assert not node.annotations.get(row.register, "")
    if resource.startswith("nvidia.com/gpu") or resource == KAI_SHARE:
        assert node.labels.get("cloud.google.com/gke-gpu-partition-size", "") == ""
        assert node.labels.get("cloud.google.com/gke-max-shared-clients-per-gpu", "") in {"", "1"}
        assert node.labels.get("nvidia.com/gpu.count", "") in {"", "80", "81920"}


SLICES = st.tuples(st.sampled_from(["u1", "u2"]), st.integers(1, 40_960), st.integers(0, 99))


@given(st.lists(SLICES, min_size=1, max_size=6), st.integers(1, 6))
def test_pieces_are_known_exactly_where_there_is_one_for_each_unit(pieces: list[tuple[str, int, int]], units: int) -> None:
    text = ":".join(f"{uuid},NVIDIA,{memory},{cores}" for uuid, memory, cores in pieces) + ":;"
    memories = {"u1": 81_920, "u2": 40_960}
    listed = {"hami.io/node-nvidia-register": "u1,10,81920,100,T,0,true:u2,10,40960,100,T,0,true:"}
    node = NodeFacts({}, {}, listed)
    try:
        annotations = {"hami.io/vgpu-devices-allocated": text}
        share = allocated_share("nvidia.com/gpu", units, {}, annotations, node, "hami-scheduler")
    except ShareUnknownError:
        assert len(pieces) != units
        return
    assert len(pieces) == units
    total = sum(max(Fraction(cores, 100), Fraction(memory, memories[uuid])) for uuid, memory, cores in pieces)
    assert share * units == total
