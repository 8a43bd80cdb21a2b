"""Stored rows changed as only a superuser can, who puts the triggers aside: what services and the database itself refuse."""

from collections.abc import Sequence
from typing import Any

from django.db import connection

from billing.usage.contents import ALLOCATION, CAPACITY, SAMPLE, content_sha256


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
