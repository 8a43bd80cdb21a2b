"""What the token ledger asks of PostgreSQL over libpq itself: no cursor, no adapting, as few round trips as there can be.

For a handful of records a cursor that adapts ten arguments and waits in Python for the answer costs as much as all the
rest. A small group is one prepared statement (`token_take`). A large one is one script that enters the epoch and takes two
COPY; a script of several statements is a transaction by itself, which ends with it.

All of it waits in its thread, while other threads work. Raises what psycopg does; OperationalError without a state where
the connection was lost.
"""

import select
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

ARGUMENTS: Final = 10
PIECE_BYTES: Final = 256 * 1024
"""What libpq is given at a time: its buffer stays as large as it ever was."""
_GOOD: Final = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_IN})
_prepared_on: WeakKeyDictionary[psycopg.Connection[Any], set[bytes]] = WeakKeyDictionary()

Connection = psycopg.Connection[Any]
Copied = tuple[str, bytes]
"""A COPY statement, and what it reads."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that the database parses and plans once for each connection.

    Django writes the arguments into the statement, which is parsed as a new one each time: for a single record that was
    measured to cost three times what storing it costs.
    """

    name: bytes
    statement: bytes
    binary: int = 0
    """How many arguments it has that are in binary; otherwise they are text."""


_TAKE: Final = Prepared(
    b"suanpan_token_take", f"SELECT token_take({', '.join(f'${number}' for number in range(1, ARGUMENTS + 1))})".encode(),
    binary=ARGUMENTS,
)


def token_take(connection: Connection, arguments: Sequence[bytes]) -> str:
    """Write the records; gives the keys that were known, in hex with commas between.

    `arguments`: as `token_rows.narrow_columns` gives them. Outside of a transaction it is one by itself.
    """
    result = _answer(connection, _TAKE, arguments)
    return (result.get_value(0, 0) or b"").decode().strip("{}").replace("-", "")


def rows_of(connection: Connection, statement: Prepared, arguments: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """The rows with which the statement answers."""
    rows = Transformer(connection)
    rows.set_pgresult(_answer(connection, statement, arguments))
    return rows.load_rows(0, rows.pgresult.ntuples if rows.pgresult else 0, tuple)


def _answer(connection: Connection, statement: Prepared, arguments: Sequence[bytes]) -> pq.abc.PGresult:
    wire, known = connection.pgconn, _prepared_on.setdefault(connection, set())
    if statement.name not in known:
        wire.send_prepare(statement.name, statement.statement)
        _only_result(wire)
        known.add(statement.name)
    wire.send_query_prepared(statement.name, arguments, [pq.Format.BINARY] * statement.binary or None)
    return _only_result(wire)


def copy_in_epoch(connection: Connection, enter: str, epoch: int, copies: Sequence[Copied]) -> int:
    """`enter`, which answers with the current epoch, and the copies in one transaction; gives the current epoch.

    Where it is not `epoch`, for which the copies were made, nothing is written. The connection is in no transaction.
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


def _only_result(wire: pq.abc.PGconn) -> pq.abc.PGresult:
    """The first result of what was sent, which is the only one.  Raises what it says was wrong."""
    result = _next_result(wire)
    while _next_result(wire) is not None:
        pass
    if result is None:
        raise psycopg.OperationalError("the connection to the database was lost")
    _check(wire, result)
    return result


def _next_result(wire: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """The next result of what was sent."""
    _send(wire)
    while wire.is_busy():
        _wait(wire, select.POLLIN)
        wire.consume_input()
    return wire.get_result()


def _send(wire: pq.abc.PGconn) -> None:
    """Send all of it; what the server says meanwhile is read, else both would wait for each other."""
    while wire.flush():
        if _wait(wire, select.POLLIN | select.POLLOUT) & ~select.POLLOUT:
            wire.consume_input()


def _wait(wire: pq.abc.PGconn, events: int) -> int:
    """The events of the socket that came, of those that are waited for."""
    waiting = select.poll()
    waiting.register(wire.socket, events)
    return waiting.poll()[0][1]


def _check(wire: pq.abc.PGconn, result: pq.abc.PGresult) -> None:
    if result.status in _GOOD:
        return
    if wire.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection to the database was lost")
    raise error_from_result(result, encoding="utf-8")
