"""Reads of many rows: in the binary format of the database, and started before their result is needed."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from itertools import count
from queue import PriorityQueue
from typing import Any, Final, ParamSpec, TypeVar

import psycopg
from django.db import connection, connections

FETCHED: Final = 20_000
Given = ParamSpec("Given")
Found = TypeVar("Found")
_beside: Final[ContextVar["_Beside | None"]] = ContextVar("beside", default=None)


def rows_read(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement with named parameters, in the current transaction; raises Django's errors.

    Binary numbers and times cost a fraction of parsing them from text.
    """
    with _asked(statement, parameters) as cursor:
        return cursor.fetchall()


def rows_fetched(statement: str, parameters: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a statement, converting some thousand at a time: there may be millions."""
    with _asked(statement, parameters) as cursor:
        while rows := cursor.fetchmany(FETCHED):
            yield from rows


def _asked(statement: str, parameters: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    connection.ensure_connection()
    with connection.wrap_database_errors:
        asked = psycopg.ClientCursor(connection.connection).mogrify(statement, parameters)
        return psycopg.Cursor(connection.connection).execute(asked.encode(), binary=True, prepare=False)


@contextmanager
def parallel_reads(snapshot: str | None = None) -> Iterator[None]:
    """Run the reads of `deferred_query` on a second connection, one by one, while the caller goes on.

    For a caller that begins a transaction of its own and reads nothing that it has written in it: the second connection sees
    committed data only. Inside a running transaction each read waits until it is called, unless that transaction has
    exported its `snapshot`: then the reads see the same snapshot.
    """
    if connection.in_atomic_block and snapshot is None:
        yield
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        token = _beside.set(_Beside(pool, snapshot))
        try:
            yield
        finally:
            _beside.reset(token)
            # Django's connections are per thread: only that thread can close its own
            pool.submit(connections.close_all)


def _begin(snapshot: str | None) -> None:
    """Set the snapshot for all reads of this thread."""
    if snapshot is not None:
        connection.set_autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SET TRANSACTION SNAPSHOT %s", [snapshot])


class _Beside:
    """Queue of reads for the one thread that runs them: in order, but checks only when no read waits."""

    def __init__(self, pool: ThreadPoolExecutor, snapshot: str | None) -> None:
        self._pool, self._numbers, self._snapshot, self._begun = pool, count(), snapshot, False
        self._waiting = PriorityQueue[tuple[bool, int, Future[Any], Callable[[], Any]]]()

    def begin(self, read: Callable[[], Found], *, last: bool) -> Callable[[], Found]:
        asked = Future[Found]()
        self._waiting.put((last, next(self._numbers), asked, read))
        self._pool.submit(self._run_next)
        return asked.result

    def _run_next(self) -> None:
        _, _, asked, read = self._waiting.get()
        try:
            if not self._begun:
                _begin(self._snapshot)
                self._begun = True
            asked.set_result(read())
        except BaseException as error:  # noqa: BLE001 -- raised where the result is asked for, as a pool does
            asked.set_exception(error)


def deferred_query(read: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Callable[[], Found]:
    """Start a read in the background, inside `parallel_reads`; return a function that gives its result or raises."""
    beside, asked = _beside.get(), partial(read, *given, **named)
    return cache(asked) if beside is None else beside.begin(asked, last=False)


def deferred_check(read: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Callable[[], Found]:
    """Start a read that is needed last: it does not begin while another read waits."""
    beside, asked = _beside.get(), partial(read, *given, **named)
    return cache(asked) if beside is None else beside.begin(asked, last=True)
