"""Records reported straight to the services, and what they leave behind."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from billing.usage.queries import gpu_time
from billing.usage.scope import EpochFilter
from billing.usage.services import IngestOutcome, Reporter
from metering.intervals import Interval
from metering.records import decode_batch
from tests.factories import AFTER, SHANGHAI_OCTOBER

OCTOBER = Interval(*SHANGHAI_OCTOBER)
NOON = datetime(2026, 10, 15, 12, tzinfo=UTC)


def answer(outcome: IngestOutcome) -> tuple[int, int, int, int]:
    body: dict[str, Any] = outcome.answer()
    return body["accepted"], body["duplicates"], body["conflicts"], len(body["rejected"])


def rows(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


def reports(kind: type[Any], ingest: Callable[..., IngestOutcome], *records: dict[str, Any], **reporter: Any) -> Any:
    raws = [json.dumps(record).encode() for record in records]
    batch: Any = decode_batch(kind, raws)
    return ingest(
        records=[(index, record, raws[index]) for index, record in batch.records], rejected=batch.rejected,
        reporter=Reporter("tests", "door", **reporter), now=AFTER,
    )  # fmt: skip


def held_seconds() -> Decimal:
    return sum((item.device_us for item in gpu_time([OCTOBER], EpochFilter())), Decimal(0)) / 1_000_000


def capacity(**changed: Any) -> dict[str, Any]:
    return {
        "cluster": "hq-1", "node": "node-1", "accelerator": "NVIDIA-H800", "resource": "nvidia.com/gpu", "quantity": 8,
        "from": "2026-10-01T00:00:00Z", "until": "2026-10-02T00:00:00Z", **changed,
    }  # fmt: skip


def sample(**changed: Any) -> dict[str, Any]:
    return {
        "cluster": "hq-1", "pod_uid": "uid-1", "start": "2026-10-10T00:00:00Z", "end": "2026-10-10T01:00:00Z",
        "gpu_seconds": "28800", "mfu": "0.41", "hfu": None, "dtype": "bf16", "coverage": "0.99", **changed,
    }  # fmt: skip
