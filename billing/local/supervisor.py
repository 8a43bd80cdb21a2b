"""Supervisor of the parts of an installation (web, worker, scheduler) in the foreground: all of them run, or none."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from billing.local.linux import session_members
from billing.runtime.home import PROJECT

_LOOK_SECONDS = 0.1
_ORPHANED_GRACE_SECONDS = 2.0
_KILLED_SECONDS = 5.0  # a process that survives this hangs in the kernel
_TAIL_LINES = 15
_LONGEST_BACK_OFF_SECONDS = 10.0
_SERVED_SECONDS = 5.0
_LONGEST_LINE_BYTES = 64 * 1024
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
    ready_seconds: float = 60.0


@dataclass(eq=False)
class _Part:
    """State of one child: its process, last output, failures, and the time of its next start."""

    child: Child
    process: subprocess.Popen[bytes] | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    unfinished: bytes = b""
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
        self._width = max((len(child.name) for child in children), default=0)
        self._selector = selectors.DefaultSelector()
        self._requests = 0

    def run(self) -> int:
        """Serve; return 0 after a request to stop, 1 if a part could not be kept running. Call it from the main thread."""
        with self._stop_requests():
            try:
                while not self._requests:
                    if not all(self._keep(part) for part in self._parts):
                        return 1
                    self._announce()
                    self._read(_LOOK_SECONDS)
                return 0
            except BrokenPipeError:
                return 1  # the reader of our output has gone
            finally:
                self._stop()
                self._selector.close()

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
        if part.process is None:
            if time.monotonic() >= part.start_at:
                self._start(part)
            return True
        if part.process.poll() is not None:
            self._forget(part)
            return self._failed(part, _ending(part.process.returncode))
        if not part.is_ready:
            part.is_ready = part.child.ready is None or part.child.ready()
            if not part.is_ready and time.monotonic() > part.started_at + part.child.ready_seconds:
                _kill(part.process)
                self._forget(part)
                return self._failed(part, f"not ready after {part.child.ready_seconds:g} s")
        elif not part.has_served:
            part.has_served = time.monotonic() > part.started_at + _SERVED_SECONDS
        return True

    def _start(self, part: _Part) -> None:
        guard = [sys.executable, "-m", "billing.local.orphan_guard", str(os.getpid()), str(_ORPHANED_GRACE_SECONDS), "--"]
        environment = os.environ if part.child.env is None else part.child.env
        part.process = subprocess.Popen(  # noqa: S603 -- the caller's command
            [*guard, *part.child.argv],
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, "PYTHONUNBUFFERED": "1"},  # else its lines would come in blocks
            cwd=PROJECT,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops the parts in order
        )
        part.started_at = time.monotonic()
        part.is_ready = False
        part.tail.clear()
        if part.process.stdout:
            os.set_blocking(part.process.stdout.fileno(), False)
            self._selector.register(part.process.stdout, selectors.EVENT_READ, part)

    def _failed(self, part: _Part, reason: str) -> bool:
        """Report a failure and plan the next start; return False if there is none."""
        now = time.monotonic()
        part.failures = [*(at for at in part.failures if at > now - self._window), now]
        self._say(f"{part.child.name} failed: {reason}. Its last lines:")
        for line in part.tail or ["(it wrote nothing)"]:
            self._say(f"    {line}")
        attempt = len(part.failures)
        if attempt > self._restarts and not part.has_served:
            self._say(f"{part.child.name} failed {attempt} times within {self._window:.0f} s: stopping everything")
            return False
        delay = min(self._back_off * 2 ** (attempt - 1), _LONGEST_BACK_OFF_SECONDS)
        self._say(f"starting {part.child.name} again in {delay:.1f} s (failed {attempt} times within {self._window:.0f} s)")
        part.process, part.start_at = None, now + delay
        return True

    def _announce(self) -> None:
        if self._on_ready is not None and all(part.is_ready for part in self._parts):
            announce, self._on_ready = self._on_ready, None
            announce()

    def _stop(self) -> None:
        """Ask all parts to stop, wait, kill. A second request to stop ends the waiting."""
        running = [part for part in self._parts if part.process is not None and part.process.poll() is None]
        for part in running:
            if part.process:
                part.process.terminate()
        deadline = time.monotonic() + self._grace
        requests = self._requests
        while any(part.process and part.process.poll() is None for part in running):
            if time.monotonic() > deadline or self._requests > requests:
                break
            with contextlib.suppress(BrokenPipeError):
                self._read(_LOOK_SECONDS)
        for part in self._parts:
            if part.process is not None:
                _kill(part.process)
                with contextlib.suppress(BrokenPipeError):
                    self._forget(part)

    def _forget(self, part: _Part) -> None:
        """Kill the rest of an ended part's session, and pass on its last output."""
        if part.process is None or part.process.stdout is None or part.process.stdout.closed:
            return
        _kill(part.process)
        try:
            while self._take(part):
                pass
            if part.unfinished:
                self._line(part, part.unfinished)
        finally:
            part.unfinished = b""
            self._selector.unregister(part.process.stdout)
            part.process.stdout.close()

    def _read(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if self._take(key.data) == b"":
                time.sleep(_LOOK_SECONDS)  # closed by a part that goes on: always readable, with nothing to read

    def _take(self, part: _Part) -> bytes | None:
        """Pass on the output of a part; return b"" at its end, None if there is nothing for now."""
        output = part.process.stdout if part.process else None
        written: bytes | None = output.read(_LONGEST_LINE_BYTES) if output else b""
        *lines, part.unfinished = (part.unfinished + (written or b"")).split(b"\n")
        if len(part.unfinished) > _LONGEST_LINE_BYTES:
            lines, part.unfinished = [*lines, part.unfinished], b""
        for line in lines:
            self._line(part, line)
        return written

    def _line(self, part: _Part, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        part.tail.append(text)
        self._write(f"{part.child.name:{self._width}} | {text}")

    def _say(self, text: str) -> None:
        self._write(f"{'*':{self._width}} | {text}")

    def _write(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a part and every process of its session, whose id is the guard's pid."""
    deadline = time.monotonic() + _KILLED_SECONDS
    while ((members := session_members(process.pid)) or process.poll() is None) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)


def _ending(code: int) -> str:
    status = 128 - code if code < 0 else code  # the guard reports the signal of its command as 128 + n
    if status in _ENDINGS:
        return f"exit status {code}, {_ENDINGS[status]}"
    if status > 128 and (meaning := signal.strsignal(status - 128)):
        return f"exit status {code}, ended by signal {status - 128} ({meaning})"
    return f"exit status {code}"
