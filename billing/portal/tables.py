"""Tables as CSV, as XLSX and, if their columns have headings, on the page: files follow the page's filters and rights.

A page names its tables and calls `download` first; `?table=NAME&as=csv` on the page's own address returns the file, so a
file never shows more than the page. Text that a spreadsheet would run as a formula is made harmless; numbers stay numbers.
A listing is its columns and its items: `Table.of(name, items, columns)` asks each column for the cell of each item.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Self
from urllib.parse import quote

import xlsxwriter
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.text import slugify

from billing.invoices.documents.delimited import BYTE_ORDER_MARK, harmless, spreadsheet_text
from billing.portal.labels import LABELS, MINUS, NOTHING
from billing.rating.freshness import Freshness
from metering.messages import Message
from pricing.meters import SECTIONS
from pricing.money import amount_places, round_amount, round_to

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
KINDS = {"csv": "text/csv; charset=utf-8", "xlsx": XLSX}
FORMATS = {"money": "#,##0.00", "quantity": "#,##0.000000", "count": "#,##0", "ratio": "0.0%", "price": "#,##0.0000####"}
WIDEST = 60
Cell = str | int | Decimal | Fraction | date | None
Row = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """Column by its stable English name; `look` is text or a key of FORMATS.

    of: the source of the cell in an item: an attribute, dots for attributes of attributes, or a function; else the name.
    heading: the text above it on a page, in the reader's language; a column without one is in the files only.
    words: the table of `billing.portal.labels` that translates its codes on a page.
    """

    name: str
    look: str = "text"
    of: str | Callable[[Any], Cell] = ""
    heading: object = ""
    words: str = ""

    @property
    def cell(self) -> Callable[[Any], Cell]:
        """Return the function that takes the cell of this column from an item."""
        return self.of if callable(self.of) else attrgetter(self.of or self.name)


def columns(*names: str, look: str = "text") -> list[Column]:
    """Return columns of one look that are attributes of the items."""
    return [Column(name, look) for name in names]


def constant(name: str, value: Cell) -> Column:
    """Return a column with one cell in every row, such as the month of the page."""
    return Column(name, of=lambda _: value)


DATED = Column("data_through")


def _part(name: str) -> Callable[[Any], Cell]:
    return lambda item: None if item.parts is None else item.parts[name]


BY_SECTION = [Column(name, "money", _part(name)) for name in SECTIONS]
"""Columns of the parts of a total, for items that have them by section (`parts`); None if those are unknown."""


Shown = list[tuple[Column, str]]
"""Cells of a row on a page."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of a file: name, columns and rows. A cell that is unknown is None and stays empty.

    Only on a page: `notes`, one beside the first cell of each row, and `foot`, the row below them.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[object] = ()
    foot: Row = ()

    @classmethod
    def of(cls, name: str, items: Iterable[Any], columns: Sequence[Column]) -> Self:
        cells = [column.cell for column in columns]
        return cls(name, columns, [[cell(item) for cell in cells] for item in items])

    @property
    def headed(self) -> list[Column]:
        return [column for column in self.columns if column.heading]

    @property
    def shown(self) -> list[tuple[object, bool, Shown]]:
        """Return the rows of the page: the note of each, True if its `difference` is zero, and its cells."""
        differs = next((index for index, column in enumerate(self.columns) if column.name == "difference"), None)
        return [
            (note, differs is not None and row[differs] == 0, self._cells(row))
            for row, note in zip_longest(self.rows, self.notes, fillvalue="")
        ]

    @property
    def shown_foot(self) -> Shown:
        """Return the row below the rows of the page."""
        return self._cells(self.foot)

    def _cells(self, row: Row) -> Shown:
        cells = zip(self.columns, row, strict=True) if row else ()
        return [(column, _on_page(column, value)) for column, value in cells if column.heading]


def _on_page(column: Column, value: Cell) -> str:
    """Format a figure with the decimals that it has and separators; a code in words."""
    value = _as_amount(column, value)
    if isinstance(value, Decimal):
        return f"{value:,f}".replace("-", MINUS)
    text = NOTHING if value is None else str(value)
    if column.look == "percent":
        return f"{text} %"
    return str(LABELS[column.words].get(text, text)) if column.words else text


def _as_amount(column: Column, value: Cell) -> Cell:
    """Drop the decimals of an amount that its currency does not have; return any other cell unchanged."""
    if column.look != "money" or not isinstance(value, Decimal):
        return value
    amount = round_amount(value)
    # digits beyond the currency's are dropped only if they are zero: rounding would hide a wrong amount
    return amount if amount == value and len(str(amount)) < len(str(value)) else value


def download(
    request: HttpRequest, tables: Mapping[str, Callable[[], Table]], fresh: Freshness | None = None
) -> HttpResponse | None:
    """Return the file that the request asks for, None if it asks for the page.  Raises Http404.

    fresh: for figures that can still change; each row then has the instant up to which its data are complete.
    """
    kind = request.GET.get("as")
    if kind is None:
        return None
    name = request.GET.get("table", "")
    if kind not in KINDS or name not in tables:
        raise Http404(Message(
            "table %(name)s as %(kind)s: this page has %(names)s as %(kinds)s", name=repr(name[:40]), kind=repr(kind[:40]),
            names=", ".join(sorted(tables)), kinds=", ".join(sorted(KINDS)),
        ))  # fmt: skip
    table = _dated(tables[name](), fresh)
    body = csv_of(table) if kind == "csv" else xlsx_of(table)
    response = HttpResponse(body, content_type=KINDS[kind])
    # RFC 5987 below: names may have characters that a plain header cannot carry
    file_name = slugify(table.name.replace("/", "-"), allow_unicode=True) or name
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file_name)}.{kind}"
    return response


def _dated(table: Table, fresh: Freshness | None) -> Table:
    if fresh is None or any(column.name == DATED.name for column in table.columns):
        return table
    return replace(table, columns=[*table.columns, DATED], rows=[[*row, fresh.data_through] for row in table.rows])


def csv_of(table: Table) -> bytes:
    r"""Return RFC 4180, UTF-8 with byte order mark; numbers exact and without separators, instants in RFC 3339.

    >>> csv_of(Table("x", [Column("a"), Column("b", "money")], [["=1", Decimal("-2.50")]])).decode()[1:]
    "a,b\r\n'=1,-2.50\r\n"
    """
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\r\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        writer.writerow([_csv_text(_as_amount(*cell)) for cell in zip(table.columns, row, strict=True)])
    # a lone surrogate in a name would otherwise break the whole file
    return (BYTE_ORDER_MARK + sheet.getvalue()).encode("utf-8", "backslashreplace")


def xlsx_of(table: Table) -> bytes:
    """Return one sheet with a frozen head and a filter; numbers are cells of number, text is never a formula or a link."""
    target = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(target, options) as book:
        sheet = book.add_worksheet("Data")
        whole = {} if amount_places() else {"money": "#,##0"}
        looks = {name: book.add_format({"num_format": code}) for name, code in (FORMATS | whole).items()}
        head = book.add_format({"bold": True, "bottom": 1})
        for index, column in enumerate(table.columns):
            sheet.write_string(0, index, column.name, head)
            lengths = (len(_text(row[index])) for row in table.rows)
            sheet.set_column(index, index, min(max([len(column.name), *lengths]) + 2, WIDEST))
        for number, row in enumerate(table.rows, start=1):
            for index, (column, value) in enumerate(zip(table.columns, row, strict=True)):
                if value is None:
                    continue
                if isinstance(value, int | Decimal | Fraction):
                    sheet.write_number(number, index, _number(value), looks.get(column.look))
                else:
                    sheet.write_string(number, index, _text(value))
        sheet.freeze_panes(1, 0)
        sheet.autofilter(0, 0, max(len(table.rows), 1), max(len(table.columns) - 1, 0))
    return target.getvalue()


def _number(value: int | Decimal | Fraction) -> Decimal:
    """Return a decimal, which the workbook writes digit by digit: no float in between."""
    return round_to(value, 12) if isinstance(value, Fraction) else Decimal(value)


def _text(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, int | Decimal | Fraction):
        return f"{_number(value):f}"
    if isinstance(value, date):
        return value.isoformat()
    return harmless(value)


def _csv_text(value: Cell) -> str:
    return spreadsheet_text(value) if isinstance(value, str) else _text(value)
