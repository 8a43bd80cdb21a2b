"""Durable outbox of an agent: request bodies in SQLite, in order, each until the platform acknowledges it.

The spool uses its caller's connection, so that an agent's state and the reports about it are in one transaction: after a
crash both are there or neither is. No body is ever dropped to make room: a full spool refuses the next one, and its caller
stops reading its source, or keeps its own durable state instead.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS spool (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    door TEXT NOT NULL,
    content_type TEXT NOT NULL,
    body BLOB NOT NULL,
    put_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
);
CREATE TABLE IF NOT EXISTS spool_size (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO spool_size VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS spool_grows AFTER INSERT ON spool
    BEGIN UPDATE spool_size SET bytes = bytes + length(NEW.body); END;
CREATE TRIGGER IF NOT EXISTS spool_shrinks AFTER DELETE ON spool
    BEGIN UPDATE spool_size SET bytes = bytes - length(OLD.body); END;
"""
JSON: Final = "application/json"
WATERMARKS: Final = "usage/watermarks"


class SpoolFullError(Exception):
    """Refusal of a body for lack of room, after the platform acknowledged none for long; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Body in the spool, the endpoint below /api/v1/ that it goes to, and since when it waits (seconds since 1970)."""

    id: int
    door: str
    body: bytes
    put_at: float


def open_state(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open the state file of an agent: durable at every commit, readable while it is written.

    One connection per thread, or one that its users lock; several processes may open the same file, also at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=30, check_same_thread=check_same_thread)
    # Two processes that turn a new file to WAL at once would wait for each other; SQLite then refuses one at once,
    # without waiting for its timeout.  So they come one after the other.
    with path.with_name(f"{path.name}-opening").open("ab") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Take a lock file until the block ends; yield False if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


class Spool:
    """Queue of bodies, first in, first out, bounded in bytes."""

    def __init__(self, connection: sqlite3.Connection, *, max_bytes: int = 1 << 30) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        connection.executescript(SCHEMA)

    def put(self, door: str, body: bytes) -> None:
        """Add a body (JSON), in the transaction open on the connection; the caller commits.  Raises SpoolFullError."""
        if self.bytes + len(body) > self._max_bytes:
            raise SpoolFullError(
                f"the spool holds {self.bytes} of {self._max_bytes} bytes and cannot take {len(body)} more: "
                "the platform has not acknowledged them; check the endpoint and the token, or give the spool more room"
            )
        self._connection.execute("INSERT INTO spool (door, content_type, body) VALUES (?, ?, ?)", (door, JSON, body))

    def put_watermark(self, agent: str, source: str, until: datetime) -> None:
        """Add the report that `agent` has reported all of `source` before `until`, like `put`.  Raises SpoolFullError."""
        self.put(WATERMARKS, msgspec.json.encode({"agent": agent, "source": source, "watermark": until}))

    def oldest(self) -> Parcel | None:
        """Return the next body to deliver, or None."""
        row = self._connection.execute("SELECT id, door, body, put_at FROM spool ORDER BY id LIMIT 1").fetchone()
        return Parcel(*row) if row else None

    def acknowledge(self, parcel_id: int) -> None:
        """Delete a body that the platform has; durable when this returns."""
        with self._connection:
            self._connection.execute("DELETE FROM spool WHERE id = ?", (parcel_id,))

    @property
    def bytes(self) -> int:
        """Return the bytes of all waiting bodies."""
        (size,) = self._connection.execute("SELECT bytes FROM spool_size").fetchone()
        return int(size)

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT count(*) FROM spool").fetchone()
        return int(count)
