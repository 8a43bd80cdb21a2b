"""Checkpoints of files, counters, and lines that could not be read: in the caller's transaction.

A file is found again by device and inode, or, when it was copied, moved or compressed meanwhile, by its first line; both
only count if the bytes just before the checkpoint are still the same. A file that is taken for a new one all the same is
read once more, and the platform knows its records.
"""

import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from metering.logs.files import LogFile
from metering.record_checks import RecordError

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS log_file (
    id INTEGER PRIMARY KEY, device INTEGER, inode INTEGER, path TEXT NOT NULL, head BLOB NOT NULL,
    read_until INTEGER NOT NULL, window BLOB NOT NULL, chain BLOB NOT NULL, context TEXT NOT NULL, stamp TEXT NOT NULL,
    UNIQUE (device, inode)
);
CREATE INDEX IF NOT EXISTS log_file_head ON log_file (head);
CREATE TABLE IF NOT EXISTS log_setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS log_count (name TEXT PRIMARY KEY, number INTEGER NOT NULL);
"""
MAX_REJECTED_BYTES: Final = 1 << 28
MAX_REJECTED_LINE: Final = 64 << 10


@dataclass(frozen=True)
class RejectedLine:
    """Line that could not be read: its place, the reason, and its bytes (shortened). `id`: of the missing record."""

    file: str
    offset: int
    id: str = ""
    reason: str = ""
    line: bytes = field(default=b"", repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the line's entry for the reject file."""
        shown = self.line[:MAX_REJECTED_LINE].decode("utf-8", "backslashreplace").rstrip("\r\n")
        return {"file": self.file, "offset": self.offset, "id": self.id, "reason": self.reason, "line": shown}


@dataclass
class Checkpoint:
    """Position in a file. `chain`: hash of all that was read; `context`: of its container; `stamp`: if finished."""

    id: int = 0
    head: bytes = b""
    read_until: int = 0
    chain: bytes = b""
    context: str = ""
    stamp: str = ""


class Checkpoints:
    """Tables of the log reader in its state file; every method leaves the commit to the caller."""

    def __init__(self, connection: sqlite3.Connection, rejected: Path | None) -> None:
        self._connection = connection
        self._rejected = rejected
        connection.executescript(SCHEMA)

    def settle(self, **settings: str) -> float:
        """Note the settings of this state; return when it began (s since 1970).  Raises RecordError for other settings."""
        for name, value in settings.items():
            known = self._setting(name, value)
            if known != value:
                raise RecordError(f"this state directory is for --{name} {known}, not {value}: use another --state", name)
        return float(self._setting("began_at", repr(time.time())))

    def of(self, file: LogFile) -> Checkpoint | None:
        """Return the checkpoint of a file, None while the file has no first line."""
        device, inode = file.key
        found = self._select("device = ? AND inode = ?", device, inode)
        if found:
            if file.stamp == found[0][0].stamp or file.window(found[0][0].read_until) == found[0][1]:
                return found[0][0]
            # Other content under the same inode: it was reused or truncated. The row can still be found by its first line.
            self._connection.execute("UPDATE log_file SET device = NULL, inode = NULL WHERE id = ?", (found[0][0].id,))
        head = file.head()
        if not head:
            return None
        for checkpoint, window in self._select("head = ? ORDER BY read_until DESC", head):
            if file.window(checkpoint.read_until) == window:
                checkpoint.stamp = ""
                return self._added(file, checkpoint)
        return self._added(file, Checkpoint(head=head))

    def of_table(self, name: str) -> Checkpoint:
        """Return the checkpoint of a table, by the name of its database; `read_until` is a key."""
        head = f"table:{name}".encode()
        known = self._select("head = ?", head)
        if known:
            return known[0][0]
        added = self._connection.execute(
            "INSERT INTO log_file (path, head, read_until, window, chain, context, stamp) VALUES (?, ?, 0, '', '', '', '')",
            (name, head),
        )
        return Checkpoint(id=added.lastrowid or 0, head=head)

    def save_table(self, checkpoint: Checkpoint) -> None:
        """Save up to which key a table was read."""
        self._connection.execute("UPDATE log_file SET read_until = ? WHERE id = ?", (checkpoint.read_until, checkpoint.id))

    def save(self, file: LogFile, checkpoint: Checkpoint) -> None:
        """Save how far the file was read."""
        self._connection.execute(
            "UPDATE log_file SET path = ?, read_until = ?, window = ?, chain = ?, context = ?, stamp = ? WHERE id = ?",
            (file.name, checkpoint.read_until, file.window(checkpoint.read_until) or b"", checkpoint.chain,
             checkpoint.context, checkpoint.stamp, checkpoint.id),
        )  # fmt: skip

    def count(self, **numbers: int) -> None:
        """Add to the counters."""
        for name, number in numbers.items():
            if number:
                self._connection.execute(
                    "INSERT INTO log_count VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET number = number + excluded.number",
                    (name, number),
                )

    def counts(self) -> Mapping[str, int]:
        """Return the counters since this state began."""
        return dict(self._connection.execute("SELECT name, number FROM log_count").fetchall())

    def reject(self, lines: list[RejectedLine]) -> None:
        """Keep bad lines in the reject file, durable before the transaction is."""
        if self._rejected is None or not lines:
            return
        kept = b"".join(msgspec.json.encode(line.as_dict()) + b"\n" for line in lines)
        end = self.counts().get("rejected_bytes", 0)
        if end + len(kept) > MAX_REJECTED_BYTES:
            self.count(rejected_not_kept=len(lines))
            return
        descriptor = os.open(self._rejected, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, end)  # a line whose transaction never was is not kept twice
            os.pwrite(descriptor, kept, end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.count(rejected_bytes=len(kept))

    def _setting(self, name: str, value: str) -> str:
        with self._connection:
            self._connection.execute("INSERT OR IGNORE INTO log_setting VALUES (?, ?)", (name, value))
        (known,) = self._connection.execute("SELECT value FROM log_setting WHERE name = ?", (name,)).fetchone()
        return str(known)

    def _select(self, where: str, *values: Any) -> list[tuple[Checkpoint, bytes]]:
        rows = self._connection.execute(
            f"SELECT id, head, read_until, chain, context, stamp, window FROM log_file WHERE {where}",  # noqa: S608
            values,
        ).fetchall()
        return [(Checkpoint(*row[:6]), row[6]) for row in rows]

    def _added(self, file: LogFile, checkpoint: Checkpoint) -> Checkpoint:
        device, inode = file.key
        added = self._connection.execute(
            "INSERT INTO log_file (device, inode, path, head, read_until, window, chain, context, stamp)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (device, inode, file.name, checkpoint.head, checkpoint.read_until, file.window(checkpoint.read_until) or b"",
             checkpoint.chain, checkpoint.context, checkpoint.stamp),
        )  # fmt: skip
        assert added.lastrowid is not None  # noqa: S101  (an INSERT of one row has one)
        checkpoint.id = added.lastrowid
        return checkpoint
