"""Back-pressure: a limit on the bytes that a process takes in at a time; requests beyond it are asked to come again.

A process that takes every body runs out of memory and answers nobody. Bodies are counted before they are read,
unpacked ones at their unpacked size, until the answer is made.
"""

import threading

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException

from billing.api.problems import RETRY_AFTER_SECONDS
from billing.api.request_metrics import IN_FLIGHT, REFUSED


class Busy(APIException):
    """Error 503: the process is at its limit, or the database is away; nothing was taken, the same report may come again."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "Service Unavailable"

    def __init__(self, detail: str, wait: int = RETRY_AFTER_SECONDS) -> None:
        super().__init__(detail)
        self.wait = wait  # the framework sends it as Retry-After


class Admitted:
    """Bytes that one request reserves until the end of its block; `grow` reserves more of them."""

    __slots__ = ("_gate", "held")

    def __init__(self, gate: "Gate", held: int) -> None:
        self._gate, self.held = gate, held

    def __enter__(self) -> "Admitted":
        return self

    def __exit__(self, *error: object) -> None:
        self._gate.give_back(self.held)

    def grow(self, size: int) -> None:
        """Reserve `size` bytes more.  Raises Busy."""
        # a body that is alone may always grow: nobody else would free what it waits for
        self._gate.take(size, alone=self.held == self._gate.held)
        self.held += size


class Gate:
    """Counter of the bytes of bodies in this process. One body is always admitted, however small the limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.held = 0

    def take(self, size: int, *, alone: bool = False) -> None:
        """Add `size` bytes.  Raises Busy if other requests reserve too much for these to fit."""
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
        """Subtract `size` bytes."""
        if not size:
            return
        with self._lock:
            self.held -= size
            IN_FLIGHT.set(self.held)

    def admit(self, size: int) -> Admitted:
        """Reserve `size` bytes, and those of later `grow` calls, until the end of the block.  Raises Busy."""
        self.take(size)
        return Admitted(self, size)


gate = Gate()
