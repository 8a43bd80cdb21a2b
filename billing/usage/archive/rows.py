"""Ledger rows as Parquet files: the SQL, order and columns of each kind of usage.

Each row has `content`, the first 128 bits of SHA-256 over the text of its columns except the epoch: a record that is
reported again has the same hash. The database computes the hash from what it stores, and verification recomputes it from
the columns of the file: a row damaged on the way is found.
"""

import io
from binascii import unhexlify
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from django.db import connection
from psycopg import ClientCursor

from billing.runtime.parallel_reads import rows_read
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.store.clickhouse import token_servers
from billing.usage.store.details import DETAIL_RECORDS
from billing.usage.store.records import RECORDS, RECORDS_GIVEN
from billing.usage.store.sharded_reads import sharded_lines, sharded_number
from billing.usage.store.wire import bare_connection
from metering.intervals import Interval
from metering.record_checks import EARLIEST
from metering.records import DETAIL_COUNTS, DETAIL_TEXTS, TokenUsage

HASH_BYTES: Final = 16
ROWS_A_FILE: Final = 10_000_000
BLOCK: Final = 8 << 20
AT_ONCE: Final = 20_000
"""Records of ClickHouse that the database converts in one statement."""
SEPARATOR: Final = 31
"""Separator of hashed columns: no name may contain it, and JSON escapes it."""
TEXT, INTEGER, TIME = pa.string(), pa.int64(), pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class SealedKind:
    """Kind of usage: columns as (SQL, type) by name, SQL of its rows in a window as known before a close, their order."""

    columns: Mapping[str, tuple[str, pa.DataType]]
    rows: str
    order: str
    keyed: bool = False
    """True if each row has the 128-bit key of (source, id)."""

    @property
    def schema(self) -> pa.Schema:
        octets = [(name, pa.binary(HASH_BYTES)) for name in self.hashes]
        return pa.schema([*octets, *((name, kind) for name, (_, kind) in self.columns.items())])

    @property
    def hashes(self) -> tuple[str, ...]:
        return ("key", "content") if self.keyed else ("content",)

    def statement(self, source: str = "") -> str:
        """Return the COPY statement of the rows as CSV in schema order; hashes hexadecimal, times in microseconds.

        `source`: SQL to read in place of `rows`. Columns are computed once, below OFFSET 0, and sorted before they
        are hashed: an id costs most of a row.
        """
        columns = [*(["e.key"] if self.keyed else []), *(f'{sql} AS "{name}"' for name, (sql, _) in self.columns.items())]
        ordered = f"SELECT {', '.join(columns)} FROM {source or self.rows} ORDER BY {self.order} OFFSET 0"
        named = {name: f'"{name}"' for name in self.columns}
        key = ["encode(uuid_send(key), 'hex')"] if self.keyed else []
        values = [*key, f"encode({self._content(named)}, 'hex')", *self._values(named).values()]
        return f"COPY (SELECT {', '.join(values)} FROM ({ordered}) r) TO STDOUT (FORMAT csv)"

    def content(self) -> str:
        """Return the PostgreSQL expression of a row's hash."""
        return self._content({name: sql for name, (sql, _) in self.columns.items()})

    def _content(self, sql: Mapping[str, str]) -> str:
        values = self._values({name: value for name, value in sql.items() if name != "epoch"}).values()
        texts = ", ".join(f"coalesce(({value})::text, '')" for value in values)
        return f"substr(sha256(convert_to(concat_ws(chr({SEPARATOR}), {texts}), 'UTF8')), 1, {HASH_BYTES})"

    def _values(self, sql: Mapping[str, str]) -> dict[str, str]:
        return {name: _microseconds(value) if self.columns[name][1] == TIME else value for name, value in sql.items()}

    def content_again(self) -> str:
        """Return the DuckDB expression of the same hash for a row of a file, hexadecimal."""
        columns = [(name, kind) for name, (_, kind) in self.columns.items() if name != "epoch"]
        values = [f'epoch_us("{name}")' if kind == TIME else f'"{name}"' for name, kind in columns]
        texts = ", ".join(f"coalesce(CAST({value} AS VARCHAR), '')" for value in values)
        return f"left(sha256(concat_ws(chr({SEPARATOR}), {texts})), {2 * HASH_BYTES})"


def _microseconds(sql: str) -> str:
    return f"(extract(epoch FROM {sql}) * 1000000)::bigint"


def _of(alias: str, names: str, kind: pa.DataType = TEXT) -> dict[str, tuple[str, pa.DataType]]:
    return {name: (f"{alias}.{name}", kind) for name in names.split()}


FRACTION, RATIO, GPU_SECONDS = pa.decimal128(13, 12), pa.decimal128(21, 20), pa.decimal128(24, 6)
OVERLAP: Final = "{0}.start < %(end)s AND {0}.{1} > %(start)s"
KINDS: Final[Mapping[str, SealedKind]] = {
    "tokens": SealedKind(
        {**_of("e", "epoch", INTEGER), **_of("e", "id"), **_of("e", "time", TIME),
         **_of("d", "source consumer model site provider status"), **_of("e", " ".join(TOKEN_COUNTS), INTEGER),
         **_of("e", "attributes")},
        f"{RECORDS} WHERE e.time >= %(start)s AND e.time < %(end)s AND e.epoch < %(before)s",
        "e.key", keyed=True,
    ),
    "allocations": SealedKind(
        {**_of("a", "allocation_id"), **_of("s", "epoch", INTEGER), **_of("s", "start until", TIME),
         **_of("a", "cluster namespace pod pod_uid resource"), **_of("a", "quantity", INTEGER),
         **_of("a", "device_fraction", FRACTION),
         **_of("a", "accelerator node workload_kind workload_name queue site facts reconstructed_from"),
         **_of("a", "started_at", TIME)},
        "usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id"
        f" WHERE {OVERLAP.format('s', 'until')} AND s.epoch < %(before)s",
        "a.allocation_id, s.epoch",
    ),
    "ends": SealedKind(
        {**_of("a", "allocation_id"), **_of("e", "epoch", INTEGER), **_of("e", "ended_at", TIME), **_of("e", "end_reason")},
        "usage_allocationinterruption e JOIN usage_gpuallocation a ON a.id = e.allocation_id"
        " WHERE e.epoch < %(before)s AND (e.ended_at IS NULL OR e.ended_at > %(start)s) AND a.started_at < %(end)s",
        "a.allocation_id, e.epoch",
    ),
    "samples": SealedKind(
        {**_of("e", "epoch", INTEGER), **_of("e", "cluster pod_uid workload workload_kind"), **_of("e", "start", TIME),
         "end": ('e."end"', TIME), **_of("e", "gpu_seconds", GPU_SECONDS), **_of("e", "mfu hfu coverage", RATIO),
         **_of("e", "dtype method reason")},
        f"""usage_efficiencysample e WHERE {OVERLAP.format('e', '"end"')} AND e.epoch < %(before)s""",
        "e.id",
    ),
    "capacity": SealedKind(
        {**_of("c", "cluster node accelerator resource"), **_of("c", "quantity", INTEGER), **_of("c", "start until", TIME),
         **_of("c", "condition")},
        f"usage_nodecapacity c WHERE {OVERLAP.format('c', 'until')}",
        "c.cluster, c.node, c.resource, c.start",
    ),
    "details": SealedKind(
        {**_of("t", "epoch", INTEGER), "key": ("t.key::text", TEXT), **_of("t", "time", TIME),
         **_of("d", "source consumer model"), **_of("t", " ".join(TOKEN_COUNTS), INTEGER),
         **_of("t", " ".join(DETAIL_TEXTS)), **_of("t", " ".join(DETAIL_COUNTS), INTEGER),
         "tags": ("s.tags::text", TEXT)},
        f"{DETAIL_RECORDS} WHERE t.time >= %(start)s AND t.time < %(end)s AND t.epoch < %(before)s",
        "t.key",
    ),
}  # fmt: skip
"""Kinds of usage in a seal. Capacity has no epoch: a seal has it as known when the month was sealed."""


def record_contents(records: Sequence[tuple[TokenUsage, int]]) -> list[bytes]:
    """Return the hash of each record, given with its time in microseconds since 2000, as a seal computes it."""
    if not records:
        return []
    names = ("id", "source", "consumer", "model", "site", "provider", "status")
    columns = [[getattr(record, name) for record, _ in records] for name in names]
    counts = [[record.counts[place] for record, _ in records] for place in range(len(TOKEN_COUNTS))]
    attributes = [msgspec.json.encode(record.attributes).decode() if record.attributes else None for record, _ in records]
    times = [EARLIEST + timedelta(microseconds=time) for _, time in records]
    kinds = [*["text"] * len(names), "timestamptz", *["bigint"] * len(TOKEN_COUNTS), "text"]
    arrays = ", ".join(f"%s::{kind}[]" for kind in kinds)
    # by PostgreSQL: its text forms of jsonb and numbers are the ones that were sealed
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT {KINDS["tokens"].content()} FROM (
                    SELECT {", ".join([*names, "time", *TOKEN_COUNTS])}, attributes::jsonb AS attributes, n
                    FROM unnest({arrays}) WITH ORDINALITY AS r ({", ".join([*names, "time", *TOKEN_COUNTS])}, attributes, n)
                ) e, LATERAL (SELECT e.source, e.consumer, e.model, e.site, e.provider, e.status) d ORDER BY e.n""",
            [*columns, times, *counts, attributes],
        )
        return [bytes(row[0]) for row in cursor.fetchall()]


def asked(window: Interval, before: int) -> dict[str, Any]:
    """Return the SQL parameters of a kind's rows: a window, as known before a close."""
    return {"start": window.start, "end": window.end, "before": before}


def rows_in_ledger(kind: str, window: Interval, before: int) -> int:
    ((number,),) = rows_read(f"SELECT count(*) FROM {KINDS[kind].rows}", asked(window, before))
    servers = token_servers() if KINDS[kind].keyed else None
    return int(number) + (sharded_number(servers, window, before) if servers else 0)


@dataclass(frozen=True, slots=True)
class Part:
    """File of sorted rows of one kind."""

    kind: str
    path: Path
    rows: int


def parts(
    kind: str, window: Interval, before: int, folder: Path, advance: Callable[[int], None], rows: int = ROWS_A_FILE
) -> Iterator[Part]:
    """Yield files of about `rows` rows each; the caller may delete a file once yielded. Without rows there is no file."""
    found = KINDS[kind]
    batches, number = _batches(found, _lines(found, window, before)), 0
    batch = next(batches, None)
    while batch is not None:
        path, written = folder / f"{kind}-{number:05d}.parquet", 0
        with pq.ParquetWriter(path, found.schema, compression="zstd", use_dictionary=_repeating(found)) as writer:
            while batch is not None and written < rows:
                # batches are not cut: a file may exceed `rows` by less than one batch
                writer.write_batch(batch)
                written += batch.num_rows
                advance(batch.num_rows)
                batch = next(batches, None)
        yield Part(kind, path, written)
        number += 1


def _lines(kind: SealedKind, window: Interval, before: int) -> Iterator[bytes]:
    """Yield the rows as CSV: rows of PostgreSQL, then those of ClickHouse, formatted by PostgreSQL too.

    The caller's thread fetches the first row, a thread of pyarrow the others, over the same connection.
    """
    ledger, wrapped, servers = bare_connection(), connection.wrap_database_errors, token_servers() if kind.keyed else None
    lines = sharded_lines(servers, window, before) if servers else iter(())
    with wrapped, ClientCursor(ledger) as cursor, cursor.copy(kind.statement(), asked(window, before)) as copy:
        yield from map(bytes, copy)
    while some := "\n".join(islice(lines, AT_ONCE)):
        with wrapped, ClientCursor(ledger) as cursor, cursor.copy(kind.statement(RECORDS_GIVEN), [some]) as copy:
            yield from map(bytes, copy)


def _repeating(kind: SealedKind) -> list[str]:
    return [name for name, (_, type_) in kind.columns.items() if type_ == TEXT and name not in ("id", "allocation_id")]


def _batches(kind: SealedKind, rows: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    first = next(rows, b"")
    if not first:
        return
    types = {name: INTEGER if type_ == TIME else type_ for name, (_, type_) in kind.columns.items()}
    # COPY quotes an empty text and leaves NULL unquoted: only unquoted values are null
    reader = pyarrow.csv.open_csv(
        pa.PythonFile(_Rows(first, rows), mode="r"),
        pyarrow.csv.ReadOptions(column_names=kind.schema.names, block_size=BLOCK),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(kind.hashes, TEXT) | types, null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    for batch in reader:
        columns = [
            _octets(batch.column(name)) if name in kind.hashes else batch.column(name).cast(kind.schema.field(name).type)
            for name in kind.schema.names
        ]
        yield pa.record_batch(columns, schema=kind.schema)


def _octets(digits: pa.StringArray) -> pa.FixedSizeBinaryArray:
    _, offsets, text = digits.buffers()
    bounds = np.frombuffer(offsets, np.int32)[digits.offset : digits.offset + len(digits) + 1]
    octets = unhexlify(memoryview(text)[bounds[0] : bounds[-1]])
    return pa.Array.from_buffers(pa.binary(HASH_BYTES), len(digits), [None, pa.py_buffer(octets)])


class _Rows(io.RawIOBase):
    """Readable file of the rows that COPY sends."""

    def __init__(self, first: bytes, rows: Iterator[bytes]) -> None:
        self._pending, self._rows = bytearray(first), rows

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes; fewer only at the end."""
        for row in self._rows:
            self._pending += row
            if len(self._pending) >= size:
                break
        taken = bytes(self._pending[:size])
        del self._pending[:size]
        return taken
