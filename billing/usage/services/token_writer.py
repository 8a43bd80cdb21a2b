"""The writer of a process that never waits: it writes what an event loop brings, group after group, within that loop.

The same group commit as `token_group`, whose reports each wait in a thread of their own. Here one thread reads, writes and
answers: while the database works on one group it reads the reports of the next, and that one is on its way before the
first is answered. What may wait for something else, which is rare, is left to another thread.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, DataError, OperationalError, close_old_connections, connections
from psycopg import pq

from billing.usage.services.outcome import IngestOutcome
from billing.usage.services.token_batch import TokenBatch
from billing.usage.services.token_group import QUEUE_SECONDS, Result
from billing.usage.services.token_steps import Step, Waiting, Writing, afresh, done
from billing.usage.services.token_wire import SOON, PgRequest, PgResponse

T = TypeVar("T")
Write = Callable[[Sequence[TokenBatch]], Writing[list[IngestOutcome]]]
MUCH = 200
"""So many records are worth a group that is made ready before its turn."""
SOON_MS = 1
"""How long the loop stands still for an answer that comes at once; what it began instead could take longer."""


class _Group(Generic[T]):
    """Batches that are written together: the step that comes next, or what became of each once none does."""

    __slots__ = ("failure", "results", "size", "step", "waiting", "writing")

    def __init__(self, waiting: Sequence[tuple[T, TokenBatch, float]], write: Write) -> None:
        self.waiting = waiting
        self.size = sum(len(batch.records) for _, batch, _ in waiting)
        self.writing = write([batch for _, batch, _ in waiting])
        self.results: Sequence[Result] = ()
        self.failure: Exception | None = None
        self.go_on()

    def go_on(self, answer: Any = None, error: Exception | None = None) -> None:
        """Do what is to be done between two steps, the first of which came to `answer` or failed."""
        self.step: Step | None = None
        try:
            self.step = self.writing.send(answer) if error is None else self.writing.throw(error)
        except StopIteration as end:
            self.results = end.value
        except Exception as failure:  # noqa: BLE001 - the edge: every request of the group answers it by itself
            self.failure, self.results = failure, [failure] * len(self.waiting)


class TokenWriter(Generic[T]):
    """Writes batches in the order in which they come, as many together as wait, up to about `most` records.

    Made and called in the thread of the running loop. `told` is called with the tickets of a group and what became of each.
    """

    def __init__(self, write: Write, told: Callable[[Sequence[tuple[T, Result]]], None], *, most: int) -> None:
        self._write, self._told, self._most = write, told, most
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[T, TokenBatch, float]] = deque()
        self._alone: deque[tuple[T, TokenBatch, float]] = deque()
        self._queued = 0
        self._group: _Group[T] | None = None
        self._following: _Group[T] | None = None
        self._begins = False
        self._wire: _Wire | None = None
        self._thread = ThreadPoolExecutor(1, "token-writer")
        self._idle: asyncio.Future[None] | None = None

    def submit(self, ticket: T, batch: TokenBatch) -> None:
        """Have this batch written; `told` will hear of its ticket, unless `overdue` gives it back before."""
        self._queue.append((ticket, batch, monotonic()))
        self._queued += len(batch.records)
        if self._group is None:
            if not self._begins:  # with whatever else came in by now
                self._begins = True
                self._loop.call_soon(self._begin)
        elif self._following is None and self._queued >= max(self._group.size, MUCH):
            self._following = self._next()  # made ready while the database is at work

    def overdue(self) -> list[tuple[T, Result]]:
        """Take back what has waited for QUEUE_SECONDS and was not begun, with the error that its reporters are told."""
        before, late = monotonic() - QUEUE_SECONDS, list[T]()
        if self._following is not None and self._following.waiting[0][2] < before:
            late += [ticket for ticket, _, _ in self._following.waiting]
            self._following.writing.close()
            self._following = None
        for queue in (self._alone, self._queue):
            while queue and queue[0][2] < before:
                ticket, batch, _ = queue.popleft()
                self._queued -= len(batch.records) if queue is self._queue else 0
                late.append(ticket)
        error = OperationalError(f"no report was written for {QUEUE_SECONDS} s: the database may be slow")
        return [(ticket, error) for ticket in late]

    async def stop(self) -> None:
        """Write what waits, and end; nothing may be submitted any more."""
        if self._begins or self._group is not None:
            self._idle = self._loop.create_future()
            await self._idle
        self._leave()
        self._thread.submit(connections.close_all)
        await asyncio.to_thread(self._thread.shutdown)

    def _begin(self) -> None:
        """Write the next group, if one waits."""
        self._begins = False
        self._group, self._following = self._following or self._next(), None
        if self._group is not None:
            self._go_on(self._group)
        elif self._idle is not None:
            self._idle.set_result(None)

    def _next(self) -> _Group[T] | None:
        """A group of what waits, as far as there is room for it; the first always has room."""
        if self._alone:
            return _Group([self._alone.popleft()], self._write)
        waiting, size = list[tuple[T, TokenBatch, float]](), 0
        while self._queue and (not waiting or size + len(self._queue[0][1].records) <= self._most):
            waiting.append(self._queue.popleft())
            size += len(waiting[-1][1].records)
        self._queued -= size
        return _Group(waiting, self._write) if waiting else None

    def _go_on(self, group: _Group[T]) -> None:
        """Go from step to step, until one has to be waited for or the group is written."""
        while (step := group.step) is not None:
            if step is afresh:
                self._leave()
                group.go_on()
            elif not isinstance(step, PgRequest):
                return self._wait(step, self._came)
            elif self._wire is None:
                return self._wait(_Wire, self._connected)
            else:
                self._wire.begin(step)
                return self._hear()
        return self._end(group)

    def _came(self, answer: Any = None, error: Exception | None = None) -> None:
        """The step came to this, or failed."""
        if self._group is not None:
            self._group.go_on(answer, error)
            self._go_on(self._group)

    def _connected(self, wire: "_Wire | None", error: Exception | None = None) -> None:
        if wire is None:
            return self._came(error=error)
        self._wire = wire
        self._loop.add_reader(wire.descriptor, self._hear, select.POLLIN)
        return self._go_on(self._group) if self._group is not None else None

    def _wait(self, work: Waiting, then: Callable[..., None]) -> None:
        """Leave this to the thread that may wait; `then` is called with what came of it, or with the error."""

        def ended(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            then(None, error) if error else then(future.result())

        self._loop.run_in_executor(self._thread, _waited, work).add_done_callback(ended)

    def _hear(self, came: int | None = None) -> None:
        """Say more, now that these events came, or for the first time."""
        wire = self._wire
        if wire is None or not wire.is_busy:  # the database has nothing to say by itself but that it goes away
            return self._leave()
        answer, failed = None, None
        try:
            wanted = wire.go_on(came)
            while wanted & SOON and wire.has_heard():
                wanted = wire.go_on(select.POLLIN)
            wire.wait_for(self._loop, wanted, self._hear)
            return None
        except StopIteration as end:
            answer = end.value
        except Exception as error:  # noqa: BLE001 - whoever wrote the step decides
            failed = error
        if not wire.is_good:
            self._leave()
        return self._came(answer, failed)

    def _leave(self) -> None:
        """End the connection; the next is a new one."""
        if self._wire is not None:
            self._loop.remove_reader(self._wire.descriptor)
            self._loop.remove_writer(self._wire.descriptor)
            self._wire.connection.close()
            self._wire = None

    def _end(self, group: _Group[T]) -> None:
        """The next group is on its way before this one is answered. One whose values the database does not take stands
        alone: the others are written without it.
        """
        if isinstance(group.failure, DataError) and len(group.waiting) > 1:
            self._alone.extend(group.waiting)
            return self._begin()
        self._begin()
        self._told([(ticket, result) for (ticket, _, _), result in zip(group.waiting, group.results, strict=True)])
        return None


class _Wire:
    """A connection of the loop's own, and what is being said over it."""

    def __init__(self) -> None:
        """Connect, in a thread that may wait.  Raises what Django does."""
        self._django = connections[DEFAULT_DB_ALIAS].copy()
        self._django.inc_thread_sharing()
        self._django.connect()
        self.connection = self._django.connection
        self.descriptor: int = self.connection.pgconn.socket
        self._said: PgResponse[Any] | None = None
        self._sends = False
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    @property
    def is_busy(self) -> bool:
        """Whether something is being said."""
        return self._said is not None

    @property
    def is_good(self) -> bool:
        """Whether the next thing may be said."""
        return bool(self.connection.pgconn.transaction_status == pq.TransactionStatus.IDLE)

    def begin(self, what: PgRequest[Any]) -> None:
        """Say this next."""
        self._said = what.said(self.connection)

    def go_on(self, came: int | None) -> int:
        """Say more; returns the events that it waits for.  Raises StopIteration with what came of it, or as Django does."""
        said, self._said = self._said, None
        if said is None:
            raise RuntimeError("nothing is being said")
        with self._django.wrap_database_errors:
            wanted = next(said) if came is None else said.send(came)
        self._said = said
        return wanted

    def has_heard(self) -> bool:
        """Whether the database answers within SOON_MS."""
        return bool(self._poll.poll(SOON_MS))

    def wait_for(self, loop: asyncio.AbstractEventLoop, events: int, then: Callable[[int], None]) -> None:
        """Have `then` called with the events that came; that there is something to read it is always told."""
        sends = bool(events & select.POLLOUT)
        if sends != self._sends:
            self._sends = sends
            if sends:
                loop.add_writer(self.descriptor, then, select.POLLOUT)
            else:
                loop.remove_writer(self.descriptor)


def _waited(work: Waiting) -> Any:
    close_old_connections()
    return done(work)
