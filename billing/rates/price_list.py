"""A price list as people write it, in the shape of the set-up file, -> checked prices. Every bad field is named at once.

    {"gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}, {"resource": ..., "price_per_slice_hour": ...},
             {"accelerator": ..., "cost_sheet": NAME}],
     "tokens": [{"model": "llama-3-8b", "input": "2.0000", ..., "output": "8.0000"}, {"model": ..., "cost_sheet": NAME}]}

A sheet's price is taken from what is stored under that name; the list keeps the name, so that it can be traced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from billing.rates.models import GpuPrice
from pricing.fields import Bound, FieldProblem, FieldReader, InputError, exact_number, shown
from pricing.money import exact_decimal
from pricing.rate_card import TOKEN_CLASSES

PRICE_LIMIT: Final = "1000000"
PLACES: Final = 4
PRICE: Final = Bound("0", PRICE_LIMIT, "currency per unit, at most 4 decimals")
GPU_PRICES: Final = ("price_per_gpu_hour", "price_per_slice_hour", "cost_sheet")
GPU_FIELDS: Final = ("accelerator", "resource", *GPU_PRICES)
TOKEN_FIELDS: Final = ("model", *TOKEN_CLASSES, "cost_sheet")


class PriceListError(InputError):
    """A price list that cannot be published; `problems` has one entry per bad field."""


@dataclass(frozen=True)
class GpuPriceInput:
    """One line of a price list: an accelerator, or a resource that is its own SKU."""

    price: Decimal
    accelerator: str = ""
    resource: str = ""
    unit: str = GpuPrice.Unit.GPU_HOURS
    cost_sheet: str | None = None
    facility_kw: Decimal | None = None


@dataclass(frozen=True)
class SheetPrice:
    """What a stored cost sheet gives for a GPU-hour."""

    price: Decimal
    currency: str
    facility_kw: Decimal


@dataclass(frozen=True)
class TokenSheetPrice:
    """What a stored token cost sheet gives for 1M tokens of a model, by class."""

    model: str
    currency: str
    by_class: Mapping[str, Decimal]


@dataclass(frozen=True)
class Sources:
    """Where the prices of named sheets come from; each returns None for a name that is not stored."""

    gpu: Callable[[str], SheetPrice | None]
    tokens: Callable[[str], TokenSheetPrice | None]


@dataclass(frozen=True)
class PriceList:
    """The checked prices, and `content`: the same list as it is stored and exported."""

    gpu: list[GpuPriceInput] = field(default_factory=list)
    tokens: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    token_sheets: dict[str, str] = field(default_factory=dict)
    content: dict[str, list[dict[str, str]]] = field(default_factory=lambda: {"gpu": [], "tokens": []})


def parse_price_list(fields: object, *, currency: str, sources: Sources) -> PriceList:
    """The prices of a list in `currency`.  Raises PriceListError with a message for every bad field."""
    problems: list[FieldProblem] = []
    reader = FieldReader(fields, "a price list", problems=problems)
    found = PriceList()
    for index, item in enumerate(_items(reader, "gpu")):
        _gpu_entry(reader.nested(item, "a GPU price", "gpu", index), found, currency, sources)
    for index, item in enumerate(_items(reader, "tokens")):
        _token_entry(reader.nested(item, "token prices", "tokens", index), found, currency, sources)
    if reader.is_mapping:
        reader.finish(("gpu", "tokens"))
    if not problems and not found.gpu and not found.tokens:
        problems.append(FieldProblem(("gpu",), "is empty and so is tokens: a version is the complete list of all prices"))
    if problems:
        raise PriceListError(problems)
    return found


def price_text(price: Decimal) -> str:
    """A price as it is stored, with its 4 decimals."""
    return format(price, f".{PLACES}f")


def _items(reader: FieldReader, name: str) -> list[Any]:
    given = reader.fields.get(name)
    if given is None or given == "":
        return []
    if not isinstance(given, list | tuple):
        reader.refuse(name, f"{shown(given)} must be a list")
        return []
    return list(given)


def _gpu_entry(reader: FieldReader, found: PriceList, currency: str, sources: Sources) -> None:
    if not reader.is_mapping:
        return
    before = len(reader.problems)
    accelerator, resource = reader.text("accelerator", default=""), reader.text("resource", default="")
    if not accelerator and not resource and len(reader.problems) == before:
        reader.refuse("accelerator", "is missing: name an accelerator, or a resource with a price of its own")
    if any((item.accelerator, item.resource) == (accelerator, resource) for item in found.gpu):
        reader.refuse("resource" if resource else "accelerator", f"{shown(resource or accelerator)} has two prices")
    given = [name for name in GPU_PRICES if reader.has(name)]
    price = None
    if len(given) != 1:
        reader.refuse("price_per_gpu_hour", f"give exactly one of {', '.join(GPU_PRICES)}")
    elif given[0] == "cost_sheet":
        price = _sheet_price(reader, accelerator, resource, currency, sources)
    else:
        unit = GpuPrice.Unit.SLICE_HOURS if given[0] == "price_per_slice_hour" else GpuPrice.Unit.GPU_HOURS
        amount = _price(reader, given[0])
        price = None if amount is None else GpuPriceInput(amount, accelerator, resource, unit)
    reader.finish(GPU_FIELDS)
    if price is None or len(reader.problems) > before:
        return
    found.gpu.append(price)
    value = price.cost_sheet if given[0] == "cost_sheet" else price_text(price.price)
    entry = {"accelerator": accelerator, "resource": resource, given[0]: value or ""}
    found.content["gpu"].append({name: text for name, text in entry.items() if text})


def _sheet_price(
    reader: FieldReader, accelerator: str, resource: str, currency: str, sources: Sources
) -> GpuPriceInput | None:
    name = reader.text("cost_sheet")
    sheet = sources.gpu(name) if name else None
    if sheet is None:
        reader.refuse("cost_sheet", f"{shown(name)} is no stored cost sheet: store it first, or give the price itself")
        return None
    if sheet.currency != currency:
        reader.refuse("cost_sheet", f"{shown(name)} is in {sheet.currency}, prices are in {currency}")
        return None
    return GpuPriceInput(sheet.price, accelerator, resource, cost_sheet=name, facility_kw=sheet.facility_kw)


def _token_entry(reader: FieldReader, found: PriceList, currency: str, sources: Sources) -> None:
    if not reader.is_mapping:
        return
    before = len(reader.problems)
    model = reader.text("model")
    given = [name for name in TOKEN_CLASSES if reader.has(name)]
    if reader.has("cost_sheet"):
        prices = _token_sheet_prices(reader, model, given, currency, sources)
    else:
        if not given:
            reader.refuse("input", f"give a price per 1M tokens for at least one of {', '.join(TOKEN_CLASSES)}")
        asked = {name: _price(reader, name) for name in given}
        prices = {name: price for name, price in asked.items() if price is not None}
    for name in prices:
        if (model, name) in found.tokens:
            reader.refuse("model", f"{shown(model)} has two {name} prices")
    reader.finish(TOKEN_FIELDS)
    if len(reader.problems) > before:
        return
    found.tokens.update({(model, name): price for name, price in prices.items()})
    if reader.has("cost_sheet"):
        found.token_sheets[model] = reader.text("cost_sheet")
        found.content["tokens"].append({"model": model, "cost_sheet": found.token_sheets[model]})
    else:
        found.content["tokens"].append({"model": model, **{name: price_text(price) for name, price in prices.items()}})


def _token_sheet_prices(
    reader: FieldReader, model: str, given: list[str], currency: str, sources: Sources
) -> dict[str, Decimal]:
    name = reader.text("cost_sheet")
    sheet = sources.tokens(name) if name else None
    if given:
        reader.refuse(given[0], "stands beside cost_sheet: give the prices, or the sheet that they come from")
    elif sheet is None:
        reader.refuse("cost_sheet", f"{shown(name)} is no stored token cost sheet: store it first, or give the prices")
    elif sheet.model != model:
        reader.refuse("model", f"{shown(model)} was not tested: {name} is of {sheet.model}")
    elif sheet.currency != currency:
        reader.refuse("cost_sheet", f"{shown(name)} is in {sheet.currency}, prices are in {currency}")
    else:
        return dict(sheet.by_class)
    return {}


def _price(reader: FieldReader, name: str) -> Decimal | None:
    """A price with at most 4 decimals; None where a problem was noted."""
    given = reader.fields[name]
    number = exact_number(given)
    if number is None or not PRICE.holds(number) or (number * 10**PLACES).denominator != 1:
        reader.refuse(name, f"{shown(given)} {PRICE.expected}")
        return None
    return Decimal(exact_decimal(number, PLACES))
