"""Group commit: reports that arrive while another is being written share the next transaction.

A commit waits for the disk; a gateway that reports each request by itself would otherwise wait for one commit each.
Nobody waits for a timer: who finds no writer at work writes at once, whoever comes in meanwhile forms the next group.
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


class _Waiting:
    """A batch in the queue. Its gate opens when it is done, or when it shall write a group."""

    __slots__ = ("batch", "error", "gate", "group", "outcome")

    def __init__(self, batch: TokenBatch) -> None:
        self.batch = batch
        self.group: list[_Waiting] = []
        self.outcome: IngestOutcome | None = None
        self.error: Exception | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """One per process; `writers` transactions at a time, each of at most `most` records beyond its first batch.

    `turn`: what the writer of so many records waits for, so that groups of other processes do not come in between.
    Whoever waits does so because all writers are at work, and each of them hands over to the head of the queue when
    it is done: nobody is left waiting.
    """

    def __init__(
        self, write: Write, *, writers: int, most: int, turn: Callable[[int], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._write, self._writers, self._most, self._turn = write, writers, most, turn
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._writing = 0

    def submit(self, batch: TokenBatch) -> IngestOutcome:
        """What became of the batch, once that is durable.

        Raises what its transaction raised, or OperationalError if no writer came to it in QUEUE_SECONDS.
        """
        if connection.in_atomic_block:  # its caller's transaction is not to be shared
            return self._write([batch])[0]
        mine = _Waiting(batch)
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
        try:
            with self._turn(sum(len(waiting.batch.records) for waiting in leader.group)):
                with self._lock:
                    self._join(leader.group)
                self._write_group(leader.group)
        finally:
            with self._lock:
                following = self._take()
            for waiting in leader.group:
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
        size = len(group[0].batch.records)
        while self._queue and size + len(self._queue[0].batch.records) <= self._most:
            group.append(self._queue.popleft())
            size += len(group[-1].batch.records)

    def _write_group(self, group: list[_Waiting]) -> None:
        try:
            outcomes = self._write([waiting.batch for waiting in group])
        except DataError as error:
            if len(group) == 1:
                group[0].error = error
                return
            for waiting in group:  # whoever brought it stands alone, the others are not to suffer
                self._write_group([waiting])
        except Exception as error:  # noqa: BLE001 - the edge: every request of the group raises it by itself
            for waiting in group:
                waiting.error = error
        else:
            for waiting, outcome in zip(group, outcomes, strict=True):
                waiting.outcome = outcome
