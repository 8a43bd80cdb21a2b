"""Commands run in this process, and the files they read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.factories import SET_UP, token_record

GPU_ROW = {
    "cluster": "hq-1", "namespace": "nlp-train", "pod": "train-1", "pod_uid": "uid-1", "resource": "nvidia.com/gpu",
    "quantity": "8", "device_fraction": "1", "accelerator": "NVIDIA-H800", "node": "node-1", "queue": "q",
    "workload": "PyTorchJob/llm", "started_at": "2024-10-10T00:00:00Z", "ended_at": "2024-10-10T02:37:13Z",
}  # fmt: skip
TOKEN_ROW = {name: str(value) for name, value in token_record(time="2024-10-15T12:00:00+08:00").items()}
CAPACITY_ROW = {"cluster": "hq-1", "node": "n", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu",
                "quantity": "8", "from": "2024-10-01T00:00:00Z", "until": "2024-10-02T00:00:00Z"}  # fmt: skip
EFFICIENCY_ROW = {"cluster": "hq-1", "pod_uid": "uid-1", "start": "2024-10-10T00:00:00Z", "end": "2024-10-10T01:00:00Z",
                  "gpu_seconds": "28800", "mfu": "0.41", "hfu": "", "dtype": "bf16", "coverage": "0.99"}  # fmt: skip
ROWS = {"gpu": GPU_ROW, "tokens": TOKEN_ROW, "capacity": CAPACITY_ROW, "efficiency": EFFICIENCY_ROW}


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error."""
        assert self.status == 2, (self.status, self.out, self.err)
        assert self.err.startswith("error: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.removeprefix("error: ").rstrip("\n")


class Manage:
    """Runs a command in this process, on the database of the test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> Done:
        self.capsys.readouterr()
        status = 0
        try:
            call_command(*(str(argument) for argument in arguments))
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        return Done(status, *self.capsys.readouterr())


def since_2024(**changed: Any) -> dict[str, Any]:
    """The set-up of the factories from 2024 on: commands ask the clock, and 2024 is over."""
    sections: dict[str, Any] = json.loads(json.dumps(SET_UP).replace("2026-01-01", "2024-01-01"))
    sections["price_versions"][0]["valid_from"] = "2024-01-01T00:00:00+08:00"
    return {name: value for name, value in {**sections, **changed}.items() if value is not None}


THEN = {"started_at": "2024-10-10T00:00:00Z", "ended_at": "2024-10-10T02:37:13Z", "observed_until": None}


def file(directory: Path, content: str | bytes, name: str = "usage.csv") -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
