"""Node capacity: what could have been sold."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection, transaction

from billing.usage.contents import CAPACITY, content_sha256
from billing.usage.models import AcceptedRows
from billing.usage.services.accepted import accepted_note
from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
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
    outcome = IngestOutcome()
    outcome.refusals += [Refusal(item.index, "", item.error.message, "invalid", item.raw) for item in rejected]
    fresh = 0
    with transaction.atomic(), connection.cursor() as cursor:
        for index, record, raw in sorted(records, key=lambda item: _key(item[1])):
            key = f"{record.cluster}/{record.node}/{record.resource}/{record.start.isoformat()}"
            if reporter.source and record.cluster != reporter.source:
                error = Message(
                    "cluster %(cluster)s: this token may report for %(own)s only",
                    cluster=repr(record.cluster), own=repr(reporter.source),
                )
                outcome.refusals.append(Refusal(index, key, error, "invalid", raw))
                continue
            known = None if _insert(cursor, record) else _lock(cursor, record)
            fresh += known is None
            if known is None:
                outcome.accepted += 1
            elif known[:3] != (record.accelerator, record.quantity, record.condition or ""):
                outcome.conflicts += 1
                outcome.refusals.append(Refusal(index, key, capacity_taken(key), "conflict", raw))
            elif record.until > known[3]:
                cursor.execute(
                    f"""UPDATE usage_nodecapacity c SET until = n.until,
                               content_sha256 = {content_sha256(CAPACITY, 'c', {'until': 'n.until'})}
                        FROM (SELECT %s::timestamptz AS until) n
                        WHERE cluster = %s AND node = %s AND resource = %s AND start = %s""",
                    [record.until, *_key(record)],
                )
                outcome.accepted += 1
            else:
                outcome.duplicates += 1
        accepted_note(cursor, AcceptedRows.Kind.CAPACITY, fresh)
        quarantine_add(reporter=reporter, refusals=outcome.refusals)
    return outcome


def _key(record: NodeCapacity) -> tuple[str, str, str, datetime]:
    return (record.cluster, record.node, record.resource, record.start)


def _insert(cursor: Any, record: NodeCapacity) -> bool:
    """Insert the report, waiting for whoever reports the same at this moment; False where it is known."""
    cursor.execute(
        f"""INSERT INTO usage_nodecapacity ({', '.join(CAPACITY)}, content_sha256)
           SELECT n.*, {content_sha256(CAPACITY, 'n')}
           FROM (SELECT {', '.join(f'%s::{kind} AS {name}' for name, kind in CAPACITY.items())}) n
           ON CONFLICT (cluster, node, resource, start) DO NOTHING RETURNING id""",
        [*msgspec.structs.astuple(record)[:7], record.condition or ""],
    )
    return cursor.fetchone() is not None


def _lock(cursor: Any, record: NodeCapacity) -> Any:
    cursor.execute(
        """SELECT accelerator, quantity, condition, until FROM usage_nodecapacity
           WHERE cluster = %s AND node = %s AND resource = %s AND start = %s FOR UPDATE""",
        list(_key(record)),
    )
    return cursor.fetchone()


def capacity_taken(key: str) -> Message:
    """What is said of a record whose key is taken by other content."""
    return Message("capacity %(key)s was reported before with other content; the first one stays", key=key)
