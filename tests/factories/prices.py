"""Price lists, cost sheets and load tests as people type them in."""

from datetime import UTC, datetime
from typing import Any

NOW = datetime(2026, 11, 3, 9, tzinfo=UTC)
DECEMBER = datetime(2026, 11, 30, 16, tzinfo=UTC)
LIST: dict[str, Any] = {
    "gpu": [
        {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12"},
        {"resource": "nvidia.com/mig-1g.10gb", "price_per_slice_hour": "2.0572"},
    ],
    "tokens": [{"model": "llama-3-8b", "input": "2.5", "cache_read": "0.25", "output": "10"}],
}
SHEET: dict[str, Any] = {
    "accelerator": "NVIDIA-H800", "currency": "CNY", "gpus_per_server": 8, "server_price": 400000, "gpu_price": 200000,
    "network_price_per_port": 20000, "ports_per_gpu": 1, "life_years": 5, "gpu_power_kw": "0.7",
    "server_other_power_kw": "4.6", "pue": "1.3", "electricity_price_per_kwh": "0.8", "rack_rent_per_month": 8000,
    "bandwidth_per_month": 6000, "gpus_per_rack": 16, "labour_per_month": 400000, "software_per_month": 300000,
    "cluster_gpus": 1024, "hours_per_month": 730, "markup": "0.2",
}  # fmt: skip
TOKEN_SHEET: dict[str, Any] = {
    "currency": "CNY", "gpu_hour_cost": "10", "markup": "0.20", "ttft_p99_ms": "1000", "tpot_p99_ms": "50",
    "method": "output-only",
    "report": {
        "accelerator": "NVIDIA-H800", "gpus": 1, "model": "llama-3-8b", "engine": "vllm 0.11", "precision": "fp8",
        "runs": [
            {"offered_rps": "10", "completed_rps": "10", "input_tps": "5500", "output_tps": "500", "ttft_p99_ms": "900",
             "tpot_p99_ms": "40", "error_rate": "0", "duration_s": "600"},
        ],
    },
}  # fmt: skip
