"""Cost sheets and price lists of a YAML file: read by `apply`, which publishes them, and by `price_version import`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from billing.rates.price_list import PriceList, PriceListError, parse_price_list
from billing.rates.selectors import stored_sources
from billing.rates.services import cost_sheet_put, token_cost_sheet_put
from billing.setup.file import Entry, Fields, SetUpFileError, read_fields
from pricing.cost_sheet import CostSheetError
from pricing.fields import Path as FieldPath
from pricing.loadtests.own import DeploymentsError
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from pricing.token_price import LoadPointError
from pricing.token_sheet import TokenSheetError


@dataclass(frozen=True)
class PriceEntry:
    """Entry of `price_versions:`, checked."""

    name: str
    valid_from: datetime
    prices: PriceList


def cost_sheet_store(entry: Entry, actor: str) -> tuple[bool, str]:
    """Store an entry of `cost_sheets:`; return True if it changed anything, and its description.  Raises SetUpFileError."""
    name, fields, source = _sheet(entry)
    try:
        cost = cost_of_gpu_hour(parse_cost_sheet(fields))
    except CostSheetError as error:
        raise SetUpFileError(f"{source}: cost sheet {name}: {'; '.join(error.messages)}") from error
    _, changed = cost_sheet_put(name=name, inputs=fields, result=cost.as_dict(), actor=actor)
    return changed, f"cost sheet {name}: {cost.list_price} {cost.list_currency} per GPU-hour"


def token_cost_sheet_store(entry: Entry, actor: str) -> tuple[bool, str]:
    """Store an entry of `token_cost_sheets:`; return True if it changed, and a description.  Raises SetUpFileError."""
    name, fields, source = _sheet(entry)
    try:
        sheet, changed = token_cost_sheet_put(name=name, inputs=fields, actor=actor)
    except TokenSheetError as error:
        raise SetUpFileError(f"{source}: token cost sheet {name}: {'; '.join(error.messages)}") from error
    except (LoadPointError, DeploymentsError) as error:
        raise SetUpFileError(f"{source}: token cost sheet {name}: report: {error}") from error
    return changed, f"token cost sheet {name}: {sheet.model}, method {sheet.method}"


def price_entry(entry: Entry, *, zone: str, currency: str) -> PriceEntry:
    """Read an entry of `price_versions:`, whose sheets are stored by now.  Raises SetUpFileError with its line."""
    name, valid_from = entry.text("name"), entry.instant("valid_from", zone)
    given = {field: entry.value(field) for field in ("gpu", "tokens")}
    entry.finish()
    try:
        return PriceEntry(name, valid_from, parse_price_list(given, currency=currency, sources=stored_sources()))
    except PriceListError as error:
        problem = error.problems[0]
        where = SetUpFileError(f"{entry.path} line {_line(entry, problem.path)}: {entry.where}.{problem}")
        raise where from error


def _line(entry: Entry, path: FieldPath) -> int:
    """Return the line of a field, or of the innermost existing one around it."""
    line, value = entry.line, cast(object, entry.fields)
    for step in path:
        if isinstance(value, Fields):
            line, value = value.lines.get(str(step), value.line), value.get(str(step))
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(step, int):
            value = value[step]
    return value.line if isinstance(value, Fields) else line


def _sheet(entry: Entry) -> tuple[str, dict[str, Any], str]:
    """Return name, fields and place of a sheet: in a file beside this one, under `sheet:`, or in the entry itself."""
    name = entry.text("name")
    fields: object
    if entry.has("file"):
        path = entry.path.parent / entry.text("file", limit=500)
        entry.finish()
        return name, read_fields(path), str(path)
    fields = entry.value("sheet")
    if fields is None:
        # not finished: the parser of the sheet refuses unknown fields itself
        fields = {key: value for key, value in entry.fields.items() if key != "name"}
    else:
        entry.finish()
    if not isinstance(fields, dict):
        raise entry.error("sheet", "must be a mapping of fields")
    return name, fields, f"{entry.path} line {entry.line}"
