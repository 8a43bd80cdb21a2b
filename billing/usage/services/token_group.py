"""Group commit: reports that arrive while another one is being written share the next transaction.

A commit waits for the disk; a gateway that reports each request separately would otherwise wait for one commit each.
No report waits for a timer: if no writer is busy, a report is written at once; reports that arrive meanwhile form the
next group.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import Context
from typing import TypeVar

from django.db import DataError, OperationalError, connection

from billing.usage.services.outcome import IngestOutcome
from billing.usage.services.token_batch import TokenBatch

QUEUE_SECONDS = 15
Write = Callable[[Sequence[TokenBatch]], list[IngestOutcome]]
Result = IngestOutcome | BaseException
Waiting = TypeVar("Waiting", Future[IngestOutcome], asyncio.Future[IngestOutcome])
_Queued = tuple[TokenBatch, asyncio.Future[IngestOutcome], float]
"""Report, the future of its outcome, and the deadline for a writer by the clock of the loop."""
Entry = TypeVar("Entry", tuple[TokenBatch, Future[IngestOutcome]], _Queued)


class GroupCommit:
    """Group commit of threads, one per process: one thread at a time writes a group of up to `most` records, or one batch.

    A waiting thread either finds its report written by another, or writes the next group itself.
    """

    def __init__(self, write: Write, *, most: int) -> None:
        self._write, self._most = write, most
        self._changed = threading.Condition()
        self._queue: deque[tuple[TokenBatch, Future[IngestOutcome]]] = deque()
        self._is_writing = False

    def submit(self, batch: TokenBatch) -> IngestOutcome:
        """Return the outcome of the batch once it is durable.

        Raises the error of its transaction, or OperationalError if no writer took it within QUEUE_SECONDS.
        """
        if connection.in_atomic_block:  # the caller's transaction must not be shared
            return self._write([batch])[0]
        mine = (batch, Future[IngestOutcome]())
        with self._changed:
            self._queue.append(mine)
        while not mine[1].done():
            if self._is_my_turn(mine):
                self._write_next()
        return mine[1].result()

    def _is_my_turn(self, mine: tuple[TokenBatch, Future[IngestOutcome]]) -> bool:
        """Return True if the caller must write the next group; wait until then, or until its report was written."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: mine[1].done() or not self._is_writing, QUEUE_SECONDS)
            # only while no writer has taken it: a batch in a group may still be committed
            if not in_time and mine in self._queue:
                self._queue.remove(mine)
                raise _late()
            is_mine = not mine[1].done() and not self._is_writing
            self._is_writing = self._is_writing or is_mine
            return is_mine

    def _write_next(self) -> None:
        with self._changed:
            group = _next_group(self._queue, self._most)
        results: Sequence[Result] = [
            RuntimeError("the writer of the group was interrupted: nothing is known of this report")
        ] * len(group)
        try:
            results = write_group(self._write, [batch for batch, _ in group])
        finally:
            with self._changed:
                _answer([outcome for _, outcome in group], results)
                self._is_writing = False
                self._changed.notify_all()


class LoopGroupCommit:
    """Group commit of an event loop, which reads the next reports while a group is written.

    Created and called in the running loop. `write` returns the outcome of each batch.
    """

    def __init__(self, write: Callable[[Sequence[TokenBatch]], Awaitable[Sequence[Result]]], *, most: int) -> None:
        self._write, self._most = write, most
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Queued] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._is_timed = False

    async def submit(self, batch: TokenBatch) -> IngestOutcome:
        """Return the outcome of the batch once it is durable.

        Raises the error of its transaction, or OperationalError if no writer took it within QUEUE_SECONDS.
        """
        outcome, until = self._loop.create_future(), self._loop.time() + QUEUE_SECONDS
        self._queue.append((batch, outcome, until))
        if self._writing is None or self._writing.done():  # the task takes all reports queued before it starts
            self._writing = self._loop.create_task(self._write_all(), context=Context())
        if not self._is_timed:
            self._is_timed = True
            self._loop.call_at(until, self._give_up)
        return await outcome

    async def stop(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            await self._writing

    async def _write_all(self) -> None:
        """Write one group after the other; the next one is sent before clients get the outcomes of this one."""
        while group := _next_group(self._queue, self._most):
            results: Sequence[Result]
            try:
                results = await self._write([batch for batch, *_ in group])
            except Exception as error:  # noqa: BLE001 - who waits is answered whatever it is, and the next group written
                results = [error] * len(group)
            _answer([outcome for _, outcome, _ in group], results)

    def _give_up(self) -> None:
        """Fail reports that waited too long for a writer, and schedule the next check."""
        while self._queue and self._queue[0][2] <= self._loop.time():
            _answer([self._queue.popleft()[1]], [_late()])
        self._is_timed = bool(self._queue)
        if self._queue:
            self._loop.call_at(self._queue[0][2], self._give_up)


def _next_group(queue: deque[Entry], most: int) -> list[Entry]:
    """Take the first batch from the queue, and further ones while the total is at most `most` records."""
    group, size = list[Entry](), 0
    while queue and (not group or size + len(queue[0][0].records) <= most):
        group.append(queue.popleft())
        size += len(group[-1][0].records)
    return group


def _answer(outcomes: Sequence[Waiting], results: Sequence[Result]) -> None:
    for outcome, result in zip(outcomes, results, strict=True):
        if outcome.done():  # its client has gone
            continue
        if isinstance(result, IngestOutcome):
            outcome.set_result(result)
        else:
            outcome.set_exception(result)


def _late() -> OperationalError:
    return OperationalError(f"no report was written for {QUEUE_SECONDS} s: the database may be slow")


def write_group(write: Write, batches: Sequence[TokenBatch]) -> list[Result]:
    """Return the outcome of each batch of a group, or the error for its reporter.

    A batch with values that the database rejects fails alone: the others are written without it.
    """
    try:
        return list(write(batches))
    except DataError as error:
        if len(batches) == 1:
            return [error]
        return [result for batch in batches for result in write_group(write, [batch])]
    except Exception as error:  # noqa: BLE001 - the edge: every request of the group answers it by itself
        return [error] * len(batches)
