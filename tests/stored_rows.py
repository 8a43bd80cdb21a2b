"""Stored rows changed as only a superuser can, who puts the triggers aside: what services and the database itself refuse."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.test import override_settings

from billing.usage.contents import ALLOCATION, CAPACITY, SAMPLE, content_sha256
from billing.usage.store.clickhouse import Servers, token_servers
from billing.usage.store.columns import LARGEST_INT
from billing.usage.store.dimensions import dimensions_forget
from billing.usage.store.records import COUNTS, RECORDS_GIVEN
from billing.usage.store.sharded_reads import sharded_lines
from metering.intervals import Interval
from metering.record_checks import EARLIEST

KEPT = ("django_migrations", "django_content_type", "auth_permission", "django_site")
"""Tables that migrations fill and no test changes."""
FILLED = """SELECT string_agg(format('SELECT %%L WHERE EXISTS (SELECT FROM %%I)', relname, relname), ' UNION ALL ')
    FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
      AND relname <> ALL (%s)"""
RESTARTED = """SELECT setval(seq, 1, false) FROM (SELECT pg_get_serial_sequence(t.relname, c.attname) AS seq FROM pg_class t
    JOIN pg_attribute c ON c.attrelid = t.oid AND c.attidentity <> '' WHERE t.relname ~ '^token_' AND t.relkind IN ('r', 'p')
      AND NOT t.relispartition) s"""


def rewrite(statement: str, parameters: Sequence[Any] = ()) -> int:
    """Run a statement with every trigger put aside; returns how many rows it changed, 0 where ClickHouse has them."""
    servers = token_servers() if re.match("(UPDATE|DELETE FROM) token_entry", statement) else None
    if servers is not None and query("SELECT 1 FROM token_entry LIMIT 1") == []:
        return _rewritten_there(servers, statement)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(statement, parameters)
            return cursor.rowcount
        finally:
            cursor.execute("SET session_replication_role = origin")


def _rewritten_there(servers: Servers, statement: str) -> int:
    changed = re.fullmatch(r"UPDATE token_entry SET (.+?)( WHERE .+)?|DELETE FROM token_entry( WHERE .+)?", statement)
    assert changed is not None, statement
    values, where, of_deleted = changed.groups()
    for number, (replica,) in enumerate(servers.shards):
        table = f"{servers.database}.token_entry_{number}"
        rows = where or of_deleted or " WHERE 1"
        servers.run(number, f"ALTER TABLE {table} {f'UPDATE {values}' if values else 'DELETE'}{rows}", replica)
        while servers.run(number, "SELECT count() FROM system.mutations WHERE NOT is_done", replica) != "0\n":
            time.sleep(0.01)
    return 0


def rewrite_as_reported(statement: str, parameters: Sequence[Any] = ()) -> None:
    """The same by somebody who brings the hashes along: what is stored then might have been reported."""
    rewrite(statement, parameters)
    for table, columns in (("gpuallocation", ALLOCATION), ("nodecapacity", CAPACITY), ("efficiencysample", SAMPLE)):
        rewrite(f"UPDATE usage_{table} r SET content_sha256 = {content_sha256(columns, 'r')}")


def ledger_emptied() -> None:
    """As if no token had ever been reported; dimensions stay."""
    rewrite("TRUNCATE token_entry, token_hour_delta, token_hour, token_day, token_sequence")
    if token_servers():
        token_shards_anew()


def token_shards_anew() -> None:
    """Two shards, committed whatever the transaction at hand does, in a database that knows nothing of what they have."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute(
            """SET session_replication_role = replica; DELETE FROM token_open_batch; DELETE FROM token_shard;
               INSERT INTO token_shard (number, batch, incarnation) VALUES (0, 0, ''), (1, 0, '')"""
        )
    other.close()


def query(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def token_events() -> str:
    """Where SQL finds all token records: the view `token_event`, or a copy of it with those that ClickHouse has."""
    servers = token_servers()
    if servers is None:
        return "token_event"
    lines = "\n".join(sharded_lines(servers, Interval(EARLIEST, EARLIEST.replace(year=9999)), LARGEST_INT))
    names = f"key, time, dimension, epoch, id, attributes, {COUNTS}"
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS token_event_copied")
        cursor.execute("CREATE TEMP TABLE token_event_copied AS TABLE token_event")
        cursor.execute(
            f"INSERT INTO token_event_copied ({names}) SELECT {names.replace('id,', 'e.id,')} FROM {RECORDS_GIVEN}", [lines]
        )
    return "token_event_copied"


@contextmanager
def postgresql_keeps() -> Iterator[None]:
    """What is reported inside is from before ClickHouse began to keep records, where it does."""
    if token_servers() is None:
        yield
        return
    rewrite("DELETE FROM token_shard")
    with override_settings(TOKEN_STORE=""):
        yield
    token_shards_anew()


def database_emptied() -> None:
    """Every table that migrations do not fill, and what this process remembers of them."""
    with connection.cursor() as cursor:
        cursor.execute(FILLED, [list(KEPT)])
        cursor.execute(cursor.fetchone()[0])
        filled = [name for (name,) in cursor.fetchall()]
        verbs = ((name, "TRUNCATE" if name.startswith("token_") else "DELETE FROM") for name in filled)
        deletions = "".join(f"{verb} {name}; " for name, verb in verbs)
        cursor.execute(f"SET session_replication_role = replica; {deletions} SET session_replication_role = origin")
        cursor.execute(RESTARTED)
    dimensions_forget()


def everything_stored() -> str:
    """Every table of the database as text."""
    tables = [name for (name,) in query(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
    )]  # fmt: skip
    return "\n".join(
        str(query(f"SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{table}\" t")[0][0]) for table in tables
    )


def ledger() -> list[tuple[Any, ...]]:
    """Source, consumer, model, records, input, cached input and output tokens of all that is stored."""
    counts = "sum(input_tokens), sum(cache_read_input_tokens), sum(output_tokens)"
    rows = query(f"""SELECT source, consumer, model, count(*), {counts}
                       FROM {token_events()} JOIN token_dimension ON token_dimension.id = dimension
                      GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""")
    return [(source, consumer, model, *map(int, numbers)) for source, consumer, model, *numbers in rows]
