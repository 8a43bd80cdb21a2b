"""A few token records in one prepared statement, over libpq itself.

For a single record, adapting ten arguments and parsing a new statement were measured to cost three times what storing it
costs. The call waits in its thread, while other threads work.
"""

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

ARGUMENTS: Final = 10
NAME: Final = b"suanpan_token_take"
STATEMENT: Final = f"SELECT token_take({', '.join(f'${number}' for number in range(1, ARGUMENTS + 1))})".encode()
_prepared_on = WeakSet[psycopg.Connection[Any]]()


def token_take(connection: psycopg.Connection[Any], arguments: Sequence[bytes]) -> str:
    """Write the records; gives the keys that were known, in hex with commas between.

    `arguments`: as `token_rows.narrow_columns` gives them. Outside of a transaction it is one by itself. Raises what psycopg
    does; OperationalError without a state where the connection was lost.
    """
    wire = connection.pgconn
    if connection not in _prepared_on:
        _checked(wire, wire.prepare(NAME, STATEMENT))
        _prepared_on.add(connection)
    result = _checked(wire, wire.exec_prepared(NAME, arguments, [pq.Format.BINARY] * ARGUMENTS))
    return (result.get_value(0, 0) or b"").decode().strip("{}").replace("-", "")


def _checked(wire: pq.abc.PGconn, result: pq.abc.PGresult) -> pq.abc.PGresult:
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return result
    if wire.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection to the database was lost")
    raise error_from_result(result, encoding="utf-8")
