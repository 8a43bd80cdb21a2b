"""Reading many rows at once in the form in which the database holds them: to take numbers and times from text costs more."""

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import connection


def rows_read(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a statement with named parameters, in the current transaction; raises what Django raises."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        asked = psycopg.ClientCursor(connection.connection).mogrify(statement, parameters)  # type: ignore[arg-type]
        with psycopg.Cursor(connection.connection) as cursor:
            return cursor.execute(asked.encode(), binary=True, prepare=False).fetchall()
