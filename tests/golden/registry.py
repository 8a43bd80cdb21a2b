"""The golden numbers of pricing and the register of the cases that compute them anew."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pricing.efficiency import EfficiencyPolicy
from pricing.tco import CostSheet, parse_cost_sheet

VECTORS = {v["id"]: v for v in json.loads((Path(__file__).parent / "pricing_vectors.json").read_text())["vectors"]}
Case = Callable[[dict[str, Any]], dict[str, object]]
CASES: dict[str, Case] = {}
ELSEWHERE = {"F08": "test_late_usage_vector.py"}
"""Vectors that need a period, a store or a clock, each with the module that has a test of its name."""

SHEET = {
    "accelerator": "NVIDIA-H800", "currency": "CNY", "gpus_per_server": "8", "server_price": "400000",
    "gpu_price": "200000", "network_price_per_port": "20000", "ports_per_gpu": "1", "gpus_per_rack": "16",
    "cluster_gpus": "1024", "markup": "0.20", "life_years": "5", "gpu_power_kw": "0.7",
    "server_other_power_kw": "4.6", "pue": "1.3", "electricity_price_per_kwh": "0.8", "rack_rent_per_month": "12000",
    "bandwidth_per_month": "2000", "labour_per_month": "500000", "software_per_month": "200000",
    "hours_per_month": "720",
}  # fmt: skip
BANDS = EfficiencyPolicy(
    "bands-v1", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.20"), Decimal("0.20"), Decimal("0.50"), Decimal("0.10")
)


def case(identifier: str) -> Callable[[Case], Case]:
    """Register the function that computes a vector."""

    def register(function: Case) -> Case:
        assert identifier not in CASES
        CASES[identifier] = function
        return function

    return register


def sheet(**changed: Any) -> CostSheet:
    """The sheet of the worked example, with changes."""
    return parse_cost_sheet({**SHEET, **changed})
