"""Efficiency samples: measured MFU and HFU, one per subject and interval."""

from datetime import datetime
from typing import Any

from billing.usage.contents import SAMPLE, content_sha256
from billing.usage.models import AcceptedRows
from billing.usage.services.one_by_one import OneByOne, Problem, after_now, other_cluster
from billing.usage.services.outcome import Meaning, Reporter
from metering.messages import Message
from metering.records import EfficiencySample

SUBJECT = ("cluster", "pod_uid", "workload", "start", '"end"')
OF_SUBJECT = f"""({', '.join(SUBJECT)}) = (%s, %s, %s, %s, %s) AND (workload_kind IN (%s, '') OR %s = '')"""
"""SQL of samples of one interval under one name: kinds distinguish two subjects only if both have one."""
CONTENT = ("gpu_seconds", "mfu", "hfu", "dtype", "method", "coverage", "reason")


def _key(record: EfficiencySample) -> tuple[Any, ...]:
    return (record.cluster, record.pod_uid or "", record.workload_name, record.start, record.end, record.workload_kind)


def _name(record: EfficiencySample) -> str:
    return f"{record.cluster}/{record.pod_uid or record.workload_name}/{record.start.isoformat()}"


def _store(cursor: Any, record: EfficiencySample, epoch: int) -> Meaning:
    key, content = _key(record), (
        record.gpu_seconds, record.mfu, record.hfu, record.dtype, record.method or "", record.coverage, record.reason or "",
    )  # fmt: skip
    cursor.execute(
        f"""INSERT INTO usage_efficiencysample ({', '.join(SAMPLE)}, content_sha256)
            SELECT n.*, {content_sha256(SAMPLE, 'n')}
            FROM (SELECT {', '.join(f'%s::{kind} AS {name}' for name, kind in SAMPLE.items())}) n
            WHERE NOT EXISTS (SELECT 1 FROM usage_efficiencysample WHERE {OF_SUBJECT})
            ON CONFLICT ({', '.join(SUBJECT)}, workload_kind) DO NOTHING RETURNING id""",
        [*key, *content, epoch, *key, record.workload_kind],
    )
    if cursor.fetchone() is not None:
        return Meaning.NEW
    cursor.execute(
        f"SELECT {', '.join(CONTENT)} FROM usage_efficiencysample WHERE {OF_SUBJECT}", [*key, record.workload_kind]
    )
    known = cursor.fetchall()  # without a kind, a name may match several
    return Meaning.DUPLICATE if content in known else Meaning.CONFLICT


def sample_taken(key: str) -> Message:
    """Return the refusal of a record whose key is stored with other content."""
    return Message("sample %(key)s was reported before with other content; the first one stays", key=key)


def _problem(record: EfficiencySample, reporter: Reporter, now: datetime) -> Problem | None:
    return other_cluster(record, reporter, now) or after_now(record, reporter, now)


efficiency_ingest = OneByOne(_key, _name, _store, sample_taken, _problem, AcceptedRows.Kind.SAMPLE, in_epochs=True)
"""Ingest of samples: other values for the same interval and subject conflict. A name without a kind is every workload of
that name, also one that is reported with its kind at another time.
"""
