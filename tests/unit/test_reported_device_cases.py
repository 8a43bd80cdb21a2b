"""Nodes and pods as people reported them to the projects that are named: billed exactly, or told. Fractions by hand."""

import json
from collections.abc import Mapping
from fractions import Fraction

import pytest

from metering.accelerators import NodeFacts
from metering.k8s.capacity import devices_behind
from tests.device_pods import Asked, held

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
CORE, CHIP = "aws.amazon.com/neuroncore", "aws.amazon.com/neuron"
I915, XE = "gpu.intel.com/i915", "gpu.intel.com/xe"
MI300X = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
MACHINE = "node.kubernetes.io/instance-type"
FLEX = {"gpu.intel.com/product": "Flex_140", "gpu.intel.com/device-id.0380-56c1.count": "2"}
V100 = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB-N", "nvidia.com/gpu.count": "8"}
NPU = {"node.kubernetes.io/npu.chip.name": "Ascend910B3"}
A10G = {"nvidia.com/gpu.product": "NVIDIA-A10G", "nvidia.com/gpu.count": "1"}
Case = tuple[str, Asked, Mapping[str, str], dict[str, int], Fraction | None, int | None]

CASES: list[Case] = [
    # NVIDIA/gpu-operator issue 684: labels say that nothing is shared, and twelve units are offered
    ("slices beside labels of before", {GPU: 1}, {**A10G, "nvidia.com/gpu.replicas": "1"}, {GPU: 12}, None, None),
    ("slices, once labels follow", {GPU: 1}, {"nvidia.com/gpu.product": "NVIDIA-A10G-SHARED", "nvidia.com/gpu.count": "1",
                                             "nvidia.com/gpu.replicas": "12"}, {GPU: 12}, Fraction(1, 12), 1),
    # NVIDIA/k8s-device-plugin issues 990, 321, 1150, 1105; pull requests 490, 503
    ("a configuration without feature discovery", {GPU: 1}, {"nvidia.com/device-plugin.config": "config0"}, {GPU: 4},
     None, None),
    ("a renamed slice", {SHARED: 1}, {"nvidia.com/gpu.product": "Quadro-P2000-SHARED", "nvidia.com/gpu.count": "1",
                                      "nvidia.com/gpu.replicas": "4", "nvidia.com/device-plugin.config": "quadro-p2000"},
     {SHARED: 4}, Fraction(1, 4), 1),
    ("MPS", {GPU: 1}, {**V100, "nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB-N-SHARED", "nvidia.com/gpu.replicas": "4",
                       "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/mps.capable": "true"}, {GPU: 32},
     Fraction(1, 4), 8),
    ("an invalid configuration", {GPU: 1}, {**V100, "nvidia.com/gpu.replicas": "0", "nvidia.com/gpu.sharing-strategy": ""},
     {GPU: 8}, Fraction(1), 8),
    ("a renamed slice nobody counts", {SHARED: 1}, {"nvidia.com/gpu.product": "NVIDIA-L4"}, {SHARED: 4}, None, None),
    # nebuly-ai/nos issues 28, 47, 53
    ("nos, a piece by memory", {"nvidia.com/gpu-10gb": 1}, {"nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB"},
     {"nvidia.com/gpu-10gb": 4}, None, None),
    ("nos, a node that it partitions", {GPU: 1}, {**A10G, "nos.nebuly.com/gpu-partitioning": "mps"}, {GPU: 1}, None, None),
    # ROCm/k8s-device-plugin issues 157, 184; ROCm/gpu-operator pull request 101
    ("MI300X in CPX", {"amd.com/gpu": 8}, {**MI300X, "amd.com/compute-memory-partition": "CPX_NPS4"}, {"amd.com/gpu": 64},
     Fraction(1, 8), 8),
    ("MI300X, 64 units of nobody knows what", {"amd.com/gpu": 8}, MI300X, {"amd.com/gpu": 64}, None, None),
    ("MI325X, 16 units likewise", {"amd.com/gpu": 1}, {"amd.com/gpu.product-name": "AMD_Instinct_MI325X"},
     {"amd.com/gpu": 16}, None, None),
    ("MI300X, eight cards", {"amd.com/gpu": 8}, MI300X, {"amd.com/gpu": 8}, Fraction(1), 8),
    ("MI210, sixteen cards", {"amd.com/gpu": 1}, {"amd.com/gpu.product-name": "AMD_Instinct_MI210"}, {"amd.com/gpu": 16},
     Fraction(1), 16),
    ("MI300X, mixed naming", {"amd.com/cpx_nps1": 2}, MI300X, {"amd.com/cpx_nps1": 24}, Fraction(1, 8), 24),
    ("MI350X in DPX", {"amd.com/dpx_nps2": 1}, {"amd.com/gpu.product-name": "AMD_Instinct_MI350X"},
     {"amd.com/dpx_nps2": 16}, Fraction(1, 2), 16),
    # aws-neuron/aws-neuron-sdk issues 392, 581; aws/karpenter-provider-aws issue 3555, pull request 6510
    ("Inf2, a core", {CORE: 1}, {MACHINE: "inf2.48xlarge"}, {CORE: 24, CHIP: 12}, Fraction(1, 2), 12),
    ("Trn2, a logical core of two", {CORE: 4}, {MACHINE: "trn2.48xlarge"}, {CORE: 64, CHIP: 16}, Fraction(1, 4), 16),
    ("Trn2, a core of one", {CORE: 4}, {MACHINE: "trn2.48xlarge"}, {CORE: 128, CHIP: 16}, Fraction(1, 8), 16),
    ("Trn2, one chip", {CORE: 1}, {MACHINE: "trn2.3xlarge"}, {CORE: 4, CHIP: 1}, Fraction(1, 4), 1),
    ("Trn2, cores alone", {CORE: 1}, {MACHINE: "trn2.48xlarge"}, {CORE: 64}, None, None),
    ("Trn2 Ultra", {CORE: 4}, {MACHINE: "trn2u.48xlarge"}, {CORE: 64, CHIP: 16}, Fraction(1, 4), 16),
    ("Inf1, cores alone", {CORE: 1}, {MACHINE: "inf1.6xlarge"}, {CORE: 16}, Fraction(1, 4), 4),
    ("a chip", {CHIP: 1}, {MACHINE: "inf1.xlarge"}, {CHIP: 1}, Fraction(1), 1),
    # intel/intel-device-plugins-for-kubernetes issues 1915, 1377, 1401, 2208
    ("i915 offered five times, unlabelled", {I915: 1}, {"kubernetes.io/os": "linux"}, {I915: 5}, None, None),
    ("Flex 140, two devices", {I915: 2}, FLEX, {I915: 2}, Fraction(1), 2),
    ("Flex 140, offered ten times", {I915: 1}, FLEX, {I915: 20}, Fraction(1, 10), 2),
    ("Max 1550, by its other count", {I915: 1}, {"gpu.intel.com/product": "Max_1550", "gpu.intel.com/device.count": "2"},
     {I915: 20}, Fraction(1, 10), 2),
    ("Arc Pro B60", {XE: 2}, {"gpu.intel.com/device-id.0300-e211.count": "4"}, {XE: 4}, Fraction(1), 4),
    ("virtual functions of a Flex 170", {I915: 1}, {"gpu.intel.com/product": "Flex_170",
                                                    "gpu.intel.com/device-id.0380-56c0.count": "1"}, {I915: 7},
     Fraction(1, 7), 1),
    # Project-HAMi/HAMi issue 2004: templates of Ascend HDK
    ("a template of five cores", {"huawei.com/Ascend910-5c.1cpu.16g": 1}, NPU, {"huawei.com/Ascend910-5c.1cpu.16g": 4},
     Fraction(1, 4), 4),
    ("a template of ten", {"huawei.com/Ascend910-10c.3cpu.32g": 1}, NPU, {"huawei.com/Ascend910-10c.3cpu.32g": 2},
     Fraction(1, 2), 2),
    # skypilot-org/skypilot pull request 3947; NVIDIA/k8s-device-plugin pull request 1655: memory by a plugin of one's own
    ("TPU v5e", {"google.com/tpu": 4}, {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                                        "cloud.google.com/gke-tpu-topology": "2x2"}, {"google.com/tpu": 4}, Fraction(1), 4),
    ("memory of a plugin of one's own", {"example.com/gpu-mem": 8}, A10G, {"example.com/gpu-mem": 24}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked", "labels", "capacity", "share", "devices"), CASES, ids=[case[0] for case in CASES])
def test_what_people_reported_is_exact_or_told(
    name: str, asked: Asked, labels: Mapping[str, str], capacity: dict[str, int], share: Fraction | None, devices: int | None
) -> None:
    node = NodeFacts(labels, capacity)
    [(resource, units, fraction)] = held(asked, node)
    assert (resource, units) == next(iter(asked.items()))
    assert (fraction is None) is (share is None)
    if fraction is not None and share is not None:
        assert abs(Fraction(fraction) - share) < Fraction(1, 10**11)
    assert devices_behind(resource, capacity[resource], node) == devices


def test_an_ascend_910c_in_templates_of_hami_is_a_part_of_its_chip() -> None:
    """Issue 2004: vir05_1c_16g is 16 of 64 GiB."""
    chips = [{"id": "u-1", "count": 4, "devmem": 65536, "devcore": 20, "type": "Ascend910C", "health": True}]
    node = NodeFacts({}, {"huawei.com/Ascend910C": 4}, {"hami.io/node-register-Ascend910C": json.dumps(chips)})
    asked: Asked = {"huawei.com/Ascend910C": 1, "huawei.com/Ascend910C-memory": 16384}
    granted = {"hami.io/Ascend910C-devices-allocated": "u-1,Ascend910C,16384,0:;"}
    [(_, _, fraction)] = held(asked, node, scheduler="hami-scheduler", annotations=granted)
    assert fraction is not None
    assert Fraction(fraction) == Fraction(1, 4)
