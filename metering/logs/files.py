"""Log files by content, not by name: names move when a log is rotated, content does not."""

import glob
import gzip
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

HEAD_BYTES: Final = 64 << 10
CHUNK_BYTES: Final = 1 << 20
WINDOW_BYTES: Final = 1024
GZIP: Final = b"\x1f\x8b"


class LogFile:
    """Open file, plain or gzip; offsets count the bytes of the content. It stays readable when its name is gone.

    `finished`: no more content will come, so a first line without its end is complete.
    """

    def __init__(self, path: Path, *, finished: bool = False) -> None:
        self.name = str(path)
        self._finished = finished
        self._raw: BinaryIO = path.open("rb")
        self.compressed = self._raw.read(2) == GZIP
        self.broken = ""
        self._unpacked: Unpacked | None = None

    @property
    def key(self) -> tuple[int, int]:
        """Return device and inode."""
        status = os.fstat(self._raw.fileno())
        return status.st_dev, status.st_ino

    @property
    def stamp(self) -> str:
        """Return a text that changes whenever the file changes: size and time."""
        status = os.fstat(self._raw.fileno())
        return f"{status.st_size}:{status.st_mtime_ns}"

    @property
    def is_unlinked(self) -> bool:
        """Return True if no name leads to the file any more."""
        return os.fstat(self._raw.fileno()).st_nlink == 0

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes of the content; a truncated or damaged gzip file ends there, and is `broken`."""
        if not self.compressed:
            return _pread(self._raw.fileno(), offset, size)
        if self._unpacked is None or self._unpacked.start > offset:
            self._unpacked = Unpacked(self._raw)
        content = self._unpacked.read(offset, size)
        self.broken = self._unpacked.broken
        if self.broken:
            self._unpacked = None
        return content

    def head(self) -> bytes:
        """Return the hash of the first line, or b"" while the line is not complete; of an array, that of all content."""
        start = self.read(0, HEAD_BYTES)
        if start.startswith(b"["):
            # Arrays begin alike, and may lack any line's end: equal exports may differ in one record only.
            hashed, offset = blake2b(start, digest_size=16), len(start)
            while more := self.read(offset, CHUNK_BYTES):
                hashed.update(more)
                offset += len(more)
            return hashed.digest()
        line, end, _ = start.partition(b"\n")
        if not start or (not end and len(start) < HEAD_BYTES and not self._finished):
            return b""
        return blake2b(line, digest_size=16).digest()

    def window(self, offset: int) -> bytes | None:
        """Return the hash of the bytes just before an offset, or None if the content is not that long."""
        start = max(0, offset - WINDOW_BYTES)
        content = self.read(start, offset - start)
        return blake2b(content, digest_size=16).digest() if len(content) == offset - start else None

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


class Unpacked:
    """Content of a gzip file, unpacked forward once; the bytes that were read last are kept, to be read again."""

    def __init__(self, raw: BinaryIO) -> None:
        raw.seek(0)
        self._gzip = gzip.GzipFile(fileobj=raw)
        self._kept = b""
        self.start = 0
        self.broken = ""

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from an offset that is not before `start`."""
        while not self.broken and self.start + len(self._kept) < offset + size:
            try:
                more = self._gzip.read1(1 << 20)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                self.broken = str(error)
                break
            if not more:
                break
            useless = max(0, min(offset - WINDOW_BYTES - self.start, len(self._kept)))
            self._kept, self.start = self._kept[useless:] + more, self.start + useless
        return self._kept[max(0, offset - self.start) :][:size] if offset <= self.start + len(self._kept) else b""


class Stream:
    """Standard input, which is read forward only; bytes that were read are not kept."""

    name = "-"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._start = 0
        self.ended = False

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from that offset; wait for new ones unless as many are there already."""
        self._buffer, self._start = self._buffer[offset - self._start :], offset
        if len(self._buffer) < size and not self.ended:
            more = os.read(self._descriptor, 1 << 20)
            self.ended = not more
            self._buffer += more
        return self._buffer[:size]


def log_paths(given: Iterable[Path], *, pattern: str = "*", since: float) -> Iterator[Path]:
    """Yield the files to read: those given, all of a directory, and rotated siblings that changed after `since`.

    A sibling's name begins with that of the file: `access.log.1`, `access.log-20261101.gz`. Older siblings are history, and
    are read only if their own name, or that of their directory, is given.
    """
    for path in given:
        if path.is_dir():
            yield from sorted(item for item in path.glob(pattern) if _is_file(item))
            continue
        brothers = sorted(item for item in path.parent.glob(f"{glob.escape(path.name)}?*") if _is_file(item))
        yield from (item for item in brothers if _changed(item) >= since)
        if _is_file(path):
            yield path


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # gone between the listing and now
        return False


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _pread(descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)
