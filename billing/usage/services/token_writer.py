"""The writer of a process that never waits: one thread that writes what an event loop brings, group after group.

The same group commit as `token_group`, whose reports each wait in a thread of their own. Here nobody waits: what became of a
group is told to the loop at once, and while the database writes one group the loop reads the reports of the next.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from time import monotonic
from typing import Generic, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connections

from billing.usage.services.token_batch import TokenBatch
from billing.usage.services.token_group import QUEUE_SECONDS, Result, Turn, Write, write_group

T = TypeVar("T")
CONNECTION_CHECK_SECONDS = 5
"""How often the writer looks whether its connection is too old, as Django does around each request."""


class TokenWriter(Generic[T]):
    """Writes batches in the order in which they come, as many together as wait, up to about `most` records.

    `done` is called in the writer's thread, with the tickets of a group and what became of each. `turn`: what the writer of
    so many records waits for, so that groups of other processes do not come in between.
    """

    def __init__(
        self, write: Write, done: Callable[[Sequence[tuple[T, Result]]], None], *, most: int, turn: Turn = nullcontext
    ) -> None:
        self._write, self._done, self._most, self._turn = write, done, most, turn
        self._lock = threading.Lock()
        self._queue: deque[tuple[T, TokenBatch, float]] = deque()
        self._wake = threading.Lock()  # taken: the writer sleeps on it, and who ends its sleep releases it
        self._wake.acquire()
        self._sleeping = self._ending = False
        self._thread = threading.Thread(target=self._run, name="token-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def submit(self, ticket: T, batch: TokenBatch) -> None:
        """Have this batch written; `done` will be told with its ticket, unless `overdue` gives it back before."""
        with self._lock:
            self._queue.append((ticket, batch, monotonic()))
            wakes, self._sleeping = self._sleeping, False
        if wakes:
            self._wake.release()

    def overdue(self) -> list[tuple[T, Result]]:
        """Take back what no group had room for in QUEUE_SECONDS, with the error that its reporters are to be told."""
        with self._lock:
            late = list[T]()
            while self._queue and monotonic() - self._queue[0][2] > QUEUE_SECONDS:
                late.append(self._queue.popleft()[0])
        error = OperationalError(f"no report was written for {QUEUE_SECONDS} s: the database may be slow")
        return [(ticket, error) for ticket in late]

    def stop(self) -> None:
        """Write what waits, and end; nothing may be submitted any more."""
        with self._lock:
            wakes, self._sleeping, self._ending = self._sleeping, False, True
        if wakes:
            self._wake.release()
        self._thread.join()

    def _run(self) -> None:
        looked = monotonic()
        try:
            while self._waits_for_work():
                if monotonic() - looked > CONNECTION_CHECK_SECONDS:
                    close_old_connections()
                    looked = monotonic()
                self._write_next()
        finally:
            connections.close_all()

    def _write_next(self) -> None:
        group = self._join([])
        with self._turn(sum(len(batch.records) for _, batch, _ in group)):
            group = self._join(group)
            results = write_group(self._write, [batch for _, batch, _ in group])
        if any(isinstance(result, DatabaseError | InterfaceError) for result in results):
            close_old_connections()
        self._done([(ticket, result) for (ticket, _, _), result in zip(group, results, strict=True)])

    def _waits_for_work(self) -> bool:
        """True once something waits; False at the end."""
        while True:
            with self._lock:
                if self._queue:
                    return True
                if self._ending:
                    return False
                self._sleeping = True
            self._wake.acquire()

    def _join(self, group: list[tuple[T, TokenBatch, float]]) -> list[tuple[T, TokenBatch, float]]:
        """The group with what waits and still has room in it; the first always has."""
        size = sum(len(batch.records) for _, batch, _ in group)
        with self._lock:
            while self._queue and (not group or size + len(self._queue[0][1].records) <= self._most):
                group.append(self._queue.popleft())
                size += len(group[-1][1].records)
        return group
