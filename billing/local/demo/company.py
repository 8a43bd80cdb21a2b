"""PURE: the made-up company of the demonstration: teams, clusters, gateways, models and prices."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoTeam:
    """Team with its training namespaces, how busy it is, its MFU in training, and its requests to models."""

    code: str
    name: str
    cost_center: str
    parent: str
    namespaces: tuple[str, ...] = ()
    training: int = 0
    mfu: tuple[float, float] | None = None
    requests: int = 0
    budget: str = ""


TEAMS = (
    DemoTeam("nlp", "NLP Research", "CC-210", "research", ("nlp-pretrain", "nlp-sft"), 10, (0.52, 0.57), 9, "220000.00"),
    DemoTeam("cv", "Computer Vision", "CC-220", "research", ("cv-train",), 6, (0.36, 0.44), 3, "130000.00"),
    DemoTeam("robotics", "Robotics", "CC-230", "research", ("robotics-sim",), 3, (0.22, 0.30), 1, "90000.00"),
    DemoTeam("speech", "Speech", "CC-240", "research", ("speech-asr",), 4, (0.31, 0.41), 4, "80000.00"),
    DemoTeam("multimodal", "Multimodal", "CC-250", "research", ("multimodal",), 7, (0.45, 0.50), 5, "150000.00"),
    DemoTeam("alignment", "Alignment", "CC-260", "research", ("alignment",), 3, (0.40, 0.48), 6, "70000.00"),
    DemoTeam("recsys", "推荐算法 Recommendation", "CC-310", "product", ("recsys-train",), 5, (0.08, 0.12), 7, "100000.00"),
    DemoTeam("search", "搜索 Search", "CC-320", "product", ("search-rank",), 3, (0.24, 0.33), 12, "60000.00"),
    DemoTeam("ads", "广告 Advertising", "CC-330", "product", ("ads-ctr",), 4, (0.13, 0.17), 8, "80000.00"),
    DemoTeam("risk", "风控 Risk Control", "CC-340", "product", ("risk-graph",), 2, None, 3, "40000.00"),
    DemoTeam("support", "智能客服 Customer Service", "CC-350", "product", (), 0, None, 20, "12000.00"),
    DemoTeam("edu", "培训 Training Centre", "CC-400", "", ("edu-course",), 1, None, 2, "20000.00"),
)
GROUPS = {"research": "Research", "product": "Product"}

MOVING_NAMESPACE, MOVES_FROM, MOVES_TO = "vision-lab", "cv", "robotics"
"""Namespace that changes owner at local midnight of the 16th."""

ORPHAN_NAMESPACE, ORPHAN_OWNER = "intern-sandbox", "edu"
"""Namespace without an owner at first: it blocks the close, and the demonstration shows the solution."""

MIG_RESOURCE, MIG_SLICES_PER_NODE = "nvidia.com/mig-1g.10gb", 56


@dataclass(frozen=True)
class Node:
    """Server: its devices of one accelerator, whole or in MIG slices."""

    name: str
    cluster: str
    accelerator: str
    resource: str
    quantity: int
    site: str


HQ, EDGES = "hq-1", ("edge-sh", "edge-gz")
NODES = (
    *(Node(f"h800-{i:02d}", HQ, "NVIDIA-H800", "nvidia.com/gpu", 8, "beijing") for i in range(1, 7)),
    *(Node(f"a800-{i:02d}", HQ, "NVIDIA-A800", "nvidia.com/gpu", 8, "beijing") for i in range(1, 4)),
    Node("a800-mig-01", HQ, "NVIDIA-A800", MIG_RESOURCE, MIG_SLICES_PER_NODE, "beijing"),
    *(Node(f"l20-{edge[-2:]}-{i}", edge, "NVIDIA-L20", "nvidia.com/gpu", 4, edge[-2:]) for edge in EDGES for i in (1, 2)),
)
LAB = Node("lab-01", "lab-sz", "NVIDIA-L20", "nvidia.com/gpu", 8, "shenzhen")
LAB_OWNER, LAB_NAMESPACE = "robotics", "robotics-bench"
"""Owner of a small cluster of the running month, whose agent falls silent."""

UNOWNED_NAMESPACE = "hackathon"
"""Namespace without an owner in the running month: it waits for a claim."""

GATEWAYS = {"edge-sh": "litellm-edge-sh", "edge-gz": "litellm-edge-gz"}


@dataclass(frozen=True)
class DemoModel:
    """Served model: typical lengths, share of cached input and of reasoning, and its share of requests."""

    name: str
    input_tokens: int
    output_tokens: int
    cached: float
    reasoning: float
    weight: int


MODELS = (
    DemoModel("qwen3-32b", 9000, 1600, 0.45, 0.30, 6),
    DemoModel("llama-3-8b", 4200, 800, 0.20, 0.0, 9),
    DemoModel("deepseek-v3", 14000, 2800, 0.55, 0.45, 3),
    DemoModel("bge-m3", 2400, 0, 0.0, 0.0, 4),
)

SPIKE_TEAM, SPIKE_MODEL, SPIKE_REQUESTS = "support", "deepseek-v3", 30_000
"""Job that requests in a loop: about seventy usual days of that team and model in one."""

BUDGETS_NOW = {"nlp": 60, "ads": 95, "support": 130}
"""Percent of its budget of the running month that each of these teams has spent."""

CARBON = {HQ: "CN-North", "edge-sh": "CN-East", "edge-gz": "CN-South", LAB.cluster: "CN-South"}
"""Regions of the grid, with official averages of 2023."""

COST_SHEETS: dict[str, dict[str, str]] = {
    "h800-hq": {
        "accelerator": "NVIDIA-H800", "currency": "CNY", "gpus_per_server": "8", "server_price": "400000",
        "gpu_price": "200000", "network_price_per_port": "20000", "ports_per_gpu": "1", "gpus_per_rack": "16",
        "cluster_gpus": "88", "markup": "0.10", "life_years": "5", "gpu_power_kw": "0.7",
        "server_other_power_kw": "4.6", "pue": "1.3", "electricity_price_per_kwh": "0.65",
        "rack_rent_per_month": "12000", "bandwidth_per_month": "2000", "labour_per_month": "50000",
        "software_per_month": "20000",
    },
    "a800-hq": {
        "accelerator": "NVIDIA-A800", "currency": "CNY", "gpus_per_server": "8", "server_price": "300000",
        "gpu_price": "110000", "network_price_per_port": "12000", "ports_per_gpu": "1", "gpus_per_rack": "16",
        "cluster_gpus": "88", "markup": "0.10", "life_years": "5", "gpu_power_kw": "0.4",
        "server_other_power_kw": "3.6", "pue": "1.3", "electricity_price_per_kwh": "0.65",
        "rack_rent_per_month": "10000", "bandwidth_per_month": "2000", "labour_per_month": "50000",
        "software_per_month": "20000",
    },
    "l20-edge": {
        "accelerator": "NVIDIA-L20", "currency": "CNY", "gpus_per_server": "4", "server_price": "90000",
        "gpu_price": "28000", "network_price_per_port": "2000", "ports_per_gpu": "1", "gpus_per_rack": "16",
        "cluster_gpus": "16", "markup": "0.10", "life_years": "4", "gpu_power_kw": "0.275",
        "server_other_power_kw": "0.9", "pue": "1.5", "electricity_price_per_kwh": "0.80",
        "rack_rent_per_month": "8000", "bandwidth_per_month": "4000", "labour_per_month": "8000",
        "software_per_month": "3000",
    },
}  # fmt: skip
"""Illustrative prices, not market facts."""

H800_FROM_16TH = {"electricity_price_per_kwh": "0.78"}
"""Tariff of the cold season: the mid-month price change."""
