"""Supervisor of the parts of an installation (web, worker, scheduler) in the foreground: all of them run, or none."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from billing.local.linux import session_kill
from billing.runtime.home import PROJECT

_LOOK_SECONDS = 0.1
_ORPHANED_GRACE_SECONDS = 2.0
_KILLED_SECONDS = 5.0  # somebody else may have inherited its output
_TAIL_LINES = 15
_LONGEST_BACK_OFF_SECONDS = 10.0
_SERVED_SECONDS = 5.0
_LONGEST_LINE = 64 * 1024
_ENDINGS = {
    127: "its program was not found",
    128 + signal.SIGKILL: "killed by SIGKILL; if nobody did that by hand, memory ran out",
}


@dataclass(frozen=True)
class Child:
    """Part of an installation: its command, and optionally a probe that it serves.

    env: whole environment, default the supervisor's. ready: quick probe, called about ten times a second until True.
    ready_seconds: time after which a part that is not ready counts as failed.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    ready: Callable[[], bool] | None = None
    ready_seconds: float = 300.0  # a slow start that is ended begins again


@dataclass(eq=False)
class _Part:
    """State of one child: its process, last output, failures, and the time of its next start."""

    child: Child
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    failures: list[float] = field(default_factory=list)
    start_at: float = 0.0
    started_at: float = 0.0
    is_ready: bool = False
    has_served: bool = False


class Supervisor:
    """Supervisor that starts all children and watches them until Ctrl-C, SIGTERM or SIGHUP, or until one cannot be started.

    A part that ends by itself is reported with its status and last lines, and started again with growing delay. A part that
    fails more than `restarts` times within `window` seconds and never served ends everything; a part that did serve is
    started again and again. grace: seconds between the request to stop and the kill.
    on_ready: called once, when every part serves.
    """

    def __init__(
        self,
        children: Sequence[Child],
        *,
        restarts: int = 3,
        window: float = 60.0,
        back_off: float = 0.5,
        grace: float = 15.0,
        on_ready: Callable[[], None] | None = None,
        out: TextIO | None = None,
    ) -> None:
        self._parts = [_Part(child) for child in children]
        self._restarts, self._window, self._back_off, self._grace = restarts, window, back_off, grace
        self._on_ready = on_ready
        self._out = out or sys.stdout
        self._writing = threading.Lock()
        self._nobody_reads = False
        self._width = max((len(child.name) for child in children), default=0)
        self._requests = 0

    def run(self) -> int:
        """Serve; return 0 after a request to stop, 1 if a part could not be kept running. Call it from the main thread."""
        with self._stop_requests():
            try:
                while not self._requests:
                    if not all(self._keep(part) for part in self._parts) or self._nobody_reads:
                        return 1
                    if self._on_ready is not None and all(part.is_ready for part in self._parts):
                        announce, self._on_ready = self._on_ready, None
                        announce()
                    time.sleep(_LOOK_SECONDS)
                return 0
            except BrokenPipeError:
                return 1  # the reader of what is announced has gone
            finally:
                self._stop()

    @contextlib.contextmanager
    def _stop_requests(self) -> Iterator[None]:
        """Count signals to stop; the loop checks the count, so nothing is interrupted half-way."""

        def count(_number: int, _frame: object) -> None:
            self._requests += 1

        before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _keep(self, part: _Part) -> bool:
        """Start the part if it is time, and check that it runs; return False if it has failed too often."""
        now = time.monotonic()
        if part.process is None:
            if now >= part.start_at:
                self._start(part)
            return True
        if (status := part.process.poll()) is not None:
            return self._failed(part, part.process, _ending(status))
        if not part.is_ready:
            part.is_ready = part.child.ready is None or part.child.ready()
            if not part.is_ready and now > part.started_at + part.child.ready_seconds:
                return self._failed(part, part.process, f"not ready after {part.child.ready_seconds:g} s")
        elif not part.has_served:
            part.has_served = now > part.started_at + _SERVED_SECONDS
        return True

    def _start(self, part: _Part) -> None:
        guard = [sys.executable, "-m", "billing.local.orphan_guard", str(os.getpid()), str(_ORPHANED_GRACE_SECONDS), "--"]
        environment = os.environ if part.child.env is None else part.child.env
        part.tail.clear()
        part.started_at, part.is_ready = time.monotonic(), False
        part.process = subprocess.Popen(  # noqa: S603 -- the caller's command
            [*guard, *part.child.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**environment, "PYTHONUNBUFFERED": "1"},  # else its lines would come in blocks
            cwd=PROJECT,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops the parts in order
        )
        part.reader = threading.Thread(target=self._pass_on, args=(part, part.process.stdout), daemon=True)
        part.reader.start()

    def _pass_on(self, part: _Part, output: TextIO) -> None:
        """Write each line of a part until it and all its processes have ended."""
        with output:
            while line := output.readline(_LONGEST_LINE):
                part.tail.append(line.rstrip("\r\n"))
                self._write(part.child.name, part.tail[-1])

    def _failed(self, part: _Part, process: subprocess.Popen[str], reason: str) -> bool:
        """Report a failure and plan the next start; return False if there is none."""
        self._kill(part, process)
        now = time.monotonic()
        part.failures = [*(at for at in part.failures if at > now - self._window), now]
        self._write("*", f"{part.child.name} failed: {reason}. Its last lines:")
        for line in part.tail or ["(it wrote nothing)"]:
            self._write("*", f"    {line}")
        attempt = len(part.failures)
        often = f"failed {attempt} times within {self._window:.0f} s"
        if attempt > self._restarts and not part.has_served:
            self._write("*", f"{part.child.name} {often}: stopping everything")
            return False
        delay = min(self._back_off * 2 ** (attempt - 1), _LONGEST_BACK_OFF_SECONDS)
        self._write("*", f"starting {part.child.name} again in {delay:.1f} s ({often})")
        part.process, part.start_at = None, now + delay
        return True

    def _stop(self) -> None:
        """Ask all parts to stop, wait, kill. A second request to stop ends the waiting."""
        running = [(part, part.process) for part in self._parts if part.process is not None]
        for _, process in running:
            process.terminate()
        deadline, requests = time.monotonic() + self._grace, self._requests
        while any(process.poll() is None for _, process in running):
            if time.monotonic() > deadline or self._requests > requests:
                break
            time.sleep(_LOOK_SECONDS / 2)
        for part, process in running:
            self._kill(part, process)

    def _kill(self, part: _Part, process: subprocess.Popen[str]) -> None:
        """Kill a part and every process of its session, whose id is the guard's pid, and pass on its last lines."""
        process.kill()
        session_kill(process.pid)
        process.wait()
        if part.reader is not None:
            part.reader.join(_KILLED_SECONDS)

    def _write(self, name: str, text: str) -> None:
        with self._writing:
            try:
                self._out.write(f"{name:{self._width}} | {text}\n")
                self._out.flush()
            except BrokenPipeError:
                self._nobody_reads = True  # a part that writes on is not to wait for it


def _ending(code: int) -> str:
    status = 128 - code if code < 0 else code  # the guard reports the signal of its command as 128 + n
    if status in _ENDINGS:
        return f"exit status {code}, {_ENDINGS[status]}"
    if status > 128 and (meaning := signal.strsignal(status - 128)):
        return f"exit status {code}, ended by signal {status - 128} ({meaning})"
    return f"exit status {code}"
