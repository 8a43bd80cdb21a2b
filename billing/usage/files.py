"""Usage files as validated records: CSV, CSV.gz, Parquet or XLSX. A file is read whole before anything is written.

Every error names file, line or row, and field. Columns are those of the contract.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.inspect import DecimalType, IntType, StructType, Type, UnionType, type_info

from billing.runtime.tables import Columns, Row, TableError, place, table_rows
from billing.usage.contents import TOKEN_COUNTS
from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import (
    DETAILS,
    EfficiencySample,
    EngineReading,
    GpuAllocation,
    NodeCapacity,
    TokenUsage,
    check_texts,
    from_row,
    hold_id,
)

EXPONENT = re.compile(r"[+-]?[0-9.]+[eE](?P<exponent>[+-]?[0-9]{1,9})")
CUT_NAME = re.compile(r"[0-9]([.,][0-9]+)?E[+-][0-9]{2,}")
"""Pattern of a number of many digits as a spreadsheet writes it, or of a name such as 12e34 that it took for a number;
the remaining digits are lost.
"""

UNKNOWN_SHARE = "unknown"
"""Text of a device_fraction unknown to the sender of a file; an empty one is an error."""


class UsageFileError(ValueError):
    """Error of a usage file: file, line or row, and field."""


R = TypeVar("R", TokenUsage, GpuAllocation, NodeCapacity, EfficiencySample, EngineReading)


@dataclass(frozen=True)
class FileKind(Generic[R]):
    """Kind of file: its columns, and the function that turns a row into fields of a record."""

    record: type[R]
    columns: tuple[str, ...]
    optional: tuple[str, ...]
    fields: Callable[[Row, datetime | None], dict[str, Any]]

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Return the columns of counts and decimals; all others are text."""
        return self.counts | self._columns_of(DecimalType)

    @cached_property
    def counts(self) -> frozenset[str]:
        """Return the columns of integers."""
        return self._columns_of(IntType)

    def _columns_of(self, kind: type[Type]) -> frozenset[str]:
        info = type_info(self.record)
        fields = info.fields if isinstance(info, StructType) else ()
        return frozenset(field.encode_name for field in fields if _is_of(field.type, kind))


def _is_of(found: Type, kind: type[Type]) -> bool:
    return any(isinstance(one, kind) for one in (found.types if isinstance(found, UnionType) else (found,)))


def _gpu(row: Row, until: datetime | None) -> dict[str, Any]:
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
        fields["labels"] = _texts("labels", labels)
    if (tags := row.get("tags")) is not None:
        fields["tags"] = _texts("tags", tags)
    identity = (row.get(name) or "" for name in ("cluster", "pod_uid", "resource", "started_at"))
    # provisional: `_with_canonical_id` replaces it once the start is parsed
    fields["allocation_id"] = "/".join(identity)
    return fields


def _tokens(row: Row, until: datetime | None) -> dict[str, Any]:
    tags = row.get("tags")
    return dict(row) | ({} if tags is None else {"tags": _texts("tags", tags)})


def _texts(column: str, text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeError) as error:
        shown = "" if column == "tags" else f" {text[:80]!r}"  # tags are not repeated: they may be ones that no rule allows
        raise RecordError(
            Message("%(column)s%(value)s must be a JSON object of texts", column=column, value=shown), column
        ) from error


def _plain(row: Row, until: datetime | None) -> dict[str, Any]:
    return dict(row)


KINDS: dict[str, FileKind[Any]] = {
    "gpu": FileKind(
        GpuAllocation,
        ("cluster", "namespace", "pod", "pod_uid", "resource", "quantity", "device_fraction", "accelerator",
         "started_at", "ended_at"),
        ("node", "queue", "workload", "end_reason", "scheduler", "priority_class", "site", "pool", "labels",
         "capacity_type", "tags"),
        _gpu,
    ),
    "tokens": FileKind(
        TokenUsage,
        ("source", "id", "time", "consumer", "model", *TOKEN_COUNTS),
        (*DETAILS, "tags"),
        _tokens,
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
    """Record with its line in the file, and as JSON, from which it can be replayed out of quarantine."""

    line: int
    record: R
    raw: bytes


def read_records(
    kind: str, path: Path, until: datetime | None = None, sheet: str | None = None
) -> Iterator[FileRecord[Any]]:
    """Yield the records of a file; of a workbook, those of `sheet` or of its first sheet.

    Raises UsageFileError at the first wrong record.
    """
    file_kind = KINDS[kind]
    for line, row in _rows(file_kind, path, sheet):
        try:
            _refuse_cut(row, file_kind)
            record = from_row(file_kind.record, file_kind.fields(row, until))
            if isinstance(record, GpuAllocation):
                record = _with_canonical_id(record)
            check_texts(record)
        except RecordError as error:
            raise UsageFileError(f"{place(path, line)}: {_text(error, row, until)}") from error
        yield FileRecord(line, record, msgspec.json.encode(record))


def _refuse_cut(row: Row, kind: FileKind[Any]) -> None:
    """Refuse values that a spreadsheet has cut: two names become one, and digits of counts are gone."""
    for column, text in row.items():
        if not text or "E" not in text.upper():
            continue
        if column not in kind.numbers:
            if CUT_NAME.fullmatch(text):
                raise RecordError(Message(
                    "%(column)s %(value)s is what a spreadsheet leaves of a name that it takes for a number: write the file "
                    "again from where it came from, or format the column as text before",
                    column=column, value=text,
                ), column)
        elif (found := EXPONENT.fullmatch(text)) and (column in kind.counts or int(found["exponent"]) > 0):
            raise RecordError(Message(
                "%(column)s %(value)s has an exponent, as a spreadsheet writes a number of which it shows some digits only: "
                "write all digits",
                column=column, value=text[:80],
            ), column)


def _with_canonical_id(record: GpuAllocation) -> GpuAllocation:
    """Return the record with an id that names its start in UTC, so that spellings of one instant give one id."""
    identity = hold_id(record.cluster, record.pod_uid, record.resource, record.started_at)
    return msgspec.structs.replace(record, allocation_id=identity)


def _text(error: RecordError, row: Row, until: datetime | None) -> str:
    """Return the error text in columns and options of the file: its `observed_until` is the option `--until`."""
    if error.field == "observed_until" and until is not None:
        return f"started_at {row['started_at']} is after --until {until.isoformat()}: give its ended_at, or a later --until"
    text = str(error)
    return text if error.field is None or error.field in text else f"{error.field}: {text}"


def _rows(kind: FileKind[Any], path: Path, sheet: str | None) -> Iterator[tuple[int, Row]]:
    try:
        yield from table_rows(path, Columns(kind.columns, kind.optional, kind.numbers), sheet)
    except TableError as error:
        raise UsageFileError(str(error)) from error
