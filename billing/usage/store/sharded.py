"""Token records in ClickHouse; PostgreSQL decides which of them count, in the transaction that adds their sums.

A record is in one shard by its key. One transaction at a time writes to a shard, under an advisory lock of PostgreSQL: it
checks that its keys are still new; notes its batch as open, on a separate connection; inserts the rows, acknowledged by a
majority of the replicas; and commits the sums of each hour together with the closing of the batch. A batch whose writer
died before that stays open, so its rows never count even if they arrive later, and the sender repeats its report.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import local
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from billing.runtime.parallel_reads import rows_read
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.store.clickhouse import SECONDS, Servers, StoreAwayError, literals
from billing.usage.store.columns import Identities, Numbers, Rows, TokenColumns, record_texts
from metering.token_keys import masked_id

SHARD_LOCK: Final = 0x53484152
AT_ONCE: Final = 4_000
"""Keys per statement."""
BEYOND: Final = 1_000_000
"""Batch numbers skipped after a restore: a writer from before may still be active."""
COUNTS: Final = ", ".join(TOKEN_COUNTS)
TABLES: Final = {
    "token_key": ("key FixedString(16), batch UInt64, time Int64", "key, batch", 256),
    "token_entry": (
        "time Int64, key FixedString(16), batch UInt64, dimension Int32, epoch Int32, "
        + ", ".join(f"{name} Int64" for name in TOKEN_COUNTS) + ", id String, rest String",
        "time, key, batch", 8192,
    ),
}  # fmt: skip
"""Tables of each shard: columns, sort order, index granularity. Keys give a record's time, which locates its row."""
STATE: Final = """SELECT s.number, s.batch, s.incarnation,
        coalesce((SELECT array_agg(o.batch || '-' || o.last ORDER BY o.batch) FROM token_open_batch o
                  WHERE o.shard = s.number AND o.batch <= s.batch), '{}')
    FROM token_shard s ORDER BY 1"""
INCARNATION: Final = """SELECT concat_ws('/', system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), d.oid,
        'token_shard'::regclass::oid)
    FROM pg_control_system(), pg_database d WHERE d.datname = current_database()"""
"""SQL of server, timeline, database and table identity: a promotion or a restore changes at least one of them."""
NEXT_BATCH: Final = """SELECT 1 + greatest(batch, (SELECT max(last) FROM token_open_batch WHERE shard = number))
    FROM token_shard WHERE number = %s"""
DURABLY: Final = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
_beside = local()


class Shard(NamedTuple):
    """State of a shard in the current transaction: the batches whose rows count."""

    number: int
    batch: int
    incarnation: str
    open: list[str]

    @property
    def counted(self) -> str:
        """Return the ClickHouse condition of rows that count."""
        ranges = [tuple(map(int, item.split("-"))) for item in self.open]
        single = [first for first, last in ranges if first == last]
        without = f" AND batch NOT IN ({literals(single)})" if single else ""
        without += "".join(f" AND NOT (batch >= {first} AND batch <= {last})" for first, last in ranges if first != last)
        return f"batch <= {self.batch}{without}"


def shards_state(servers: Servers) -> list[Shard]:
    found = [Shard(*row) for row in rows_read(STATE, {})]
    if len(found) != len(servers.shards):
        raise StoreAwayError(
            f"TOKEN_STORE names {len(servers.shards)} shards, the ledger has {len(found)}: `manage.py token_store` begins"
            " with them, and their number never changes"
        )
    return found


# What is written


def tables_make(servers: Servers) -> None:
    """Create the missing tables of every replica.  Raises StoreAwayError."""
    for number, replicas in enumerate(servers.shards):
        for replica in replicas:
            for statement in _tables(servers.database, number, replica):
                servers.run(number, statement, replica)


def shards_begin(number: int) -> bool:
    """Make ClickHouse store token records after this transaction, and PostgreSQL none; return True if that is new.

    `ingest_lock_exclusive` was called before.  Raises StoreAwayError if the number of shards differs from the stored one.
    """
    known = len(rows_read(STATE, {}))
    if known not in (0, number):
        raise StoreAwayError(f"TOKEN_STORE names {number} shards, the ledger has {known}: their number never changes")
    with connection.cursor() as cursor:
        for shard in range(number if not known else 0):
            cursor.execute("INSERT INTO token_shard (number, batch, incarnation) VALUES (%s, 0, '')", [shard])
    return not known


def replicas_state(servers: Servers) -> list[tuple[int, str, str]]:
    """Return (shard, replica, state): its number of records, open batches included, or the error of its request."""
    found = []
    for number, replicas in enumerate(servers.shards):
        for replica in replicas:
            asked = f"SELECT count() FROM {servers.database}.token_entry_{number}"
            try:
                state = f"{int(servers.run(number, asked, replica)):,} records"
            except StoreAwayError as error:
                state = str(error)
            found.append((number, replica, state))
    return found


def _tables(database: str, shard: int, replica: str) -> list[str]:
    return [f"CREATE DATABASE IF NOT EXISTS {database}"] + [
        f"CREATE TABLE IF NOT EXISTS {database}.{name}_{shard} ({columns}) ENGINE = "
        f"ReplicatedMergeTree('/suanpan/{database}/{name}_{shard}', '{replica}') ORDER BY ({order}) "
        f"SETTINGS index_granularity = {rows}"
        for name, (columns, order, rows) in TABLES.items()
    ]  # fmt: skip


def batches_now(servers: Servers) -> dict[int, int]:
    """Return the last batch of each shard: a later look-up of keys finds all records up to it."""
    return {shard.number: shard.batch for shard in shards_state(servers)}


def sharded_write(
    servers: Servers, columns: TokenColumns, rows: Rows, dimensions: Identities, epoch: int, seen: Mapping[int, int]
) -> None:
    """Insert these rows, which count once the caller's transaction is committed.

    `seen`: the last batch of each shard before their keys were looked up; if it has changed, keys are looked up again.
    Raises UniqueViolation if another writer inserted one of the keys meanwhile, StoreAwayError.
    """
    # shards in ascending order: two writers lock them in the same order
    place = shards_of(columns.keys[rows], len(servers.shards))
    parts = [(int(number), rows[place == number]) for number in np.unique(place)]
    with connection.cursor() as cursor:
        for number, _ in parts:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [SHARD_LOCK, number])
    _begin_anew(servers, [number for number, _ in parts])
    now = batches_now(servers)
    keys = [key for number, part in parts if now[number] != seen[number] for key in _octets(columns, part)]
    if keys and sharded_places(servers, keys):
        raise psycopg.errors.UniqueViolation("another writer brought one of the keys")
    batches = {number: _open(number) for number, _ in parts}
    inserts = [
        (number, name, made(columns, part, dimensions, batches[number], epoch))
        for number, part in parts for name, made in (("token_key", _key_rows), ("token_entry", _entry_rows))
    ]  # fmt: skip
    failures = [error for error in servers.each(lambda item: _insert(servers, *item), inserts) if error]
    if failures:
        # the batch stays open, and never counts, unless it is certain that no row was written
        if len(failures) == len(inserts) and all(error.nothing_written for error in failures):
            for number, batch in batches.items():
                _beside_run("DELETE FROM token_open_batch WHERE shard = %s AND batch = %s AND last = batch", [number, batch])
        raise failures[0]
    with connection.cursor() as cursor:
        for number, batch in batches.items():
            cursor.execute("DELETE FROM token_open_batch WHERE shard = %s AND batch = %s AND last = batch", [number, batch])
            cursor.execute("UPDATE token_shard SET batch = %s WHERE number = %s", [batch, number])


def _insert(servers: Servers, shard: int, table: str, rows: bytes) -> StoreAwayError | None:
    try:
        servers.insert(shard, f"INSERT INTO {servers.database}.{table}_{shard} FORMAT RowBinary", rows)
    except StoreAwayError as error:
        return error
    return None


def _open(shard: int) -> int:
    """Store the next batch of a shard as open, durably; the caller holds the lock of the shard."""
    batch = _next_batch(shard)
    _beside_run("INSERT INTO token_open_batch (shard, batch, last) VALUES (%s, %s, %s)", [shard, batch, batch])
    return batch


def _next_batch(shard: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(NEXT_BATCH, [shard])
        return int(cursor.fetchone()[0])


def _begin_anew(servers: Servers, numbers: Sequence[int]) -> None:
    """Exclude unknown rows of these shards after a restore or a promotion, and skip their batch numbers.

    The shards may then have rows that this database does not know; they never count.
    """
    with connection.cursor() as cursor:
        cursor.execute(INCARNATION)
        now = cursor.fetchone()[0]
        for shard in shards_state(servers):
            if shard.number in numbers and shard.incarnation != now:
                asked = f"SELECT max(batch) FROM {servers.database}.token_{{}}_{shard.number}"
                most = max(int(servers.rows(shard.number, asked.format(name))[0][0]) for name in ("key", "entry"))
                last = max(_next_batch(shard.number), most) + BEYOND
                cursor.execute(
                    "INSERT INTO token_open_batch (shard, batch, last) VALUES (%s, %s, %s)",
                    [shard.number, shard.batch + 1, last],
                )
                cursor.execute("UPDATE token_shard SET incarnation = %s WHERE number = %s", [now, shard.number])


class _Beside:
    """Connection that ends with its thread, and that a forked process does not share."""

    def __init__(self) -> None:
        self.own, self._process = connection.copy(), os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self._process and self.own.connection is not None:
            self.own.connection.close()


def _beside_run(statement: str, parameters: Sequence[Any]) -> None:
    """Execute a statement and commit at once, independent of the caller's transaction."""
    if not hasattr(_beside, "connection"):
        _beside.connection = _Beside()
    own: BaseDatabaseWrapper = _beside.connection.own
    own.close_if_unusable_or_obsolete()
    own.ensure_connection()
    with own.wrap_database_errors, own.connection.transaction():
        own.connection.execute(DURABLY)
        own.connection.execute(statement, parameters)


def beside_close() -> None:
    """Close this thread's separate connection."""
    _beside.__dict__.clear()


os.register_at_fork(after_in_child=lambda: _beside.__dict__.clear())  # connection of the forking thread


def shards_of(keys: Any, number: int) -> Numbers:
    """Return the shard of each key in (n, 16) bytes: by its second half: first halves of time-ordered ids are alike."""
    found: Numbers = (keys[:, 8:].copy().view(">u8").ravel().astype(np.uint64) % np.uint64(number)).astype(np.int64)
    return found


def _octets(columns: TokenColumns, rows: Rows) -> list[bytes]:
    found: list[bytes] = columns.keys[rows].view("V16").ravel().tolist()
    return found


def _key_rows(columns: TokenColumns, rows: Rows, dimensions: Identities, batch: int, epoch: int) -> bytes:
    table = np.zeros(len(rows), [("key", "V16"), ("batch", "<u8"), ("time", "<i8")])
    table["key"], table["batch"], table["time"] = columns.keys[rows].view("V16").ravel(), batch, columns.times[rows]
    return table.tobytes()


def _entry_rows(columns: TokenColumns, rows: Rows, dimensions: Identities, batch: int, epoch: int) -> bytes:
    counts = [(name, "<i8") for name in TOKEN_COUNTS]
    table = np.zeros(len(rows), [
        ("time", "<i8"), ("key", "V16"), ("batch", "<u8"), ("dimension", "<i4"), ("epoch", "<i4"), *counts, ("texts", "<u2"),
    ])  # fmt: skip
    table["time"], table["key"], table["batch"] = columns.times[rows], columns.keys[rows].view("V16").ravel(), batch
    table["dimension"], table["epoch"] = dimensions[rows], epoch
    for place, name in enumerate(TOKEN_COUNTS):
        table[name] = columns.counts[rows, place]
    more = np.flatnonzero(~columns.bare[rows])
    if not len(more):
        return table.tobytes()
    size, whole, parts, at = table.itemsize, table.tobytes(), [], 0
    for row, texts in zip(more.tolist(), record_texts(columns, rows[more], np.zeros(len(more), np.bool_)), strict=True):
        end = (row + 1) * size
        parts += [whole[at : end - 2], *(part for text in texts for part in (_length(len(text)), text))]
        at = end
    return b"".join([*parts, whole[at:]])


def _length(number: int) -> bytes:
    """Encode the length of a text for ClickHouse: 7 bits a byte, the lowest first."""
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


# What is found by its key


class _Place(NamedTuple):
    shard: int
    time: int
    batch: int


def sharded_places(servers: Servers, keys: Sequence[bytes]) -> dict[bytes, _Place]:
    """Return the places of the records of these keys that count."""
    by_shard: dict[int, list[bytes]] = {}
    for key in keys:
        by_shard.setdefault(int.from_bytes(key[8:], "big") % len(servers.shards), []).append(key)
    state = shards_state(servers)
    asked = [(state[number], part) for number, those in by_shard.items() for part in cut(sorted(those), AT_ONCE)]
    found: dict[bytes, _Place] = {}
    for (shard, _), rows in zip(asked, servers.each(lambda item: _key_asked(servers, *item), asked), strict=True):
        found |= {bytes.fromhex(key): _Place(shard.number, int(time), int(batch)) for key, time, batch in rows}
    return found


def _key_asked(servers: Servers, shard: Shard, keys: Sequence[bytes]) -> list[list[str]]:
    return servers.rows(shard.number, f"""SELECT hex(key), time, batch FROM {servers.database}.token_key_{shard.number}
        WHERE key IN ({key_literals(keys)}) AND {shard.counted}""", seconds=SECONDS)  # fmt: skip


def key_literals(keys: Iterable[bytes]) -> str:
    return ",".join("'" + "".join(f"\\x{octet:02x}" for octet in key) + "'" for key in keys)


def cut(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[at : at + most] for at in range(0, len(items), most))


class ShardedRecord(NamedTuple):
    """Stored record; `time` in microseconds since 2000, `rest` empty or JSON with attributes."""

    key: bytes
    time: int
    dimension: int
    epoch: int
    counts: tuple[int, ...]
    identity: str
    rest: str

    @property
    def attributes(self) -> str | None:
        """Return the attributes as JSON, None without any."""
        return self.rest.removeprefix(BEFORE_ATTRIBUTES)[:-1] if self.rest else None


BEFORE_ATTRIBUTES: Final = '{"attributes":'
RECORD: Final = f"hex(key), time, dimension, epoch, {COUNTS}, hex(id), hex(rest)"


def record_read(row: Sequence[str]) -> ShardedRecord:
    key, time, dimension, epoch, *counts, identity, rest = row
    return ShardedRecord(
        bytes.fromhex(key), int(time), int(dimension), int(epoch), tuple(map(int, counts)), bytes.fromhex(identity).decode(),
        bytes.fromhex(rest).decode(),
    )  # fmt: skip


def sharded_records(servers: Servers, keys: Sequence[bytes]) -> list[ShardedRecord]:
    by_shard: dict[int, list[tuple[int, bytes, int]]] = {}
    for key, place in sharded_places(servers, keys).items():
        by_shard.setdefault(place.shard, []).append((place.time, key, place.batch))
    asked = [(number, part) for number, those in by_shard.items() for part in cut(sorted(those), AT_ONCE)]
    found = servers.each(lambda item: _entries_asked(servers, *item), asked)
    records = [record_read(row) for rows in found for row in rows]
    if len(records) != sum(map(len, by_shard.values())):
        raise StoreAwayError("a record that has its key in ClickHouse is not there, or is there twice")
    return records


def _entries_asked(servers: Servers, shard: int, places: Sequence[tuple[int, bytes, int]]) -> list[list[str]]:
    times, keys, batches = (sorted(set(column)) for column in zip(*places, strict=True))
    return servers.rows(shard, f"""SELECT {RECORD} FROM {servers.database}.token_entry_{shard}
        WHERE time IN ({literals(times)}) AND key IN ({key_literals(keys)})
              AND batch IN ({literals(batches)})""", seconds=SECONDS)  # fmt: skip


def identity_of(record: ShardedRecord, source: str) -> str:
    """Return the id of a record, which is stored only if its key does not give it."""
    return record.identity or masked_id(source, record.key)
