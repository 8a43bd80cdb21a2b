"""Token records one by one: written exactly once, found by key, and listed as evidence of a line."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connection, transaction

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.scope import EpochFilter
from billing.usage.store.archived import IN_LEDGER, archived_among, sealed_among
from billing.usage.store.clickhouse import Servers, token_servers
from billing.usage.store.columns import Identities, Rows, TokenColumns, copied_deltas, copied_entries, dimension_ids
from billing.usage.store.details import details_named, details_write
from billing.usage.store.dimensions import TokenName, dimension_names, dimensions_put, timelines_hold
from billing.usage.store.sharded import (
    ShardedRecord,
    batches_now,
    identity_of,
    sharded_places,
    sharded_records,
    sharded_write,
)
from billing.usage.store.sharded_reads import lines_given, sharded_requests
from billing.usage.store.wire import bare_connection
from metering.intervals import Interval
from metering.record_checks import EARLIEST
from metering.token_keys import token_key
from pricing.contexts import Context, class_and_context, parse_context

FOLD_LOCK = 0x464F4C44
COUNTS = ", ".join(TOKEN_COUNTS)
COPY_ENTRIES = f"COPY token_entry (key, time, dimension, {COUNTS}, epoch, id, rest) FROM STDIN (FORMAT BINARY)"
COPY_DELTAS = f"COPY token_hour_delta (hour, dimension, epoch, requests, {COUNTS}) FROM STDIN (FORMAT BINARY)"
KNOWN_ROWS = "SELECT * FROM token_known(%s::uuid[])"
"""SQL of known rows; keys and times come as bytes, the cheapest form to read."""
RECORDS: Final = "token_event e JOIN token_dimension d ON d.id = e.dimension"
"""SQL of whole records, as they are shown and archived."""
_HEX: Final = "convert_from(decode({}, 'hex'), 'UTF8')"
_LINES: Final = lines_given({
    "key": "{}::uuid", "time": "timestamptz '2000-01-01 00:00Z' + {}::bigint * interval '1 microsecond'",
    "dimension": "{}::int", "epoch": "{}::int", **dict.fromkeys(TOKEN_COUNTS, "{}::bigint"), "id": _HEX, "rest": _HEX,
})  # fmt: skip
RECORDS_GIVEN: Final = f"""(
    SELECT r.key, r.time, r.dimension, r.epoch, CASE WHEN r.id <> '' THEN r.id ELSE token_id(r.key, d.source) END AS id,
           CASE WHEN r.rest <> '' THEN nullif(r.rest::jsonb -> 'attributes', 'null') END AS attributes, {COUNTS}
    FROM {_LINES} r JOIN token_dimension d ON d.id = r.dimension) e JOIN token_dimension d ON d.id = e.dimension"""
"""SQL of the same records from lines of ClickHouse (`sharded_lines`), passed as one text."""
Known = tuple[Any, ...]
"""Row of KNOWN_ROWS."""
BY_CLASS: Final[Mapping[str, str]] = {
    "input": "(t.input_tokens - t.cache_read_input_tokens - t.cache_creation_input_tokens)",
    "cache_read": "t.cache_read_input_tokens",
    "cache_creation": "t.cache_creation_input_tokens",
    "output": "t.output_tokens",
}
"""SQL of the tokens of each class in a request `t`."""


def rows_copy(
    columns: TokenColumns, rows: Rows, epoch: int, seen: Mapping[int, int], limits: Mapping[tuple[str, str], int]
) -> None:
    """Insert these rows, the deltas of their hours, and their details, in the caller's transaction.

    `seen`: the `batches_seen` before their keys were looked up; `limits`: of values of tags.  Raises IntegrityError if
    another writer inserted one of the keys meanwhile, and SerializationFailure if numbers of dimensions are not valid here.
    """
    ids = _dimension_ids(columns)
    _copy(COPY_DELTAS, copied_deltas(columns, rows, ids, epoch))
    if servers := token_servers():
        # a record restored meanwhile is in PostgreSQL, where the look-up in ClickHouse misses it
        if _known_here(columns.hex_keys(rows)):
            raise psycopg.errors.UniqueViolation("a record came back from its archive")
        sharded_write(servers, columns, rows, ids, epoch, seen)
    else:
        _copy(COPY_ENTRIES, copied_entries(columns, rows, ids, epoch))
    details_write(columns, rows, ids, epoch, limits)


def _dimension_ids(columns: TokenColumns) -> Identities:
    """Return the numbers of the dimensions of all rows, valid in the caller's transaction."""
    new = columns.new_dimensions()
    known = dimensions_put(new)
    timelines_hold(columns.timelines | ({known.timeline} if new else set()))
    return dimension_ids(columns, known.ids)


def _copy(statement: str, copied: bytes) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(copied)


def takes_few() -> bool:
    """Return True if `token_take` writes a few records in one statement: if PostgreSQL stores them."""
    return token_servers() is None


def entries_copy(columns: TokenColumns, epoch: int) -> None:
    """Restore records that left; the sums of their hours never left."""
    ids = _dimension_ids(columns)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('suanpan.records_return', 'on', true)")
    _copy(COPY_ENTRIES, copied_entries(columns, columns.first_rows(), ids, epoch))


def batches_seen() -> Mapping[int, int]:
    """Return the last batch of each shard, by which a writer detects later writes; empty for PostgreSQL."""
    servers = token_servers()
    return batches_now(servers) if servers else {}


def rows_known(keys: str) -> list[Known]:
    """Return the rows stored under these keys (hex, comma-separated)."""
    servers, found = token_servers(), _known_here(keys)
    return found if servers is None else found + _known_to(servers, list(map(bytes.fromhex, keys.split(","))))


def _known_here(keys: str) -> list[Known]:
    return psycopg.Cursor(bare_connection()).execute(KNOWN_ROWS, [f"{{{keys}}}"], prepare=True).fetchall()


def _known_to(servers: Servers, keys: Sequence[bytes]) -> list[Known]:
    return [
        (record.key, record.dimension, record.time.to_bytes(8, "big", signed=True), record.rest, *record.counts)
        for record in sharded_records(servers, keys)
    ]


def known_keys(keys: Sequence[bytes]) -> list[bytes]:
    """Return those of these token keys (`metering.token_keys`) that are stored or archived."""
    found = records_here(keys)
    if servers := token_servers():
        found |= sharded_places(servers, keys).keys()
    return [*found, *(sealed_among(keys)[1].keys() - found)]


def records_here(keys: Sequence[bytes]) -> set[bytes]:
    """Return those of these token keys that PostgreSQL has."""
    return {key for key, *_ in _known_here(",".join(key.hex() for key in keys))}


def record_stored(key: bytes) -> dict[str, Any] | None:
    """Return the fields of the record stored under this key (`metering.token_keys`), None without one."""
    found = _record_stored(key)
    return None if found is None else found | details_named([key]).get(key, {})


def _record_stored(key: bytes) -> dict[str, Any] | None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT e.id, d.source, e.time, d.consumer, d.model, e.input_tokens, e.cache_read_input_tokens,
                       e.cache_creation_input_tokens, e.output_tokens, e.reasoning_output_tokens, d.site, d.provider,
                       d.status, e.attributes
                FROM {RECORDS} WHERE e.key = %s""",
            [UUID(bytes=key)],
        )
        row = cursor.fetchone()
        if row:
            return dict(zip([column.name for column in cursor.description or ()], row, strict=True))
    if servers := token_servers():
        for record in sharded_records(servers, [key]):
            return _fields(record)
    if sealed := sealed_among([key])[1].get(key):
        from billing.usage.archive.reading import archived_record  # it imports readers of Parquet files

        return archived_record(key, EARLIEST + timedelta(microseconds=sealed.time))
    return None


def _fields(record: ShardedRecord) -> dict[str, Any]:
    source, consumer, model, site, provider, status = dimension_names([record.dimension])[record.dimension]
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [record.attributes])
        attributes = cursor.fetchone()[0]
    return {
        "id": identity_of(record, source), "source": source, "time": EARLIEST + timedelta(microseconds=record.time),
        "consumer": consumer, "model": model, **dict(zip(TOKEN_COUNTS, record.counts, strict=True)),
        "site": site, "provider": provider, "status": status, "attributes": attributes,
    }  # fmt: skip


def rollups_fold() -> int:
    """Move appended deltas into the roll-ups by hour and day; return their number. Only one process folds at a time."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [FOLD_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute("DELETE FROM token_hour_delta")  # its trigger adds the deleted rows to the roll-ups
        return cursor.rowcount


def requests_of(
    ranges: Sequence[tuple[str, Interval]], names: Sequence[TokenName], epochs: EpochFilter, priced: str, most: int
) -> list[dict[str, Any]]:
    """Return the first requests that used a priced class, by time, with details, and the sum and number of all.

    `ranges`: source with interval. The events of each range are read separately (OFFSET 0): a join would read the whole
    ledger.
    """
    token_class, context = class_and_context(priced)
    prompts, usage = parse_context(context) if context else Context(0, None), BY_CLASS[token_class]
    left = archived_among([window for _, window in ranges], epochs)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT t.time, t.id, d.source, d.status, {usage}::numeric AS usage,
                       sum({usage}) OVER ()::numeric AS usage_of_all, count(*) OVER () AS number
                FROM unnest(%(source)s::text[], %(lo)s::timestamptz[], %(hi)s::timestamptz[]) AS r (source, lo, hi)
                CROSS JOIN LATERAL (SELECT * FROM token_event t WHERE t.time >= r.lo AND t.time < r.hi
                                    AND t.dimension = ANY(%(dimensions)s){f" AND {IN_LEDGER}" if left else ""} OFFSET 0) t
                JOIN token_dimension d ON d.id = t.dimension AND d.source = r.source
                WHERE t.epoch >= %(first)s AND t.epoch < %(before)s AND {usage} > 0
                      AND t.input_tokens >= %(shortest)s AND (%(longest)s::bigint IS NULL OR t.input_tokens <= %(longest)s)
                ORDER BY t.time, d.source, t.id LIMIT %(most)s""",
            {
                "source": [source for source, _ in ranges], "lo": [time.start for _, time in ranges],
                "hi": [time.end for _, time in ranges], "dimensions": [name.number for name in names],
                "first": epochs.first, "before": epochs.before, "shortest": prompts.first, "longest": prompts.last,
                "most": most,
            },
        )  # fmt: skip
        columns = [column.name for column in cursor.description or ()]
        found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    parts = [found]
    if servers := token_servers():
        sources = {name.number: name.source for name in names}
        parts += sharded_requests(servers, ranges, sources, epochs, usage, (prompts.first, prompts.last), most)
    if not left:
        return _first_of(parts, most)
    from billing.usage.archive.reading import archived_requests  # it imports readers of Parquet files

    dimensions = dimension_names(name.number for name in names).values()
    parts += archived_requests(ranges, dimensions, epochs, usage, (prompts.first, prompts.last), most)
    return _first_of(parts, most)


def _first_of(parts: Sequence[list[dict[str, Any]]], most: int) -> list[dict[str, Any]]:
    """Merge lists of requests: return the first ones, with the sum and the number of the requests of all lists."""
    firsts = [part[0] for part in parts if part]
    of_all, number = sum((row["usage_of_all"] for row in firsts), Decimal(0)), sum(row["number"] for row in firsts)
    rows = sorted((row for part in parts for row in part), key=lambda row: (row["time"], row["source"], row["id"]))[:most]
    keys = [token_key(row["source"], row["id"]) for row in rows]
    details = details_named(keys)
    return [
        row | {"usage_of_all": of_all, "number": number} | details.get(key, {})
        for row, key in zip(rows, keys, strict=True)
    ]  # fmt: skip
