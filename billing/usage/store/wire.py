"""A few token records in one statement, over libpq itself.

For a single record, adapting as many arguments was measured to cost three times what storing it costs. Nothing stays with
the session: the next statement may meet another one behind a pooler.
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
"""How often psycopg looks at a connection on which nothing happens."""


def bare_connection() -> psycopg.Connection[Any]:
    """The connection of this thread, as psycopg has it."""
    connection.ensure_connection()
    return connection.connection


def token_take(arguments: Sequence[bytes]) -> str:
    """Write the records; gives the keys that were known, in hex with commas between.

    `arguments`: as `token_rows.narrow_columns` gives them. Outside of a transaction it is one by itself. Raises what psycopg
    does; OperationalError without a state where the connection was lost.
    """
    wire = bare_connection().pgconn
    return _known(wire, wire.exec_params(STATEMENT, arguments, param_formats=FORMATS))


async def token_take_async(wire: pq.abc.PGconn, arguments: Sequence[bytes]) -> str:
    """The same on a connection that nobody else uses meanwhile; the event loop goes on while the database writes."""
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
