"""Group commit: reports that arrive while another is being written share the next transaction.

A commit waits for the disk; a gateway that reports each request by itself would otherwise wait for one commit each.
Nobody waits for a timer: who finds no writer at work writes at once, whoever comes in meanwhile forms the next group.
Small reports are also read by the writer of their group: a thread for each of them would do little else than wait for
Python's one lock.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from django.db import DataError, OperationalError, connection

from billing.usage.services.outcome import IngestOutcome
from billing.usage.services.token_batch import TokenBatch

QUEUE_SECONDS = 15
Write = Callable[[Sequence[TokenBatch]], list[IngestOutcome]]
Read = Callable[[], TokenBatch]
Result = IngestOutcome | Exception
Turn = Callable[[int], AbstractContextManager[object]]


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

    `turn`: what the writer of so many records waits for, so that groups of other processes do not come in between.
    Whoever waits does so because all writers are at work, and each of them hands over to the head of the queue when
    it is done: nobody is left waiting.
    """

    def __init__(
        self, write: Write, *, writers: int, most: int, turn: Turn = nullcontext
    ) -> None:
        self._write, self._writers, self._most, self._turn = write, writers, most, turn
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
                raise OperationalError(f"no report was written for {QUEUE_SECONDS} s: the database may be slow")
        mine.gate.acquire()  # somebody is writing it: what becomes of it will be known

    def _lead(self, leader: _Waiting) -> None:
        """Write the leader's group, with what came in until its turn; then the head of the queue writes the next."""
        group = leader.group
        try:
            self._join(group)
            with self._turn(sum(waiting.size for waiting in group)):
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
