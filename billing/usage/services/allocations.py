"""GPU allocations: the latest report of each hold, in pieces by what was known before and after each close.

`merge` is the whole rule of what a repeated report means; the rest is moving rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
from django.db import connection, transaction
from psycopg.types.json import Jsonb

from billing.usage.epochs import epoch_enter
from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
from metering.records import GpuAllocation, Rejected

Indexed = tuple[int, GpuAllocation, bytes]


class Meaning(Enum):
    """What a report means for what is already known."""

    UPDATE = "update"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger knows of an allocation.

    `frozen_until`: how far a close has billed it. `kept_until`: how far pieces of earlier epochs reach; what of them
    lies after `frozen_until` is in a month that is still open.
    """

    identity: int
    ended_at: datetime | None
    observed_until: datetime
    end_reason: str
    frozen_until: datetime | None = None
    kept_until: datetime | None = None
    row_id: int | None = None
    changed: bool = False


def merge(known: Known, report: GpuAllocation) -> tuple[Meaning, Known, str]:
    """What `report` means; the outcome does not depend on the order in which reports arrive.

    The end, once known, stays. While open, the furthest observation counts. An end may lie before the last
    observation (the pod had finished before it was seen to have), but never before time that a close has billed.
    """
    if report.identity != known.identity:
        return Meaning.CONFLICT, known, "was reported before with other content; the first one stays"
    if known.ended_at is not None:
        return _merge_into_ended(known, report)
    if report.ended_at is None:
        if report.known_until <= known.observed_until:
            return Meaning.DUPLICATE, known, ""
        return Meaning.UPDATE, replace(known, observed_until=report.known_until, changed=True), ""
    if known.frozen_until is not None and report.ended_at < known.frozen_until:
        return Meaning.CONFLICT, known, f"ended_at {report.ended_at.isoformat()} lies in time that a close has billed"
    ended = replace(
        known, ended_at=report.ended_at, observed_until=report.ended_at, end_reason=report.end_reason or "", changed=True
    )
    return Meaning.UPDATE, ended, ""


def _merge_into_ended(known: Known, report: GpuAllocation) -> tuple[Meaning, Known, str]:
    if known.ended_at is None:
        raise ValueError("not ended")
    if report.ended_at is None:
        return Meaning.DUPLICATE, known, ""
    if report.ended_at == known.ended_at and (report.end_reason or "") == known.end_reason:
        return Meaning.DUPLICATE, known, ""
    return Meaning.CONFLICT, known, f"ended_at was reported before as {known.ended_at.isoformat()}; the first one stays"


def allocations_ingest(
    *,
    records: Sequence[Indexed],
    rejected: Iterable[Rejected] = (),
    reporter: Reporter,
    now: datetime,
    from_file: bool = False,
) -> IngestOutcome:
    """Take a batch of (index, record, raw bytes); returns once everything it says is durable."""
    outcome = IngestOutcome()
    outcome.refusals += [_invalid(item) for item in rejected]
    admitted = []
    for item in records:
        refusal = _inadmissible(item, reporter, now)
        if refusal:
            outcome.refusals.append(refusal)
        else:
            admitted.append(item)
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = epoch_enter()
        repeated = _insert_new(cursor, admitted, epoch, outcome, from_file)
        _merge_known(cursor, repeated, epoch, outcome)
        quarantine_add(reporter=reporter, refusals=outcome.refusals)
    return outcome


def _insert_new(
    cursor: Any, admitted: list[Indexed], epoch: int, outcome: IngestOutcome, from_file: bool
) -> list[Indexed]:
    """Insert the first report of each unknown allocation; returns the other reports, which repeat known ones."""
    first: dict[str, Indexed] = {}
    for item in admitted:
        first.setdefault(item[1].allocation_id, item)
    if not first:
        return []
    rows = [_row(record, from_file) for _, (_, record, _) in sorted(first.items())]
    names = list(rows[0])
    cursor.execute(
        f"""INSERT INTO usage_gpuallocation ({', '.join(names)}, received_at)
            SELECT *, now() FROM unnest({', '.join(f'%s::{COLUMN_TYPES.get(name, "text")}[]' for name in names)})
            ON CONFLICT (allocation_id) DO NOTHING RETURNING allocation_id, id""",
        [[row[name] for row in rows] for name in names],
    )
    made = dict(cursor.fetchall())
    outcome.accepted += len(made)
    new = [(row_id, first[allocation_id][1]) for allocation_id, row_id in made.items()]
    _put_spans(
        cursor,
        [
            (row_id, epoch, record.started_at, record.known_until)
            for row_id, record in new
            if record.known_until > record.started_at
        ],
    )
    return [item for item in admitted if item[1].allocation_id not in made or first[item[1].allocation_id] is not item]


COLUMN_TYPES = {
    "identity": "bigint", "quantity": "int", "device_fraction": "numeric", "started_at": "timestamptz",
    "ended_at": "timestamptz", "observed_until": "timestamptz", "facts": "jsonb", "from_file": "bool",
}  # fmt: skip


def _row(record: GpuAllocation, from_file: bool) -> dict[str, Any]:
    facts = {
        name: msgspec.to_builtins(getattr(record, name))
        for name in ("scheduler", "workload", "labels", "priority_class", "pool")
        if getattr(record, name) is not None
    }
    return {
        "allocation_id": record.allocation_id, "identity": record.identity, "cluster": record.cluster,
        "namespace": record.namespace, "pod": record.pod, "pod_uid": record.pod_uid, "resource": record.resource,
        "quantity": record.quantity, "device_fraction": record.device_fraction, "accelerator": record.accelerator,
        "node": record.node, "started_at": record.started_at, "ended_at": record.ended_at,
        "observed_until": record.known_until, "end_reason": record.end_reason or "",
        "workload_kind": record.workload.kind if record.workload else "",
        "workload_name": record.workload.name if record.workload else "", "queue": record.queue or "",
        "site": record.site or "", "facts": Jsonb(facts), "from_file": from_file,
    }  # fmt: skip


def _merge_known(cursor: Any, admitted: list[Indexed], epoch: int, outcome: IngestOutcome) -> None:
    """Apply the remaining reports to what is known, in the order in which they came."""
    if not admitted:
        return
    before = _lock_known(cursor, sorted({record.allocation_id for _, record, _ in admitted}), epoch)
    after = dict(before)
    for index, record, raw in admitted:
        meaning, after[record.allocation_id], why = merge(after[record.allocation_id], record)
        if meaning is Meaning.UPDATE:
            outcome.accepted += 1
        elif meaning is Meaning.DUPLICATE:
            outcome.duplicates += 1
        else:
            outcome.conflicts += 1
            error = f"allocation_id {record.allocation_id!r} {why}"
            outcome.refusals.append(Refusal(index, record.allocation_id, error, "conflict", raw))
    _store(cursor, [state for state in after.values() if state.changed], epoch)


def _lock_known(cursor: Any, ids: list[str], epoch: int) -> dict[str, Known]:
    cursor.execute(
        """SELECT a.allocation_id, a.identity, a.ended_at, a.observed_until, a.end_reason, a.id,
                  (SELECT max(least(s.until, w."end")) FROM usage_allocationspan s
                   JOIN usage_closedwindow w ON s.start < w."end" AND s.until > w.start
                   WHERE s.allocation_id = a.id AND s.epoch < %(epoch)s),
                  (SELECT max(until) FROM usage_allocationspan s WHERE s.allocation_id = a.id AND s.epoch < %(epoch)s)
           FROM usage_gpuallocation a WHERE a.allocation_id = ANY(%(ids)s) ORDER BY a.allocation_id FOR UPDATE OF a""",
        {"epoch": epoch, "ids": ids},
    )
    return {
        name: Known(identity, ended_at, observed, reason, frozen, kept, row_id)
        for name, identity, ended_at, observed, reason, row_id, frozen, kept in cursor.fetchall()
    }


def _store(cursor: Any, changed: list[Known], epoch: int) -> None:
    if not changed:
        return
    changed = sorted(changed, key=lambda state: state.row_id or 0)
    cursor.execute(
        """UPDATE usage_gpuallocation a SET ended_at = n.ended_at, observed_until = n.observed_until,
                  end_reason = n.end_reason
           FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::text[])
                AS n (id, ended_at, observed_until, end_reason) WHERE a.id = n.id""",
        [
            [state.row_id for state in changed],
            [state.ended_at for state in changed],
            [state.observed_until for state in changed],
            [state.end_reason for state in changed],
        ],
    )
    cursor.execute("SELECT id, started_at FROM usage_gpuallocation WHERE id = ANY(%s)", [[s.row_id for s in changed]])
    started = dict(cursor.fetchall())
    spans = [(state.row_id, epoch, state.kept_until or started[state.row_id], state.observed_until) for state in changed]
    _put_spans(cursor, [span for span in spans if span[3] > span[2]])
    empty = [span[0] for span in spans if span[3] <= span[2]]
    if empty:
        cursor.execute("DELETE FROM usage_allocationspan WHERE epoch = %s AND allocation_id = ANY(%s)", [epoch, empty])
    _shorten(cursor, [state for state in changed if state.kept_until and state.observed_until < state.kept_until])


def _shorten(cursor: Any, ended_early: Sequence[Known]) -> None:
    """Cut pieces of earlier epochs where a hold ended before it was last seen: `merge` saw that no close billed that."""
    for state in ended_early:
        cursor.execute(
            "DELETE FROM usage_allocationspan WHERE allocation_id = %s AND start >= %s",
            [state.row_id, state.observed_until],
        )
        cursor.execute(
            "UPDATE usage_allocationspan SET until = %s WHERE allocation_id = %s AND until > %s",
            [state.observed_until, state.row_id, state.observed_until],
        )


def _put_spans(cursor: Any, spans: Sequence[tuple[int | None, int, datetime, datetime]]) -> None:
    """Write this epoch's piece of each hold: from what earlier epochs knew, or its start, to what is known now."""
    if not spans:
        return
    cursor.execute(
        """INSERT INTO usage_allocationspan (allocation_id, epoch, start, until)
           SELECT * FROM unnest(%s::bigint[], %s::int[], %s::timestamptz[], %s::timestamptz[])
           ON CONFLICT (allocation_id, epoch) DO UPDATE SET until = excluded.until""",
        [list(column) for column in zip(*spans, strict=True)],
    )


def _inadmissible(item: Indexed, reporter: Reporter, now: datetime) -> Refusal | None:
    index, record, raw = item
    if reporter.source and record.cluster != reporter.source:
        error = f"cluster {record.cluster!r}: this token may report for {reporter.source!r} only"
        return Refusal(index, record.allocation_id, error, "invalid", raw)
    latest = max(record.started_at, record.known_until)
    if reporter.future_limit_s is not None and latest > now + timedelta(seconds=reporter.future_limit_s):
        error = f"time {latest.isoformat()} lies in the future; the clock of the ledger says {now.isoformat()}"
        return Refusal(index, record.allocation_id, error, "future", raw)
    return None


def _invalid(item: Rejected) -> Refusal:
    try:
        key = str(msgspec.json.decode(item.raw)["allocation_id"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
        key = ""
    return Refusal(item.index, key[:500], str(item.error), "invalid", item.raw)
