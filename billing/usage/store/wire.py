"""Write of a few token records in one statement, through libpq directly.

For a single record, adapting its arguments was measured to cost three times what storing it costs. No session state is
used: behind a pooler, the next statement may run in another session.
"""

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from django.db import connection
from psycopg import pq
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.waiting import wait_async

ARGUMENTS: Final = 11
STATEMENT: Final = f"SELECT token_take({', '.join(f'${number}' for number in range(1, ARGUMENTS + 1))})".encode()
FORMATS: Final = [pq.Format.BINARY] * ARGUMENTS
LOOK_SECONDS: Final = 1.0
"""Interval at which psycopg checks an idle connection."""


def bare_connection() -> psycopg.Connection[Any]:
    """Return the psycopg connection of this thread."""
    connection.ensure_connection()
    return connection.connection


def token_take(arguments: Sequence[bytes]) -> str:
    """Write the records; return the keys that were known (hex, comma-separated).

    `arguments`: from `rows.narrow_columns`. Outside a transaction the statement is one by itself. Raises errors of
    psycopg; OperationalError without a state if the connection was lost.
    """
    wire = bare_connection().pgconn
    return _known(wire, wire.exec_params(STATEMENT, arguments, param_formats=FORMATS))


async def token_take_async(wire: pq.abc.PGconn, arguments: Sequence[bytes]) -> str:
    """Write the records on a connection that no other code uses meanwhile; the event loop runs on during the write."""
    wire.send_query_params(STATEMENT, arguments, param_formats=FORMATS)
    *_, result = await wait_async(execute(wire), wire.socket, LOOK_SECONDS)
    return _known(wire, result)


def _known(wire: pq.abc.PGconn, result: pq.abc.PGresult) -> str:
    return (_checked(wire, result).get_value(0, 0) or b"").decode().strip("{}").replace("-", "")


def _checked(wire: pq.abc.PGconn, result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return result
    if wire.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection to the database was lost")
    raise error_from_result(result, encoding="utf-8")
