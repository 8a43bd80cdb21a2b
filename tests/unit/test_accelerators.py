"""What one unit of each resource name is: row by row, by node labels, by the scheduler's grant."""

from fractions import Fraction

import pytest

from metering.accelerator_resources import Kind
from metering.accelerators import (
    NodeFacts,
    accelerator_name,
    device_share,
    is_extended,
    resource_row,
    split_request,
    unit_share,
)
from metering.shares import allocated_share

UNKNOWN_SHARE = None
BARE = NodeFacts()
ONE = Fraction(1)

ROWS = [
    ("nvidia.com/gpu", "nvidia", "device", ONE),
    ("nvidia.com/gpu.shared", "nvidia", "shared", UNKNOWN_SHARE),
    ("nvidia.com/mig-1g.5gb", "nvidia", "slice", Fraction(1, 7)),
    ("nvidia.com/mig-1g.10gb.me", "nvidia", "slice", Fraction(1, 7)),
    ("nvidia.com/mig-1g.10gb+me", "nvidia", "slice", Fraction(1, 7)),
    ("nvidia.com/mig-3g.40gb", "nvidia", "slice", Fraction(3, 7)),
    ("nvidia.com/mig-7g.80gb", "nvidia", "slice", ONE),
    ("nvidia.com/mig-1g.6gb", "nvidia", "slice", Fraction(1, 4)),
    ("nvidia.com/mig-4g.24gb", "nvidia", "slice", ONE),
    ("nvidia.com/mig-4g.96gb", "nvidia", "slice", ONE),
    ("nvidia.com/mig-1g.10gb.shared", "nvidia", "shared", UNKNOWN_SHARE),
    ("nvidia.com/gpumem", "nvidia", "memory", UNKNOWN_SHARE),
    ("nvidia.com/gpumem-percentage", "nvidia", "memory", UNKNOWN_SHARE),
    ("nvidia.com/gpucores", "nvidia", "cores", UNKNOWN_SHARE),
    ("nvidia.com/priority", "nvidia", "ignore", UNKNOWN_SHARE),
    ("volcano.sh/vgpu-number", "nvidia", "shared", UNKNOWN_SHARE),
    ("volcano.sh/vgpu-memory", "nvidia", "memory", UNKNOWN_SHARE),
    ("volcano.sh/vgpu-cores", "nvidia", "cores", UNKNOWN_SHARE),
    ("aliyun.com/gpu-mem", "nvidia", "shared", UNKNOWN_SHARE),
    ("aliyun.com/gpu-count", "nvidia", "ignore", UNKNOWN_SHARE),
    ("amd.com/gpu", "amd", "device", ONE),
    ("amd.com/spx_nps1", "amd", "slice", ONE),
    ("amd.com/dpx_nps2", "amd", "slice", Fraction(1, 2)),
    ("amd.com/cpx_nps4", "amd", "slice", Fraction(1, 8)),
    ("huawei.com/Ascend910", "huawei", "device", ONE),
    ("huawei.com/Ascend310", "huawei", "device", ONE),
    ("huawei.com/Ascend310P", "huawei", "device", ONE),
    ("huawei.com/npu", "huawei", "device", ONE),
    ("huawei.com/Ascend910-2c", "huawei", "slice", Fraction(1, 15)),
    ("huawei.com/Ascend910-16c", "huawei", "slice", Fraction(8, 15)),
    ("huawei.com/Ascend910-10c.3cpu.16g", "huawei", "slice", Fraction(1, 2)),
    ("huawei.com/Ascend910-5c.1cpu.16g", "huawei", "slice", Fraction(1, 4)),
    ("huawei.com/Ascend910-12c.3cpu.32g", "huawei", "slice", Fraction(1, 2)),
    ("huawei.com/Ascend910-7c", "huawei", "slice", UNKNOWN_SHARE),
    ("huawei.com/Ascend310P-4c.3cpu.ndvpp", "huawei", "slice", Fraction(1, 2)),
    ("huawei.com/npu-core", "huawei", "shared", UNKNOWN_SHARE),
    ("huawei.com/Ascend910-Unhealthy", "huawei", "ignore", UNKNOWN_SHARE),
    ("huawei.com/Ascend910-NetworkUnhealthy", "huawei", "ignore", UNKNOWN_SHARE),
    ("huawei.com/Ascend910-Recovering", "huawei", "ignore", UNKNOWN_SHARE),
    ("huawei.com/Ascend910A", "huawei", "device", ONE),
    ("huawei.com/Ascend910B2", "huawei", "device", ONE),
    ("huawei.com/Ascend910B4-1", "huawei", "device", ONE),
    ("huawei.com/Ascend910C", "huawei", "device", ONE),
    ("huawei.com/Ascend910B4-1-memory", "huawei", "memory", UNKNOWN_SHARE),
    ("huawei.com/Ascend910B3-core", "huawei", "cores", UNKNOWN_SHARE),
    ("cambricon.com/vmlu", "cambricon", "shared", UNKNOWN_SHARE),
    ("cambricon.com/mlu", "cambricon", "device", ONE),
    ("cambricon.com/mlu370", "cambricon", "device", ONE),
    ("cambricon.com/mlu.share", "cambricon", "shared", UNKNOWN_SHARE),
    ("cambricon.com/mlu370.smlu", "cambricon", "shared", UNKNOWN_SHARE),
    ("cambricon.com/mlu.smlu.vmemory", "cambricon", "memory", UNKNOWN_SHARE),
    ("cambricon.com/mlu.smlu.vcore", "cambricon", "cores", UNKNOWN_SHARE),
    ("hygon.com/dcunum", "hygon", "shared", UNKNOWN_SHARE),
    ("hygon.com/dcumem", "hygon", "memory", UNKNOWN_SHARE),
    ("hygon.com/dcucores", "hygon", "cores", UNKNOWN_SHARE),
    ("hygon.com/dcu", "hygon", "device", ONE),
    ("metax-tech.com/gpu", "metax", "device", ONE),
    ("metax-tech.com/sgpu", "metax", "shared", UNKNOWN_SHARE),
    ("metax-tech.com/vcore", "metax", "cores", UNKNOWN_SHARE),
    ("metax-tech.com/vmemory", "metax", "memory", UNKNOWN_SHARE),
    ("mthreads.com/vgpu", "moore-threads", "shared", UNKNOWN_SHARE),
    ("mthreads.com/sgpu-memory", "moore-threads", "memory", UNKNOWN_SHARE),
    ("mthreads.com/sgpu-core", "moore-threads", "cores", UNKNOWN_SHARE),
    ("mthreads.com/gpu", "moore-threads", "device", ONE),
    ("enflame.com/gcu", "enflame", "device", ONE),
    ("enflame.com/drs-gcu", "enflame", "shared", UNKNOWN_SHARE),
    ("enflame.com/gcu-memory", "enflame", "memory", UNKNOWN_SHARE),
    ("enflame.com/gcu-core", "enflame", "cores", UNKNOWN_SHARE),
    ("iluvatar.ai/BI-V150-vgpu", "iluvatar", "shared", UNKNOWN_SHARE),
    ("iluvatar.ai/BI-V150.vCore", "iluvatar", "cores", UNKNOWN_SHARE),
    ("iluvatar.ai/MR-V50.vMem", "iluvatar", "memory", UNKNOWN_SHARE),
    ("iluvatar.ai/gpu", "iluvatar", "device", ONE),
    ("kunlunxin.com/xpu", "kunlunxin", "device", ONE),
    ("kunlunxin.com/vxpu", "kunlunxin", "shared", UNKNOWN_SHARE),
    ("kunlunxin.com/vxpu-memory", "kunlunxin", "memory", UNKNOWN_SHARE),
    ("birentech.com/gpu", "biren", "device", ONE),
    ("vastaitech.com/va", "vastai", "device", ONE),
    ("aws.amazon.com/neuron", "aws", "device", ONE),
    ("aws.amazon.com/neuroncore", "aws", "slice", UNKNOWN_SHARE),
    ("gpu.intel.com/i915", "intel", "device", ONE),
    ("gpu.intel.com/xe", "intel", "device", ONE),
    ("habana.ai/gaudi", "habana", "device", ONE),
    ("google.com/tpu", "google", "device", ONE),
    ("rdma/hca_shared_devices_a", "", "ignore", UNKNOWN_SHARE),
    *((name, "", "ignore", UNKNOWN_SHARE) for name in (
        "nvidia.com/hostdev", "nvidia.com/mlnxnics", "nvidia.com/sriov_rdma", "nvidia.com/rdma_shared_device_a",
        "mellanox.com/mlnx_sriov_rdma", "openshift.io/mlxnics", "smarter-devices/fuse", "squat.ai/fuse",
        "koordinator.sh/rdma", "intel.com/intel_sriov_netdevice", "qat.intel.com/cy", "sgx.intel.com/epc",
        "bridge.network.kubevirt.io/br1", "amd.com/vnic", "aliyun/eni", "aliyun/erdma",
        "tke.cloud.tencent.com/eni-ip", "networking.gke.io.networks/rdma-0.IP", "vpc.amazonaws.com/efa",
        "devices.kubevirt.io/kvm",
    )),
    ("cambricon.com/mlu370.smlu.vmemory", "cambricon", "memory", UNKNOWN_SHARE),
    ("cambricon.com/mlu370.smlu.vcore", "cambricon", "cores", UNKNOWN_SHARE),
    ("intel.com/fpga", "", "unknown", UNKNOWN_SHARE),
    ("nvidia.com/nic-that-nobody-knows", "", "unknown", UNKNOWN_SHARE),
    ("example.com/fpga", "", "unknown", UNKNOWN_SHARE),
    ("nvidia.com/gpux", "", "unknown", UNKNOWN_SHARE),
    ("nvidia.com/mig-9g.80gb", "", "unknown", UNKNOWN_SHARE),
]


@pytest.mark.parametrize(("resource", "vendor", "kind", "share"), ROWS, ids=[row[0] for row in ROWS])
def test_a_resource_name_has_vendor_kind_and_share(
    resource: str, vendor: str, kind: str, share: Fraction | None
) -> None:
    row = resource_row(resource)
    assert (row.vendor, row.kind.value, unit_share(resource, BARE)) == (vendor, kind, share)


@pytest.mark.parametrize("resource", [row[0] for row in ROWS])
def test_modifiers_are_never_devices_and_nothing_is_more_than_one(resource: str) -> None:
    share = device_share(resource)
    modifier = resource_row(resource).kind in (Kind.MEMORY, Kind.CORES, Kind.IGNORE)
    assert share == 0 if modifier else 0 < share <= 1


def nvidia(product: str, **labels: str) -> NodeFacts:
    renamed = {f"nvidia.com/gpu.{name.replace('_', '-')}": value for name, value in labels.items()}
    return NodeFacts({"nvidia.com/gpu.product": product, **renamed})


@pytest.mark.parametrize(
    ("resource", "node", "share"),
    [
        ("nvidia.com/gpu", nvidia("NVIDIA-H800", replicas="1", sharing_strategy="none"), ONE),
        ("nvidia.com/gpu", nvidia("NVIDIA-H800", replicas="0"), ONE),
        ("nvidia.com/gpu", nvidia("NVIDIA-H800-SHARED", replicas="10", sharing_strategy="time-slicing"), Fraction(1, 10)),
        ("nvidia.com/gpu", nvidia("NVIDIA-H800-SHARED", replicas="4", sharing_strategy="mps"), Fraction(1, 4)),
        ("nvidia.com/gpu.shared", nvidia("NVIDIA-H800", replicas="10"), Fraction(1, 10)),
        ("nvidia.com/gpu", nvidia("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"), Fraction(1, 7)),
        ("nvidia.com/gpu", nvidia("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb-SHARED", replicas="2"), Fraction(3, 14)),
        ("nvidia.com/gpu", nvidia("NVIDIA-A30-MIG-1g.6gb"), Fraction(1, 4)),
        ("nvidia.com/mig-1g.24gb", nvidia("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"), Fraction(1, 4)),
        ("nvidia.com/mig-1g.24gb", nvidia("NVIDIA-GH200-480GB"), Fraction(1, 7)),
        ("nvidia.com/gpu", nvidia("NVIDIA-A100-SXM4-40GB-MIG-INVALID"), None),
        ("nvidia.com/gpu", nvidia("NVIDIA-H800-SHARED"), None),
        ("nvidia.com/gpu", nvidia("NVIDIA-H800", sharing_strategy="time-slicing"), None),
        ("nvidia.com/gpu", nvidia("NVIDIA-H800", replicas="many"), None),
        ("nvidia.com/mig-1g.10gb.shared", NodeFacts({"nvidia.com/mig-1g.10gb.replicas": "2"}), Fraction(1, 14)),
        ("nvidia.com/mig-1g.10gb", NodeFacts({"nvidia.com/gpu.replicas": "10"}), Fraction(1, 7)),
        ("amd.com/gpu", NodeFacts({"amd.com/compute-memory-partition": "cpx_nps4"}), Fraction(1, 8)),
        ("amd.com/gpu", NodeFacts({"amd.com/compute-memory-partition": "SPX_NPS1"}), ONE),
        ("amd.com/gpu", NodeFacts({"amd.com/compute-memory-partition": "odd"}), None),
        ("amd.com/cpx_nps1", NodeFacts({"amd.com/gpu.product-name": "AMD_Instinct_MI300A"}), Fraction(1, 6)),
        ("huawei.com/npu-core", NodeFacts({"node.kubernetes.io/npu.chip.name": "310P3"}), Fraction(1, 8)),
        ("huawei.com/npu-core", NodeFacts({"node.kubernetes.io/npu.chip.name": "910B3"}), Fraction(1, 20)),
        ("aws.amazon.com/neuroncore", NodeFacts({"node.kubernetes.io/instance-type": "trn1.32xlarge"}), Fraction(1, 2)),
        ("aliyun.com/gpu-mem", NodeFacts({}, {"aliyun.com/gpu-mem": 128, "aliyun.com/gpu-count": 8}), Fraction(1, 16)),
        ("aliyun.com/gpu-mem", NodeFacts({}, {"aliyun.com/gpu-mem": 128}), None),
    ],
)
def test_the_node_shows_what_a_unit_is(resource: str, node: NodeFacts, share: Fraction | None) -> None:
    assert unit_share(resource, node) == share


@pytest.mark.parametrize(
    ("text", "quantity", "memory", "share"),
    [
        ("GPU-1,NVIDIA,20480,30:;", 1, "81920", Fraction(3, 10)),  # memory 1/4, cores 3/10
        ("GPU-1,NVIDIA,40960,0:;", 1, "81920", Fraction(1, 2)),  # no limit on cores: memory decides
        ("GPU-1,NVIDIA,40960,10:GPU-2,NVIDIA,81920,100:;", 2, "81920", Fraction(3, 4)),  # mean of 1/2 and 1
        (";GPU-1,NVIDIA,8192,0:;GPU-2,NVIDIA,24576,0:;", 2, "81920", Fraction(1, 5)),  # two containers: 1/10 and 3/10
        ("GPU-1,NVIDIA,81920,100:;", 1, "", ONE),
    ],
)
def test_a_hami_slice_is_the_larger_of_memory_and_core_share(
    text: str, quantity: int, memory: str, share: Fraction
) -> None:
    node = NodeFacts({"nvidia.com/gpu.memory": memory})
    annotations = {"hami.io/vgpu-devices-allocated": text}
    assert allocated_share("nvidia.com/gpu", quantity, {}, annotations, node, "hami-scheduler") == share


def test_a_request_is_sorted_into_what_counts_what_modifies_and_what_is_unknown() -> None:
    request = {
        "cpu": 8, "hugepages-1Gi": 4, "nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30,
        "example.com/fpga": 1, "rdma/hca": 1, "amd.com/gpu": 0, "nvidia.com/priority": 1,
    }  # fmt: skip
    split = split_request(request)
    assert split.counted == {"nvidia.com/gpu": 2}
    assert split.unknown == {"example.com/fpga": 1}


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("nvidia.com/gpu", True), ("cpu", False), ("ephemeral-storage", False), ("node.kubernetes.io/thing", False),
        ("deviceclass.resource.kubernetes.io/gpu", False), ("requests.nvidia.com/gpu", False),
        ("volcano.sh/vgpu-number", True),
    ],
)  # fmt: skip
def test_extended_resources_have_a_foreign_domain(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


@pytest.mark.parametrize(
    ("resource", "labels", "name"),
    [
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-H800"}, "NVIDIA-H800"),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-H800-SHARED"}, "NVIDIA-H800"),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, "NVIDIA-A100-SXM4-40GB"),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-A100-MIG-1g.5gb.me-SHARED"}, "NVIDIA-A100"),
        ("nvidia.com/gpu", {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, "nvidia-h100-80gb"),
        ("nvidia.com/gpu", {"karpenter.k8s.aws/instance-gpu-name": "h100"}, "h100"),
        ("nvidia.com/gpu", {"kubernetes.azure.com/accelerator": "nvidia"}, None),
        ("nvidia.com/gpu", {"node.kubernetes.io/instance-type": "ND96"}, "ND96"),
        ("amd.com/gpu", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "AMD_Instinct_MI300X_OAM"),
        ("amd.com/gpu", {"beta.amd.com/gpu.product-name": "MI250X", "nvidia.com/gpu.product": "A10"}, "MI250X"),
        ("huawei.com/Ascend910", {"node.kubernetes.io/npu.chip.name": "910B3", "accelerator-type": "module"}, "910B3"),
        ("gpu.intel.com/i915", {"gpu.intel.com/product": "Max_1550"}, "Max_1550"),
        ("google.com/tpu", {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"}, "tpu-v5p-slice"),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": " "}, None),
        ("example.com/fpga", {}, None),
    ],
)
def test_the_product_is_named_without_suffixes(resource: str, labels: dict[str, str], name: str | None) -> None:
    assert accelerator_name(resource, labels) == name
