"""PURE: containers of records: bytes are cut into frames (a line, an object, a row), frames are opened into fields.

A frame is cut only when it is whole: one that is still being written waits for its end. A frame that cannot be opened does
not affect any other.
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
"""Longest frame; a longer line is skipped as one bad line. MySQL writes INSERT statements of at most max_allowed_packet,
often 16 MB."""

_CRI: Final = re.compile(rb"\d{4}-\S+ (stdout|stderr) (?:(P)(?::\S*)?|\S+) ")
_DOCKER: Final = b'{"log":'
_DOCKER_PART_BYTES: Final = 16 << 10
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


class NoRecordError(RecordError):
    """Error of text that is no record at all, such as what a program prints when it starts."""

    code = "no_record"


class Container(ABC):
    """Format of a file that holds records. `context`: facts of the file's beginning that a reader in the middle needs."""

    def __init__(self, context: str = "") -> None:
        self.context = context

    def frame_end(self, data: bytes, start: int) -> int:
        """Return the end of the frame that begins at `start`, or -1 while the frame is not complete."""
        return data.find(b"\n", start) + 1 or -1

    @abstractmethod
    def open(self, frame: bytes) -> Iterator[Fields]:
        """Yield the records of a frame.  Raises RecordError."""

    def is_whole(self, tail: bytes) -> bool:
        """Return True if the end of a file, without a line's end, is a whole frame all the same."""
        return False


class JsonLines(Container):
    """Lines of one object each, as the gateway wrote them or as a container runtime (CRI, Docker) wrapped its output.

    A runtime cuts a long line into parts. The parts are one frame, with lines of stderr between them.
    """

    def frame_end(self, data: bytes, start: int) -> int:
        """Return the end of the line; of a line that a runtime cut, the end of its last part."""
        end = super().frame_end(data, start)
        if end < 0 or not (data.startswith(_DOCKER, start) or _CRI.match(data, start)):
            return end
        goes_on = _unwrapped(data[start:end])[2]
        while goes_on and (following := super().frame_end(data, end)) > 0:
            stream, _, goes_on = _unwrapped(data[end:following])
            end, goes_on = following, goes_on or stream != "stdout"
        return -1 if goes_on else end

    def open(self, frame: bytes) -> Iterator[Fields]:
        """Yield the object of the line; none of a line that CRI marked as printed to stderr."""
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
        """Return True if the tail is an object that is closed, and so cannot go on."""
        try:
            return bool(tail.strip()) and bool(_object(tail))
        except RecordError:
            return False


class JsonArray(Container):
    """Array of objects in any layout; cut at the braces, so it is never in memory as a whole."""

    def frame_end(self, data: bytes, start: int) -> int:
        """Return the end of the next object's closing brace; the frame includes all bytes before the object."""
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
        """Yield the object between the separators; none after the last one."""
        if b"{" in frame:
            yield _object(frame[frame.find(b"{") :])

    def is_whole(self, tail: bytes) -> bool:
        """Return True if only the closing bracket is left."""
        return not tail.strip(b" \t\r\n,[]")


class Csv(Container):
    """Rows under a header; a cell in quotes may go over lines."""

    def frame_end(self, data: bytes, start: int) -> int:
        """Return the first line's end outside of quotes."""
        end, quotes = start, 0
        while (found := data.find(b"\n", end)) >= 0:
            quotes += data.count(b'"', end, found)
            end = found + 1
            if quotes % 2 == 0:
                return end
        return -1

    def open(self, frame: bytes) -> Iterator[Fields]:
        """Yield the row as {column: text}; the header yields nothing."""
        row = _row(frame)
        if not self.context:
            self.context = msgspec.json.encode([name.strip() for name in row]).decode()
            return
        names = msgspec.json.decode(self.context, type=list[str])
        if len(row) != len(names):
            raise RecordError(f"{len(row)} cells under a header of {len(names)}")
        yield dict(zip(names, row, strict=True))


class SqlDump(Container):
    """Dump of mysqldump or mariadb-dump: the rows of the INSERT statements of one table."""

    def __init__(self, table: str, context: str = "") -> None:
        super().__init__(context)
        self._table = table

    def frame_end(self, data: bytes, start: int) -> int:
        """Return the end of the statement: dumps write a line's end within a text as two characters, never as itself."""
        end = super().frame_end(data, start)
        if end > 0 and (data.startswith(b"--", start) or not data[start:end].strip()):
            return end
        while end > 0 and not data[start:end].rstrip().endswith(b";"):
            end = super().frame_end(data, end)
        return end

    def open(self, frame: bytes) -> Iterator[Fields]:
        """Yield the rows of an INSERT; the columns are known from it or from the table's creation before it."""
        statement = frame.decode("utf-8", "replace")
        kind = statement.lstrip()[:12].upper()
        if kind == "CREATE TABLE":
            columns = table_columns(statement, self._table)
            self.context = msgspec.json.encode(columns).decode() if columns else self.context
        elif kind.startswith("INSERT"):
            yield from rows_of_insert(statement, self._table, msgspec.json.decode(self.context or "[]", type=list[str]))


def container_of(head: bytes, *, table: str = "", context: str = "") -> Container:
    """Return the container for a file's beginning. `table`: name of the exported table; a log ("") may only be JSON."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[":
        return JsonArray(context)
    if not table or start[:1] == b"{":
        return JsonLines(context)
    if re.match(rb"--|/\*|CREATE |INSERT |SET |DROP |LOCK |USE ", start, re.IGNORECASE):
        return SqlDump(table, context)
    return Csv(context)


def _unwrapped(line: bytes) -> tuple[str, bytes, bool]:
    """Return the stream of a wrapped line, its text, and True if the next line of that stream goes on with the text.

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
