"""Handover of an answer from the thread that makes it to the loop that sends it.

The thread ends when the answer is made, however slowly the client reads: the answer waits for the client in `Room`. A
thread waits too only for an answer that is larger than its room; few threads may do so, so that others are left.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, Final

from billing.api.gateway_requests import ClientGone, Send

logger = logging.getLogger(__name__)
EACH: Final = 4 * 1024 * 1024
"""Bytes of one answer that may wait for its client."""
ALL: Final = 64 * 1024 * 1024
"""Bytes of all answers of a process that may wait; each may have one piece beyond it."""


class Handover:
    """Messages of one answer. `cut`: ends the connection of a client that does not read, in the loop."""

    def __init__(self, room: "Room", seconds: float, cut: Callable[[], None]) -> None:
        self._room, self._seconds, self._cut, self._loop = room, seconds, cut, asyncio.get_running_loop()
        self._made, self._came = deque[dict[str, Any] | BaseException](), asyncio.Event()
        self._start: dict[str, Any] = {}
        self._is_whole = False
        self.held, self.is_left = 0, False

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        """Store status and headers; WSGI calls it at the beginning of an answer."""
        head = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._start = {"type": "http.response.start", "status": int(status[:3]), "headers": head}

    def take(self, pieces: Iterator[bytes]) -> None:
        """Hand over all pieces, in the thread; a small answer goes as one message.  Raises ClientGone if nobody reads it."""
        first, second = next(pieces, b""), next(pieces, None)
        head, last = [self._start], first
        if second is not None:
            for piece in chain([first, second], pieces):
                self._room.take(self, len(piece), self._seconds)
                self._put(*head, {"type": "http.response.body", "body": piece, "more_body": True})
                head, last = [], b""
        self._is_whole = True
        self._put(*head, {"type": "http.response.body", "body": last})

    def fail(self, error: BaseException) -> None:
        """Report, in the thread, why the answer is incomplete; a connection that may have received a part of it ends."""
        if self._is_whole:
            logger.error("what is done after an answer failed", exc_info=error)
            return
        if self.held or self.is_left:
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._cut)
        self._put(error)

    def _put(self, *made: dict[str, Any] | BaseException) -> None:
        self._made.extend(made)
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._came.set)

    async def send_to(self, send: Send, is_gone: Callable[[], bool]) -> None:
        """Send the answer, in the loop, as fast as the client reads.  Raises ClientGone, or the error that ended it."""
        try:
            while True:
                await self._came.wait()
                self._came.clear()
                while self._made:
                    message = self._made.popleft()
                    if isinstance(message, BaseException):
                        raise message
                    await send(message)
                    if message.get("more_body"):
                        self._room.give_back(self, len(message["body"]))
                    elif "body" in message:
                        return
                    if is_gone():
                        raise ClientGone
        finally:
            self._room.leave(self)


class Room:
    """Memory for large answers that wait for their clients. `most`: threads that may wait for clients."""

    def __init__(self, most: int) -> None:
        self._most, self._used, self._changed = max(most, 1), 0, threading.Condition()
        self._waiting: dict[Handover, None] = {}  # the one that has waited longest first

    def take(self, answer: Handover, size: int, seconds: float) -> None:
        """Wait for room for the next piece.

        Raises ClientGone if the client reads nothing for so long, or if other slow clients need the thread.
        """
        until = monotonic() + seconds
        with self._changed:
            while not answer.is_left and self._is_full_for(answer, size):
                if answer not in self._waiting:
                    if len(self._waiting) >= self._most:
                        self._leave(next(iter(self._waiting)))
                    self._waiting[answer] = None
                # the clock decides: a wake-up without room is no timeout
                if not self._changed.wait(max(until - monotonic(), 0)) and monotonic() >= until:
                    self._leave(answer)
            self._waiting.pop(answer, None)
            if answer.is_left:
                raise ClientGone
            answer.held += size
            self._used += size

    def give_back(self, answer: Handover, size: int) -> None:
        """Free the room of a piece that was sent."""
        with self._changed:
            if not answer.is_left:
                answer.held -= size
                self._used -= size
                self._changed.notify_all()

    def leave(self, answer: Handover) -> None:
        """Free the room of an answer whose rest nobody reads."""
        with self._changed:
            self._leave(answer)

    def _leave(self, answer: Handover) -> None:
        if not answer.is_left:
            answer.is_left = True
            self._used -= answer.held
            self._waiting.pop(answer, None)
            self._changed.notify_all()

    def _is_full_for(self, answer: Handover, size: int) -> bool:
        # the first piece always fits: a piece larger than the limit would wait for ever
        return bool(answer.held) and (answer.held + size > EACH or self._used + size > ALL)
