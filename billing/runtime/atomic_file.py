"""Atomic writing of files: a file appears whole under its final name, or not at all.

A writer locks its draft, and the kernel releases the lock when the writer dies: so the next writer can tell drafts of
killed writers from drafts in progress.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

OWNER_AND_GROUP: Final = 0o640
DRAFT: Final = re.compile(r"\.(?P<name>.+)\.\d+(-[0-9a-f]{8})?", re.DOTALL)
"""Name of a draft: the file's, the process, and what tells its threads apart; 1.0 left the last one out."""


@contextmanager
def atomic_file(path: Path, *, mode: int = OWNER_AND_GROUP) -> Iterator[Path]:
    """Yield a draft beside `path` to write to; rename it to `path` if the block succeeds, else remove it.

    Draft and folder are synced before this returns, so that a power failure leaves no empty file under the final name and
    reverts no rename. Drafts of the same file from killed writers are removed first.
    mode: permissions before the umask. Exports are never readable by everybody; a copy of the database only by its owner.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    drafts_sweep(path.parent, {path.name})
    with _draft(path, mode) as draft:
        yield draft
    folder_sync(path.parent)


@contextmanager
def whole_files(directory: Path, names: Collection[str]) -> Iterator[Callable[[Path, bytes], Path]]:
    """Yield a function that writes whole files of those names into a folder, which is swept and synced once for all."""
    directory.mkdir(parents=True, exist_ok=True)
    drafts_sweep(directory, names)
    yield _written
    folder_sync(directory)


def _written(path: Path, body: bytes) -> Path:
    with _draft(path, OWNER_AND_GROUP) as draft:
        draft.write_bytes(body)
    return path


def drafts_sweep(directory: Path, names: Collection[str]) -> list[Path]:
    """Remove abandoned drafts of files of those names; return their paths."""
    removed = []
    for entry in list(os.scandir(directory)):
        found = DRAFT.fullmatch(entry.name)
        if found and found["name"] in names and entry.is_file(follow_symlinks=False) and _abandoned(Path(entry.path)):
            removed.append(Path(entry.path))
    return removed


def _abandoned(draft: Path) -> bool:
    """Remove a draft that no process has locked; return True if it was removed."""
    try:
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # gone, or of another account: do not remove
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.unlink(missing_ok=True)
    except OSError:  # a writer has the lock, or this file system has no locks
        return False
    finally:
        os.close(descriptor)
    return True


@contextmanager
def _draft(path: Path, mode: int) -> Iterator[Path]:
    draft, descriptor = _locked(path, mode)
    try:
        yield draft
        os.fsync(descriptor)
        # after fsync: a rename may reach the disk before the data, and leave an empty file after a power failure
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, mode: int) -> tuple[Path, int]:
    """Create a draft under a name of its own, and lock it; another one where a sweep came before the lock."""
    while True:
        draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        with suppress(OSError):  # a file system without locks: its drafts are never swept
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return draft, descriptor
        os.close(descriptor)


def folder_sync(directory: Path) -> None:
    """Sync the entries of a folder to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
