"""Reading of files into the spool: records and the file's checkpoint are in one transaction.

A record without an id of its own is named by the hash of all lines in its file up to and including its own. So the same line
has the same id in a copy, a renamed or a compressed file, and after any restart, while two equal lines of one file have two.
Two files count as one only if they are equal from the first byte up to that line.

The table of a gateway that keeps its log in SQLite (one-api and new-api do by default) is read by its growing key.
"""

import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from metering.logs.checkpoints import Checkpoint, Checkpoints, RejectedLine
from metering.logs.containers import MAX_FRAME_BYTES, Container, NoRecordError, container_of
from metering.logs.files import LogFile, Stream
from metering.logs.formats import Translate
from metering.logs.mapping import Incomplete, LogRecord
from metering.numbering import Numbering
from metering.record_checks import RecordError
from metering.spool import Spool

log = logging.getLogger(__name__)
CHUNK_BYTES: Final = 1 << 20
BATCH_RECORDS: Final = 1000
HEAD_BYTES: Final = 64
SQLITE: Final = b"SQLite format 3\0"
TABLE_ROWS: Final = 1000
ENDPOINT: Final = "usage/tokens"


@dataclass
class Harvest:
    """Result of reading one piece of a file: `used` bytes of it, after which the chain of hashes is at `chain`.

    `unreadable`: those of the rejected lines that are records, reduced to what the platform has to know of them.
    """

    chain: bytes
    used: int = 0
    records: list[LogRecord] = field(default_factory=list)
    rejected: list[RejectedLine] = field(default_factory=list)
    unreadable: list[Incomplete] = field(default_factory=list)
    lines: int = 0
    without_usage: int = 0


class Sink(Protocol):
    """Destination of records."""

    def put(self, records: list[LogRecord]) -> None:
        """Take records, in the transaction of their checkpoint.  Raises SpoolFullError."""
        ...


class SpoolSink:
    """Sink that numbers records and puts them into the spool for `usage/tokens`."""

    def __init__(self, spool: Spool, numbering: Numbering) -> None:
        self._spool = spool
        self._numbering = numbering

    def put(self, records: list[LogRecord]) -> None:
        """Put bodies of at most 1,000 records; an incomplete one goes too, for the platform to quarantine."""
        numbered = self._numbering.number(records)
        for start in range(0, len(numbered), BATCH_RECORDS):
            batch = [
                item.record if isinstance(item, Incomplete) else item for item in numbered[start : start + BATCH_RECORDS]
            ]
            self._spool.put(ENDPOINT, msgspec.json.encode(batch))


class FileReader:
    """Reader of files, tables and standard input piece by piece, each piece in a transaction of its own.

    `table`: the name of the table that the files are exports of, "" for the logs of a gateway.
    """

    def __init__(
        self, connection: sqlite3.Connection, checkpoints: Checkpoints, translate: Translate, sink: Sink, *, table: str = ""
    ) -> None:
        self._connection = connection
        self._checkpoints = checkpoints
        self._translate = translate
        self._sink = sink
        self.table = table

    def step(self, file: LogFile, *, ended: bool = False) -> bool:
        """Read on by one piece; return False if there is nothing now.  Raises SpoolFullError, and nothing happened."""
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
        container = container_of(file.read(0, HEAD_BYTES), table=self.table, context=checkpoint.context)
        size = CHUNK_BYTES
        while True:
            data = file.read(checkpoint.read_until, size)
            at_end = len(data) < size
            harvest = self._glean(container, data, checkpoint, file.name, ended=ended and at_end and not file.broken)
            if harvest.used or at_end or size >= MAX_FRAME_BYTES:
                break
            # One frame is longer than the chunk.
            size *= 2
        finished = file.compressed and at_end and not file.broken and harvest.used == len(data)
        self._keep(harvest, checkpoint, container.context)
        checkpoint.stamp = stamp if finished else ""
        return bool(harvest.used) or finished

    def step_table(self, path: Path) -> bool:
        """Read on in a table of an SQLite file; return False if nothing is new.  Raises SpoolFullError, RecordError."""
        with self._connection:
            checkpoint = self._checkpoints.of_table(str(path.absolute()))
            if checkpoint.read_until and not self._rows(path, checkpoint.read_until - 1):
                checkpoint.read_until = 0  # another table under the same name: it ends before the last key that was read
            harvest = Harvest(b"")
            for row in self._rows(path, checkpoint.read_until):
                harvest.lines += 1
                key = int(row["id"])
                place = RejectedLine(str(path), key, line=repr(row).encode())
                self._record(row, f"{self.table}-{row['id']}", place, harvest)
                harvest.used = key - checkpoint.read_until
            if not harvest.used:
                return False
            self._keep(harvest, checkpoint, checkpoint.context)
            self._checkpoints.save_table(checkpoint)
        return True

    def step_stream(self, stream: Stream, checkpoint: Checkpoint) -> bool:
        """Wait for more and read it; return False at the end.  Raises SpoolFullError, and nothing happened.

        Each piece is in the spool before the next is waited for.
        """
        data = stream.read(checkpoint.read_until, MAX_FRAME_BYTES)
        checkpoint.head = checkpoint.head or data[:HEAD_BYTES]
        if data:
            container = container_of(checkpoint.head, table=self.table, context=checkpoint.context)
            with self._connection:
                harvest = self._glean(container, data, checkpoint, stream.name, ended=stream.ended)
                self._keep(harvest, checkpoint, container.context)
        return bool(data) or not stream.ended

    def _glean(self, container: Container, data: bytes, at: Checkpoint, name: str, *, ended: bool) -> Harvest:
        """Return the records in the whole frames of `data`, which begins at the checkpoint.

        `ended`: no bytes will be added, so a frame at the end without its line's end is complete or bad.
        """
        harvest = Harvest(at.chain)
        while (end := container.frame_end(data, harvest.used)) > 0:
            self._frame(container, data[harvest.used : end], name, at.read_until + harvest.used, harvest)
            harvest.used = end
        tail = data[harvest.used :]
        if tail and (ended or container.is_whole(tail) or len(tail) >= MAX_FRAME_BYTES):
            self._frame(container, tail, name, at.read_until + harvest.used, harvest)
            harvest.used = len(data)
        return harvest

    def _frame(self, container: Container, frame: bytes, name: str, offset: int, harvest: Harvest) -> None:
        frame = frame.lstrip(b"\0")  # what a writer that does not append leaves where its file was cut
        line = frame.strip()
        if not line:
            return
        place = RejectedLine(name, offset, line=frame)
        harvest.lines += 1
        harvest.chain = blake2b(harvest.chain + line, digest_size=16).digest()
        try:
            for number, fields in enumerate(container.open(frame)):
                self._record(fields, harvest.chain.hex() + (f"-{number}" if number else ""), place, harvest)
        except RecordError as error:
            self._reject(harvest.chain.hex(), place, error, harvest)

    def _record(self, fields: Mapping[str, Any], derived_id: str, place: RejectedLine, harvest: Harvest) -> None:
        try:
            records = self._translate(fields, derived_id)
        except RecordError as error:
            self._reject(derived_id, place, error, harvest)
            return
        harvest.records += records
        harvest.without_usage += not records

    def _reject(self, derived_id: str, place: RejectedLine, error: RecordError, harvest: Harvest) -> None:
        """Keep a bad line; report a bad record to the platform as missing, so that the close waits for it."""
        harvest.rejected.append(replace(place, id=derived_id, reason=str(error)))
        if not isinstance(error, NoRecordError):
            harvest.unreadable.append(Incomplete({"id": derived_id, "attributes": None}, str(error)))

    def _keep(self, harvest: Harvest, checkpoint: Checkpoint, context: str) -> None:
        """Pass a harvest to the sink, count it and move the checkpoint behind it, in the open transaction."""
        self._sink.put([*harvest.records, *harvest.unreadable])
        self._checkpoints.reject(harvest.rejected)
        incomplete = [item for item in harvest.records if isinstance(item, Incomplete)]
        by_call = sum(item.is_paid_by_call for item in incomplete)
        self._checkpoints.count(
            lines=harvest.lines, records=len(harvest.records) - len(incomplete), incomplete=len(incomplete) - by_call,
            paid_by_call=by_call, rejected=len(harvest.rejected), without_usage=harvest.without_usage,
        )  # fmt: skip
        for line in harvest.rejected[:3]:
            log.error("%s at byte %d: %s", line.file, line.offset, line.reason)
        if len(harvest.rejected) > 3:
            log.error("%s: %d more bad lines", harvest.rejected[0].file, len(harvest.rejected) - 3)
        checkpoint.read_until += harvest.used
        checkpoint.chain, checkpoint.context = harvest.chain, context

    def _rows(self, path: Path, after: int) -> list[Mapping[str, Any]]:
        """Return the next rows of the table; the database is open read-only, and only meanwhile.  Raises RecordError."""
        try:
            connection = sqlite3.connect(f"file:{path.absolute().as_posix()}?mode=ro", uri=True, timeout=10)
            try:
                connection.row_factory = sqlite3.Row
                query = f'SELECT * FROM "{self.table}" WHERE id > ? ORDER BY id LIMIT {TABLE_ROWS}'  # noqa: S608  (our own)
                return [dict(row) for row in connection.execute(query, (after,)).fetchall()]
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise RecordError(f"table {self.table}: {error}") from error


def is_sqlite(path: Path) -> bool:
    """Return True if the file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE
