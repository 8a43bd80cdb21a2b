"""Node capacity: devices that nodes offered."""

from datetime import datetime
from typing import Any, Final

import msgspec

from billing.usage.contents import CAPACITY, content_sha256
from billing.usage.models import AcceptedRows
from billing.usage.models import NodeCapacity as NodeCapacityRow
from billing.usage.services.one_by_one import OneByOne, Problem, after_now, other_cluster
from billing.usage.services.outcome import Meaning, Reporter
from metering.messages import Message
from metering.records import NodeCapacity

FILE: Final = "import_usage capacity"


def _key(record: NodeCapacity) -> tuple[str, str, str, datetime]:
    return (record.cluster, record.node, record.resource, record.start)


def _name(record: NodeCapacity) -> str:
    return f"{record.cluster}/{record.node}/{record.resource}/{record.start.isoformat()}"


def _store(cursor: Any, record: NodeCapacity, _: int) -> Meaning:
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


def _problem(record: NodeCapacity, reporter: Reporter, now: datetime) -> Problem | None:
    """Return the problem of a record, if any; an overlap with other content is refused only if a file reports it.

    Agents see a change seconds apart, and an agent that takes over reports from its own first sight on: their overlaps are
    normal.
    """
    problem = other_cluster(record, reporter, now) or after_now(record, reporter, now)
    return problem or (_contradiction(record) if reporter.door == FILE else None)


def _contradiction(record: NodeCapacity) -> Problem | None:
    """Return a conflict if a part of the time is known with other content, which sums would otherwise ignore silently."""
    others = NodeCapacityRow.objects.filter(
        cluster=record.cluster, node=record.node, resource=record.resource, start__lt=record.until, until__gt=record.start
    ).exclude(start=record.start).exclude(quantity=record.quantity, accelerator=record.accelerator)
    if (other := others.order_by("start").first()) is None:
        return None
    return Message(
        "capacity %(key)s overlaps %(n)s units of %(accelerator)s from %(start)s to %(until)s, which were reported before "
        "and stay",
        key=_name(record), n=other.quantity, accelerator=other.accelerator, start=other.start.isoformat(),
        until=other.until.isoformat(),
    ), "conflict"


def capacity_taken(key: str) -> Message:
    """Return the refusal of a record whose key is stored with other content."""
    return Message("capacity %(key)s was reported before with other content; the first one stays", key=key)


capacity_ingest = OneByOne(_key, _name, _store, capacity_taken, _problem, AcceptedRows.Kind.CAPACITY)
"""Ingest of capacity: a report of the same start with a later `until` extends, other content conflicts; a file's record
also conflicts with other content that it overlaps.
"""
