"""Table of prices, one row per price -> the lists that the set-up file has under `price_versions:`.

    version,valid_from,accelerator,resource,unit,model,token_class,up_to_tokens,price,cost_sheet
    2027-01,2027-01-01,NVIDIA-H800,,GPU-Hours,,,,10.0000,
    2027-01,2027-01-01,,,,qwen,input,32768,1.0000,

Rows of one version are one complete list. A row becomes the same fields as in YAML (docs/imports.md), so the same rules
check both; a problem is named by row and column.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from billing.rates.models import GpuPrice
from billing.rates.price_file import UNIT_FIELDS
from billing.rates.price_list import UP_TO, PriceListError, parse_price_list
from billing.rates.selectors import stored_sources
from billing.runtime.tables import Columns, TableError, place, table_rows
from billing.setup.file import Entry, Fields, SetUpFileError
from billing.setup.price_entries import PriceEntry
from pricing.fields import FieldProblem
from pricing.rate_card import MILLION_TOKENS, TOKEN_CLASSES

OF_DEVICES: Final = ("accelerator", "resource")
OF_TOKENS: Final = ("model", "token_class", UP_TO)
COLUMNS: Final = Columns(
    required=("version", "valid_from", "price"),
    optional=(*OF_DEVICES, "unit", *OF_TOKENS, "cost_sheet"),
    numbers=frozenset({"price", UP_TO}),
    days=frozenset({"valid_from"}),
)
PRICE_FIELDS: Final = (*UNIT_FIELDS.values(), *TOKEN_CLASSES)


class PriceRow(Entry):
    """Row of the table; its errors name row and column."""

    def __init__(self, cells: Fields, number: int, path: Path) -> None:
        super().__init__(cells, "", path)
        self.line = number

    def error(self, field: str, message: str) -> SetUpFileError:
        return SetUpFileError(f"{place(self.path, self.line)}: {field}: {message}")

    def given(self, *fields: str) -> dict[str, object]:
        """Return the cells of some columns that are not empty."""
        return {field: self.value(field) for field in fields if self.has(field)}

    def priced_by_sheet(self) -> bool:
        """Return True if the price comes from a cost sheet.  Raises SetUpFileError if there is neither, or both."""
        if self.has("price") and self.has("cost_sheet"):
            raise self.error("price", "is given beside cost_sheet: give one of the two")
        if not self.has("price") and not self.has("cost_sheet"):
            raise self.error("price", "is missing: give a price, or the cost_sheet that it comes from")
        return self.has("cost_sheet")

    def refuse(self, fields: tuple[str, ...], what: str) -> None:
        """Refuse cells of columns that such a price does not have."""
        for name in fields:
            if self.has(name):
                raise self.error(name, f"is no column of a price of {what}")


@dataclass
class PricedItem:
    """Fields of one device price, or of the token prices of one model, and the row of each."""

    fields: dict[str, object]
    rows: dict[str, PriceRow]
    first: PriceRow


@dataclass
class VersionRows:
    name: str
    valid_from: datetime
    first: PriceRow
    gpu: list[PricedItem] = field(default_factory=list)
    tokens: dict[tuple[object, object], PricedItem] = field(default_factory=dict)

    def add(self, row: PriceRow) -> None:
        if row.has("model"):
            self._add_tokens(row)
            return
        row.refuse(OF_TOKENS, "devices")
        fields = row.given(*OF_DEVICES)
        if not fields:
            raise row.error("accelerator", "is missing: name an accelerator, a resource or a model")
        if row.priced_by_sheet():
            row.refuse(("unit",), "a cost sheet")
            fields |= row.given("cost_sheet")
        else:
            fields[UNIT_FIELDS[row.choice("unit", tuple(GpuPrice.Unit.values))]] = row.value("price")
        self.gpu.append(PricedItem(fields, {}, row))

    def _add_tokens(self, row: PriceRow) -> None:
        row.refuse(OF_DEVICES, "tokens")
        key = row.value("model"), row.value(UP_TO)
        item = self.tokens.setdefault(key, PricedItem(row.given("model", UP_TO), {}, row))
        if row.priced_by_sheet():
            row.refuse(("unit", "token_class"), "a cost sheet")
            name, value = "cost_sheet", row.value("cost_sheet")
        else:
            row.choice("unit", (MILLION_TOKENS,), MILLION_TOKENS)
            name, value = row.choice("token_class", TOKEN_CLASSES), row.value("price")
        # two rows of one price would otherwise leave the last one
        if name in item.rows:
            column = name if name == "cost_sheet" else "token_class"
            raise row.error(column, f"{name} of {key[0]} has a price in row {item.rows[name].line} already")
        item.fields[name], item.rows[name] = value, row

    def checked(self, currency: str) -> PriceEntry:
        """Return the list of these rows.  Raises SetUpFileError with the row and column of its first bad field."""
        items = {"gpu": self.gpu, "tokens": list(self.tokens.values())}
        content = {kind: [item.fields for item in found] for kind, found in items.items()}
        try:
            return PriceEntry(
                self.name, self.valid_from, parse_price_list(content, currency=currency, sources=stored_sources())
            )
        except PriceListError as error:
            kind, index = error.problems[0].path[:2]
            raise _named(error.problems[0], items[str(kind)][int(index)]) from error


def _named(problem: FieldProblem, item: PricedItem) -> SetUpFileError:
    """Return a problem of a YAML field as one of a row and its column."""
    name = str(problem.path[2])
    row = item.rows.get(name, item.first)
    if name in TOKEN_CLASSES and name not in item.fields:
        return row.error("token_class", f"{name}: {problem.text}")
    return row.error("price" if name in PRICE_FIELDS else name, str(problem.text))


def price_table(path: Path, *, zone: str, currency: str, sheet: str | None = None) -> list[PriceEntry]:
    """Return the price lists of a table; its days begin in `zone`.  Raises SetUpFileError with row and column."""
    versions: dict[str, VersionRows] = {}
    for row in _rows(path, sheet):
        name, valid_from = row.text("version"), row.instant("valid_from", zone)
        version = versions.setdefault(name, VersionRows(name, valid_from, row))
        if version.valid_from != valid_from:
            raise row.error("valid_from", f"is another one than in row {version.first.line}, the first of {name}")
        version.add(row)
    if not versions:
        raise SetUpFileError(f"{path}: has no rows, there is nothing to import")
    return [version.checked(currency) for version in versions.values()]


def _rows(path: Path, sheet: str | None) -> Iterator[PriceRow]:
    try:
        for number, cells in table_rows(path, COLUMNS, sheet):
            yield PriceRow(Fields({name: cell for name, cell in cells.items() if cell is not None}), number, path)
    except TableError as error:
        raise SetUpFileError(str(error)) from error
