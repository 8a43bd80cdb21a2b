"""Token events: decoded, made unique, written with COPY, rolled up by the hour, in one transaction.

No ORM and no serializer on this path. A batch is sorted by key, so that two writers never deadlock on replays. Keys
go optimistically with COPY into `token_key`; only if one is known already is the batch repeated with ON CONFLICT.
"""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from django.db import OperationalError, connection, transaction
from psycopg.types.json import Jsonb

from billing.usage.epochs import epoch_enter
from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
from metering.records import Rejected, TokenUsage

DEADLOCK_RETRIES = 5
FOLD_LOCK = 0x464F4C44
COUNT_FIELDS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip

Indexed = tuple[int, TokenUsage, bytes]
Dimension = tuple[str, str, str, str | None, str | None, str | None]

_known_months: set[tuple[str, int, int]] = set()
_dimension_ids: dict[tuple[str, Dimension], int] = {}
_cache_lock = threading.Lock()
MAX_CACHED_DIMENSIONS = 100_000


def tokens_ingest(
    *, records: Sequence[Indexed], rejected: Iterable[Rejected] = (), reporter: Reporter, now: datetime
) -> IngestOutcome:
    """Take a batch of (index, record, raw bytes); returns once everything it says is durable."""
    outcome = IngestOutcome()
    outcome.refusals += [_invalid(item) for item in rejected]
    wanted: dict[bytes, tuple[int, Indexed]] = {}
    for item in records:
        refusal = _inadmissible(item, reporter, now)
        if refusal:
            outcome.refusals.append(refusal)
            continue
        key, content = item[1].key, item[1].content
        first = wanted.setdefault(key, (content, item))
        if first[1] is not item:
            _count_repeat(outcome, item, same=first[0] == content)
    for moment in {_month(record) for _, (_, record, _) in wanted.values()}:
        _ensure_month(*moment)
    for attempt in range(DEADLOCK_RETRIES):
        try:
            return _write(outcome, sorted(wanted.items()), reporter)
        except (psycopg.errors.DeadlockDetected, OperationalError) as error:
            deadlock = isinstance(error, psycopg.errors.DeadlockDetected) or isinstance(
                error.__cause__, psycopg.errors.DeadlockDetected
            )
            if not deadlock or attempt == DEADLOCK_RETRIES - 1:
                raise
    return outcome


def _write(before: IngestOutcome, wanted: list[tuple[bytes, tuple[int, Indexed]]], reporter: Reporter) -> IngestOutcome:
    """One transaction: keys, events, deltas, quarantine. Starts from a copy so that a retry counts afresh."""
    outcome = IngestOutcome(before.accepted, before.duplicates, before.conflicts, list(before.refusals))
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = epoch_enter()
        fresh = _claim_keys(cursor, wanted, outcome)
        if fresh:
            dimensions = _dimensions(cursor, {_dimension(record) for _, record, _ in fresh})
            _copy_events(cursor, fresh, dimensions, epoch)
            _copy_deltas(cursor, fresh, dimensions, epoch)
        quarantine_add(reporter=reporter, refusals=outcome.refusals)
    outcome.accepted += len(fresh)
    return outcome


def _claim_keys(
    cursor: Any, wanted: list[tuple[bytes, tuple[int, Indexed]]], outcome: IngestOutcome
) -> list[Indexed]:
    """Register keys; returns the records whose key is new and counts the others as duplicates or conflicts."""
    if not wanted:
        return []
    try:
        with transaction.atomic():
            with cursor.copy("COPY token_key (key, content) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["uuid", "int8"])
                for key, (content, _) in wanted:
                    copy.write_row((UUID(bytes=key), content))
            return [item for _, (_, item) in wanted]
    except psycopg.errors.UniqueViolation:
        return _claim_some_keys(cursor, wanted, outcome)


def _claim_some_keys(
    cursor: Any, wanted: list[tuple[bytes, tuple[int, Indexed]]], outcome: IngestOutcome
) -> list[Indexed]:
    keys = [UUID(bytes=key) for key, _ in wanted]
    cursor.execute(
        """INSERT INTO token_key (key, content) SELECT * FROM unnest(%s::uuid[], %s::bigint[])
           ON CONFLICT DO NOTHING RETURNING key""",
        [keys, [content for _, (content, _) in wanted]],
    )
    claimed = {key.bytes for (key,) in cursor.fetchall()}
    cursor.execute("SELECT key, content FROM token_key WHERE key = ANY(%s)", [keys])
    known = {key.bytes: content for key, content in cursor.fetchall()}
    fresh = []
    for key, (content, item) in wanted:
        if key in claimed:
            fresh.append(item)
        else:
            _count_repeat(outcome, item, same=known[key] == content)
    return fresh


def _count_repeat(outcome: IngestOutcome, item: Indexed, *, same: bool) -> None:
    index, record, raw = item
    if same:
        outcome.duplicates += 1
        return
    outcome.conflicts += 1
    error = f"id {record.id!r} of source {record.source!r} was reported before with other content; the first one stays"
    outcome.refusals.append(Refusal(index, f"{record.source}/{record.id}", error, "conflict", raw))


def _inadmissible(item: Indexed, reporter: Reporter, now: datetime) -> Refusal | None:
    index, record, raw = item
    key = f"{record.source}/{record.id}"
    if reporter.source and record.source != reporter.source:
        error = f"source {record.source!r}: this token may report for {reporter.source!r} only"
        return Refusal(index, key, error, "invalid", raw)
    if reporter.future_limit_s is not None and record.time > now + timedelta(seconds=reporter.future_limit_s):
        error = f"time {record.time.isoformat()} lies in the future; the clock of the ledger says {now.isoformat()}"
        return Refusal(index, key, error, "future", raw)
    return None


def _invalid(item: Rejected) -> Refusal:
    try:
        fields = msgspec.json.decode(item.raw)
        key = f"{fields['source']}/{fields['id']}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
        key = ""
    return Refusal(item.index, key[:500], str(item.error), "invalid", item.raw)


def _dimension(record: TokenUsage) -> Dimension:
    return (record.source, record.consumer, record.model, record.site, record.provider, record.status)


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


def _remember(database: str, found: dict[Dimension, int]) -> None:
    """Cache committed ids only: what a rolled back transaction interned does not exist."""
    with _cache_lock:
        if len(_dimension_ids) > MAX_CACHED_DIMENSIONS:
            _dimension_ids.clear()
        _dimension_ids.update({(database, dimension): number for dimension, number in found.items()})


def _digest(dimension: Dimension) -> bytes:
    return blake2b(msgspec.msgpack.encode(dimension), digest_size=16).digest()


def _copy_events(cursor: Any, fresh: list[Indexed], dimensions: dict[Dimension, int], epoch: int) -> None:
    columns = f"time, dimension, epoch, {', '.join(COUNT_FIELDS)}, id, attributes"
    with cursor.copy(f"COPY token_event ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["timestamptz", "int4", "int4", *["int8"] * len(COUNT_FIELDS), "text", "jsonb"])
        for _, record, _ in fresh:
            copy.write_row(
                (
                    record.time, dimensions[_dimension(record)], epoch, record.input_tokens,
                    record.cache_read_input_tokens, record.cache_creation_input_tokens, record.output_tokens,
                    record.reasoning_output_tokens, record.id,
                    Jsonb(record.attributes) if record.attributes else None,
                )
            )  # fmt: skip


def _copy_deltas(cursor: Any, fresh: list[Indexed], dimensions: dict[Dimension, int], epoch: int) -> None:
    sums: dict[tuple[datetime, int], list[int]] = {}
    for _, record, _ in fresh:
        hour = record.time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        row = sums.setdefault((hour, dimensions[_dimension(record)]), [0] * (1 + len(COUNT_FIELDS)))
        row[0] += 1
        row[1] += record.input_tokens
        row[2] += record.cache_read_input_tokens
        row[3] += record.cache_creation_input_tokens
        row[4] += record.output_tokens
        row[5] += record.reasoning_output_tokens
    columns = f"hour, dimension, epoch, requests, {', '.join(COUNT_FIELDS)}"
    with cursor.copy(f"COPY token_hour_delta ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["timestamptz", "int4", "int4", *["int8"] * (1 + len(COUNT_FIELDS))])
        for (hour, dimension), row in sums.items():
            copy.write_row((hour, dimension, epoch, *row))


def _month(record: TokenUsage) -> tuple[int, int]:
    moment = record.time.astimezone(UTC)
    return moment.year, moment.month


def _ensure_month(year: int, month: int) -> None:
    """Make the partition of a month, outside the ingest transaction so that its lock is short."""
    key = (connection.settings_dict["NAME"], year, month)
    if key in _known_months:
        return
    start = datetime(year, month, 1, tzinfo=UTC)
    end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    name = f"token_event_{year:04d}_{month:02d}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone()[0] is None:
            with transaction.atomic():
                cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [0x544B, year * 12 + month])
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF token_event "
                    f"FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
                )
    if not connection.in_atomic_block:
        with _cache_lock:
            _known_months.add(key)


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
