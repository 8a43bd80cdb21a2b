"""Token events: made unique, written with COPY, rolled up by the hour, in one transaction.

No ORM and no serializer on this path. Rows are sorted by key, so that two writers never deadlock on replays, and go
with COPY straight into the keyed table. Only if a key is known already is the transaction repeated, leaving out what
the ledger has; a process that met repeats lately looks for them first.
"""

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec
import psycopg
from django.db import IntegrityError, OperationalError, connection, transaction

from billing.usage.epochs import epoch_enter
from billing.usage.services.outcome import IngestOutcome, Reporter
from billing.usage.services.quarantine import quarantine_add
from billing.usage.services.token_batch import TokenBatch, repeated, token_batch
from billing.usage.services.token_group import GroupCommit
from billing.usage.services.token_rows import (
    COPY_HEADER,
    COPY_TRAILER,
    ENTRY_COLUMNS,
    HOUR_US,
    Cell,
    content_of_row,
    delta_row,
    entry_row,
    is_narrow,
    narrow_columns,
)
from metering.records import Dimension, Rejected, TokenUsage

ATTEMPTS = 20
ANOTHER_CAME_FIRST = (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected)
CONNECTION_STATES = ("08", "57P")
FOLD_LOCK = 0x464F4C44
WRITERS, GROUPED_RECORDS = 1, 5_000
LOOK_AHEAD = 50
SMALL = 200
COUNT_FIELDS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip
TAKE = f"SELECT token_take({', '.join(['%s'] * 8)}, %s::text[], %s::text[])"
KNOWN_ROWS = f"SELECT key, dimension, time, rest, {', '.join(COUNT_FIELDS)} FROM token_entry WHERE key = ANY(%s::uuid[])"

Indexed = tuple[int, TokenUsage, bytes]
Wanted = dict[bytes, tuple[int, Cell]]

_dimension_ids: dict[tuple[str, Dimension], int] = {}
_cache_lock = threading.Lock()
_look_first = 0
MAX_CACHED_DIMENSIONS = 100_000


def tokens_ingest(
    *, records: Sequence[Indexed], rejected: Iterable[Rejected] = (), reporter: Reporter, now: datetime
) -> IngestOutcome:
    """Take a batch of (index, record, raw bytes); returns once everything it says is durable."""
    raws = {index: raw for index, _, raw in records}
    return batch_ingest(
        token_batch(
            records=((index, record) for index, record, _ in records), rejected=rejected, raw_at=raws.__getitem__,
            reporter=reporter, now=now,
        )
    )  # fmt: skip


def batch_ingest(batch: TokenBatch) -> IngestOutcome:
    """Take a batch, in one transaction with others that come at the same time; returns once it is durable."""
    return _groups.submit(batch)


def _write_batches(batches: Sequence[TokenBatch]) -> list[IngestOutcome]:
    """All batches in one transaction, which is repeated when another writer came first."""
    global _look_first
    for attempt in range(ATTEMPTS):
        look = attempt > 0 or _look_first > 0
        try:
            outcomes, repeats = _write(batches, look_first=look)
        except (IntegrityError, OperationalError) as error:
            again = isinstance(error.__cause__, ANOTHER_CAME_FIRST) or (attempt == 0 and _connection_lost(error))
            if not again or attempt == ATTEMPTS - 1:
                raise
        else:
            _look_first = LOOK_AHEAD if repeats else max(_look_first - 1, 0)
            return outcomes
    raise AssertionError("unreachable")


def _connection_lost(error: Exception) -> bool:
    """Whether the connection was dead, as after a restart of the database; it is closed then, the next is a new one.

    Writing again is safe even if the transaction had been committed: its keys are known then.
    """
    cause = error.__cause__
    state = cause.sqlstate if isinstance(cause, psycopg.OperationalError) else "-"
    if connection.in_atomic_block or not (state is None or state.startswith(CONNECTION_STATES)):
        return False
    connection.close()
    return True


_groups = GroupCommit(_write_batches, writers=WRITERS, most=GROUPED_RECORDS)


def _write(batches: Sequence[TokenBatch], *, look_first: bool) -> tuple[list[IngestOutcome], bool]:
    """Everything of these batches; also says whether the ledger knew any of the keys before."""
    outcomes = [IngestOutcome(refusals=list(batch.refusals)) for batch in batches]
    wanted: Wanted = {}
    for number, batch in enumerate(batches):
        for cell in batch.cells:
            first = wanted.setdefault(cell.key, (number, cell))
            if first[1] is not cell:
                _count_repeat(outcomes[number], batch, cell, same=first[1].record.content == cell.record.content)
    count = len(wanted)
    with connection.wrap_database_errors:
        if count <= SMALL and is_narrow(cell for _, cell in wanted.values()):
            _take(wanted, batches, outcomes)
        else:
            _copy(wanted, batches, outcomes, look_first=look_first)
    for number, _ in wanted.values():
        outcomes[number].accepted += 1
    return outcomes, len(wanted) < count


def _take(wanted: Wanted, batches: Sequence[TokenBatch], outcomes: Sequence[IngestOutcome]) -> None:
    """In one statement, which is its own transaction. What is refused is kept in the next: both precede the answer."""
    with connection.cursor() as cursor:
        if wanted:
            cells = [cell for _, cell in wanted.values()]
            dimensions = _dimensions(cursor, {cell.dimension for cell in cells})
            cursor.execute(TAKE, narrow_columns(cells, [dimensions[cell.dimension] for cell in cells]))
            known = cursor.fetchone()[0]
            if known:
                _set_apart(cursor, [key.bytes for key in known], wanted, batches, outcomes)
    if any(outcome.refusals for outcome in outcomes):
        with transaction.atomic():
            epoch_enter()
            _keep_refused(batches, outcomes)


def _copy(
    wanted: Wanted, batches: Sequence[TokenBatch], outcomes: Sequence[IngestOutcome], *, look_first: bool
) -> None:
    """In one transaction: events, deltas, quarantine."""
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = epoch_enter()
        if look_first:
            _set_apart(cursor, list(wanted), wanted, batches, outcomes)
        dimensions = _dimensions(cursor, {cell.dimension for _, cell in wanted.values()})
        if wanted:
            _copy_rows(cursor, wanted, dimensions, epoch)
        _keep_refused(batches, outcomes)


def _keep_refused(batches: Sequence[TokenBatch], outcomes: Sequence[IngestOutcome]) -> None:
    for batch, outcome in zip(batches, outcomes, strict=True):
        quarantine_add(reporter=batch.reporter, refusals=outcome.refusals)


def _set_apart(
    cursor: Any, keys: Iterable[bytes], wanted: Wanted, batches: Sequence[TokenBatch], outcomes: Sequence[IngestOutcome]
) -> None:
    """Take out of `wanted` what the ledger has under these keys, counted as duplicate or conflict."""
    cursor.execute(KNOWN_ROWS, [f"{{{','.join([key.hex() for key in keys])}}}"])
    rows = cursor.fetchall()
    if not rows:
        return
    names = _dimension_names(cursor, {row[1] for row in rows})
    for key, dimension, *row in rows:
        number, cell = wanted.pop(key.bytes)
        content = cell.record.content
        stored = content_of_row(row, names[dimension], dated=content[0] is not None)
        _count_repeat(outcomes[number], batches[number], cell, same=stored == content)


def _count_repeat(outcome: IngestOutcome, batch: TokenBatch, cell: Cell, *, same: bool) -> None:
    if same:
        outcome.duplicates += 1
        return
    outcome.conflicts += 1
    outcome.refusals.append(repeated(cell, batch.raw_at(cell.index)))


def _copy_rows(cursor: Any, wanted: Wanted, dimensions: dict[Dimension, int], epoch: int) -> None:
    """The events in the order of their keys, and their sums by hour."""
    rows = [COPY_HEADER]
    sums: dict[tuple[int, int], list[int]] = {}
    for key in sorted(wanted):
        cell = wanted[key][1]
        dimension = dimensions[cell.dimension]
        rows.append(entry_row(cell, dimension, epoch))
        group = (cell.at // HOUR_US, dimension)
        total = sums.get(group)
        if total is None:
            sums[group] = [1, *cell.counts]
            continue
        first, second, third, fourth, fifth = cell.counts
        total[0] += 1
        total[1] += first
        total[2] += second
        total[3] += third
        total[4] += fourth
        total[5] += fifth
    rows.append(COPY_TRAILER)
    with cursor.copy(f"COPY token_entry ({ENTRY_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"".join(rows))
    deltas = [COPY_HEADER, *(delta_row(*group, epoch, total) for group, total in sums.items()), COPY_TRAILER]
    columns = f"hour, dimension, epoch, requests, {', '.join(COUNT_FIELDS)}"
    with cursor.copy(f"COPY token_hour_delta ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"".join(deltas))


def _dimensions(cursor: Any, wanted: set[Dimension]) -> dict[Dimension, int]:
    """Ids of dimensions, from the cache of this process or interned now."""
    database = connection.settings_dict["NAME"]
    found = {item: _dimension_ids[database, item] for item in wanted if (database, item) in _dimension_ids}
    missing = sorted((_digest(dimension), dimension) for dimension in wanted - found.keys())
    for digest, dimension in missing:
        cursor.execute(
            """INSERT INTO token_dimension (digest, source, consumer, model, site, provider, status)
               VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (digest) DO NOTHING""",
            [digest, *dimension],
        )
        cursor.execute("SELECT id FROM token_dimension WHERE digest = %s", [digest])
        found[dimension] = int(cursor.fetchone()[0])
    if missing:
        transaction.on_commit(lambda: _remember(database, found))
    return found


def _dimension_names(cursor: Any, wanted: set[int]) -> dict[int, Dimension]:
    cursor.execute(
        "SELECT id, source, consumer, model, site, provider, status FROM token_dimension WHERE id = ANY(%s)",
        [sorted(wanted)],
    )
    return {number: tuple(dimension) for number, *dimension in cursor.fetchall()}


def _remember(database: str, found: dict[Dimension, int]) -> None:
    """Cache committed ids only: what a rolled back transaction interned does not exist."""
    with _cache_lock:
        if len(_dimension_ids) > MAX_CACHED_DIMENSIONS:
            _dimension_ids.clear()
        _dimension_ids.update({(database, dimension): number for dimension, number in found.items()})


def _digest(dimension: Dimension) -> bytes:
    return blake2b(msgspec.msgpack.encode(dimension), digest_size=16).digest()


def rollups_fold() -> int:
    """Move what ingest appended into the hourly roll-up; returns how many deltas. One folder works at a time."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [FOLD_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        sums = ", ".join(f"sum({name})::bigint AS {name}" for name in ("requests", *COUNT_FIELDS))
        additions = ", ".join(f"{name} = token_hour.{name} + excluded.{name}" for name in ("requests", *COUNT_FIELDS))
        cursor.execute(
            f"""WITH moved AS (DELETE FROM token_hour_delta RETURNING *),
                     folded AS (SELECT hour, dimension, epoch, {sums} FROM moved GROUP BY hour, dimension, epoch),
                     kept AS (INSERT INTO token_hour SELECT * FROM folded
                              ON CONFLICT (hour, dimension, epoch) DO UPDATE SET {additions} RETURNING 1)
                SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM kept)"""
        )
        return int(cursor.fetchone()[0])
