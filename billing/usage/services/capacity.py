"""Node capacity: what could have been sold."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection, transaction

from billing.usage.contents import CAPACITY, content_sha256
from billing.usage.models import AcceptedRows
from billing.usage.services.one_by_one import ingest_one_by_one, other_cluster
from billing.usage.services.outcome import IngestOutcome, Meaning, Reporter
from metering.messages import Message
from metering.records import NodeCapacity, Rejected


def capacity_ingest(
    *,
    records: Sequence[tuple[int, NodeCapacity, bytes]],
    rejected: Iterable[Rejected] = (),
    reporter: Reporter,
    now: datetime,
) -> IngestOutcome:
    """Take a batch; a report of the same start with a later `until` extends, other content conflicts."""
    with transaction.atomic(), connection.cursor() as cursor:
        return ingest_one_by_one(
            cursor, records, rejected, reporter, key=_key, name=_name, store=_store, taken=capacity_taken,
            refuse=lambda record: other_cluster(reporter, record.cluster), kind=AcceptedRows.Kind.CAPACITY,
        )  # fmt: skip


def _key(record: NodeCapacity) -> tuple[str, str, str, datetime]:
    return (record.cluster, record.node, record.resource, record.start)


def _name(record: NodeCapacity) -> str:
    return f"{record.cluster}/{record.node}/{record.resource}/{record.start.isoformat()}"


def _store(cursor: Any, record: NodeCapacity) -> Meaning:
    cursor.execute(
        f"""INSERT INTO usage_nodecapacity ({', '.join(CAPACITY)}, content_sha256)
           SELECT n.*, {content_sha256(CAPACITY, 'n')}
           FROM (SELECT {', '.join(f'%s::{kind} AS {name}' for name, kind in CAPACITY.items())}) n
           ON CONFLICT (cluster, node, resource, start) DO NOTHING RETURNING id""",
        [*msgspec.structs.astuple(record)[:7], record.condition or ""],
    )
    if cursor.fetchone() is not None:
        return Meaning.NEW
    cursor.execute(
        """SELECT until, accelerator, quantity, condition FROM usage_nodecapacity
           WHERE cluster = %s AND node = %s AND resource = %s AND start = %s FOR UPDATE""",
        _key(record),
    )
    until, *content = cursor.fetchone()
    if content != [record.accelerator, record.quantity, record.condition or ""]:
        return Meaning.CONFLICT
    if record.until <= until:
        return Meaning.DUPLICATE
    cursor.execute(
        f"""UPDATE usage_nodecapacity c SET until = n.until,
                   content_sha256 = {content_sha256(CAPACITY, 'c', {'until': 'n.until'})}
            FROM (SELECT %s::timestamptz AS until) n
            WHERE cluster = %s AND node = %s AND resource = %s AND start = %s""",
        [record.until, *_key(record)],
    )
    return Meaning.UPDATE


def capacity_taken(key: str) -> Message:
    """The refusal of a record whose key is taken by other content."""
    return Message("capacity %(key)s was reported before with other content; the first one stays", key=key)
