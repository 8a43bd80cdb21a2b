"""Back-pressure: what a process takes in at a time is bounded, and who comes beyond it is asked to come again.

A process that takes whatever comes runs out of memory and answers nobody. Bodies are counted from before they are read,
unpacked ones at their unpacked size, until the answer is made.
"""

import threading

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException

from billing.api.problems import RETRY_AFTER_SECONDS
from billing.api.request_metrics import IN_FLIGHT, REFUSED


class Busy(APIException):
    """The process has its hands full, or the database is away; nothing was taken, the same report may come again."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "Service Unavailable"

    def __init__(self, detail: str, wait: int = RETRY_AFTER_SECONDS) -> None:
        super().__init__(detail)
        self.wait = wait  # the framework makes Retry-After of it


class Admitted:
    """Bytes that one request holds until the end of its block; `grow` asks for more of them."""

    __slots__ = ("_gate", "held")

    def __init__(self, gate: "Gate", held: int) -> None:
        self._gate, self.held = gate, held

    def __enter__(self) -> "Admitted":
        return self

    def __exit__(self, *error: object) -> None:
        self._gate.give_back(self.held)

    def grow(self, size: int) -> None:
        """Hold `size` bytes more.  Raises Busy."""
        self._gate.take(size, alone=self.held == self._gate.held)
        self.held += size


class Gate:
    """Bytes of bodies in this process. One body may always come in, however small the limit is set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.held = 0

    def take(self, size: int, *, alone: bool = False) -> None:
        """Count `size` bytes in.  Raises Busy where others hold so much that these do not fit beside them."""
        if not size:
            return
        limit: int = settings.INGEST_MAX_INFLIGHT_BYTES
        with self._lock:
            if self.held and not alone and self.held + size > limit:
                REFUSED.inc()
                raise Busy(f"{self.held} bytes of reports are being taken in, the limit is {limit}: send again later")
            self.held += size
            IN_FLIGHT.set(self.held)

    def give_back(self, size: int) -> None:
        """Count `size` bytes out."""
        if not size:
            return
        with self._lock:
            self.held -= size
            IN_FLIGHT.set(self.held)

    def admit(self, size: int) -> Admitted:
        """Hold `size` bytes, and what is asked for later, until the end of the block.  Raises Busy."""
        self.take(size)
        return Admitted(self, size)


gate = Gate()
