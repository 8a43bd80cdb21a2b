"""Outbox of a gateway: records on its own disk until the platform has them; every worker process may write.

A record is in the outbox when `put` is done, through kill -9 and power loss. Its key identifies it. A second record of that
key completes the first while it waits: the same tokens, with the cache or the reasoning that one of them leaves out. If it
contradicts the first, or adds a cache to it too late, it is sent too, and the platform keeps it in quarantine as a conflict.
One sender at a time, the process that holds the lock, packs waiting records into the spool and delivers it.

Records that the disk refuses stay in memory and are tried again; records that a process loses when it ends are numbers that
the platform will miss (`unkept.py`).
"""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from metering.delivery import Delivery, Outcome
from metering.gateways.unkept import Unkept, left_behind
from metering.numbering import Numbering
from metering.record_checks import RecordError
from metering.records import DETAILS, TokenUsage, details_agree, tags_agree
from metering.spool import Spool, SpoolFullError, locked, open_state

log = logging.getLogger(__name__)
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL, put_at REAL NOT NULL,
    packed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (id) WHERE NOT packed;
CREATE TABLE IF NOT EXISTS lost (process TEXT PRIMARY KEY, records INTEGER NOT NULL, numbered INTEGER NOT NULL DEFAULT 0);
"""
ENDPOINT: Final = "usage/tokens"
BATCH_RECORDS: Final = 1000
SETTLE_S: Final = 2.0
REMEMBER_S: Final = 3_600.0
WATERMARK_EVERY_S: Final = 60.0
HINDERED_WAIT_S: Final = 5.0
RETRY_S: Final = 2.0
MAX_IN_MEMORY: Final = 100_000
AGENT: Final = "litellm callback"
FILE: Final = "outbox.sqlite"
CACHE_COUNTS: Final = "cache_counts"
WHOLES: Final = ("id", "source", "consumer", "model", "status", "input_tokens", "output_tokens")
PARTS: Final = ("cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_output_tokens")

_decoder = msgspec.json.Decoder(TokenUsage)


class Outbox:
    """Writer on a thread of its own: records that come together share one commit, and no event loop waits for a disk."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._queue: queue.SimpleQueue[tuple[str, bytes, Future[None]] | None] = queue.SimpleQueue()
        self._connection = open_outbox(self._path, check_same_thread=False)
        self._unkept = Unkept(folder)
        self._in_memory: dict[tuple[str, bytes], None] = {}
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    def put(self, key: str, body: bytes) -> Future[None]:
        """Keep a record; the future completes when it is durable, or fails with the sqlite3.Error that hindered it.

        A hindered record is tried again, as long as this process lives.
        """
        done: Future[None] = Future()
        self._queue.put((key, body, done))
        return done

    def close(self) -> None:
        """Write all records that were put, and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._unkept.close()
        self._connection.close()

    def _write(self) -> None:
        going = True
        while going:
            batch: list[tuple[str, bytes, Future[None]]] = []
            try:
                going = self._collect(batch)
            except queue.Empty:
                log.info("outbox: trying %d records again", len(self._in_memory))
            self._commit(batch)

    def _collect(self, batch: list[tuple[str, bytes, Future[None]]]) -> bool:
        """Collect waiting records; return False at the end.  Raises queue.Empty when it is time to try again."""
        given = self._queue.get(timeout=RETRY_S if self._in_memory else None)
        while given is not None:
            batch.append(given)
            if len(batch) >= BATCH_RECORDS or self._queue.empty():
                return True
            given = self._queue.get()
        return False

    def _commit(self, batch: list[tuple[str, bytes, Future[None]]]) -> None:
        error = self._hindrance([(key, body) for key, body, _ in batch])
        if error is not None:
            self._remember(batch)
            for _, _, done in batch:
                done.set_exception(error)
            return
        for _, _, done in batch:
            done.set_result(None)
        self._try_again()

    def _hindrance(self, records: Sequence[tuple[str, bytes]]) -> sqlite3.Error | None:
        """Write records in one transaction; return the error that hindered it, or None."""
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                for key, body in records:
                    _keep(self._connection, key, body)
        except sqlite3.Error as error:
            return error
        return None

    def _try_again(self) -> None:
        while self._in_memory:
            some = list(islice(self._in_memory, BATCH_RECORDS))
            if self._hindrance(some) is not None:
                break
            for record in some:
                del self._in_memory[record]
        self._note_unkept()

    def _remember(self, batch: list[tuple[str, bytes, Future[None]]]) -> None:
        for key, body, _ in batch:
            if len(self._in_memory) < MAX_IN_MEMORY:
                self._in_memory[(key, body)] = None
            else:
                self._dropped += 1
        self._note_unkept()

    def _note_unkept(self) -> None:
        """Note how many records would be lost if this process ended now."""
        try:
            self._unkept.set(self._dropped + len({key for key, _ in self._in_memory}))
        except OSError as error:
            log.critical("outbox: not even the number of records that are not kept can be written: %s", error)


def _keep(connection: sqlite3.Connection, key: str, body: bytes) -> None:
    """Add a record, or complete the one of that key; a contradicting record is kept beside it."""
    row = connection.execute("SELECT body, packed FROM outbox WHERE key = ?", (key,)).fetchone()
    if row is None:
        _insert(connection, key, body)
        return
    first, packed = row
    joined = _joined(first, body)
    # A packed record may be delivered already; a late cache changes its price, so it goes as a conflict.
    if joined is None or (packed and _uncached(joined) != _uncached(first)):
        _insert(connection, f"{key} {blake2b(body, digest_size=16).hexdigest()}", body)
    elif not packed:
        connection.execute("UPDATE outbox SET body = ? WHERE key = ?", (joined, key))


def _insert(connection: sqlite3.Connection, key: str, body: bytes) -> None:
    connection.execute("INSERT OR IGNORE INTO outbox (key, body, put_at) VALUES (?, ?, ?)", (key, body, time.time()))


def _joined(first: bytes, second: bytes) -> bytes | None:
    """Return one record of two reports of the same call, None if they contradict each other.

    One API reports and another leaves out the optional fields, and the counts of the cache and of reasoning, which are parts
    of the other counts.
    """
    one, other = _record(first), _record(second)
    if first == second or not (isinstance(one, TokenUsage) and isinstance(other, TokenUsage)):
        return first if first == second else None
    counts = {name: sorted((getattr(one, name), getattr(other, name))) for name in PARTS}
    same = all(getattr(one, name) == getattr(other, name) for name in WHOLES)
    agree = details_agree(one.details, other.details) and tags_agree(one.tags, other.tags)
    # 0 stands for a count that one of the reports leaves out.
    if not (same and agree) or any(low not in (0, high) for low, high in counts.values()):
        return None
    attributes = dict(one.attributes or {})
    if CACHE_COUNTS not in (other.attributes or {}):
        attributes.pop(CACHE_COUNTS, None)
    higher = {name: high for name, (_, high) in counts.items()}
    added = {name: getattr(other, name) for name in DETAILS if getattr(one, name) is None}
    tags = {**(other.tags or {}), **(one.tags or {})} or None
    try:
        return msgspec.json.encode(replace(one, **higher, **added, tags=tags, attributes=attributes or None))
    except RecordError:
        return None


def _uncached(body: bytes) -> int | None:
    """Return the input that is charged in full, or None."""
    record = _record(body)
    return record.uncached_input_tokens if isinstance(record, TokenUsage) else None


def open_outbox(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open the outbox's file; make it if it is not there.  Raises OSError, sqlite3.Error."""
    connection = open_state(path, check_same_thread=check_same_thread)
    connection.executescript(SCHEMA)
    return connection


def pack(connection: sqlite3.Connection, spool: Spool, *, now: float, settle_s: float = SETTLE_S) -> int:
    """Put records that waited for `settle_s` into one body of the spool, in one transaction; return their number.

    They are numbered here and not when they are put: a record that is reported again takes no second number. Their keys are
    remembered for an hour, so that a late report is not sent again.  Raises SpoolFullError.
    """
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(
            "SELECT id, body FROM outbox WHERE NOT packed AND put_at <= ? ORDER BY id LIMIT ?",
            (now - settle_s, BATCH_RECORDS),
        ).fetchall()
        if rows:
            numbering = Numbering(connection)
            numbered = numbering.number([_record(body) for _, body in rows])
            _skip_lost(connection, numbering, numbered)
            spool.put(ENDPOINT, msgspec.json.encode(numbered))
            connection.executemany("UPDATE outbox SET packed = 1 WHERE id = ?", [(row[0],) for row in rows])
        connection.execute("DELETE FROM outbox WHERE packed AND put_at < ?", (now - REMEMBER_S,))
    return len(rows)


def _skip_lost(
    connection: sqlite3.Connection, numbering: Numbering, numbered: Sequence[TokenUsage | msgspec.Raw]
) -> None:
    """Skip the numbers of lost records after these: between two that arrive, the platform misses them."""
    (count,) = connection.execute("SELECT coalesce(sum(records), 0) FROM lost WHERE NOT numbered").fetchone()
    sources = [record.source for record in numbered if isinstance(record, TokenUsage)]
    if count and sources:
        numbering.skip(sources[-1], count)
        connection.execute("UPDATE lost SET numbered = 1")


def collect_lost(connection: sqlite3.Connection, folder: Path) -> None:
    """Take over the numbers of lost records that ended processes left."""
    with left_behind(folder) as found:
        for path, count in found:
            if count:
                log.critical("outbox %s: %d records were lost with a process while the disk was full", folder, count)
                with connection:
                    connection.execute("INSERT OR IGNORE INTO lost (process, records) VALUES (?, ?)", (path.name, count))
            path.unlink(missing_ok=True)


def _record(body: bytes) -> TokenUsage | msgspec.Raw:
    """Decode a record; return one that could not be understood as it is."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, RecordError):
        return msgspec.Raw(body)


def waiting(connection: sqlite3.Connection) -> int:
    """Return the number of records that are not packed yet."""
    (count,) = connection.execute("SELECT count(*) FROM outbox WHERE NOT packed").fetchone()
    return int(count)


class Sender:
    """Sender of an outbox to the platform; while another process sends, it waits for its turn.

    With a `source`, it reports once a minute that the source is watched, after all records that were in the outbox by then.
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
                    with self._open() as (connection, spool, delivery):
                        while not stop.is_set():
                            stop.wait(self._turn(connection, spool, delivery, idle_s))
                    return
            stop.wait(turn_s)

    def run_once(self, *, seconds: float) -> bool:
        """Send all records, for at most `seconds`; return True if none is left.  Raises SpoolFullError."""
        with self._open() as (connection, spool, delivery):
            collect_lost(connection, self._folder)
            while pack(connection, spool, now=time.time(), settle_s=0):
                pass
            done = delivery.flush(seconds=seconds)
            self.last_error = delivery.last_error
        return done

    def _turn(self, connection: sqlite3.Connection, spool: Spool, delivery: Delivery, idle_s: float) -> float:
        """Pack one body and deliver one; return the seconds until the next turn."""
        packed, now = 0, time.time()
        try:
            collect_lost(connection, self._folder)
            packed = pack(connection, spool, now=now)
            if not packed:
                self._watched(connection, spool, now - SETTLE_S)
        except (SpoolFullError, OSError, sqlite3.Error) as error:
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
        """Report, if it is due, that all records until then are sent; none older may wait.  Raises SpoolFullError."""
        if not self._source or until < self._next_watermark:
            return
        with connection:
            spool.put_watermark(AGENT, self._source, datetime.fromtimestamp(until, UTC))
        self._next_watermark = until + WATERMARK_EVERY_S

    @contextmanager
    def _open(self) -> Iterator[tuple[sqlite3.Connection, Spool, Delivery]]:
        with closing(open_outbox(self._folder / FILE)) as connection:
            spool = Spool(connection, max_bytes=self._max_bytes)
            with Delivery(spool, endpoint=self._endpoint, token=self._token) as delivery:
                yield connection, spool, delivery


def sole_sender(folder: Path) -> AbstractContextManager[bool]:
    """Take the lock of this outbox's sender until the block ends; yield False if another process has it."""
    return locked(folder / "sender.lock")
