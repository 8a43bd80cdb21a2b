"""Records of a gateway on its own disk until the platform has them; every worker process of a gateway may write.

A record is in the outbox when `put` is done, through kill -9 and power loss. It is known by its key: told again it replaces
what still waits, and changes nothing once it is on its way. One sender at a time, whichever process holds the lock, packs
what waits into the spool and delivers it.
"""

import fcntl
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from metering.delivery import Delivery, Outcome
from metering.numbering import Numbering
from metering.records import RecordError, TokenUsage
from metering.spool import Spool, SpoolFullError, open_state
from metering.watermarks import WATERMARKS, watermark_body

log = logging.getLogger(__name__)
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL, put_at REAL NOT NULL,
    packed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (id) WHERE NOT packed;
"""
DOOR: Final = "usage/tokens"
BATCH_RECORDS: Final = 1000
SETTLE_S: Final = 2.0
REMEMBER_S: Final = 86_400.0
WATERMARK_EVERY_S: Final = 60.0
HINDERED_WAIT_S: Final = 5.0
AGENT: Final = "litellm callback"
FILE: Final = "outbox.sqlite"

_decoder = msgspec.json.Decoder(TokenUsage)


class Outbox:
    """Writes on a thread of its own: records that come together share one commit, and no event loop waits for a disk."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._queue: queue.SimpleQueue[tuple[str, bytes, Future[None]] | None] = queue.SimpleQueue()
        self._connection = open_outbox(self._path, check_same_thread=False)
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    def put(self, key: str, body: bytes) -> Future[None]:
        """Keep a record; the result is there when it is durable, or the sqlite3.Error that hindered it."""
        done: Future[None] = Future()
        self._queue.put((key, body, done))
        return done

    def close(self) -> None:
        """Write what was put, and give the file back."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            while len(batch) < BATCH_RECORDS and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                batch.append(more)
            self._commit(batch)

    def _commit(self, batch: list[tuple[str, bytes, Future[None]]]) -> None:
        try:
            with self._connection:
                self._connection.executemany(
                    "INSERT INTO outbox (key, body, put_at) VALUES (?, ?, ?)"
                    " ON CONFLICT (key) DO UPDATE SET body = excluded.body WHERE NOT packed",
                    [(key, body, time.time()) for key, body, _ in batch],
                )
        except sqlite3.Error as error:
            for _, _, done in batch:
                done.set_exception(error)
            return
        for _, _, done in batch:
            done.set_result(None)


def open_outbox(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """The outbox's file; made if it is not there.  Raises OSError, sqlite3.Error."""
    connection = open_state(path, check_same_thread=check_same_thread)
    connection.executescript(SCHEMA)
    return connection


def pack(connection: sqlite3.Connection, spool: Spool, *, now: float, settle_s: float = SETTLE_S) -> int:
    """Put what has waited for `settle_s` into one body of the spool, in one transaction; how many records that were.

    They are numbered here and not when they are put: a record that is told again takes no second number. Their keys are
    remembered for a day, so that what is told late is not told again.  Raises SpoolFullError.
    """
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(
            "SELECT id, body FROM outbox WHERE NOT packed AND put_at <= ? ORDER BY id LIMIT ?",
            (now - settle_s, BATCH_RECORDS),
        ).fetchall()
        if rows:
            numbered = Numbering(connection).number([_record(body) for _, body in rows])
            spool.put(DOOR, msgspec.json.encode(numbered))
            connection.executemany("UPDATE outbox SET packed = 1, body = '' WHERE id = ?", [(row[0],) for row in rows])
        connection.execute("DELETE FROM outbox WHERE packed AND put_at < ?", (now - REMEMBER_S,))
    return len(rows)


def _record(body: bytes) -> TokenUsage | msgspec.Raw:
    """What was put: a record, or what could not be understood, as it is."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, RecordError):
        return msgspec.Raw(body)


def waiting(connection: sqlite3.Connection) -> int:
    """Records that are not packed yet."""
    (count,) = connection.execute("SELECT count(*) FROM outbox WHERE NOT packed").fetchone()
    return int(count)


class Sender:
    """Takes an outbox to the platform; as long as another process does that, it waits for its turn.

    With a `source`, it tells once a minute that this one is watched, after everything that was in the outbox by then.
    """

    def __init__(
        self, folder: Path, *, endpoint: str, token: Callable[[], str], source: str = "", max_bytes: int = 1 << 30
    ) -> None:
        self._folder = folder
        self._source = source
        self._next_watermark = 0.0
        self._endpoint = endpoint
        self._token = token
        self._max_bytes = max_bytes
        self.last_error = ""

    def run(self, stop: threading.Event, *, idle_s: float = 0.5, turn_s: float = 2.0) -> None:
        """Send until `stop` is set; look for work every `idle_s` and for the lock every `turn_s` seconds."""
        while not stop.is_set():
            with sole_sender(self._folder) as alone:
                if alone:
                    self._send(stop, idle_s)
                    return
            stop.wait(turn_s)

    def run_once(self, *, seconds: float) -> bool:
        """Send what is there, for so long at most; True if nothing is left.  Raises SpoolFullError."""
        connection, spool, delivery = self._open()
        try:
            while pack(connection, spool, now=time.time(), settle_s=0):
                pass
            done = delivery.flush(seconds=seconds)
            self.last_error = delivery.last_error
        finally:
            delivery.close()
            connection.close()
        return done

    def _send(self, stop: threading.Event, idle_s: float) -> None:
        connection, spool, delivery = self._open()
        try:
            while not stop.is_set():
                stop.wait(self._turn(connection, spool, delivery, idle_s))
        finally:
            delivery.close()
            connection.close()

    def _turn(self, connection: sqlite3.Connection, spool: Spool, delivery: Delivery, idle_s: float) -> float:
        """One body packed and one delivered; how long to wait until the next turn (s)."""
        packed, now = 0, time.time()
        try:
            packed = pack(connection, spool, now=now)
            if not packed:
                self._watched(connection, spool, now - SETTLE_S)
        except (SpoolFullError, sqlite3.Error) as error:
            log.error("outbox: %s; the records stay in it", error)
        try:
            attempt = delivery.run_once()
        except (OSError, sqlite3.Error) as error:
            log.error("outbox: %s; trying again in %s s", error, HINDERED_WAIT_S)
            return HINDERED_WAIT_S
        if attempt.outcome is Outcome.DELIVERED:
            return 0.0
        return attempt.wait_s or (0.0 if packed else idle_s)

    def _watched(self, connection: sqlite3.Connection, spool: Spool, until: float) -> None:
        """Tell, if it is time, that everything is told until then; nothing older may wait.  Raises SpoolFullError."""
        if not self._source or until < self._next_watermark:
            return
        body = watermark_body(agent=AGENT, source=self._source, watermark=datetime.fromtimestamp(until, UTC))
        with connection:
            spool.put(WATERMARKS, body)
        self._next_watermark = until + WATERMARK_EVERY_S

    def _open(self) -> tuple[sqlite3.Connection, Spool, Delivery]:
        connection = open_outbox(self._folder / FILE)
        spool = Spool(connection, max_bytes=self._max_bytes)
        return connection, spool, Delivery(spool, endpoint=self._endpoint, token=self._token)


@contextmanager
def sole_sender(folder: Path) -> Iterator[bool]:
    """Whether nobody else sends from this outbox; if so, nobody else begins to until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "sender.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
