"""From files to the spool: what was read, what is to be told and how far the file was read stand in one transaction.

A record without an id of its own is named by the hash of everything in its file up to and including its line. So the same
line has the same id in a copy, a renamed or a compressed file, and after any restart, while two equal lines of one file
have two. Two files are taken for one only if they are equal from the first byte up to that line.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from metering.logs.checkpoints import Checkpoint, Checkpoints, RejectedLine
from metering.logs.containers import MAX_FRAME_BYTES, Container, container_of
from metering.logs.files import LogFile, Stream
from metering.logs.formats import Translate
from metering.logs.mapping import Incomplete, Told
from metering.numbering import Numbering
from metering.record_checks import RecordError
from metering.spool import Spool, SpoolFullError

log = logging.getLogger(__name__)
CHUNK_BYTES: Final = 1 << 20
BATCH_RECORDS: Final = 1000
SQLITE: Final = b"SQLite format 3\0"
TABLE_ROWS: Final = 1000
DOOR: Final = "usage/tokens"


@dataclass
class Harvest:
    """What one piece of a file gave: `used` bytes of it, after which the chain of hashes stands at `chain`."""

    chain: bytes
    used: int = 0
    told: list[Told] = field(default_factory=list)
    rejected: list[RejectedLine] = field(default_factory=list)
    lines: int = 0
    without_usage: int = 0


class Sink(Protocol):
    """Where records go."""

    def put(self, told: list[Told]) -> None:
        """Take records, in the transaction of their checkpoint.  Raises SpoolFullError."""
        ...


class SpoolSink:
    """Records on their way to `usage/tokens`, numbered."""

    def __init__(self, spool: Spool, numbering: Numbering) -> None:
        self._spool = spool
        self._numbering = numbering

    def put(self, told: list[Told]) -> None:
        """Bodies of at most 1,000 records; an incomplete one goes along, for the platform to keep it in quarantine."""
        numbered = self._numbering.number(told)
        for start in range(0, len(numbered), BATCH_RECORDS):
            batch = [
                item.record if isinstance(item, Incomplete) else item for item in numbered[start : start + BATCH_RECORDS]
            ]
            self._spool.put(DOOR, msgspec.json.encode(batch))

    def watched(self, agent: str, source: str, until: datetime) -> None:
        """Tell, after all that was put before, that a source was read up to here.  Raises SpoolFullError."""
        self._spool.put_watermark(agent, source, until)


class Gleaner:
    """Cuts bytes into frames and makes records of them; knows nothing of files and checkpoints."""

    def __init__(self, translate: Translate, *, table: str = "") -> None:
        self.translate = translate
        self.table = table

    def container(self, head: bytes, context: str) -> Container:
        """What holds the records of a file that begins like this."""
        return container_of(head, table=self.table, context=context)

    def glean(
        self, container: Container, data: bytes, *, chain: bytes, offset: int, name: str, ended: bool = False
    ) -> Harvest:
        """What the whole frames of `data` tell, which begins at `offset` of the file.

        `ended`: nothing will be added, so a frame at the end without its line's end is complete or bad.
        """
        harvest = Harvest(chain)
        while (end := container.frame_end(data, harvest.used)) > 0:
            self._frame(container, data[harvest.used : end], RejectedLine(name, offset + harvest.used), harvest)
            harvest.used = end
        tail = data[harvest.used :]
        if tail and (ended or container.is_whole(tail) or len(tail) >= MAX_FRAME_BYTES):
            self._frame(container, tail, RejectedLine(name, offset + harvest.used), harvest)
            harvest.used = len(data)
        return harvest

    def _frame(self, container: Container, frame: bytes, place: RejectedLine, harvest: Harvest) -> None:
        frame = frame.lstrip(b"\0")  # what a writer that does not append leaves where its file was cut
        line = frame.strip()
        if not line:
            return
        harvest.lines += 1
        harvest.chain = blake2b(harvest.chain + line, digest_size=16).digest()
        try:
            for number, fields in enumerate(container.open(frame)):
                derived_id = harvest.chain.hex() + (f"-{number}" if number else "")
                self._record(fields, derived_id, frame, place, harvest)
        except RecordError as error:
            harvest.rejected.append(replace(place, reason=str(error), line=frame))

    def _record(
        self, fields: Mapping[str, Any], derived_id: str, frame: bytes, place: RejectedLine, harvest: Harvest
    ) -> None:
        try:
            told = self.translate(fields, derived_id)
        except RecordError as error:
            harvest.rejected.append(replace(place, reason=str(error), line=frame))
            return
        harvest.told += told
        harvest.without_usage += not told


class FileReader:
    """Reads files piece by piece, each piece in a transaction of its own."""

    def __init__(self, connection: sqlite3.Connection, checkpoints: Checkpoints, gleaner: Gleaner, sink: Sink) -> None:
        self._connection = connection
        self._checkpoints = checkpoints
        self._gleaner = gleaner
        self._sink = sink

    def step(self, file: LogFile, *, ended: bool = False) -> bool:
        """Read on by one piece; False if there is nothing to read now.  Raises SpoolFullError, and nothing happened."""
        with self._connection:
            checkpoint = self._checkpoints.of(file)
            if checkpoint is None or (file.compressed and checkpoint.stamp == file.stamp):
                return False
            if not self._advance(file, checkpoint, ended=ended or file.compressed):
                return False
            self._checkpoints.save(file, checkpoint)
        return True

    def _advance(self, file: LogFile, checkpoint: Checkpoint, *, ended: bool) -> bool:
        stamp = file.stamp
        container = self._gleaner.container(file.read(0, 64), checkpoint.context)
        size = CHUNK_BYTES
        while True:
            data = file.read(checkpoint.read_until, size)
            at_end = len(data) < size
            harvest = self._gleaner.glean(
                container, data, chain=checkpoint.chain, offset=checkpoint.read_until, name=file.name,
                ended=ended and at_end and not file.broken,
            )  # fmt: skip
            if harvest.used or at_end or size >= MAX_FRAME_BYTES:
                break
            size *= 2
        finished = file.compressed and at_end and not file.broken and harvest.used == len(data)
        self.keep(harvest)
        checkpoint.read_until += harvest.used
        checkpoint.chain, checkpoint.context = harvest.chain, container.context
        checkpoint.stamp = stamp if finished else ""
        return bool(harvest.used) or finished

    def step_table(self, path: Path) -> bool:
        """Read on in a table of an SQLite file; False if there is nothing new.  Raises SpoolFullError, RecordError."""
        with self._connection:
            checkpoint = self._checkpoints.of_table(str(path.absolute()))
            if begins_anew(path, self._gleaner.table, checkpoint):
                checkpoint.read_until = 0
            harvest = glean_rows(path, self._gleaner.table, self._gleaner.translate, checkpoint)
            if not harvest.used:
                return False
            self.keep(harvest)
            checkpoint.read_until += harvest.used
            self._checkpoints.save_table(checkpoint)
        return True

    def keep(self, harvest: Harvest) -> None:
        """Hand a harvest on and count it, in the transaction that is open."""
        self._sink.put(harvest.told)
        self._checkpoints.reject(harvest.rejected)
        incomplete = sum(isinstance(item, Incomplete) for item in harvest.told)
        self._checkpoints.count(
            lines=harvest.lines, records=len(harvest.told) - incomplete, incomplete=incomplete,
            rejected=len(harvest.rejected), without_usage=harvest.without_usage,
        )  # fmt: skip
        for line in harvest.rejected[:3]:
            log.error("%s at byte %d: %s", line.file, line.offset, line.reason)
        if len(harvest.rejected) > 3:
            log.error("%s: %d more bad lines", harvest.rejected[0].file, len(harvest.rejected) - 3)


class StreamReader:
    """Reads a stream until it ends; each piece is in the spool before the next is waited for."""

    def __init__(self, connection: sqlite3.Connection, gleaner: Gleaner, keep: Callable[[Harvest], None]) -> None:
        self._connection = connection
        self._gleaner = gleaner
        self._keep = keep
        self._chain = b""
        self._read_until = 0
        self._container: Container | None = None

    def step(self, stream: Stream) -> bool:
        """Wait for more and read it; False at the end.  Raises SpoolFullError, and nothing happened."""
        data = stream.read(self._read_until, MAX_FRAME_BYTES)
        if not data:
            return not stream.ended
        container = self._container = self._container or self._gleaner.container(data[:64], "")
        context = container.context
        try:
            with self._connection:
                harvest = self._gleaner.glean(
                    container, data, chain=self._chain, offset=self._read_until, name=stream.name, ended=stream.ended
                )
                self._keep(harvest)
        except SpoolFullError:
            container.context = context
            raise
        self._chain, self._read_until = harvest.chain, self._read_until + harvest.used
        return True


def is_sqlite(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def glean_rows(path: Path, table: str, translate: Translate, at: Checkpoint) -> Harvest:
    """The next rows after `at.read_until`, which is the last key that was read; `used` is how far the key moved.

    Raises RecordError where there is no such table. The database is opened for reading only, and only while rows are read.
    """
    harvest = Harvest(b"")
    try:
        rows = _rows(path, table, at.read_until)
    except sqlite3.Error as error:
        raise RecordError(f"table {table}: {error}") from error
    for row in rows:
        harvest.lines += 1
        try:
            told = translate(row, f"{table}-{row['id']}")
        except RecordError as error:
            harvest.rejected.append(RejectedLine(str(path), int(row["id"]), str(error), repr(row).encode()))
            continue
        harvest.told += told
        harvest.without_usage += not told
    harvest.used = int(rows[-1]["id"]) - at.read_until if rows else 0
    return harvest


def begins_anew(path: Path, table: str, at: Checkpoint) -> bool:
    """Whether the table ends before the last key that was read: it is another one under the same name."""
    try:
        return bool(at.read_until) and not _rows(path, table, at.read_until - 1)
    except sqlite3.Error as error:
        raise RecordError(f"table {table}: {error}") from error


def _rows(path: Path, table: str, after: int) -> list[Mapping[str, Any]]:
    connection = sqlite3.connect(f"file:{path.absolute().as_posix()}?mode=ro", uri=True, timeout=10)
    try:
        connection.row_factory = sqlite3.Row
        query = f'SELECT * FROM "{table}" WHERE id > ? ORDER BY id LIMIT {TABLE_ROWS}'  # noqa: S608  (the name is our own)
        return [dict(row) for row in connection.execute(query, (after,)).fetchall()]
    finally:
        connection.close()
