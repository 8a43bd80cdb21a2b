"""Counters of web processes. With several workers each writes into files of one folder, which
PROMETHEUS_MULTIPROC_DIR names (`billing.settings.serve` makes it), so that any of them answers for all.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from billing.runtime.request_id import HEADER

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
OWN: Final = CollectorRegistry(auto_describe=False)
SECONDS: Final = Histogram(
    "suanpan_request_seconds", "from the head of a request to the end of its answer", ["endpoints"], registry=OWN,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)  # fmt: skip
ANSWERS: Final = Counter("suanpan_requests", "answers by class of status", ["endpoints", "status"], registry=OWN)
REFUSED: Final = Counter("suanpan_ingest_refused_busy", "reports asked to come again", registry=OWN)
IN_FLIGHT: Final = Gauge(
    "suanpan_ingest_bytes_in_flight", "bytes of bodies being taken in", registry=OWN, multiprocess_mode="livesum"
)
_CLASSES: Final = (
    ("/api/v1/usage/summary", "api"), ("/api/v1/usage/", "usage"), ("/api/v1/events", "usage"), ("/v1/", "usage"),
    ("/api/v1/budgets/", "budgets"), ("/api/", "api"), ("/mcp", "api"),
    ("/healthz", "probes"), ("/readyz", "probes"), ("/metrics", "probes"), ("/static/", "static"),
)  # fmt: skip


@lru_cache(maxsize=256)
def endpoint_class(path: str) -> str:
    """Return the class of a request: usage, budgets, api, pages, static or probes."""
    return next((name for prefix, name in _CLASSES if path.startswith(prefix)), "pages")


class CountedAnswer:
    """Sender that adds the request's id to an answer, and counts the request at its last message."""

    __slots__ = ("_begun", "_endpoints", "_id", "_send", "_status")

    def __init__(self, path: str, identifier: str, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._send, self._endpoints, self._begun, self._status = send, endpoint_class(path), perf_counter(), 0
        self._id = (HEADER.lower().encode(), identifier.encode())

    @property
    def is_begun(self) -> bool:
        """Return True if the client may have received a part of the answer."""
        return self._status != 0

    def __call__(self, message: dict[str, Any]) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"].append(self._id)
            return self._send(message)
        return self._send(message) if message.get("more_body") else self._end(message)

    async def _end(self, message: dict[str, Any]) -> None:
        await self._send(message)
        seconds, answers = _counters(self._endpoints, self._status // 100)
        seconds.observe(perf_counter() - self._begun)
        answers.inc()


@cache
def _counters(endpoints: str, status_class: int) -> tuple[Histogram, Counter]:
    """Return the counters for a class of answers, cached: finding them costs more than counting."""
    return SECONDS.labels(endpoints), ANSWERS.labels(endpoints, f"{status_class}xx")


def processes() -> CollectorRegistry:
    """Return the counters of all web workers of this host."""
    if FOLDER not in os.environ:
        return OWN
    _forget_gauges_of_ended(Path(os.environ[FOLDER]))
    together = CollectorRegistry(auto_describe=False)
    MultiProcessCollector(together)
    return together


def _forget_gauges_of_ended(folder: Path) -> None:
    """Remove the gauges of killed workers, which hold no bodies; their counters stay, so that no count is lost."""
    for file in folder.glob("gauge_live*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)  # signal 0 only tests whether the process exists
        except (ProcessLookupError, PermissionError):  # or another user's process has the number by now
            with suppress(FileNotFoundError):  # another worker did so at the same time
                mark_process_dead(pid)
