"""A desk for `python -m pricing`: a directory with input files, the command run on them, and what the files say."""

import json
from pathlib import Path
from typing import Any

import pytest

from pricing.__main__ import main

RUNS = [
    ("1", "1.0", "1000", "100", "120", "22", "0"), ("2", "2.0", "2000", "200", "160", "25", "0"),
    ("4", "4.0", "4000", "400", "260", "31", "0"), ("5", "5.0", "5000", "500", "410", "38", "0"),
    ("6", "5.99", "5990", "599", "640", "47", "0"), ("7", "6.1", "6100", "610", "480", "60", "0.02"),
]  # fmt: skip
FIELDS = ("offered_rps", "completed_rps", "input_tps", "output_tps", "ttft_p99_ms", "tpot_p99_ms", "error_rate")
ZERO = "0.000000000000"
SLA = ("--ttft-p99-ms", "500", "--tpot-p99-ms", "80")
POLICY = {
    "name": "bands-v1", "valid_from": "2026-10-01T00:00:00+08:00", "hfu_below": "0.20", "penalty": "0.20",
    "mfu_above": "0.50", "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95",
}  # fmt: skip
PLAN = {
    "active_params": "1e10", "tokens": "1e13", "accelerator": "NVIDIA-H100", "dtype": "bf16", "gpus": 256, "mfu": "0.43",
    "goodput": "0.90", "price_per_gpu_hour": "10",
    "overheads": {"experiments": "0.20", "evaluation": "0.05", "alignment": "0.15", "data": "0.05"},
    "contingency_ratio": "0.20", "gpu_power_kw": "1.275", "pue": "1.3", "carbon_kg_per_kwh": "0.5306",
}  # fmt: skip


class Desk:
    """A directory with input files, and the command run on them."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.capsys = capsys

    def file(self, name: str, content: Any) -> str:
        path = self.home / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def run(self, *arguments: str) -> tuple[int, str, list[str]]:
        try:
            status = main(arguments)
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        output = self.capsys.readouterr()
        return status, output.out, output.err.splitlines()

    def refused(self, *arguments: str) -> list[str]:
        """The complaints of a command that the input is wrong for: status 2, and nothing else is said."""
        status, out, err = self.run(*arguments)
        assert (status, out) == (2, "")
        return err

    def json(self, *arguments: str) -> Any:
        status, out, err = self.run(*arguments, "--json")
        assert (status, err) == (0, [])
        return json.loads(out)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def load_test(**changed: Any) -> dict[str, Any]:
    runs = [dict(zip(FIELDS, run, strict=True)) | {"cached_input_tps": "0", "duration_s": "600"} for run in RUNS]
    base = {"accelerator": "NVIDIA-H800", "gpus": 1, "model": "m", "engine": "vllm", "precision": "bf16", "runs": runs}
    return {**base, **changed}


GPU_HOUR = {
    "accelerator": "NVIDIA-H800", "currency": "CNY",
    "components": [
        {"name": "hardware", "cost_per_gpu_hour": "6.164383561644"},
        {"name": "power", "cost_per_gpu_hour": "1.326000000000"},
        {"name": "hosting", "cost_per_gpu_hour": "1.215277777778"},
        {"name": "operations", "cost_per_gpu_hour": "0.949435763889"},
    ],
    "cost_per_gpu_hour": "9.655097103311", "price_per_gpu_hour": "11.5861",
}  # fmt: skip


def costs(answer: Any) -> dict[str, str]:
    return {row["class"]: row["cost_per_1m"] for row in answer["classes"]}


def workload(identifier: str, **changed: Any) -> dict[str, Any]:
    base = {"id": identifier, "gpu_seconds": 72_000, "minutes": 60, "coverage": "1", "mfu": "0.30", "hfu": "0.40"}
    return {**base, **changed}
