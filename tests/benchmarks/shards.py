"""ClickHouse as the store of token records: two shards on two servers of this machine, as `tests.clickhouse` has them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

AT_ONCE = 100_000
RECORDS = """SELECT key, (extract(epoch FROM time - timestamptz '2000-01-01 00:00Z') * 1000000)::bigint, dimension,
        input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens, reasoning_output_tokens
    FROM token_entry ORDER BY time"""


@contextmanager
def clickhouse(folder: Path) -> Iterator[Callable[[str], None]]:
    """Two servers, and what makes a new database of them the store of token records."""
    from django.conf import settings

    from tests.clickhouse.servers import replicas

    def begin(database: str) -> None:
        os.environ["TOKEN_STORE"] = settings.TOKEN_STORE = f"{address}/{database}"

    with replicas(folder, 2) as (one, two):
        address = f"clickhouse://{one.address},{two.address};{two.address},{one.address}"
        try:
            yield begin
        finally:
            os.environ["TOKEN_STORE"] = settings.TOKEN_STORE = ""


def records_moved() -> None:
    """Every record of PostgreSQL to the shards, as ingest writes them there: where nothing has been reported in between."""
    import numpy as np
    import psycopg
    from django.db import transaction

    from billing.usage.services.token_shards import token_store_begin
    from billing.usage.store.clickhouse import token_servers
    from billing.usage.store.columns import TokenColumns
    from billing.usage.store.sharded import sharded_write

    servers = token_servers()
    assert servers is not None
    assert token_store_begin(servers=servers, actor="bench")
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        with connection.cursor("records") as cursor:
            cursor.execute(RECORDS)
            while rows := cursor.fetchmany(AT_ONCE):
                count = len(rows)
                keys = np.frombuffer(b"".join(row[0].bytes for row in rows), np.uint8).reshape(-1, 16)
                numbers = np.array([row[1:] for row in rows], np.int64)
                every, flags = np.arange(count), np.ones(count, np.bool_)
                columns = TokenColumns(
                    [], every, keys, flags, ~flags, numbers[:, 0], numbers[:, 2:], numbers[:, 1].astype(np.int32), flags
                )
                with transaction.atomic():
                    sharded_write(servers, columns, every, columns.dimensions, 0)
        connection.execute("SET session_replication_role = replica")
        connection.execute("TRUNCATE token_entry")
