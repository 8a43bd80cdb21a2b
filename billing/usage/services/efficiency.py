"""Efficiency samples: measured MFU and HFU, one per subject and interval."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from billing.usage.epochs import epoch_enter
from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
from metering.records import EfficiencySample, Rejected

KEY = ("cluster", "pod_uid", "workload", "start", '"end"')
CONTENT = ("gpu_seconds", "mfu", "hfu", "dtype", "method", "coverage", "reason")


def efficiency_ingest(
    *,
    records: Sequence[tuple[int, EfficiencySample, bytes]],
    rejected: Iterable[Rejected] = (),
    reporter: Reporter,
    now: datetime,
) -> IngestOutcome:
    """Take a batch; the same interval of the same subject with other values conflicts."""
    outcome = IngestOutcome()
    outcome.refusals += [Refusal(item.index, "", str(item.error), "invalid", item.raw) for item in rejected]
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = epoch_enter()
        for index, record, raw in sorted(records, key=lambda item: _key(item[1])):
            subject = f"{record.cluster}/{record.pod_uid or record.workload_name}/{record.start.isoformat()}"
            if reporter.source and record.cluster != reporter.source:
                error = f"cluster {record.cluster!r}: this token may report for {reporter.source!r} only"
                outcome.refusals.append(Refusal(index, subject, error, "invalid", raw))
            elif _insert(cursor, record, epoch):
                outcome.accepted += 1
            elif _known(cursor, record) == _content(record):
                outcome.duplicates += 1
            else:
                outcome.conflicts += 1
                error = f"sample {subject} was reported before with other content; the first one stays"
                outcome.refusals.append(Refusal(index, subject, error, "conflict", raw))
        quarantine_add(reporter=reporter, refusals=outcome.refusals)
    return outcome


def _key(record: EfficiencySample) -> tuple[Any, ...]:
    return (record.cluster, record.pod_uid or "", record.workload_name, record.start, record.end)


def _content(record: EfficiencySample) -> tuple[Any, ...]:
    return (
        record.gpu_seconds, record.mfu, record.hfu, record.dtype, record.method or "", record.coverage, record.reason or "",
    )  # fmt: skip


def _insert(cursor: Any, record: EfficiencySample, epoch: int) -> bool:
    columns = ", ".join((*KEY, *CONTENT, "epoch"))
    marks = ", ".join(["%s"] * (len(KEY) + len(CONTENT) + 1))
    cursor.execute(
        f"""INSERT INTO usage_efficiencysample ({columns}) VALUES ({marks})
            ON CONFLICT ({', '.join(KEY)}) DO NOTHING RETURNING id""",
        [*_key(record), *_content(record), epoch],
    )
    return cursor.fetchone() is not None


def _known(cursor: Any, record: EfficiencySample) -> tuple[Any, ...]:
    cursor.execute(
        f"SELECT {', '.join(CONTENT)} FROM usage_efficiencysample WHERE ({', '.join(KEY)}) = (%s, %s, %s, %s, %s)",
        list(_key(record)),
    )
    return tuple(cursor.fetchone())
