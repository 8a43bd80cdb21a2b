"""Base of the embedded servers: start on a free port, wait until it answers, stop."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from billing.local.embedded.account import Account
from billing.local.embedded.errors import EmbeddedError, PortTaken, log_size, start_failed
from billing.local.embedded.layout import Layout
from billing.local.embedded.locks import acquire, open_lock
from billing.local.embedded.ports import port_for

_PORTS_TRIED = 5
_POLL_SECONDS = 0.02
_PREDECESSOR_SECONDS = 30.0
_LOG_BYTES = 16 * 1024 * 1024


class Server(ABC):
    """Server of a home, a child of the keeper.

    Its processes hold the lock named after it for as long as one of them lives. So a process that gets the lock knows that
    no predecessor touches the data any more, and may clear the leftovers of a killed predecessor.
    """

    name: str
    title: str
    ready_seconds: float
    on_parent_death: signal.Signals
    stopping: tuple[tuple[signal.Signals, float], ...]
    """Signals to stop it, each with the seconds before the next one; after the last comes SIGKILL."""

    def __init__(self, layout: Layout, account: Account) -> None:
        self.layout = layout
        self.account = account
        self.log = layout.log(self.name)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self, lock: int) -> None:
        """Prepare the files on disk for a start."""

    @abstractmethod
    def launch(self, lock: int) -> subprocess.Popen[bytes]:
        """Start the program on `self.port`."""

    @abstractmethod
    def answers(self) -> bool:
        """Return True if this very server serves."""

    def start(self) -> None:
        """Start the server and wait until it answers. Raises EmbeddedError with the end of its log otherwise."""
        _rotate(self.log)
        lock = self._lock_out_predecessors()
        try:
            self.prepare(lock)
            self.process = self._launch_on_a_free_port(lock)
        finally:
            # the server has inherited the lock and holds it from here on
            os.close(lock)

    def stop(self) -> None:
        """Stop the server by stronger and stronger signals; return when it has ended."""
        if self.process is None:
            return
        for sign, seconds in (*self.stopping, (signal.SIGKILL, 10.0)):
            if self.process.poll() is None:
                self.process.send_signal(sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(seconds)
        self.process = None

    def _launch_on_a_free_port(self, lock: int) -> subprocess.Popen[bytes]:
        for attempt in range(_PORTS_TRIED):
            self.port = port_for(self.layout, self.name, another=attempt > 0)
            offset = log_size(self.log)
            self.process = self.launch(lock)
            try:
                self._await_answer(self.process, offset)
            except PortTaken:
                continue
            return self.process
        raise EmbeddedError(f"{self.title} found no free port on loopback in {_PORTS_TRIED} attempts; see {self.log}")

    def _await_answer(self, process: subprocess.Popen[bytes], offset: int) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while process.poll() is None:
            if self.answers():
                return
            if time.monotonic() > deadline:
                self.stop()
                raise start_failed(f"{self.title} did not answer within {self.ready_seconds:.0f} s; it", self.log, offset)
            time.sleep(_POLL_SECONDS)
        raise start_failed(self.title, self.log, offset)

    def _lock_out_predecessors(self) -> int:
        path = self.layout.lock(self.name)
        lock = open_lock(path)
        if not acquire(lock, fcntl.LOCK_EX, _PREDECESSOR_SECONDS):
            leftovers = list(_holders(path))
            for pid in leftovers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not acquire(lock, fcntl.LOCK_EX, _PREDECESSOR_SECONDS):
                os.close(lock)
                raise EmbeddedError(f"an earlier {self.title} of this home does not end (pids {leftovers}); end it by hand")
        return lock


def _holders(path: Path) -> Iterator[int]:
    """Yield processes other than this one that have the file open: for the lock of a server these are its processes."""
    wanted = path.stat()
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) != os.getpid() and _has_open(entry / "fd", wanted):
            yield int(entry.name)


def _has_open(descriptors: Path, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):  # the process ended meanwhile, or belongs to another user
        for descriptor in descriptors.iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False


def _rotate(log: Path) -> None:
    if log_size(log) > _LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
