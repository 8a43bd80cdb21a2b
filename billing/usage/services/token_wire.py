"""What the token ledger is told, over libpq itself: no cursor, no adapting, as few round trips as there can be.

For a handful of records a cursor that adapts ten arguments and waits in Python for the answer costs as much as all the
rest. A small group is one prepared statement (`token_take`). A large one is one script that enters the epoch and takes two
COPY; a script of several statements is a transaction by itself, which ends with it.

Nothing here waits: what is said over a connection yields the events of its socket that it waits for, and is sent those that
came. `at_once` waits in its thread, `token_writer` in an event loop.
"""

import select
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
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

T = TypeVar("T")
Connection = psycopg.Connection[Any]
PgResponse = Generator[int, int, T]
Copied = tuple[str, bytes]
"""A COPY statement, and what it reads."""
SOON: Final = 1 << 16
"""Beside the events that are waited for: they come in less time than it takes to begin something else."""


@dataclass(frozen=True, slots=True)
class PgRequest(Generic[T]):
    """What is to be said over a connection that nothing else is said over meanwhile.  Raises what psycopg does;
    OperationalError without a state where the connection was lost.
    """

    said: Callable[[Connection], PgResponse[T]]


def at_once(connection: Connection, what: PgRequest[T]) -> T:
    """Say it, and wait for the answer; other threads work meanwhile."""
    said, socket = what.said(connection), select.poll()
    try:
        wanted = next(said)
        while True:
            socket.register(connection.pgconn.socket, wanted & ~SOON)
            wanted = said.send(socket.poll()[0][1])
    except StopIteration as end:
        return end.value


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


def token_take(arguments: Sequence[bytes]) -> PgRequest[str]:
    """Write the records; gives the keys that were known, in hex with commas between.

    `arguments`: as `token_rows.narrow_columns` gives them. Outside of a transaction it is one by itself.
    """

    def said(connection: Connection) -> PgResponse[str]:
        result = yield from _answered(connection, _TAKE, arguments)
        return (result.get_value(0, 0) or b"").decode().strip("{}").replace("-", "")

    return PgRequest(said)


def rows_of(statement: Prepared, arguments: Sequence[bytes]) -> PgRequest[list[tuple[Any, ...]]]:
    """The rows with which the statement answers."""

    def said(connection: Connection) -> PgResponse[list[tuple[Any, ...]]]:
        rows = Transformer(connection)
        rows.set_pgresult((yield from _answered(connection, statement, arguments)))
        return rows.load_rows(0, rows.pgresult.ntuples if rows.pgresult else 0, tuple)

    return PgRequest(said)


def _answered(connection: Connection, statement: Prepared, arguments: Sequence[bytes]) -> PgResponse[pq.abc.PGresult]:
    wire, known = connection.pgconn, _prepared_on.setdefault(connection, set())
    if statement.name not in known:
        wire.send_prepare(statement.name, statement.statement)
        yield from _only_result(wire)
        known.add(statement.name)
    wire.send_query_prepared(statement.name, arguments, [pq.Format.BINARY] * statement.binary or None)
    return (yield from _only_result(wire))


def copy_in_epoch(enter: str, epoch: int, copies: Sequence[Copied]) -> PgRequest[int]:
    """`enter`, which answers with the current epoch, and the copies in one transaction; gives the current epoch.

    Where it is not `epoch`, for which the copies were made, nothing is written. The connection is in no transaction.
    """

    def said(connection: Connection) -> PgResponse[int]:
        wire = connection.pgconn
        wire.send_query("; ".join([enter, *(statement for statement, _ in copies)]).encode())
        pending, failed, current, refused = [rows for _, rows in copies], None, b"", False
        while (result := (yield from _next_result(wire, soon=bool(pending)))) is not None:
            if result.status == pq.ExecStatus.COPY_IN:
                refused = current != str(epoch).encode()
                yield from _feed(wire, pending.pop(0), refused=refused)
            elif result.status not in _GOOD:
                failed = failed or result
            elif result.status == pq.ExecStatus.TUPLES_OK and result.ntuples:
                current = result.get_value(0, 0) or b""  # that of the last statement before the first copy stays
        if refused:
            return int(current)
        if failed is not None:
            _check(wire, failed)
        return epoch

    return PgRequest(said)


def _feed(wire: pq.abc.PGconn, rows: bytes, *, refused: bool) -> PgResponse[None]:
    if refused:
        wire.put_copy_end(b"made for another epoch")
        return
    for start in range(0, len(rows), PIECE_BYTES):
        wire.put_copy_data(rows[start : start + PIECE_BYTES])
        yield from _send(wire)
    wire.put_copy_end()


def _only_result(wire: pq.abc.PGconn) -> PgResponse[pq.abc.PGresult]:
    """The first result of what was sent, which is the only one.  Raises what it says was wrong."""
    result = yield from _next_result(wire)
    while (yield from _next_result(wire)) is not None:
        pass
    if result is None:
        raise psycopg.OperationalError("the connection to the database was lost")
    _check(wire, result)
    return result


def _next_result(wire: pq.abc.PGconn, *, soon: bool = False) -> PgResponse[pq.abc.PGresult | None]:
    """The next result of what was sent."""
    yield from _send(wire)
    while wire.is_busy():
        yield select.POLLIN | SOON if soon else select.POLLIN
        wire.consume_input()
    return wire.get_result()


def _send(wire: pq.abc.PGconn) -> PgResponse[None]:
    while wire.flush():
        if (yield select.POLLIN | select.POLLOUT) & ~select.POLLOUT:
            wire.consume_input()


def _check(wire: pq.abc.PGconn, result: pq.abc.PGresult) -> None:
    if result.status in _GOOD:
        return
    if wire.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection to the database was lost")
    raise error_from_result(result, encoding="utf-8")
