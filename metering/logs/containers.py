"""PURE: how a file holds its records. Bytes are cut into frames (a line, an object, a row), frames are opened into fields.

A frame is cut only when it is whole: what is still being written waits for its end. A frame that cannot be opened is its
own loss and nobody else's.
"""

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from metering.logs.mysql_dump import rows_of_insert, table_columns
from metering.raw_json import without_mark
from metering.record_checks import RecordError

Fields = Mapping[str, Any]
MAX_FRAME_BYTES: Final = 32 << 20
"""A longer line is skipped as one bad line; MySQL writes INSERT statements of at most max_allowed_packet, often 16 MB."""

_CRI: Final = re.compile(rb"\d{4}-\S+ (stdout|stderr) (?:(P)(?::\S*)?|\S+) ")
_DOCKER: Final = b'{"log":'
_DOCKER_PART_BYTES: Final = 16 << 10
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


class NoRecordError(RecordError):
    """Text that nobody would take for a record, such as what a program prints when it starts."""

    code = "no_record"


class Container(ABC):
    """One way of holding records. `context` is what a reader that starts in the middle has to know of the beginning."""

    def __init__(self, context: str = "") -> None:
        self.context = context

    def frame_end(self, data: bytes, start: int) -> int:
        """Where the frame that begins at `start` ends, or -1 while its end is not there yet."""
        return data.find(b"\n", start) + 1 or -1

    @abstractmethod
    def open(self, frame: bytes) -> Iterator[Fields]:
        """The records of a frame.  Raises RecordError."""

    def is_whole(self, tail: bytes) -> bool:
        """Whether what is at the end of a file without a line's end is a whole frame all the same."""
        return False


class JsonLines(Container):
    """One object a line, as the gateway wrote it or as a container runtime (CRI, Docker) wrapped what it printed.

    A runtime cuts a long line into parts. They are one frame, with what was printed to stderr between them.
    """

    def frame_end(self, data: bytes, start: int) -> int:
        """After the line; where a runtime cut it, after its last part."""
        end = super().frame_end(data, start)
        if end < 0 or not (data.startswith(_DOCKER, start) or _CRI.match(data, start)):
            return end
        goes_on = _unwrapped(data[start:end])[2]
        while goes_on and (following := super().frame_end(data, end)) > 0:
            stream, _, goes_on = _unwrapped(data[end:following])
            end, goes_on = following, goes_on or stream != "stdout"
        return -1 if goes_on else end

    def open(self, frame: bytes) -> Iterator[Fields]:
        """The object of the line; nothing of a line that a container printed to stderr, where CRI wrapped it."""
        parts = b""
        for line in frame.split(b"\n"):
            stream, text, goes_on = _unwrapped(line)
            if stream == "stdout":
                parts, text = (parts + text, b"") if goes_on else (b"", parts + text)
            if text.strip():
                yield _object(text)
        if parts:
            yield _object(parts)

    def is_whole(self, tail: bytes) -> bool:
        """An object that is closed cannot go on."""
        try:
            return bool(tail.strip()) and bool(_object(tail))
        except RecordError:
            return False


class JsonArray(Container):
    """An array of objects, however it is laid out; cut at the braces, so it is never in memory as a whole."""

    def frame_end(self, data: bytes, start: int) -> int:
        """After the closing brace of the next object, with all that is before it."""
        depth = 0
        for found in _STRUCTURE.finditer(data, start):
            brace = found.group()
            if brace == b"{":
                depth += 1
            elif brace == b"}" and depth:
                depth -= 1
                if not depth:
                    return found.end()
        return -1

    def open(self, frame: bytes) -> Iterator[Fields]:
        """The object between the separators; after the last one there is none."""
        if b"{" in frame:
            yield _object(frame[frame.find(b"{") :])

    def is_whole(self, tail: bytes) -> bool:
        """Only the closing bracket is left."""
        return not tail.strip(b" \t\r\n,[]")


class Csv(Container):
    """Rows under a header; a cell in quotes may go over lines."""

    def frame_end(self, data: bytes, start: int) -> int:
        """The first line's end outside of quotes."""
        end, quotes = start, 0
        while (found := data.find(b"\n", end)) >= 0:
            quotes += data.count(b'"', end, found)
            end = found + 1
            if quotes % 2 == 0:
                return end
        return -1

    def open(self, frame: bytes) -> Iterator[Fields]:
        """The row as {column: text}; the header itself gives nothing."""
        row = _row(frame)
        if not self.context:
            self.context = msgspec.json.encode([name.strip() for name in row]).decode()
            return
        names = msgspec.json.decode(self.context, type=list[str])
        if len(row) != len(names):
            raise RecordError(f"{len(row)} cells under a header of {len(names)}")
        yield dict(zip(names, row, strict=True))


class SqlDump(Container):
    """What mysqldump and mariadb-dump write: the rows of the INSERT statements of one table."""

    def __init__(self, table: str, context: str = "") -> None:
        super().__init__(context)
        self._table = table

    def frame_end(self, data: bytes, start: int) -> int:
        """After the statement: the dumps write a line's end within a text as two characters, never as itself."""
        end = super().frame_end(data, start)
        if end > 0 and (data.startswith(b"--", start) or not data[start:end].strip()):
            return end
        while end > 0 and not data[start:end].rstrip().endswith(b";"):
            end = super().frame_end(data, end)
        return end

    def open(self, frame: bytes) -> Iterator[Fields]:
        """The rows of an INSERT; the columns are known from the statement or from the table's creation before it."""
        statement = frame.decode("utf-8", "replace")
        kind = statement.lstrip()[:12].upper()
        if kind == "CREATE TABLE":
            columns = table_columns(statement, self._table)
            self.context = msgspec.json.encode(columns).decode() if columns else self.context
        elif kind.startswith("INSERT"):
            yield from rows_of_insert(statement, self._table, msgspec.json.decode(self.context or "[]", type=list[str]))


def container_of(head: bytes, *, table: str = "", context: str = "") -> Container:
    """The container that a file begins like. `table`: the name of the exported table; of a log only JSON is read."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[":
        return JsonArray(context)
    if not table or start[:1] == b"{":
        return JsonLines(context)
    if re.match(rb"--|/\*|CREATE |INSERT |SET |DROP |LOCK |USE ", start, re.IGNORECASE):
        return SqlDump(table, context)
    return Csv(context)


def _unwrapped(line: bytes) -> tuple[str, bytes, bool]:
    """The stream of a wrapped line, what was printed, and whether the next line of that stream goes on with it.

    Source: kubernetes CRI logging (tag P); moby daemon/logger/copier.go (defaultBufSize).
    """
    if wrapped := _CRI.match(line):
        stdout = wrapped.group(1) == b"stdout"
        return ("stdout", line[wrapped.end() :], bool(wrapped.group(2))) if stdout else ("stderr", b"", False)
    log = _log_of_docker(line) if line.startswith(_DOCKER) else None
    if log is None:
        return "", line, False
    stream, text = log
    goes_on = stream == "stdout" and len(text) >= _DOCKER_PART_BYTES and not text.endswith(b"\n")
    return stream if stream == "stdout" else "", text, goes_on


def _log_of_docker(line: bytes) -> tuple[str, bytes] | None:
    try:
        fields = _object(line)
    except RecordError:
        return None
    log, stream = fields.get("log"), fields.get("stream")
    return (stream, log.encode()) if isinstance(log, str) and isinstance(stream, str) and len(fields) <= 4 else None


def _object(frame: bytes) -> Fields:
    try:
        fields = msgspec.json.decode(without_mark(frame))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        text = without_mark(frame).strip()
        kind = RecordError if text.startswith(b"{") or text.endswith(b"}") else NoRecordError
        raise kind(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise NoRecordError("a line must be a JSON object")
    return fields


def _row(frame: bytes) -> list[str]:
    try:
        text = frame.decode("utf-8-sig")
        rows = list(csv.reader(text.splitlines(keepends=True), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise RecordError(f"not CSV: {error}") from error
    if len(rows) != 1:
        raise RecordError(f"not CSV: {len(rows)} rows in one")
    return rows[0]
