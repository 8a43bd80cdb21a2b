"""Advisory locks (flock): the kernel drops them however their holder dies, which no pid file can promise."""

import fcntl
import os
import time
from pathlib import Path

_RETRY_SECONDS = 0.02


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
