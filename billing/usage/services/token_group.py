"""Group commit: reports that arrive while another is being written share the next transaction.

A commit waits for the disk; a gateway that reports each request by itself would otherwise wait for one commit each.
No report waits for a timer: where no writer is at work, a report is written at once; those that arrive meanwhile form the
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
"""A report, what becomes of it, and until when it waits for a writer by the clock of the loop."""
Entry = TypeVar("Entry", tuple[TokenBatch, Future[IngestOutcome]], _Queued)


class GroupCommit:
    """One per process: one thread at a time writes a group of about `most` records beyond its first batch.

    A waiting thread either finds its report written by another, or writes the next group itself.
    """

    def __init__(self, write: Write, *, most: int) -> None:
        self._write, self._most = write, most
        self._changed = threading.Condition()
        self._queue: deque[tuple[TokenBatch, Future[IngestOutcome]]] = deque()
        self._is_writing = False

    def submit(self, batch: TokenBatch) -> IngestOutcome:
        """What became of the batch, once that is durable.

        Raises what its transaction raised, or OperationalError if no writer came to it in QUEUE_SECONDS.
        """
        if connection.in_atomic_block:  # its caller's transaction is not to be shared
            return self._write([batch])[0]
        mine = (batch, Future[IngestOutcome]())
        with self._changed:
            self._queue.append(mine)
        while not mine[1].done():
            if self._is_my_turn(mine):
                self._write_next()
        return mine[1].result()

    def _is_my_turn(self, mine: tuple[TokenBatch, Future[IngestOutcome]]) -> bool:
        """Whether the caller is to write the next group; waits until it is, or until its report was written."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: mine[1].done() or not self._is_writing, QUEUE_SECONDS)
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
    """The same for an event loop, which reads the next reports while a group is written.

    Made and called in the running loop. `write` gives what became of each batch.
    """

    def __init__(self, write: Callable[[Sequence[TokenBatch]], Awaitable[Sequence[Result]]], *, most: int) -> None:
        self._write, self._most = write, most
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Queued] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._is_timed = False

    async def submit(self, batch: TokenBatch) -> IngestOutcome:
        """What became of the batch, once that is durable.

        Raises what its transaction raised, or OperationalError if no writer came to it in QUEUE_SECONDS.
        """
        outcome, until = self._loop.create_future(), self._loop.time() + QUEUE_SECONDS
        self._queue.append((batch, outcome, until))
        if self._writing is None or self._writing.done():  # it begins with whatever else came in by then
            self._writing = self._loop.create_task(self._write_all(), context=Context())
        if not self._is_timed:
            self._is_timed = True
            self._loop.call_at(until, self._give_up)
        return await outcome

    async def stop(self) -> None:
        """Return once nothing is being written."""
        if self._writing is not None:
            await self._writing

    async def _write_all(self) -> None:
        """One group after the other; the next is on its way before clients are sent what became of this one."""
        while group := _next_group(self._queue, self._most):
            results: Sequence[Result]
            try:
                results = await self._write([batch for batch, *_ in group])
            except Exception as error:  # noqa: BLE001 - who waits is answered whatever it is, and the next group written
                results = [error] * len(group)
            _answer([outcome for _, outcome, _ in group], results)

    def _give_up(self) -> None:
        """Send away what waited too long for a writer, and look again when the next one will have."""
        while self._queue and self._queue[0][2] <= self._loop.time():
            _answer([self._queue.popleft()[1]], [_late()])
        self._is_timed = bool(self._queue)
        if self._queue:
            self._loop.call_at(self._queue[0][2], self._give_up)


def _next_group(queue: deque[Entry], most: int) -> list[Entry]:
    """Take the first batches of the queue: one, and the next ones as long as all have at most so many records."""
    group, size = list[Entry](), 0
    while queue and (not group or size + len(queue[0][0].records) <= most):
        group.append(queue.popleft())
        size += len(group[-1][0].records)
    return group


def _answer(outcomes: Sequence[Waiting], results: Sequence[Result]) -> None:
    for outcome, result in zip(outcomes, results, strict=True):
        if outcome.done():  # nobody waits for it any more
            continue
        if isinstance(result, IngestOutcome):
            outcome.set_result(result)
        else:
            outcome.set_exception(result)


def _late() -> OperationalError:
    return OperationalError(f"no report was written for {QUEUE_SECONDS} s: the database may be slow")


def write_group(write: Write, batches: Sequence[TokenBatch]) -> list[Result]:
    """What became of each batch of a group, or the error that its reporter is to be sent.

    A batch whose values the database does not take fails alone: the others are written without it.
    """
    try:
        return list(write(batches))
    except DataError as error:
        if len(batches) == 1:
            return [error]
        return [result for batch in batches for result in write_group(write, [batch])]
    except Exception as error:  # noqa: BLE001 - the edge: every request of the group answers it by itself
        return [error] * len(batches)
