"""Pods as their schedulers and plugins leave them, each with its source: billed exactly, or told. Fractions by hand."""

import json
from collections.abc import Mapping
from fractions import Fraction

import pytest

from metering.accelerators import NodeFacts
from metering.k8s.capacity import devices_behind
from tests.device_pods import Asked, held

GIB = 2**30


def of_product(product: str) -> NodeFacts:
    return NodeFacts({"nvidia.com/gpu.product": product})


H800 = {"nvidia.com/gpu.product": "NVIDIA-H800"}
PLAIN = NodeFacts(H800)
OF_80_GIB = NodeFacts({**H800, "nvidia.com/gpu.memory": "81920"})
KOORDINATOR = NodeFacts(H800, {"koordinator.sh/gpu": 800, "koordinator.sh/gpu-core": 800,
                               "koordinator.sh/gpu-memory-ratio": 800, "koordinator.sh/gpu-memory": 640 * GIB})  # fmt: skip
GPU_MANAGER = NodeFacts(H800, {"tencent.com/vcuda-core": 800, "tencent.com/vcuda-memory": 8 * 320})
QGPU = NodeFacts(H800, {"tke.cloud.tencent.com/qgpu-core": 800, "tke.cloud.tencent.com/qgpu-memory": 640})
CCE = NodeFacts(H800, {"volcano.sh/gpu-core.percentage": 400, "volcano.sh/gpu-mem.128Mi": 4 * 128})
SHARE, CORE, RATIO, MEMORY = (f"koordinator.sh/gpu{name}" for name in ("-share", "-core", "-memory-ratio", "-memory"))
VCUDA, VCUDA_MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
QCORE, QMEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
XCORE, XMEMORY = "volcano.sh/gpu-core.percentage", "volcano.sh/gpu-mem.128Mi"
GRANTED = {
    "scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": [
        {"minor": 3, "resources": {CORE: "50", MEMORY: "23034Mi", RATIO: "50"}, "id": "GPU-1"},
    ]}),
}  # fmt: skip

CASES: list[tuple[str, Asked | list[Asked], NodeFacts, str, Mapping[str, str], list[tuple[str, int, Fraction | None]]]] = [
    # koordinator-sh/koordinator docs/proposals/scheduling/20220629-fine-grained-device-scheduling.md,
    # 20230803-enhance-gpu-share-api.md
    ("a card", {"koordinator.sh/gpu": 100}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(1))]),
    ("half a card", {"koordinator.sh/gpu": 50}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(1, 2))]),
    ("two cards", {"koordinator.sh/gpu": 200}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 2, Fraction(1))]),
    ("two resources", {CORE: 50, RATIO: 50}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(1, 2))]),
    ("more memory", {CORE: 20, RATIO: 60}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(3, 5))]),
    ("more cores", {CORE: 70, RATIO: 30}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(7, 10))]),
    ("memory alone", {RATIO: 25}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(1, 4))]),
    ("two cards in percent", {CORE: 200, RATIO: 200}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 2, Fraction(1))]),
    ("bytes", {CORE: 20, MEMORY: "40Gi"}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, Fraction(1, 2))]),
    ("bytes of a labelled card", {MEMORY: "20Gi"}, OF_80_GIB, "koord-scheduler", {}, [(SHARE, 1, Fraction(1, 4))]),
    ("bytes of nobody knows what", {MEMORY: "20Gi"}, PLAIN, "koord-scheduler", {}, [(SHARE, 1, None)]),
    ("bytes as granted", {MEMORY: "23034Mi"}, PLAIN, "koord-scheduler", GRANTED, [(SHARE, 1, Fraction(1, 2))]),  # issue 2545
    ("a grant of nobody", {MEMORY: "23034Mi"}, PLAIN, "default-scheduler", GRANTED, [(SHARE, 1, None)]),
    ("three resources", {"koordinator.sh/gpu.shared": 1, CORE: 50, RATIO: 50}, KOORDINATOR, "koord-scheduler", GRANTED,
     [(SHARE, 1, Fraction(1, 2))]),  # issues 1189, 2545
    ("four cards, 40 GiB of each", {"koordinator.sh/gpu.shared": 4, MEMORY: "160Gi"}, KOORDINATOR, "koord-scheduler", {},
     [(SHARE, 4, Fraction(1, 2))]),  # issue 2097
    ("a number without a share", {"koordinator.sh/gpu.shared": 1}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, None)]),
    ("more than a card", {MEMORY: "100Gi"}, KOORDINATOR, "koord-scheduler", {}, [(SHARE, 1, None)]),
    ("two containers", [{CORE: 30, RATIO: 10}, {CORE: 10, RATIO: 30}], KOORDINATOR, "koord-scheduler", {},
     [(SHARE, 1, Fraction(2, 5))]),  # Koordinator gives a share to the pod: 40 % of each
    ("a whole card of the plugin", {"nvidia.com/gpu": 1}, KOORDINATOR, "koord-scheduler", GRANTED,
     [("nvidia.com/gpu", 1, Fraction(1))]),
    # tkestack/gpu-manager README: a hundred vcuda-core are a card, a vcuda-memory is 256 MiB
    ("vcuda", {VCUDA: 50, VCUDA_MEMORY: 30}, GPU_MANAGER, "", {}, [(VCUDA, 50, Fraction(1, 100))]),
    ("vcuda, more memory", {VCUDA: 10, VCUDA_MEMORY: 160}, GPU_MANAGER, "", {}, [(VCUDA, 10, Fraction(1, 20))]),
    ("vcuda, two cards", {VCUDA: 200}, GPU_MANAGER, "", {}, [(VCUDA, 200, Fraction(1, 100))]),
    ("vcuda, a card with memory", {VCUDA: 100, VCUDA_MEMORY: 320}, PLAIN, "", {}, [(VCUDA, 100, Fraction(1, 100))]),
    ("vcuda of nobody knows what", {VCUDA: 50, VCUDA_MEMORY: 30}, PLAIN, "", {}, [(VCUDA, 50, None)]),
    ("vcuda, two containers", [{VCUDA: 10, VCUDA_MEMORY: 160}, {VCUDA: 50, VCUDA_MEMORY: 32}], GPU_MANAGER, "", {},
     [(VCUDA, 60, Fraction(1, 60))]),  # a half and a half
    ("vcuda, more than a card", {VCUDA: 10, VCUDA_MEMORY: 400}, GPU_MANAGER, "", {}, [(VCUDA, 10, None)]),
    # Tencent Cloud, TKE: Using qGPU (457/65734): a hundred qgpu-core are a card, a qgpu-memory is 1 GB
    ("qgpu", {QCORE: 20, QMEMORY: 40}, QGPU, "", {}, [(QCORE, 20, Fraction(1, 40))]),
    ("qgpu, more cores", {QCORE: 60, QMEMORY: 16}, QGPU, "", {}, [(QCORE, 60, Fraction(1, 100))]),
    ("qgpu, two cards", {QCORE: 200}, QGPU, "", {}, [(QCORE, 200, Fraction(1, 100))]),
    ("qgpu, memory alone", {QMEMORY: 20}, QGPU, "", {}, [(QMEMORY, 20, Fraction(1, 80))]),
    ("qgpu of nobody knows what", {QCORE: 20, QMEMORY: 40}, PLAIN, "", {}, [(QCORE, 20, None)]),
    # Huawei Cloud CCE, GPU virtualization (cce_10_0644, cce_10_0742): 128 MiB each, percent of a card
    ("xgpu, memory", {XMEMORY: 40}, CCE, "volcano", {}, [(XMEMORY, 40, Fraction(1, 128))]),
    ("xgpu, memory and cores", {XMEMORY: 40, XCORE: 50}, CCE, "volcano", {}, [(XCORE, 50, Fraction(1, 100))]),
    ("xgpu, more memory", {XMEMORY: 96, XCORE: 50}, CCE, "volcano", {}, [(XCORE, 50, Fraction(3, 200))]),
    ("xgpu by the label", {XMEMORY: 160}, OF_80_GIB, "volcano", {}, [(XMEMORY, 160, Fraction(1, 640))]),
    ("xgpu of nobody knows what", {XMEMORY: 40}, PLAIN, "volcano", {}, [(XMEMORY, 40, None)]),
    # volcano-sh/volcano docs/user-guide/how_to_use_gpu_number.md, how_to_use_gpu_sharing.md
    ("gpu-number", {"volcano.sh/gpu-number": 2}, PLAIN, "volcano", {}, [("volcano.sh/gpu-number", 2, Fraction(1))]),
    ("gpu-memory", {"volcano.sh/gpu-memory": 1024},
     NodeFacts(H800, {"volcano.sh/gpu-memory": 32_768, "volcano.sh/gpu-number": 2}), "volcano", {},
     [("volcano.sh/gpu-memory", 1024, Fraction(1, 16_384))]),
    ("gpu-memory of nobody knows what", {"volcano.sh/gpu-memory": 1024}, PLAIN, "volcano", {},
     [("volcano.sh/gpu-memory", 1024, None)]),
    # NVIDIA/kubevirt-gpu-device-plugin README; NVIDIA Virtual GPU Software User Guide, Virtual GPU Types
    ("a card of a virtual machine", {"nvidia.com/GA102GL_A10": 1}, PLAIN, "", {},
     [("nvidia.com/GA102GL_A10", 1, Fraction(1))]),
    ("two Teslas", {"nvidia.com/TU104GL_TESLA_T4": 2}, PLAIN, "", {}, [("nvidia.com/TU104GL_TESLA_T4", 2, Fraction(1))]),
    ("an H100", {"nvidia.com/GH100_H100_SXM5_80GB": 1}, PLAIN, "", {},
     [("nvidia.com/GH100_H100_SXM5_80GB", 1, Fraction(1))]),
    ("a vGPU", {"nvidia.com/GRID_T4-2Q": 1}, PLAIN, "", {}, [("nvidia.com/GRID_T4-2Q", 1, Fraction(1, 8))]),
    ("a vGPU of an A10", {"nvidia.com/NVIDIA_A10-12Q": 1}, PLAIN, "", {},
     [("nvidia.com/NVIDIA_A10-12Q", 1, Fraction(1, 2))]),
    ("a vGPU of a slice", {"nvidia.com/NVIDIA_A100D-3-40C": 1}, PLAIN, "", {},
     [("nvidia.com/NVIDIA_A100D-3-40C", 1, Fraction(3, 7))]),
    ("a vGPU of an A30's slice", {"nvidia.com/NVIDIA_A30-2-12C": 1}, PLAIN, "", {},
     [("nvidia.com/NVIDIA_A30-2-12C", 1, Fraction(1, 2))]),
    ("a vGPU of a card that is not known", {"nvidia.com/GRID_Z9-2Q": 1}, PLAIN, "", {},
     [("nvidia.com/GRID_Z9-2Q", 1, None)]),
    # NVIDIA MIG user guide, supported GPUs and supported MIG profiles
    ("a slice of an RTX PRO 5000", {"nvidia.com/mig-1g.24gb": 1}, of_product("NVIDIA-RTX-PRO-5000-Blackwell"), "", {},
     [("nvidia.com/mig-1g.24gb", 1, Fraction(1, 2))]),
    ("all of it", {"nvidia.com/mig-2g.48gb": 1}, of_product("NVIDIA-RTX-PRO-5000-Blackwell"), "", {},
     [("nvidia.com/mig-2g.48gb", 1, Fraction(1))]),
    ("a slice of an RTX PRO 6000", {"nvidia.com/mig-1g.24gb": 1},
     of_product("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"), "", {}, [("nvidia.com/mig-1g.24gb", 1, Fraction(1, 4))]),
    ("a slice of an RTX PRO 4500", {"nvidia.com/mig-1g.16gb": 1}, of_product("NVIDIA-RTX-PRO-4500-Blackwell"), "", {},
     [("nvidia.com/mig-1g.16gb", 1, Fraction(1, 2))]),
    ("a slice of an H200", {"nvidia.com/mig-3g.71gb": 1}, of_product("NVIDIA-H200"), "", {},
     [("nvidia.com/mig-3g.71gb", 1, Fraction(3, 7))]),
    ("a slice of a B200", {"nvidia.com/mig-1g.23gb": 1}, of_product("NVIDIA-B200"), "", {},
     [("nvidia.com/mig-1g.23gb", 1, Fraction(1, 7))]),
    ("a slice of a B300", {"nvidia.com/mig-2g.67gb": 1}, of_product("NVIDIA-B300-SXM6-AC"), "", {},
     [("nvidia.com/mig-2g.67gb", 1, Fraction(2, 7))]),
    ("a profile of no card", {"nvidia.com/mig-1g.99gb": 1}, of_product("NVIDIA-H200"), "", {},
     [("nvidia.com/mig-1g.99gb", 1, None)]),
    ("a card that nobody knows", {"nvidia.com/mig-1g.24gb": 1}, of_product("NVIDIA-RTX-PRO-9000"), "", {},
     [("nvidia.com/mig-1g.24gb", 1, None)]),
    ("a single-strategy slice of an RTX PRO 5000", {"nvidia.com/gpu": 1},
     of_product("NVIDIA-RTX-PRO-5000-Blackwell-MIG-1g.24gb"), "", {}, [("nvidia.com/gpu", 1, Fraction(1, 2))]),
    ("a single-strategy slice that nobody knows", {"nvidia.com/gpu": 1},
     of_product("NVIDIA-RTX-PRO-9000-MIG-1g.24gb"), "", {}, [("nvidia.com/gpu", 1, None)]),
    # kai-scheduler/KAI-Scheduler docs/gpu-sharing; issue 1505, pull request 2052
    ("KAI, half", {}, PLAIN, "kai-scheduler", {"gpu-fraction": "0.5"}, [("kai.scheduler/gpu-share", 1, Fraction(1, 2))]),
    ("KAI, MiB", {}, OF_80_GIB, "kai-scheduler", {"gpu-memory": "4096"}, [("kai.scheduler/gpu-share", 1, Fraction(1, 20))]),
    ("KAI, NvFractions", {}, OF_80_GIB, "kai-scheduler", {"nvidia.com/container.c0.gpu-memory.request": "20Gi"},
     [("kai.scheduler/gpu-share", 1, Fraction(1, 4))]),
    ("KAI, only a limit", {}, OF_80_GIB, "kai-scheduler", {"nvidia.com/container.c0.gpu-memory.limit": "40Gi"},
     [("kai.scheduler/gpu-share", 1, Fraction(1, 2))]),
    ("KAI, two devices", {}, OF_80_GIB, "kai-scheduler",
     {"nvidia.com/container.c0.gpu-memory.request": "7680Mi", "gpu-fraction-num-devices": "2"},
     [("kai.scheduler/gpu-share", 2, Fraction(1, 10))]),
    ("Run:ai", {}, PLAIN, "runai-scheduler", {"gpu-fraction": "0.25"}, [("kai.scheduler/gpu-share", 1, Fraction(1, 4))]),
    ("KAI, a card and a left-over", {"nvidia.com/gpu": 1}, PLAIN, "kai-scheduler", {"gpu-fraction": "0.5"},
     [("nvidia.com/gpu", 1, Fraction(1))]),
    ("a left-over of KAI", {"nvidia.com/gpu": 1}, PLAIN, "default-scheduler", {"gpu-fraction": "0.5"},
     [("nvidia.com/gpu", 1, Fraction(1))]),
    ("nothing", {}, PLAIN, "default-scheduler", {"gpu-fraction": "0.5"}, []),
    # Project-HAMi/HAMi docs/develop/protocol.md
    ("HAMi", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}, NodeFacts({**H800, "nvidia.com/gpu.memory": "24000"}),
     "hami-scheduler", {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,0:;"}, [("nvidia.com/gpu", 1, Fraction(1, 8))]),
    ("HAMi's annotation on a pod of another", {"nvidia.com/gpu": 1}, OF_80_GIB, "default-scheduler",
     {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,0:;"}, [("nvidia.com/gpu", 1, Fraction(1))]),
    ("Volcano's annotation on a pod of another", {"volcano.sh/vgpu-number": 1}, OF_80_GIB, "default-scheduler",
     {"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,8192,0:"}, [("volcano.sh/vgpu-number", 1, None)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked", "node", "scheduler", "annotations", "expected"), CASES, ids=[c[0] for c in CASES])
def test_a_share_is_exact_or_told(
    name: str,
    asked: Asked | list[Asked],
    node: NodeFacts,
    scheduler: str,
    annotations: Mapping[str, str],
    expected: list[tuple[str, int, Fraction | None]],
) -> None:
    found = held(asked, node, scheduler=scheduler, annotations=annotations)
    assert [item[:2] for item in found] == [item[:2] for item in expected]
    for (_, units, fraction), (_, _, share) in zip(found, expected, strict=True):
        assert (fraction is None) is (share is None)
        if fraction is not None and share is not None:
            assert abs(Fraction(fraction) - share) * units < Fraction(1, 10**9)  # twelve decimals of a unit


@pytest.mark.parametrize(
    ("resource", "node", "units", "cards"),
    [
        (VCUDA, GPU_MANAGER, 800, 8), (QCORE, QGPU, 800, 8), (XCORE, CCE, 400, 4),
        ("koordinator.sh/gpu", KOORDINATOR, 800, 8), ("volcano.sh/gpu-number", PLAIN, 4, 4),
        ("nvidia.com/GRID_T4-8Q", PLAIN, 16, 8), ("nvidia.com/GRID_Z9-8Q", PLAIN, 16, None),
    ],
)  # fmt: skip
def test_capacity_of_shares_is_counted_in_cards(resource: str, node: NodeFacts, units: int, cards: int | None) -> None:
    assert devices_behind(resource, units, node) == cards
