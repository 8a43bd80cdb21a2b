"""Where the processor's time goes: of the web workers, of the database, of whoever sends; other loads do not count in it."""

import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from tests.benchmarks.servers import Server

PARTS: Final = ("web", "database", "sender")


class ProcessorTime:
    """Seconds by part, summed over what was watched."""

    def __init__(self, server: Server) -> None:
        self._roots = {"web": server.pid, "database": postmaster()}
        self.seconds = defaultdict[str, float](float)
        self.records = 0

    @contextmanager
    def watched(self, records: int) -> Iterator[None]:
        """Add what the block takes for so many records. Processes that send have ended by its end."""
        before, sent = self._now(), _sent()
        yield
        for part, processes in self._now().items():  # what a process used that has ended is not known
            self.seconds[part] += sum(used - before[part].get(number, 0.0) for number, used in processes.items())
        self.seconds["sender"] += _sent() - sent
        self.records += records

    def row(self, name: str) -> tuple[str, ...]:
        """Of the table: microseconds a record by part."""
        shares = {part: self.seconds[part] / self.records * 1e6 for part in PARTS}
        said = ", ".join(f"{part} {share:.1f}" for part, share in shares.items())
        return f"{name} processor time of a record", f"{sum(shares.values()):.1f} us", said, "", ""

    def _now(self) -> dict[str, dict[int, float]]:
        return {part: _family(root) for part, root in self._roots.items()}


@dataclass(frozen=True)
class Taken:
    """Seconds by the clock, and of the processor."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{self.clock * 1000:,.0f} ms, processor {self.processor * 1000:,.0f} ms"

    def ratio(self, first: "Taken") -> str:
        return f"{self.clock / first.clock:.2f}, {self.processor / first.processor:.2f}"


def taken(work: Callable[..., Any], *arguments: Any) -> Taken:
    """What some work takes, of the processor with the database and every process that was started here."""
    started, used = time.perf_counter(), all_seconds()
    work(*arguments)
    return Taken(time.perf_counter() - started, all_seconds() - used)


def seconds_of(work: Callable[..., Any], *arguments: Any, **named: Any) -> float:
    """What some work takes by the clock."""
    started = time.perf_counter()
    work(*arguments, **named)
    return time.perf_counter() - started


def say(text: str) -> None:
    """Progress, with the time and how many processes wait for a processor."""
    print(f"{time.strftime('%H:%M:%S')} [{os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)


def _sent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _family(root: int) -> dict[int, float]:
    """User and system seconds of a process and all below it that still run, by their numbers."""
    parent, seconds = psutil.Process(root), {}
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds[process.pid] = times.user + times.system
    return seconds


def family_seconds(root: int) -> float:
    """User and system seconds of a process, of all below it, and of those below it that have ended."""
    times = psutil.Process(root).cpu_times()
    return sum(_family(root).values()) + times.children_user + times.children_system


def all_seconds() -> float:
    """Of this process, of all that it started, such as servers of ClickHouse, and of the database."""
    return family_seconds(os.getpid()) + family_seconds(postmaster())


def postmaster() -> int:
    path = Path(os.environ["SUANPAN_HOME"]) / "postgres" / "postmaster.pid"
    return int(path.read_text().split("\n", 1)[0])
