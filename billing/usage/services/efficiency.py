"""Efficiency samples: measured MFU and HFU, one per subject and interval."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from billing.usage.contents import SAMPLE, content_sha256
from billing.usage.epochs import ingest_lock_shared
from billing.usage.models import AcceptedRows
from billing.usage.services.accepted import accepted_note
from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
from metering.messages import Message
from metering.records import EfficiencySample, Rejected

SUBJECT = ("cluster", "pod_uid", "workload", "start", '"end"')
OF_SUBJECT = f"""({', '.join(SUBJECT)}) = (%s, %s, %s, %s, %s) AND (workload_kind IN (%s, '') OR %s = '')"""
"""Samples of one interval under one name: kinds tell two subjects apart only where both say theirs."""
CONTENT = ("gpu_seconds", "mfu", "hfu", "dtype", "method", "coverage", "reason")


def efficiency_ingest(
    *,
    records: Sequence[tuple[int, EfficiencySample, bytes]],
    rejected: Iterable[Rejected] = (),
    reporter: Reporter,
    now: datetime,
) -> IngestOutcome:
    """Take a batch; the same interval of the same subject with other values conflicts.

    A name without a kind is that of every workload called so, also of one that is told with its kind at another time.
    """
    outcome = IngestOutcome()
    outcome.refusals += [Refusal(item.index, "", item.error.message, "invalid", item.raw) for item in rejected]
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = ingest_lock_shared()
        for index, record, raw in sorted(records, key=lambda item: _key(item[1])):
            subject = f"{record.cluster}/{record.pod_uid or record.workload_name}/{record.start.isoformat()}"
            if reporter.source and record.cluster != reporter.source:
                error = Message(
                    "cluster %(cluster)s: this token may report for %(own)s only",
                    cluster=repr(record.cluster), own=repr(reporter.source),
                )
                outcome.refusals.append(Refusal(index, subject, error, "invalid", raw))
            elif _insert(cursor, record, epoch):
                outcome.accepted += 1
            elif _content(record) in _known(cursor, record):
                outcome.duplicates += 1
            else:
                outcome.conflicts += 1
                outcome.refusals.append(Refusal(index, subject, sample_taken(subject), "conflict", raw))
        accepted_note(cursor, AcceptedRows.Kind.SAMPLE, outcome.accepted)
        quarantine_add(reporter=reporter, refusals=outcome.refusals)
    return outcome


def _key(record: EfficiencySample) -> tuple[Any, ...]:
    return (record.cluster, record.pod_uid or "", record.workload_name, record.start, record.end, record.workload_kind)


def _content(record: EfficiencySample) -> tuple[Any, ...]:
    return (
        record.gpu_seconds, record.mfu, record.hfu, record.dtype, record.method or "", record.coverage, record.reason or "",
    )  # fmt: skip


def _insert(cursor: Any, record: EfficiencySample, epoch: int) -> bool:
    key = _key(record)
    cursor.execute(
        f"""INSERT INTO usage_efficiencysample ({', '.join(SAMPLE)}, content_sha256)
            SELECT n.*, {content_sha256(SAMPLE, 'n')}
            FROM (SELECT {', '.join(f'%s::{kind} AS {name}' for name, kind in SAMPLE.items())}) n
            WHERE NOT EXISTS (SELECT 1 FROM usage_efficiencysample WHERE {OF_SUBJECT})
            ON CONFLICT ({', '.join(SUBJECT)}, workload_kind) DO NOTHING RETURNING id""",
        [*key, *_content(record), epoch, *key, record.workload_kind],
    )
    return cursor.fetchone() is not None


def _known(cursor: Any, record: EfficiencySample) -> list[tuple[Any, ...]]:
    """What was told before of the subject; of a name without a kind there may be several."""
    cursor.execute(
        f"SELECT {', '.join(CONTENT)} FROM usage_efficiencysample WHERE {OF_SUBJECT}", [*_key(record), record.workload_kind]
    )
    return list(cursor.fetchall())


def sample_taken(key: str) -> Message:
    """What is said of a record whose key is taken by other content."""
    return Message("sample %(key)s was reported before with other content; the first one stays", key=key)
