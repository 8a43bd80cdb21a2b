"""A file that appears whole under its final name, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """A draft beside `path` to write to; it takes the name of `path` if the block ends well, else it is removed.

    The draft is on the disk before it is renamed, so that a power failure leaves no empty file under a good name.
    mode: permissions before the umask; a copy of the database is nobody else's to read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    try:
        yield draft
        descriptor = os.open(draft, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
