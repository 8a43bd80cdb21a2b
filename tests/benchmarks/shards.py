"""ClickHouse as the store of token records: two shards on two servers of this machine, as `tests.clickhouse` has them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import psycopg
from django.conf import settings
from django.db import transaction

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store.clickhouse import Servers, token_servers
from billing.usage.store.columns import TokenColumns
from billing.usage.store.sharded import batches_now, sharded_write, shards_state
from tests.benchmarks.close import exported
from tests.benchmarks.processor import say
from tests.clickhouse.servers import replicas

AT_ONCE = 500_000
COLUMNS = {"key": "V16", "time": ">i8", "dimension": ">i4", **dict.fromkeys(TOKEN_COUNTS[:3], ">i4"),
           **dict.fromkeys(TOKEN_COUNTS[3:], ">i2")}  # fmt: skip
PAGES = 50_000
RECORDS = f"""COPY (SELECT {', '.join(COLUMNS)} FROM token_entry WHERE ctid >= '({{0}},0)' AND ctid < '({{1}},0)')
    TO '{{2}}' (FORMAT binary)"""
PAGES_OF_PARTS = "SELECT max(pg_relation_size(relid)) / 8192 FROM pg_partition_tree('token_entry')"
HEADER = 19
ROW = np.dtype([("fields", ">i2"), *(part for name, kind in COLUMNS.items()
                                     for part in ((f"{name} bytes", ">i4"), (name, kind)))])  # fmt: skip
"""A row as PostgreSQL copies it: each value behind its length."""


LINES = """SELECT hex(key), time, dimension, {counts} FROM {database}.token_entry_{number} WHERE {counted} FORMAT CSV"""
DIMENSIONS = "COPY token_dimension TO STDOUT (FORMAT csv, HEADER)"
RECORDS_OF_LINES = """COPY (SELECT 'r-' || key AS id, d.source, make_timestamptz(946684800000000 + us) AS time, d.consumer,
        d.model, {counts}
    FROM read_csv('{text}', header = false, columns = {columns}) e JOIN read_parquet('{names}') d ON d.id = e.dimension)
    TO '{made}' (FORMAT parquet)"""
KINDS = {"key": "VARCHAR", "us": "BIGINT", "dimension": "INTEGER", **dict.fromkeys(TOKEN_COUNTS, "BIGINT")}


@contextmanager
def clickhouse(folder: Path, *, replicated: bool = True) -> Iterator[Callable[[str], None]]:
    """Two servers, and what makes a new database of them the store of token records. Each has both shards, or one."""
    def begin(database: str) -> None:
        os.environ["TOKEN_STORE"] = settings.TOKEN_STORE = f"{address}/{database}"

    with replicas(folder, 2) as (one, two):
        address = f"clickhouse://{one.address};{two.address}"
        if replicated:
            address = f"clickhouse://{one.address},{two.address};{two.address},{one.address}"
        try:
            yield begin
        finally:
            os.environ["TOKEN_STORE"] = settings.TOKEN_STORE = ""


def records_moved() -> None:
    """Every record of PostgreSQL to the shards, in the order in which they lie there, as ingest writes them: where nothing
    has been reported in between.
    """
    servers = token_servers()
    assert servers is not None
    assert token_store_begin(servers=servers, actor="bench")
    file, moved = Path(os.environ["SUANPAN_HOME"]) / "postgres" / "records", 0  # where the database may write
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        (size,) = connection.execute(PAGES_OF_PARTS).fetchone() or (0,)
        for page in range(0, size, PAGES):
            connection.execute(RECORDS.format(page, page + PAGES, file).encode())
            rows = np.fromfile(file, ROW, (file.stat().st_size - HEADER) // ROW.itemsize, offset=HEADER)
            file.unlink()
            for at in range(0, len(rows), AT_ONCE):
                moved += _written(servers, rows[at : at + AT_ONCE])
            say(f"{moved:,} records moved")
        assert connection.execute("SELECT count(*) FROM token_entry").fetchone() == (moved,)
        connection.execute("SET session_replication_role = replica")
        connection.execute("TRUNCATE token_entry")


def _written(servers: Servers, rows: Any) -> int:
    every, flags = np.arange(len(rows)), np.ones(len(rows), np.bool_)
    keys = np.frombuffer(rows["key"].tobytes(), np.uint8).reshape(-1, 16)
    counts = np.stack([rows[name].astype(np.int64) for name in TOKEN_COUNTS], axis=1)
    columns = TokenColumns(
        [], every, keys, flags, ~flags, rows["time"].astype(np.int64), counts, rows["dimension"].astype(np.int32), flags,
        frozenset(),
    )  # fmt: skip
    with transaction.atomic():
        sharded_write(servers, columns, every, columns.dimensions, 0, batches_now(servers))
    return len(rows)


def shards_exported(folder: Path) -> list[Path]:
    """All records as the shards have them, a Parquet file each."""
    servers, found, counts = token_servers(), [], ", ".join(TOKEN_COUNTS)
    assert servers is not None
    text, (names,) = folder / "records.csv", exported(folder, "dimensions", DIMENSIONS)
    for shard in shards_state(servers):
        asked = LINES.format(counts=counts, database=servers.database, number=shard.number, counted=shard.counted)
        address = f"http://{servers.shards[shard.number][0]}/"
        with text.open("wb") as file, httpx.stream("POST", address, content=asked, timeout=None, trust_env=False) as answer:
            file.writelines(answer.iter_bytes())
        found.append(folder / f"records-{shard.number}.parquet")
        duckdb.sql(RECORDS_OF_LINES.format(counts=counts, text=text, columns=KINDS, names=names, made=found[-1]))
        text.unlink()
        say(f"shard {shard.number} exported")
    return found
