"""Allocations, samples of efficiency and capacity, reported as an agent does."""

from typing import Any

from tests.factories import allocation_record, ingest_capacity, ingest_sample

POLICY = {"name": "std", "valid_from": "2026-01-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
          "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95"}  # fmt: skip


def hold(number: int, start: str, end: str, **changed: Any) -> dict[str, Any]:
    return allocation_record(number, **{"started_at": start, "ended_at": end, "observed_until": end, **changed})


def sample(start: str, end: str, seconds: str, mfu: str, hfu: str, uid: str = "uid-1") -> None:
    ingest_sample(pod_uid=uid, start=start, end=end, gpu_seconds=seconds, mfu=mfu, hfu=hfu)


def capacity(units: int = 10, hours: int = 10, day: int = 10, node: str = "n1") -> None:
    ingest_capacity(
        cluster="hq-1", node=node, accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=units,
        **{"from": f"2026-10-{day:02d}T00:00:00Z", "until": f"2026-10-{day:02d}T{hours:02d}:00:00Z"},
    )  # fmt: skip
