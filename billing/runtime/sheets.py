"""Reader of a sheet of a workbook (XLSX) into rows of texts. A cell is taken exactly as typed, or refused with its place.

A workbook stores numbers as binary floats, dates without a time zone, and formulas with a possibly outdated result:

- A float distinguishes any two decimals of at most 15 digits, so the shortest decimal of such a cell is what was typed.
  More digits were computed, or typed and cut by the program (Excel keeps 15), and are refused.
  Source: https://support.microsoft.com/en-us/office/excel-specifications-and-limits-1672b34d-7043-467e-8e27-269d656771c3
- A number in a column of names may have lost leading zeros.
- Formulas, merged cells, errors, and times in date cells are refused.
"""

import warnings
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas
from openpyxl.utils import get_column_letter
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.worksheet.formula import ArrayFormula, DataTableFormula

from billing.runtime.tables import Columns, Row, TableError, check_header, place

MAX_BYTES = 8 * 1024 * 1024
"""Largest workbook: some 200,000 rows of usage, a gigabyte of cells."""

DIGITS = 15
"""Significant decimal digits that a binary float keeps."""

DAMAGED = (BadZipFile, InvalidFileException, zlib.error, LookupError, ValueError, TypeError, AttributeError, ArithmeticError,
           SyntaxError, EOFError)  # fmt: skip
"""Exceptions of openpyxl for files that are no workbook; it has no error class for them."""


class _CellError(ValueError):
    """Reason why the value of a cell is refused."""


def sheet_rows(path: Path, columns: Columns, sheet: str | None) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a sheet with their row numbers; rows without any value are left out.  Raises TableError."""
    rows = enumerate(_read_cells(path, sheet), start=1)
    _, first = next(rows, (1, None))
    if first is None:
        raise TableError(f"{path}: is empty; the first row must name the columns")
    header = _header(path, first, columns)
    for number, cells in rows:
        if any(cell != "" for cell in cells):
            yield number, {
                name: _cell_text(cell, name, columns, place(path, number))
                for name, cell in zip(header, cells, strict=True)
            }


def _read_cells(path: Path, sheet: str | None) -> list[list[Any]]:
    """Return every cell with the value in the file: "" where it is empty, the text of a formula and not its result."""
    if path.stat().st_size > MAX_BYTES:
        raise TableError(
            f"{path}: is larger than {MAX_BYTES} bytes, and a workbook is read whole: save it as CSV or Parquet, "
            "which are read in parts"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # openpyxl warns of ignored colours and drop-down lists
            options = {"read_only": False, "data_only": False}  # read-only mode does not list merged cells
            with pandas.ExcelFile(path, engine="openpyxl", engine_kwargs=options) as book:
                title = _title(path, [str(name) for name in book.sheet_names], sheet)
                merged = sorted(str(cells) for cells in book.book[title].merged_cells.ranges)
                frame = pandas.read_excel(book, sheet_name=title, header=None, dtype=object, na_filter=False)
    except TableError:
        raise
    except DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise TableError(f"{path}: is not a readable XLSX file: {reason.splitlines()[0][:200]}") from error
    if merged:
        raise TableError(f"{path}: {merged[0]}: cells are merged: one value for several cells is ambiguous")
    rows: list[list[Any]] = frame.to_numpy(dtype=object).tolist()
    return rows


def _title(path: Path, titles: list[str], sheet: str | None) -> str:
    if not titles:
        raise TableError(f"{path}: has no sheet of cells")
    if sheet is not None and sheet not in titles:
        raise TableError(f"{path}: has no sheet {sheet!r}; it has {', '.join(map(repr, titles))}")
    return titles[0] if sheet is None else sheet


def _header(path: Path, cells: Sequence[Any], columns: Columns) -> list[str]:
    if not any(cell != "" for cell in cells):
        raise TableError(f"{place(path, 1)}: is empty; it must name the columns")
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, str) or not cell:
            letter, found = get_column_letter(number), "" if cell == "" else f" but {cell}"
            raise TableError(f"{place(path, 1)}: column {letter} has no name{found}")
    check_header(path, cells, columns)
    return list(cells)


def _cell_text(cell: object, name: str, columns: Columns, where: str) -> str | None:
    try:
        if isinstance(cell, str):
            return _typed(cell)
        if isinstance(cell, bool):
            raise _CellError(f"contains {str(cell).upper()}, neither text nor number")
        if isinstance(cell, int | float):
            return _number(cell, name in columns.numbers)
        if isinstance(cell, datetime):
            return _day(cell, name in columns.days)
        if isinstance(cell, ArrayFormula | DataTableFormula):
            raise _CellError("contains a formula: paste its value")
        raise _CellError(f"contains a {type(cell).__name__}, neither text nor number")
    except _CellError as error:
        raise TableError(f"{where}: {name}: {error}") from error


def _typed(text: str) -> str | None:
    if text.startswith("="):
        raise _CellError(f"contains the formula {text[:60]}: paste its value")
    return text or None


def _number(value: float, expected: bool) -> str:
    """Return the decimal that was typed.

    >>> _number(0.1, True), _number(5, True), _number(5e-07, True)
    ('0.1', '5', '0.0000005')
    """
    if value != value:
        raise _CellError("contains an error such as #N/A")
    text = f"{Decimal(repr(value)):f}"
    if not expected:
        raise _CellError(
            f"is a number, {text}: leading zeros and digits may be lost, so format the column as text and write it again"
        )
    if len(text.lstrip("-").replace(".", "").strip("0")) > DIGITS or abs(value) >= 10**DIGITS:
        raise _CellError(
            f"the number {text} has more than {DIGITS} digits, as computed or cut ones have: write the value as text"
        )
    return text


def _day(value: datetime, expected: bool) -> str:
    if not expected:
        raise _CellError(
            f"is a date of the sheet, {value.isoformat()}, and a sheet knows no time zone: write it as text, with its offset"
        )
    if value.time() != time():
        raise _CellError(f"{value.isoformat()} has a time of day but no time zone: write it as text, with its offset")
    return value.date().isoformat()
