"""Group commit: reports that arrive while another is being written share the next transaction.

A commit waits for the disk; a gateway that reports each request by itself would otherwise wait for one commit each.
Nobody waits for a timer: who finds no writer at work writes at once, whoever comes in meanwhile forms the next group.
Small reports are also read by the writer of their group: a thread for each of them would do little else than wait for
Python's one lock.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from django.db import DatabaseError, DataError, OperationalError, close_old_connections, connection, connections

from billing.usage.services.outcome import IngestOutcome
from billing.usage.services.token_batch import TokenBatch

QUEUE_SECONDS = 15
LOOK_EVERY_SECONDS = 1.0
Write = Callable[[Sequence[TokenBatch]], list[IngestOutcome]]
Read = Callable[[], TokenBatch]
Result = IngestOutcome | Exception


class _Waiting:
    """A report in the queue, of about `size` records; its `batch` is there when it was read. Its gate opens when it is
    done, or when it shall write a group.
    """

    __slots__ = ("batch", "error", "gate", "group", "outcome", "read", "size")

    def __init__(self, size: int, read: Read) -> None:
        self.size, self.read = size, read
        self.batch: TokenBatch | None = None
        self.group: list[_Waiting] = []
        self.outcome: IngestOutcome | None = None
        self.error: Exception | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """One per process; `writers` transactions at a time, each of about `most` records beyond its first batch.

    Whoever waits does so because all writers are at work, and each of them hands over to the head of the queue when
    it is done: nobody is left waiting.
    """

    def __init__(self, write: Write, *, writers: int, most: int) -> None:
        self._write, self._writers, self._most = write, writers, most
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._writing = 0

    def submit(self, batch: TokenBatch) -> IngestOutcome:
        """What became of the batch, once that is durable.

        Raises what its transaction raised, or OperationalError if no writer came to it in QUEUE_SECONDS.
        """
        return self.submit_unread(lambda: batch, len(batch.records))

    def submit_unread(self, read: Read, size: int) -> IngestOutcome:
        """The same for a report of about `size` records that its writer is to read.  Raises also what `read` raises."""
        if connection.in_atomic_block:  # its caller's transaction is not to be shared
            return self._write([read()])[0]
        mine = _Waiting(size, read)
        with self._lock:
            if self._writing < self._writers:
                self._writing += 1
                mine.group = [mine]
            else:
                self._queue.append(mine)
        if not mine.group:
            self._wait(mine)
        if mine.group:
            self._lead(mine)
        if mine.error is not None:
            raise mine.error
        if mine.outcome is None:
            raise RuntimeError("the writer of the group was interrupted: nothing is known of this report")
        return mine.outcome

    def _wait(self, mine: _Waiting) -> None:
        if mine.gate.acquire(timeout=QUEUE_SECONDS):
            return
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
                raise _late()
        mine.gate.acquire()  # somebody is writing it: what becomes of it will be known

    def _lead(self, leader: _Waiting) -> None:
        """Write the leader's group, with what came in by now; then the head of the queue writes the next."""
        group = leader.group
        try:
            self._join(group)
            self._write_group([waiting for waiting in group if waiting.batch is not None])
        finally:
            with self._lock:
                following = self._take()
            for waiting in group:
                if waiting is not leader:
                    waiting.gate.release()
            if following:
                following[0].group = following
                following[0].gate.release()

    def _take(self) -> list[_Waiting]:
        if not self._queue:
            self._writing -= 1
            return []
        return [self._queue.popleft()]

    def _join(self, group: list[_Waiting]) -> None:
        """Add what waits in the queue, and read whatever of the group was not read yet."""
        with self._lock:
            size = sum(waiting.size for waiting in group)
            while self._queue and size + self._queue[0].size <= self._most:
                group.append(self._queue.popleft())
                size += group[-1].size
        for waiting in group:
            if waiting.batch is None and waiting.error is None:
                try:
                    waiting.batch = waiting.read()
                except Exception as error:  # noqa: BLE001 - the edge: whoever brought it raises it by itself
                    waiting.error = error

    def _write_group(self, group: list[_Waiting]) -> None:
        results = write_group(self._write, [waiting.batch for waiting in group if waiting.batch is not None])
        for waiting, result in zip(group, results, strict=True):
            if isinstance(result, IngestOutcome):
                waiting.outcome = result
            else:
                waiting.error = result


class LoopGroupCommit:
    """The same for an event loop, whose reports wait as futures: it reads the next ones while one thread writes a group.

    Made and called in the running loop.
    """

    def __init__(self, write: Write, *, most: int) -> None:
        self._write, self._most = write, most
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "token-writer")
        self._queue: deque[tuple[TokenBatch, asyncio.Future[IngestOutcome], float]] = deque()
        self._is_busy = self._is_looking = False

    async def submit(self, batch: TokenBatch) -> IngestOutcome:
        """What became of the batch, once that is durable.

        Raises what its transaction raised, or OperationalError if no writer came to it in QUEUE_SECONDS.
        """
        outcome = self._loop.create_future()
        self._queue.append((batch, outcome, monotonic()))
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._begin)  # with whatever else came in by then
        elif not self._is_looking:
            self._look()
        return await outcome

    async def stop(self) -> None:
        """End the thread and its connection; whoever waited was answered before."""
        self._thread.submit(connections.close_all)
        await asyncio.to_thread(self._thread.shutdown)

    def _begin(self) -> None:
        """Write the next group, if one waits."""
        group, size = list[tuple[TokenBatch, asyncio.Future[IngestOutcome]]](), 0
        while self._queue and (not group or size + len(self._queue[0][0].records) <= self._most):
            batch, outcome, _ = self._queue.popleft()
            group.append((batch, outcome))
            size += len(batch.records)
        self._is_busy = bool(group)
        if group:
            batches, outcomes = zip(*group, strict=True)
            written = self._loop.run_in_executor(self._thread, self._written, batches)
            written.add_done_callback(lambda written: self._end(outcomes, written))

    def _written(self, batches: Sequence[TokenBatch]) -> list[Result]:
        """What became of each, in the thread that writes."""
        results = write_group(self._write, batches)
        if any(isinstance(result, DatabaseError) for result in results):
            close_old_connections()
        return results

    def _end(self, outcomes: Sequence[asyncio.Future[IngestOutcome]], written: asyncio.Future[list[Result]]) -> None:
        """The next group is on its way before this one is answered."""
        self._begin()
        for outcome, result in zip(outcomes, written.result(), strict=True):
            if outcome.done():  # nobody waits for it any more
                continue
            if isinstance(result, IngestOutcome):
                outcome.set_result(result)
            else:
                outcome.set_exception(result)

    def _look(self) -> None:
        """Send away what waited for too long, once a second while something waits."""
        while self._queue and self._queue[0][2] < monotonic() - QUEUE_SECONDS:
            _, outcome, _ = self._queue.popleft()
            if not outcome.done():
                outcome.set_exception(_late())
        self._is_looking = bool(self._queue)
        if self._is_looking:
            self._loop.call_later(LOOK_EVERY_SECONDS, self._look)


def _late() -> OperationalError:
    return OperationalError(f"no report was written for {QUEUE_SECONDS} s: the database may be slow")


def write_group(write: Write, batches: Sequence[TokenBatch]) -> list[Result]:
    """What became of each batch of a group, or the error that its reporter is to be told.

    One whose values the database does not take stands alone: the others are written without it.
    """
    if not batches:
        return []
    try:
        return list(write(batches))
    except DataError as error:
        if len(batches) == 1:
            return [error]
        return [result for batch in batches for result in write_group(write, [batch])]
    except Exception as error:  # noqa: BLE001 - the edge: every request of the group answers it by itself
        return [error] * len(batches)
