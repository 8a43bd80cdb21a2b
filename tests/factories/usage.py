"""Allocations, samples of efficiency and capacity, reported as an agent does."""

import json
from typing import Any

from billing.usage.services import Reporter, capacity_ingest, efficiency_ingest
from metering.records import EfficiencySample, NodeCapacity, decode_batch
from tests.factories import allocation_record
from tests.factories.months import OCTOBER_OVER

POLICY = {"name": "std", "valid_from": "2026-01-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
          "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95"}  # fmt: skip


def hold(number: int, start: str, end: str, **changed: Any) -> dict[str, Any]:
    return allocation_record(number, **{"started_at": start, "ended_at": end, "observed_until": end, **changed})


def sample(start: str, end: str, seconds: str, mfu: str, hfu: str, uid: str = "uid-1") -> None:
    raw = json.dumps(
        {"cluster": "hq-1", "pod_uid": uid, "start": start, "end": end, "gpu_seconds": seconds, "mfu": mfu, "hfu": hfu,
         "dtype": "bf16", "coverage": "1"}
    ).encode()  # fmt: skip
    batch: Any = decode_batch(EfficiencySample, [raw])
    efficiency_ingest(
        records=[(0, batch.records[0][1], raw)], rejected=[], reporter=Reporter("tests", "usage/efficiency"),
        now=OCTOBER_OVER,
    )  # fmt: skip


def capacity(units: int = 10, hours: int = 10, day: int = 10, node: str = "n1") -> None:
    raw = json.dumps({
        "cluster": "hq-1", "node": node, "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": units,
        "from": f"2026-10-{day:02d}T00:00:00Z", "until": f"2026-10-{day:02d}T{hours:02d}:00:00Z",
    }).encode()  # fmt: skip
    batch: Any = decode_batch(NodeCapacity, [raw])
    capacity_ingest(records=[(0, batch.records[0][1], raw)], reporter=Reporter("tests", "usage/capacity"), now=OCTOBER_OVER)
