"""Files of usage: CSV, CSV.gz or Parquet -> validated records. A file is read whole before anything is written.

Every error names file, line and field. Columns are those of the contract; an unknown one is refused by name, because
what nobody reads would be lost.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from metering.messages import Message
from metering.records import (
    EfficiencySample,
    EngineReading,
    GpuAllocation,
    NodeCapacity,
    RecordError,
    TokenUsage,
    check_texts,
    from_row,
    hold_id,
)

MAX_LINE = 1_000_000
"""Longest line of a CSV file, in characters; a longer one is no usage file."""


UNKNOWN_SHARE = "unknown"
"""A device_fraction that the sender of a file does not know; an empty one is an error."""


class UsageFileError(ValueError):
    """One thing that is wrong with a file, told with file, line and field."""


R = TypeVar("R", TokenUsage, GpuAllocation, NodeCapacity, EfficiencySample, EngineReading)


@dataclass(frozen=True)
class FileKind(Generic[R]):
    """The columns of one kind of file and how a row becomes a record."""

    record: type[R]
    columns: tuple[str, ...]
    optional: tuple[str, ...]
    fields: Callable[[dict[str, str | None], datetime | None], dict[str, Any]]


def _gpu(row: dict[str, str | None], until: datetime | None) -> dict[str, Any]:
    fields: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
    fields["node"] = row.get("node") or ""
    if row.get("device_fraction") == UNKNOWN_SHARE:
        fields |= {"device_fraction": None, "share_unknown": "the file says that it is not known"}
    if row.get("ended_at") is None:
        if until is None:
            raise RecordError(Message(
                "ended_at is empty: for an allocation that still runs, say --until when the file goes"
            ), "ended_at")
        if row.get("end_reason") is not None:
            raise RecordError(Message("end_reason needs an ended_at"), "end_reason")
        fields["observed_until"] = until
    if row.get("workload") is not None:
        kind, slash, name = (row["workload"] or "").partition("/")
        if not slash or not kind or not name:
            raise RecordError(Message("workload %(value)s must be kind/name", value=repr(row["workload"])), "workload")
        fields["workload"] = {"kind": kind, "name": name}
    if (labels := row.get("labels")) is not None:
        fields["labels"] = _labels(labels)
    identity = (row.get(name) or "" for name in ("cluster", "pod_uid", "resource", "started_at"))
    fields["allocation_id"] = "/".join(identity)
    return fields


def _labels(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RecordError(
            Message("labels %(value)s must be a JSON object of texts", value=repr(text[:80])), "labels"
        ) from error


def _plain(row: dict[str, str | None], until: datetime | None) -> dict[str, Any]:
    return dict(row)


KINDS: dict[str, FileKind[Any]] = {
    "gpu": FileKind(
        GpuAllocation,
        ("cluster", "namespace", "pod", "pod_uid", "resource", "quantity", "device_fraction", "accelerator",
         "started_at", "ended_at"),
        ("node", "queue", "workload", "end_reason", "scheduler", "priority_class", "site", "pool", "labels"),
        _gpu,
    ),
    "tokens": FileKind(
        TokenUsage,
        ("source", "id", "time", "consumer", "model", "input_tokens", "cache_read_input_tokens",
         "cache_creation_input_tokens", "output_tokens", "reasoning_output_tokens"),
        (),
        _plain,
    ),
    "capacity": FileKind(
        NodeCapacity, ("cluster", "node", "accelerator", "resource", "quantity", "from", "until"), (), _plain
    ),
    "efficiency": FileKind(
        EfficiencySample,
        ("cluster", "pod_uid", "start", "end", "gpu_seconds", "mfu", "hfu", "dtype", "coverage"),
        (),
        _plain,
    ),
    "engine": FileKind(
        EngineReading, ("source", "replica", "model", "time", "prompt_tokens", "generation_tokens"), ("started_at",), _plain
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileRecord(Generic[R]):
    """A record with the line that it came from and its row as JSON."""

    line: int
    record: R
    raw: bytes


def read_records(kind: str, path: Path, until: datetime | None = None) -> Iterator[FileRecord[Any]]:
    """Records of a file, one after the other.  Raises UsageFileError at the first that is wrong."""
    file_kind = KINDS[kind]
    for line, row in _rows(file_kind, path):
        try:
            record = from_row(file_kind.record, file_kind.fields(row, until))
            if isinstance(record, GpuAllocation):
                record = _with_canonical_id(record)
            check_texts(record)
        except RecordError as error:
            raise UsageFileError(f"{path} line {line}: {_told(error, row, until)}") from error
        yield FileRecord(line, record, msgspec.json.encode(row))


def _with_canonical_id(record: GpuAllocation) -> GpuAllocation:
    """The id of a row names its start in UTC, so that another spelling of the same instant is the same allocation."""
    identity = hold_id(record.cluster, record.pod_uid, record.resource, record.started_at)
    return msgspec.structs.replace(record, allocation_id=identity)


def _told(error: RecordError, row: dict[str, str | None], until: datetime | None) -> str:
    """What is wrong, in columns and options of the file: it has no `observed_until`, that is `--until`."""
    if error.field == "observed_until" and until is not None:
        return f"started_at {row['started_at']} is after --until {until.isoformat()}: give its ended_at, or a later --until"
    text = str(error)
    return text if error.field is None or error.field in text else f"{error.field}: {text}"


def _rows(kind: FileKind[Any], path: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageFileError(f"{path}: is not a regular file; it is read twice, to refuse it whole if a line is wrong")
    try:
        if path.suffix == ".parquet":
            yield from _parquet_rows(kind, path)
        else:
            yield from _csv_rows(kind, path)
    except OSError as error:
        raise UsageFileError(f"{path}: {error.strerror or error}") from error
    except EOFError as error:
        raise UsageFileError(f"{path}: ends in the middle: {error}") from error
    except zlib.error as error:
        raise UsageFileError(f"{path}: is damaged: {error}") from error


def _csv_rows(kind: FileKind[Any], path: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as binary:
        lines = _Lines(binary, path)
        reader = csv.reader(lines, strict=True)
        csv.field_size_limit(MAX_LINE)
        header = _next_row(reader, path)
        if header is None:
            raise UsageFileError(f"{path}: is empty; the first line must name the columns")
        _check_header(kind, header, path)
        while (cells := _next_row(reader, path)) is not None:
            if not cells:
                continue
            if len(cells) != len(header):
                raise UsageFileError(f"{path} line {reader.line_num}: {len(cells)} fields, the header names {len(header)}")
            yield reader.line_num, {name: cell or None for name, cell in zip(header, cells, strict=True)}


class _Lines:
    """Lines of a binary file as text; bounded in length, with the line of a wrong byte."""

    def __init__(self, binary: Any, path: Path) -> None:
        self.binary, self.path, self.number = binary, path, 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self.binary.readline(MAX_LINE + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > MAX_LINE:
            raise UsageFileError(f"{self.path} line {self.number}: longer than {MAX_LINE} bytes")
        try:
            text: str = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageFileError(f"{self.path} line {self.number}: not UTF-8 at byte {error.start}") from error
        if "\0" in text:
            raise UsageFileError(f"{self.path} line {self.number}: contains a NUL byte; is this a text file?")
        return text


def _next_row(reader: Any, path: Path) -> list[str] | None:
    try:
        row: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise UsageFileError(f"{path} line {reader.line_num}: {error}") from error
    return row


def _check_header(kind: FileKind[Any], header: list[str], path: Path) -> None:
    known = (*kind.columns, *kind.optional)
    for name in header:
        if name not in known:
            raise UsageFileError(f"{path} line 1: unknown column {name!r}; known are {', '.join(known)}")
        if header.count(name) > 1:
            raise UsageFileError(f"{path} line 1: column {name!r} stands twice")
    for name in kind.columns:
        if name not in header:
            raise UsageFileError(f"{path} line 1: column {name!r} is missing")


def _parquet_rows(kind: FileKind[Any], path: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _check_header(kind, file.schema_arrow.names, path)
            number = 0
            for batch in file.iter_batches(batch_size=10_000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _cell(name, value, number, path) for name, value in row.items()}
    except pa.ArrowException as error:
        raise UsageFileError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _cell(name: str, value: object, number: int, path: Path) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageFileError(f"{path} row {number}: {name} {value.isoformat()} has no offset")
        return value.isoformat()
    if isinstance(value, float):
        return repr(value)
    return str(value)
