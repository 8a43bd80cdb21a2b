"""Stored rows changed as only a superuser can, who puts the triggers aside: what services and the database itself refuse."""

from collections.abc import Sequence
from typing import Any

from django.db import connection

from billing.usage.contents import ALLOCATION, CAPACITY, SAMPLE, content_sha256
from billing.usage.store.dimensions import dimensions_forget

KEPT = ("django_migrations", "django_content_type", "auth_permission", "django_site")
"""Tables that migrations fill and no test changes."""
FILLED = """SELECT string_agg(format('SELECT %%L WHERE EXISTS (SELECT FROM %%I)', relname, relname), ' UNION ALL ')
    FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
      AND relname <> ALL (%s)"""
RESTARTED = """SELECT setval(seq, 1, false) FROM (SELECT pg_get_serial_sequence(t.relname, c.attname) AS seq FROM pg_class t
    JOIN pg_attribute c ON c.attrelid = t.oid AND c.attidentity <> '' WHERE t.relname ~ '^token_' AND t.relkind IN ('r', 'p')
      AND NOT t.relispartition) s"""


def rewrite(statement: str, parameters: Sequence[Any] = ()) -> int:
    """Run a statement with every trigger put aside; returns how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(statement, parameters)
            return cursor.rowcount
        finally:
            cursor.execute("SET session_replication_role = origin")


def rewrite_as_reported(statement: str, parameters: Sequence[Any] = ()) -> None:
    """The same by somebody who brings the hashes along: what is stored then might have been reported."""
    rewrite(statement, parameters)
    for table, columns in (("gpuallocation", ALLOCATION), ("nodecapacity", CAPACITY), ("efficiencysample", SAMPLE)):
        rewrite(f"UPDATE usage_{table} r SET content_sha256 = {content_sha256(columns, 'r')}")


def ledger_emptied() -> None:
    """As if no token had ever been reported; dimensions stay."""
    rewrite("TRUNCATE token_entry, token_hour_delta, token_hour, token_day, token_sequence")


def query(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


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
