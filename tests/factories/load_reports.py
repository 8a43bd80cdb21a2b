"""Load tests of one model at several lengths of prompts, and a report of a real tool."""

from decimal import Decimal
from pathlib import Path
from typing import Any


def run(length: int, input_tps: int, output_tps: int, **changed: Any) -> dict[str, Any]:
    """A sustainable run whose mean prompt has `length` tokens."""
    rate = format(Decimal(input_tps) / length, "f")
    return {
        "offered_rps": rate, "completed_rps": rate, "input_tps": input_tps, "output_tps": output_tps, "ttft_p99_ms": "900",
        "tpot_p99_ms": "40", "error_rate": "0", "duration_s": "600", **changed,
    }  # fmt: skip


def report(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"accelerator": "NVIDIA-H800", "gpus": 1, "model": "long", "engine": "v", "precision": "fp8", "runs": list(runs)}


THREE = report(run(1000, 6000, 500), run(2000, 5600, 400), run(8000, 4000, 250))
"""Method R with r = 4: 8000, 7200 and 5000 weighted tokens/s per GPU."""
REPORTS = Path(__file__).parents[1] / "load_reports"
REPORT = REPORTS / "locust_stats.csv"
