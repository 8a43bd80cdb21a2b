"""PURE: table of accelerator resources: the kind and share rule of each extended resource; the first matching row applies.

A row says what one unit of a name counts. Names of different kinds are never added up: `nvidia.com/gpumem` beside
`nvidia.com/gpu` describes the same slice twice, and a memory-sized unit is not a device.

Rows marked [M] rest on the vendor's naming as commonly seen; all others were read in the source that is named.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Kind of thing that one unit of a resource is."""

    DEVICE = "device"
    SLICE = "slice"  # a hardware partition with its own compute: MIG, vNPU, AMD partition, Neuron core
    SHARED = "shared"  # a unit of a device that several pods use at the same time
    MEMORY = "memory"  # modifier of a count name in the same container
    CORES = "cores"  # modifier likewise
    IGNORE = "ignore"  # not an accelerator, or a helper name that is no capacity
    UNKNOWN = "unknown"  # an extended resource that the table does not know: a person must look


COUNTED: Final = frozenset({Kind.DEVICE, Kind.SLICE, Kind.SHARED})


class ShareRule(StrEnum):
    """Source of the share of a device behind one unit."""

    WHOLE = "whole"
    NVIDIA = "nvidia"  # MIG profile of the name or of the product label, divided by the replicas label
    ASCEND_TEMPLATE = "ascend template"  # AI cores of the name
    ASCEND_CORES = "ascend cores"  # one AI core of the node's chip
    AMD_PARTITION = "amd partition"  # compute mode of the name
    AMD_NODE = "amd node"  # compute mode of the node label
    NEURON_CORES = "neuron cores"  # one core of the instance's chip
    NODE_RATIO = "node ratio"  # devices of the node / units of the node
    GRANT = "grant"  # only the scheduler's annotation on the pod
    KAI = "kai"  # KAI's annotations on the pod, as a share of a unit of nvidia.com/gpu
    PERCENT = "percent"  # the larger of cores (a hundred per card) and memory (the node states how much a card has)
    KOORDINATOR = "koordinator"  # likewise, over all resources that the pod requests of Koordinator
    VGPU = "vgpu"  # GB in the name, divided by GB of the card that the name states
    INTEL = "intel"  # devices that labels count / units of the node, which its plugin may share
    NONE = "none"  # nothing is counted


HAMI_SCHEDULERS: Final = frozenset({"hami-scheduler"})
VOLCANO_SCHEDULERS: Final = frozenset({"volcano"})
KAI_SCHEDULERS: Final = frozenset({"kai-scheduler", "runai-scheduler"})
"""Values of `schedulerName` of the pods that each scheduler places; the writer of a pod may write any annotation, and choose
its scheduler.
Source: Project-HAMi/HAMi charts/hami/values.yaml; volcano-sh/volcano cmd/scheduler/app/options;
kai-scheduler/KAI-Scheduler pkg/common/constants; NVIDIA Run:ai, Scheduler."""


@dataclass(frozen=True, slots=True)
class Row:
    r"""Row for the resource names that match `pattern` entirely.

    `grants`: annotations of a pod, any of which states what the scheduler gave; `register`: the annotation of a node that
    lists the devices that it shares; both may quote the name (`\1`). `cores`: the resource of which a card has
    `cores_per_card` units, where the node's capacity replaces a register; `memory`: the resource of its memory, in units
    of `memory_unit_mib`. `devices`: the resource that counts whole devices of the node (for NODE_RATIO). `schedulers`:
    names of the schedulers that write the grants; no other scheduler's pods are believed.
    """

    pattern: str
    vendor: str
    kind: Kind
    share: ShareRule = ShareRule.WHOLE
    grants: tuple[str, ...] = ()
    register: str = ""
    devices: str | None = None
    cores: str = ""
    cores_per_card: int = 100
    memory: str = ""
    memory_unit_mib: int = 1
    schedulers: frozenset[str] = HAMI_SCHEDULERS


def _modifiers(vendor: str, memory: str, cores: str) -> tuple[Row, Row]:
    return Row(memory, vendor, Kind.MEMORY, ShareRule.NONE), Row(cores, vendor, Kind.CORES, ShareRule.NONE)


ASCEND_CHIP: Final = r"Ascend(?:910(?:A|B[0-9]?|B4-1|C)|310P)"
KAI_SHARE: Final = "kai.scheduler/gpu-share"
"""Resource name under which a share by KAI is metered: its pods request it by annotations, not by a resource."""
KAI_RESERVATIONS: Final = frozenset({"kai-resource-reservation", "runai-reservation"})
"""Namespaces in which KAI's own pods keep the devices that other pods share.
Source: kai-scheduler/KAI-Scheduler pkg/binder/binding/resourcereservation."""


KOORDINATOR_SHARE: Final = "koordinator.sh/gpu-share"
"""Resource name under which a share by Koordinator is metered: several resources of a pod are parts of one share."""
KOORDINATOR_SCHEDULERS: Final = frozenset({"koord-scheduler"})
KOORDINATOR_GRANT: Final = "scheduling.koordinator.sh/device-allocated"
"""Annotation of a pod in which Koordinator writes the devices that it gave.  Source: koordinator-sh/koordinator
apis/extension/device_share.go, pkg/scheduler/plugins/deviceshare."""


def _percent(cores: str, memory: str, memory_unit_mib: int) -> tuple[Row, Row]:
    """Return rows for the cores and memory of one share; a pod may request either alone, and both are one share."""
    rows = (
        Row(re.escape(name), "nvidia", Kind.SHARED, ShareRule.PERCENT, cores=cores, memory=memory,
            memory_unit_mib=memory_unit_mib)
        for name in (cores, memory)
    )  # fmt: skip
    return next(rows), next(rows)


def _hami(*names: str) -> tuple[str, ...]:
    """Return HAMi's pod annotations, today's name first.  Source: Project-HAMi/HAMi pkg/device/*/ (SupportDevices)."""
    return tuple(f"hami.io/{name}-devices-allocated" for name in names)


ROWS: Final[tuple[Row, ...]] = (
    # NVIDIA: k8s-device-plugin README (sharing, renameByDefault, MIG); HAMi charts/hami/values.yaml
    Row(r"nvidia\.com/gpu", "nvidia", Kind.DEVICE, ShareRule.NVIDIA, _hami("vgpu"), "hami.io/node-nvidia-register"),
    Row(re.escape(KAI_SHARE), "nvidia", Kind.SHARED, ShareRule.KAI),
    Row(r"nvidia\.com/gpu\.shared", "nvidia", Kind.SHARED, ShareRule.NVIDIA),
    Row(r"nvidia\.com/mig-[1-7]g\.\d+gb(?:[.+-](?!shared)[a-z.+-]+?)?", "nvidia", Kind.SLICE, ShareRule.NVIDIA),
    Row(r"nvidia\.com/mig-[1-7]g\.\d+gb(?:[.+-][a-z.+-]+?)?\.shared", "nvidia", Kind.SHARED, ShareRule.NVIDIA),
    *_modifiers("nvidia", r"nvidia\.com/gpumem(?:-percentage)?", r"nvidia\.com/gpucores"),
    Row(r"nvidia\.com/priority", "nvidia", Kind.IGNORE, ShareRule.NONE),
    # Volcano's vGPU device plugin: volcano.sh pkg/scheduler/api/devices
    Row(r"volcano\.sh/vgpu-number", "nvidia", Kind.SHARED, ShareRule.GRANT, ("volcano.sh/vgpu-ids-new",),
        "volcano.sh/node-vgpu-register", schedulers=VOLCANO_SCHEDULERS),
    *_modifiers("nvidia", r"volcano\.sh/vgpu-memory(?:-percentage)?", r"volcano\.sh/vgpu-cores"),
    # Aliyun: gpushare-device-plugin const.go. gpu-mem is asked for alone, so here memory is the count
    Row(r"aliyun\.com/gpu-mem", "nvidia", Kind.SHARED, ShareRule.NODE_RATIO, devices="aliyun.com/gpu-count"),
    Row(r"aliyun\.com/gpu-count", "nvidia", Kind.IGNORE, ShareRule.NONE),
    Row(r"aliyun\.com/gpu-core\.percentage", "nvidia", Kind.CORES, ShareRule.NONE),  # [M]
    # Volcano's sharing of before vGPU: docs/user-guide/how_to_use_gpu_number.md, how_to_use_gpu_sharing.md
    Row(r"volcano\.sh/gpu-number", "nvidia", Kind.DEVICE),
    Row(r"volcano\.sh/gpu-memory", "nvidia", Kind.SHARED, ShareRule.NODE_RATIO, devices="volcano.sh/gpu-number"),
    # Huawei Cloud CCE: xGPU, GPU virtualization (cce_10_0644); Tencent: tkestack/gpu-manager README, TKE qGPU (457/65734)
    *_percent("volcano.sh/gpu-core.percentage", "volcano.sh/gpu-mem.128Mi", 128),
    *_percent("tencent.com/vcuda-core", "tencent.com/vcuda-memory", 256),
    *_percent("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory", 1024),
    # Koordinator: a hundred units of any of these are a card, but of memory, which is in bytes
    Row(re.escape(KOORDINATOR_SHARE), "koordinator", Kind.SHARED, ShareRule.KOORDINATOR),
    Row(r"koordinator\.sh/gpu", "koordinator", Kind.SHARED, ShareRule.KOORDINATOR, cores="koordinator.sh/gpu"),
    Row(r"koordinator\.sh/gpu(?:\.shared|-core)", "koordinator", Kind.CORES, ShareRule.NONE),
    Row(r"koordinator\.sh/gpu-memory(?:-ratio)?", "koordinator", Kind.MEMORY, ShareRule.NONE),
    # KubeVirt: NVIDIA/kubevirt-gpu-device-plugin; cards that are passed through, by the names of the PCI ids, and vGPU types
    Row(r"nvidia\.com/(?:G[A-Z]|TU|AD)\d{3}[A-Z]*_.+", "nvidia", Kind.DEVICE),
    Row(r"nvidia\.com/(?:GRID_|NVIDIA_).+-(?:\d+-)?\d+[ABCQ](?:ME)?", "nvidia", Kind.SLICE, ShareRule.VGPU),
    # AMD: ROCm/k8s-device-plugin docs/user-guide/configuration.md
    Row(r"amd\.com/gpu", "amd", Kind.DEVICE, ShareRule.AMD_NODE, _hami("amd"), "hami.io/node-amd-register"),
    *_modifiers("amd", r"amd\.com/gpumem", r"amd\.com/gpucores"),
    Row(r"amd\.com/(?:spx|dpx|tpx|qpx|cpx)_nps\d+", "amd", Kind.SLICE, ShareRule.AMD_PARTITION),
    # Huawei Ascend: mind-cluster default_name.go, constants.go; HAMi values.yaml for single chips and modifiers
    Row(r"huawei\.com/.+-(?:Unhealthy|NetworkUnhealthy|Recovering)", "huawei", Kind.IGNORE, ShareRule.NONE),
    Row(rf"huawei\.com/{ASCEND_CHIP}-memory", "huawei", Kind.MEMORY, ShareRule.NONE),
    Row(rf"huawei\.com/{ASCEND_CHIP}-core", "huawei", Kind.CORES, ShareRule.NONE),
    Row(r"huawei\.com/Ascend(?:910|310P)-\d+c(?:\.\d+cpu)?(?:\.\d+g)?(?:\.n?dvpp)?", "huawei", Kind.SLICE,
        ShareRule.ASCEND_TEMPLATE),
    Row(r"huawei\.com/npu", "huawei", Kind.DEVICE),
    Row(r"huawei\.com/(Ascend(?:910(?:A|B[0-9]?|B4-1|C)?|310P?))", "huawei", Kind.DEVICE, ShareRule.WHOLE, _hami(r"\1"),
        r"hami.io/node-register-\1", schedulers=HAMI_SCHEDULERS | VOLCANO_SCHEDULERS),
    Row(r"huawei\.com/npu-core", "huawei", Kind.SHARED, ShareRule.ASCEND_CORES),
    # Cambricon, Hygon, MetaX, Moore Threads, Enflame, Iluvatar, Kunlunxin, Biren, Vastai: HAMi values.yaml
    Row(r"cambricon\.com/vmlu", "cambricon", Kind.SHARED, ShareRule.GRANT, _hami("cambricon-mlu", "mlu"),
        cores="cambricon.com/mlu.smlu.vcore", memory="cambricon.com/mlu.smlu.vmemory", memory_unit_mib=256),
    *_modifiers("cambricon", r"cambricon\.com/mlu\d*\.smlu\.vmemory", r"cambricon\.com/mlu\d*\.smlu\.vcore"),
    Row(r"cambricon\.com/mlu(?:\d+)?", "cambricon", Kind.DEVICE),  # [M]
    Row(r"cambricon\.com/mlu(?:\d+)?\.(?:share|smlu)", "cambricon", Kind.SHARED, ShareRule.GRANT),  # [M]
    Row(r"hygon\.com/dcunum", "hygon", Kind.SHARED, ShareRule.GRANT, _hami("dcu"), "hami.io/node-dcu-register"),
    *_modifiers("hygon", r"hygon\.com/dcumem", r"hygon\.com/dcucores"),
    Row(r"hygon\.com/dcu", "hygon", Kind.DEVICE),  # [M]
    Row(r"metax-tech\.com/gpu", "metax", Kind.DEVICE),
    Row(r"metax-tech\.com/sgpu", "metax", Kind.SHARED, ShareRule.GRANT, _hami("metax-sgpu"),
        "metax-tech.com/node-gpu-devices"),
    *_modifiers("metax", r"metax-tech\.com/vmemory", r"metax-tech\.com/vcore"),
    Row(r"mthreads\.com/vgpu", "moore-threads", Kind.SHARED, ShareRule.GRANT, _hami("mthreads-vgpu"),
        cores="mthreads.com/sgpu-core", cores_per_card=16, memory="mthreads.com/sgpu-memory", memory_unit_mib=512),
    *_modifiers("moore-threads", r"mthreads\.com/sgpu-memory", r"mthreads\.com/sgpu-core"),
    Row(r"mthreads\.com/gpu", "moore-threads", Kind.DEVICE),  # [M]
    Row(r"enflame\.com/gcu", "enflame", Kind.DEVICE),
    Row(r"enflame\.com/drs-gcu", "enflame", Kind.SHARED, ShareRule.GRANT, _hami("enflame-vgpu"),
        "enflame.com/gcu-drs-capacity"),
    *_modifiers("enflame", r"enflame\.com/gcu-memory", r"enflame\.com/gcu-core"),
    Row(r"iluvatar\.ai/([A-Za-z0-9-]+)-vgpu", "iluvatar", Kind.SHARED, ShareRule.GRANT, _hami(r"\1"),
        r"hami.io/node-\1-register"),
    *_modifiers("iluvatar", r"iluvatar\.ai/[A-Za-z0-9-]+\.vMem", r"iluvatar\.ai/[A-Za-z0-9-]+\.vCore"),
    Row(r"iluvatar\.ai/gpu", "iluvatar", Kind.DEVICE),  # [M]
    Row(r"kunlunxin\.com/xpu", "kunlunxin", Kind.DEVICE),
    Row(r"kunlunxin\.com/vxpu", "kunlunxin", Kind.SHARED, ShareRule.GRANT, _hami("xpu"), "hami.io/node-register-xpu"),
    Row(r"kunlunxin\.com/vxpu-memory", "kunlunxin", Kind.MEMORY, ShareRule.NONE),
    Row(r"birentech\.com/gpu", "biren", Kind.DEVICE),
    Row(r"vastaitech\.com/va", "vastai", Kind.DEVICE),
    # AWS: a node offers both names for the same chips
    Row(r"aws\.amazon\.com/neuron(?:device)?", "aws", Kind.DEVICE),
    Row(r"aws\.amazon\.com/neuroncore", "aws", Kind.SLICE, ShareRule.NEURON_CORES),
    # Intel: intel-device-plugins-for-kubernetes cmd/gpu_plugin/README.md (-shared-dev-num), labels.md
    Row(r"gpu\.intel\.com/(?:i915|xe)", "intel", Kind.DEVICE, ShareRule.INTEL),
    Row(r"gpu\.intel\.com/(?:i915|xe)_monitoring", "intel", Kind.IGNORE, ShareRule.NONE),  # [M]
    Row(r"habana\.ai/gaudi", "habana", Kind.DEVICE),  # [M]
    Row(r"google\.com/tpu", "google", Kind.DEVICE),  # [M]
    # Extended resources that accelerator nodes commonly carry and that are none [M]
    Row(r"rdma/.+", "", Kind.IGNORE, ShareRule.NONE),
    Row(r"devices\.kubevirt\.io/.+", "", Kind.IGNORE, ShareRule.NONE),
    Row(r"vpc\.amazonaws\.com/.+", "", Kind.IGNORE, ShareRule.NONE),
    Row(r"k8s\.ks\.tencent\.com/.+", "", Kind.IGNORE, ShareRule.NONE),
    # Network cards and their functions, host devices, enclaves: Mellanox/network-operator (hostdev, SR-IOV), openshift
    # sriov-network-operator, k8snetworkplumbingwg/sriov-network-device-plugin, smarter-project/smarter-device-manager,
    # squat/generic-device-plugin, intel/intel-device-plugins-for-kubernetes (QAT, DSA, IAA, DLB, SGX), Koordinator, KubeVirt
    # network plugins, ROCm network operator, Aliyun Terway, Tencent TKE, GKE multi-networking
    *(Row(pattern, "", Kind.IGNORE, ShareRule.NONE) for pattern in (
        r"nvidia\.com/(?:hostdev|mlnx|sriov|rdma|roce|ib_|cx\d|bf\d|gdr).*", r"mellanox\.com/.+", r"openshift\.io/.+",
        r"smarter-devices/.+", r"squat\.ai/.+", r"koordinator\.sh/rdma",
        r"(?:intel\.com|broadcom\.com|k8s\.cni\.cncf\.io)/.*sriov.*", r"(?:qat|dsa|iaa|dlb|sgx|power)\.intel\.com/.+",
        r"[a-z-]+\.network\.kubevirt\.io/.+", r"amd\.com/(?:v?nic|ainic)", r"aliyun/.+",
        r"tke\.cloud\.tencent\.com/(?:eni-ip|direct-eni|sub-eni)", r"networking\.gke\.io\.networks/.+",
    )),
)  # fmt: skip

@dataclass(frozen=True, slots=True)
class MigCards:
    """Cards (a pattern of their product name), the compute slices that MIG cuts each into, and the profiles on offer."""

    product: str
    slices: int
    profiles: frozenset[str]


def _mig(product: str, slices: int, profiles: str) -> MigCards:
    return MigCards(f"(?i:(?:^|[^A-Za-z0-9])(?:{product})(?:$|[^A-Za-z0-9]))", slices, frozenset(profiles.split()))


MIG_CARDS: Final = (
    _mig("A30X?", 4, "1g.6gb 2g.12gb 4g.24gb"),
    _mig("RTX[- ]PRO[- ]6000", 4, "1g.24gb 2g.48gb 4g.96gb"),
    _mig("RTX[- ]PRO[- ]5000", 2, "1g.24gb 2g.48gb"),
    _mig("RTX[- ]PRO[- ]4500", 2, "1g.16gb 2g.32gb"),
    _mig("A[18]00[XD]?|[HG]?H[1820]{1,2}00[A-Z]*|H20|G?B[23]00|GH200", 7,
         "1g.5gb 1g.10gb 1g.12gb 1g.18gb 1g.20gb 1g.23gb 1g.24gb 1g.34gb 1g.35gb 1g.45gb 1g.47gb 1g.67gb"
         " 1g.70gb 2g.10gb 2g.20gb 2g.24gb 2g.35gb 2g.45gb 2g.47gb 2g.67gb 2g.70gb 3g.20gb 3g.40gb 3g.47gb"
         " 3g.48gb 3g.71gb 3g.72gb 3g.90gb 3g.95gb 3g.93gb 3g.135gb 3g.139gb 3g.140gb 4g.20gb 4g.40gb 4g.47gb"
         " 4g.48gb 4g.71gb 4g.72gb 4g.90gb 4g.93gb 4g.95gb 4g.135gb 4g.139gb 4g.140gb 7g.40gb 7g.80gb 7g.94gb"
         " 7g.96gb 7g.141gb 7g.144gb 7g.180gb 7g.186gb 7g.189gb 7g.269gb 7g.278gb 7g.279gb 7g.288gb"),
)  # fmt: skip
"""Cards that MIG cuts; a card or profile that is not listed is unknown.  Source: NVIDIA MIG user guide, supported GPUs and
MIG profiles."""

AMD_PARTITIONS: Final = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
"""Partitions per device by compute mode. MI300X in CPX shows 64 for 8 cards: ROCm/k8s-device-plugin."""
AMD_CPX_BY_PRODUCT: Final = {"MI300A": 6, "MI308X": 4}
"""Partitions in CPX mode of products with fewer than eight XCDs, since CPX is one partition per XCD [M]."""
AMD_PARTITIONABLE: Final = re.compile(r"MI3\d\d")
AMD_MOST_CARDS: Final = 8
"""Most partitionable cards in one machine.  Source: ROCm/k8s-device-plugin, issues 157 and 184: 64 units of 8 cards."""

ASCEND_CORES_OF_TEMPLATE: Final = {
    "310P": {1: 8, 2: 8, 4: 8},
    "910": {2: 30, 4: 30, 8: 30, 16: 30, 3: 24, 6: 24, 12: 24, 5: 20, 10: 20},
}
"""AI cores of a chip by family and by the cores of a template: 910A 30, 910B2 24, 910B3/B4 20, 310P 8.

Source: HAMi values.yaml (`vnpus: aiCore, templates`). No chip shares a template size with another of its family."""
ASCEND_CORES_OF_CHIP: Final = {"910B2": 24, "910B3": 20, "910B4": 20, "910A": 30, "310P": 8}

SAME_CHIPS: Final = (
    ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore"),
    ("nvidia.com/gpu", "volcano.sh/gpu-number", "volcano.sh/gpu-memory"),
    ("nvidia.com/gpu", "volcano.sh/gpu-core.percentage", "volcano.sh/gpu-mem.128Mi"),
    ("nvidia.com/gpu", "tencent.com/vcuda-core", "tencent.com/vcuda-memory"),
    ("nvidia.com/gpu", "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"),
    *((name, "koordinator.sh/gpu") for name in (
        "nvidia.com/gpu", "amd.com/gpu", "hygon.com/dcu", "huawei.com/npu-core", "huawei.com/npu", "cambricon.com/mlu",
        "metax-tech.com/gpu", "kunlunxin.com/xpu",
    )),
)  # fmt: skip
"""Groups of names under which a node offers the same chips at once; the first name that it offers is its capacity."""

NEURON_CHIPS: Final = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice")
NEURON_CORES_OF_INSTANCE: Final = {"inf1": 4, "inf2": 2, "trn1": 2, "trn1n": 2}
"""NeuronCores per chip, by instance family [M]. On Trn2 a core is one or two of eight, as the node is set up.
Source: AWS Neuron, Logical NeuronCore configuration."""

VGPU_CARD_GB: Final = {
    "M10": 8, "M60": 8, "P4": 8, "P40": 24, "P100": 16, "V100": 16, "V100X": 16, "V100L": 16, "V100D": 32, "V100DX": 32,
    "V100S": 32, "T4": 16, "RTX6000": 24, "RTX8000": 48, "A2": 16, "A10": 24, "A16": 16, "A30": 24, "A40": 48, "A100": 40,
    "A100X": 40, "A100D": 80, "A100DX": 80, "RTXA5000": 24, "RTXA6000": 48, "L4": 24, "L20": 48, "L40": 48, "L40S": 48,
    "H100": 80, "H100XM": 80,
}  # fmt: skip
"""GB of the card by the name in a vGPU type.  Source: NVIDIA Virtual GPU Software User Guide, Virtual GPU Types."""

PRODUCT_LABELS: Final[dict[str, tuple[str, ...]]] = {
    "nvidia": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name",
               "eks.amazonaws.com/instance-gpu-name"),
    "amd": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
    "huawei": ("node.kubernetes.io/npu.chip.name", "accelerator-type", "accelerator"),
    "google": ("cloud.google.com/gke-tpu-accelerator",),
    "intel": ("gpu.intel.com/product",),
    "koordinator": ("nvidia.com/gpu.product", "node.koordinator.sh/gpu-model", "amd.com/gpu.product-name",
                    "node.kubernetes.io/npu.chip.name"),
}  # fmt: skip
"""Node labels that name the product, best first. AKS' `kubernetes.azure.com/accelerator` names only the vendor."""
DISCOVERED: Final[dict[str, tuple[str, ...]]] = {
    "nvidia": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd": PRODUCT_LABELS["amd"],
    "huawei": PRODUCT_LABELS["huawei"],
    "koordinator": PRODUCT_LABELS["koordinator"],
}
"""Node labels of vendors' discovery; GPU feature discovery writes all its labels, sharing included, at once."""
FALLBACK_PRODUCT_LABEL: Final = "node.kubernetes.io/instance-type"

CARD_COUNT_LABELS: Final = ("karpenter.k8s.aws/instance-gpu-count", "eks.amazonaws.com/instance-gpu-count")
"""Labels in which a cloud states the NVIDIA cards of a node, independent of how the node shares them.
Source: karpenter.sh, well-known labels; Amazon EKS Auto Mode, supported labels."""
NO_MIG: Final = "none"
CARDS_OF_INSTANCE: Final = tuple((re.compile(pattern), cards, product) for pattern, cards, product in (
    # Microsoft Azure, sizes of virtual machines, GPU accelerated; those with a part of a card are left out
    (r"Standard_ND96(?:a|am)sr(?:_A100)?_v4", 8, "A100"), (r"Standard_ND96isr_H[12]00_v5", 8, "H100"),
    (r"Standard_NC24ads_A100_v4", 1, "A100"), (r"Standard_NC48ads_A100_v4", 2, "A100"),
    (r"Standard_NC96ads_A100_v4", 4, "A100"), (r"Standard_NC40ads_H100_v5", 1, "H100"),
    (r"Standard_NC80adis_H100_v5", 2, "H100"), (r"Standard_NC(?:4|8|16)as_T4_v3", 1, NO_MIG),
    (r"Standard_NC64as_T4_v3", 4, NO_MIG),
    (r"Standard_NC6s_v3", 1, NO_MIG), (r"Standard_NC12s_v3", 2, NO_MIG), (r"Standard_NC24r?s_v3", 4, NO_MIG),
    (r"Standard_ND40rs_v2", 8, NO_MIG), (r"Standard_NV36adm?s_A10_v5", 1, NO_MIG), (r"Standard_NV72ads_A10_v5", 2, NO_MIG),
    # Amazon EC2, instance types, accelerated computing
    (r"g(?:4dn|5|6|6e)\.(?:|2|4|8|16)xlarge", 1, NO_MIG), (r"g(?:4dn|5|6|6e)\.12xlarge", 4, NO_MIG),
    (r"g(?:5|6|6e)\.24xlarge", 4, NO_MIG), (r"g(?:5|6|6e)\.48xlarge", 8, NO_MIG), (r"g4dn\.metal", 8, NO_MIG),
    (r"p3\.2xlarge", 1, NO_MIG), (r"p3\.8xlarge", 4, NO_MIG), (r"p3(?:\.16|dn\.24)xlarge", 8, NO_MIG),
    (r"p4de?\.24xlarge", 8, "A100"), (r"p5(?:|e|en)\.48xlarge", 8, "H100"), (r"p5\.4xlarge", 1, "H100"),
    (r"p6-b200\.48xlarge", 8, "B200"),
))  # fmt: skip
"""Machine types, the NVIDIA cards of each, and a product name that selects their row in MIG_CARDS ("none": no MIG).
Source: Microsoft Learn, Azure virtual machine sizes; Amazon EC2 User Guide, accelerated computing instances."""

NODE_REGISTERS: Final = re.compile("|".join(re.escape(row.register).replace(r"\\1", ".+") for row in ROWS if row.register))
"""Pattern of annotations in which nodes list the devices that they share."""
POD_GRANTS: Final = re.compile("|".join(re.escape(name).replace(r"\\1", ".+") for row in ROWS for name in row.grants))
"""Pattern of annotations in which schedulers write on a pod which devices they gave to its containers."""

GKE_SHARING: Final = frozenset({"time-sharing", "mps"})
"""Values of `cloud.google.com/gke-gpu-sharing-strategy`.  Source: GKE, GPU sharing strategies."""

SHARING_OFF: Final = frozenset({
    "", "0", "1", "false", "no", "none", "off", "disabled", "all-disabled", "exclusive", "whole",
})  # fmt: skip
SHARING_WORDS: Final = re.compile(
    r"(?=.*(?:gpu|npu|mlu|dcu|gcu|xpu|accelerator|nvidia|mig|mps))"
    r".*/.*(?:shar|slic|partition|replica|fraction|vgpu|oversub|time-?slic|(?<![a-z])mig(?![a-z])|(?<![a-z])mps(?![a-z])).*"
)
"""Pattern of labels (in lower case) that seem to say how the devices of a node are shared."""
KNOWN_SHARING: Final = re.compile(
    r"nvidia\.com/.+\.(?:replicas|sharing-strategy)|nvidia\.com/(?:mig|mps)\.capable|nvidia\.com/mig\.(?:strategy|config.*)"
    r"|nvidia\.com/mig-.+|nvidia\.com/vgpu\.(?:present|host-driver.*)|nvidia\.com/gpu\.deploy\..+"
    r"|cloud\.google\.com/gke-(?:gpu-sharing-strategy|max-shared-clients-per-gpu|gpu-partition-size)"
    r"|amd\.com/(?:compute-memory-partition|.+-supported)|(?:beta\.)?amd\.com/gpu\.(?:compute|memory)-partitioning-supported"
)
"""Pattern of sharing labels that the rules read or that change no share."""
