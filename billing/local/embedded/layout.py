"""Layout of a home: the paths of its files, and the locks among them.

A lock (flock) is dropped by the kernel however its holder dies, which no pid file can promise.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from billing.runtime.home import make_home

READY, ANOTHER = "ready", "another"
"""Answers of a keeper to the process that started it."""
_RETRY_SECONDS = 0.02


@dataclass(frozen=True)
class Layout:
    """Paths of one home. `run/` is the current state and may be deleted while nothing runs; `postgres/` is the data."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "postgres"

    def state(self, server: str) -> Path:
        """Return the pid file of a server that serves: {"keeper": pid, "pid": pid, "port": port}."""
        return self.home / "run" / f"{server}.json"

    def port(self, server: str) -> Path:
        """Return the file with the port to take again at the next start."""
        return self.home / f"{server}.port"

    def lock(self, name: str) -> Path:
        """Return the path of a lock: SERVER, SERVER.users or SERVER.keeper."""
        return self.home / "run" / f"{name}.lock"

    def log(self, name: str) -> Path:
        return self.home / "log" / f"{name}.log"

    def make(self) -> None:
        """Create the directories of the starter; the caller of initdb creates the data directory."""
        make_home(self.home)
        for name in ("run", "log"):
            (self.home / name).mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner only; readers see the old or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of a pid file; nothing if it is missing or damaged: then its server is not known to serve."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def open_lock(path: Path) -> int:
    """Return a descriptor to lock, closed on exec."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def acquire(descriptor: int, mode: int, seconds: float) -> bool:
    """Take the lock in `mode` (fcntl.LOCK_SH or LOCK_EX), waiting at most `seconds`; return False if that failed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            # polled, because flock has no timeout
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_RETRY_SECONDS)


def available(path: Path, mode: int) -> bool:
    """Return True if the lock could be taken in `mode` at this moment; it is released at once."""
    descriptor = open_lock(path)
    try:
        return acquire(descriptor, mode, 0)
    finally:
        os.close(descriptor)


def holders(path: Path) -> Iterator[int]:
    """Yield the processes other than this one that have the file open: for the lock of a server these are its own."""
    wanted = path.stat()
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        pid = int(descriptors.parent.name)
        with contextlib.suppress(OSError):  # the process ended meanwhile, or belongs to another user
            if pid != os.getpid() and any(os.path.samestat(one.stat(), wanted) for one in descriptors.iterdir()):
                yield pid
