"""Reader of tables (CSV, CSV.gz, Parquet or XLSX) into rows of texts, each with its line.

Every error names file, line or row, and column; an unknown column is refused by name, because its data would be lost
silently. CSV and Parquet are read in parts, so a file may be larger than the memory. pandas would need the whole file at
once, and does not give the line of a CSV row, so it reads workbooks only (`billing.runtime.sheets`).
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

MAX_LINE = 1_000_000
"""Longest line of a CSV file, in bytes; a longer one is not of such a table."""

SHEETS, PARQUET = ".xlsx", ".parquet"
TABLES = (".csv", ".csv.gz", PARQUET, SHEETS)

Row = dict[str, str | None]


class TableError(ValueError):
    """Error in a table: file, line or row, column."""


@dataclass(frozen=True)
class Columns:
    """Columns of a table. In a sheet, `numbers` may be cells of numbers, and `days` dates without a time of day."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()
    days: frozenset[str] = frozenset()


def is_table(path: Path) -> bool:
    """Return True if a file has the name of a table.

    >>> is_table(Path("prices.XLSX")), is_table(Path("usage.csv.gz")), is_table(Path("prices.yaml"))
    (True, True, False)
    """
    return path.name.lower().endswith(TABLES)


def place(path: Path, number: int) -> str:
    """Format a file with the line of a text, or the row of a sheet or a Parquet file.

    >>> place(Path("usage.csv"), 3), place(Path("usage.xlsx"), 3)
    ('usage.csv line 3', 'usage.xlsx row 3')
    """
    return f"{path} {'row' if path.suffix.lower() in (SHEETS, PARQUET) else 'line'} {number}"


def table_rows(path: Path, columns: Columns, sheet: str | None = None) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a table with their numbers; an empty cell is None.

    `sheet` names a sheet of a workbook; its first one where it is None.  Raises TableError at the first wrong row.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise TableError(f"{path}: is not a regular file; it is read twice, to refuse it whole if a line is wrong")
    suffix = path.suffix.lower()
    if sheet is not None and suffix != SHEETS:
        raise TableError(f"{path}: has no sheets; only a file named {SHEETS} has some")
    try:
        if suffix == SHEETS:
            from billing.runtime.sheets import sheet_rows  # importing pandas takes half a second

            yield from sheet_rows(path, columns, sheet)
        else:
            yield from (_parquet_rows if suffix == PARQUET else _csv_rows)(path, columns)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    except EOFError as error:
        raise TableError(f"{path}: ends in the middle: {error}") from error
    except zlib.error as error:
        raise TableError(f"{path}: is damaged: {error}") from error


def check_header(path: Path, header: Sequence[str], columns: Columns) -> None:
    """Raise TableError for a header with an unknown, a repeated or a missing column."""
    known = (*columns.required, *columns.optional)
    first = place(path, 1)
    for name in header:
        if name not in known:
            raise TableError(f"{first}: unknown column {name!r}; known are {', '.join(known)}")
        if header.count(name) > 1:
            raise TableError(f"{first}: column {name!r} is there twice")
    for name in columns.required:
        if name not in header:
            raise TableError(f"{first}: column {name!r} is missing")


def _csv_rows(path: Path, columns: Columns) -> Iterator[tuple[int, Row]]:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as binary:
        lines = _Lines(binary, path)
        reader = csv.reader(lines, strict=True)
        csv.field_size_limit(MAX_LINE)
        header = _next_row(reader, path)
        if header is None:
            raise TableError(f"{path}: is empty; the first line must name the columns")
        check_header(path, header, columns)
        while (cells := _next_row(reader, path)) is not None:
            if not cells:
                continue
            if len(cells) != len(header):
                raise TableError(f"{path} line {reader.line_num}: {len(cells)} fields, the header names {len(header)}")
            yield reader.line_num, {name: cell or None for name, cell in zip(header, cells, strict=True)}


class _Lines:
    """Iterator over the lines of a binary file as text; limits their length and reports the line of a wrong byte."""

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
            raise TableError(f"{self.path} line {self.number}: longer than {MAX_LINE} bytes")
        try:
            # Excel begins a CSV file with a byte order mark, which would be part of the first column's name
            text: str = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise TableError(f"{self.path} line {self.number}: not UTF-8 at byte {error.start}") from error
        if "\0" in text:
            raise TableError(f"{self.path} line {self.number}: contains a NUL byte; is this a text file?")
        return text


def _next_row(reader: Any, path: Path) -> list[str] | None:
    try:
        row: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise TableError(f"{path} line {reader.line_num}: {error}") from error
    return row


def _parquet_rows(path: Path, columns: Columns) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            check_header(path, file.schema_arrow.names, columns)
            number = 0
            for batch in file.iter_batches(batch_size=10_000):
                for row in batch.to_pylist():
                    number += 1
                    where = place(path, number)
                    yield number, {name: _value_text(name, value, columns, where) for name, value in row.items()}
    except pa.ArrowException as error:
        raise TableError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _value_text(name: str, value: object, columns: Columns, where: str) -> str | None:
    """Convert a value of a Parquet file to text; refuse floats as names: NaN would be a name, and 7.0 another one than 7."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TableError(f"{where}: {name} {value.isoformat()} has no offset")
        return value.isoformat()
    if isinstance(value, float) and (name not in columns.numbers or value != value):
        raise TableError(f"{where}: {name}: {value!r} is a float: write text, or null where there is no value")
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal | date):
        raise TableError(f"{where}: {name}: {value!r} is a {type(value).__name__}: write text")
    return repr(value) if isinstance(value, float) else str(value)
