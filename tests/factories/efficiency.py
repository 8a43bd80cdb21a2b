"""Jobs of measured efficiency, and the bands that judge them."""

from datetime import UTC, datetime
from typing import Any

from tests import factories

BANDS = {
    "name": "bands-v1", "valid_from": "2026-10-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
    "reward": "0.10",
}  # fmt: skip


def job(
    number: int, mfu: str, hfu: str, *, day: int = 10, minutes: int = 60, month: int = 10, **facts: Any
) -> None:  # fmt: skip
    """8 GPUs for so many minutes from 00:00 UTC of a day of October, measured all the time."""
    start = datetime(2026, month, day, tzinfo=UTC)
    end = start.replace(hour=minutes // 60, minute=minutes % 60)
    factories.ingest_allocations(
        factories.allocation_record(
            number, started_at=start.isoformat(), ended_at=end.isoformat(), observed_until=end.isoformat(),
            workload={"kind": "PyTorchJob", "name": f"job-{number}"}, **facts,
        )
    )  # fmt: skip
    measured(number, mfu, hfu, start, end, facts.get("quantity", 8))


def measured(number: int, mfu: str, hfu: str, start: datetime, end: datetime, gpus: int = 8) -> None:
    factories.ingest_sample(
        pod_uid=f"uid-{number}", start=start.isoformat(), end=end.isoformat(), mfu=mfu, hfu=hfu,
        gpu_seconds=str(gpus * int((end - start).total_seconds())), method="palm (torchtitan)", reason="look at it",
    )  # fmt: skip
