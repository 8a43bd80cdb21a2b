"""Number of records that a process could not write to disk, in a file that was made while there was room.

The number is overwritten in place, for which a full disk has room. The file belongs to its process, by a lock, for its
lifetime; the number left in it afterwards is of lost records, and the sender skips as many sequence numbers, which the
platform then misses.

File systems that copy on write (btrfs, ZFS) need room even for that; there only the log names lost records.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

BYTES: Final = 8


class Unkept:
    """File with the number of one process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"unkept-{uuid4().hex}"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._count = -1
        self.set(0)

    def set(self, count: int) -> None:
        """Note that `count` records are in memory only; durable when this returns.  Raises OSError."""
        if count != self._count:
            os.pwrite(self._file, count.to_bytes(BYTES, "big"), 0)
            os.fsync(self._file)
            self._count = count

    def close(self) -> None:
        """Close the file; delete it if the number is zero, else leave it to the sender."""
        if not self._count:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


@contextmanager
def left_behind(folder: Path) -> Iterator[list[tuple[Path, int]]]:
    """Yield the files of processes that ended, with their numbers, locked until the block ends."""
    found: list[tuple[Path, int]] = []
    files: list[int] = []
    try:
        for path in sorted(folder.glob("unkept-*")):
            try:
                file = os.open(path, os.O_RDONLY)
            except FileNotFoundError:  # given up by its process just now
                continue
            files.append(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            count = os.pread(file, BYTES, 0)
            if len(count) == BYTES:  # else its process is just making it
                found.append((path, int.from_bytes(count, "big")))
        yield found
    finally:
        for file in files:
            os.close(file)
