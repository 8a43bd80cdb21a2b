"""What the token ledger is told, over libpq itself: no cursor, no adapting, as few round trips as there can be.

For a handful of records a cursor that adapts ten arguments and waits in Python for the answer costs as much as all the
rest. A small group is one prepared statement (`token_take`). A large one is one script that enters the epoch and takes two
COPY; a script of several statements is a transaction by itself, which ends with it.
"""

import select
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakSet

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

ARGUMENTS: Final = 10
PIECE_BYTES: Final = 256 * 1024
"""What libpq is given at a time: its buffer stays as large as it ever was."""
_NAME: Final = b"suanpan_token_take"
_STATEMENT: Final = f"SELECT token_take({', '.join(f'${number}' for number in range(1, ARGUMENTS + 1))})".encode()
_prepared_on: WeakSet[psycopg.Connection[Any]] = WeakSet()
_GOOD: Final = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_IN})

Connection = psycopg.Connection[Any]
Copied = tuple[str, bytes]
"""A COPY statement, and what it reads."""


def token_take(connection: Connection, arguments: Sequence[bytes]) -> str:
    """Write the records; returns the keys that were known, in hex with commas between.

    `arguments`: as `token_rows.narrow_columns` gives them. Outside of a transaction it is one by itself.
    Raises what psycopg does; OperationalError without a state where the connection was lost.
    """
    wire = connection.pgconn
    if connection not in _prepared_on:
        _check(wire, wire.prepare(_NAME, _STATEMENT))
        _prepared_on.add(connection)
    result = wire.exec_prepared(_NAME, arguments)
    _check(wire, result)
    return (result.get_value(0, 0) or b"").decode().strip("{}").replace("-", "")


def copy_in_epoch(connection: Connection, enter: str, epoch: int, copies: Sequence[Copied]) -> int:
    """`enter`, which answers with the current epoch, and the copies in one transaction; returns the current epoch.

    Where it is not `epoch`, for which the copies were made, nothing is written. The connection is in no transaction.
    Raises what psycopg does.
    """
    wire = connection.pgconn
    wire.send_query("; ".join([enter, *(statement for statement, _ in copies)]).encode())
    pending, failed, current, refused = [rows for _, rows in copies], None, b"", False
    while (result := _next_result(wire)) is not None:
        if result.status == pq.ExecStatus.COPY_IN:
            refused = current != str(epoch).encode()
            _feed(wire, pending.pop(0), refused=refused)
        elif result.status not in _GOOD:
            failed = failed or result
        elif result.status == pq.ExecStatus.TUPLES_OK and result.ntuples:
            current = result.get_value(0, 0) or b""  # that of the last statement before the first copy stays
    if refused:
        return int(current)
    if failed is not None:
        _check(wire, failed)
    return epoch


def _feed(wire: pq.abc.PGconn, rows: bytes, *, refused: bool) -> None:
    if refused:
        wire.put_copy_end(b"made for another epoch")
        return
    for start in range(0, len(rows), PIECE_BYTES):
        wire.put_copy_data(rows[start : start + PIECE_BYTES])
        _send(wire)
    wire.put_copy_end()


def _next_result(wire: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """The next result of what was sent; other threads work while it is waited for."""
    _send(wire)
    while wire.is_busy():
        _wait(wire, select.POLLIN)
        wire.consume_input()
    return wire.get_result()


def _send(wire: pq.abc.PGconn) -> None:
    while wire.flush():
        if _wait(wire, select.POLLIN | select.POLLOUT) & ~select.POLLOUT:
            wire.consume_input()


def _wait(wire: pq.abc.PGconn, events: int) -> int:
    socket = select.poll()
    socket.register(wire.socket, events)
    return socket.poll()[0][1]


def _check(wire: pq.abc.PGconn, result: pq.abc.PGresult) -> None:
    if result.status in _GOOD:
        return
    if wire.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection to the database was lost")
    raise error_from_result(result, encoding="utf-8")
