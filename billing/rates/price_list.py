"""Parser of a written price list, in the shape of the set-up file, to checked prices; it reports every bad field.

    {"gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}, {"resource": ..., "price_per_slice_hour": ...},
             {"accelerator": ..., "cost_sheet": NAME}],
     "tokens": [{"model": "llama-3-8b", "input": "2.0000", ..., "output": "8.0000"}, {"model": ..., "cost_sheet": NAME},
                {"model": "long", "up_to_tokens": 32768, "input": ...}, {"model": "long", "input": ...}]}

If a model has lines with `up_to_tokens`, each prices requests of up to so many input tokens beyond the previous line, and
the last one, without it, all longer requests. A sheet's price is read from the stored sheet of that name; the list keeps
the name, so that the price can be traced.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

from billing.rates.models import GpuPrice
from metering.accelerators import is_part
from metering.messages import Message
from pricing.contexts import LONGEST, Context, priced_class
from pricing.fields import Bound, FieldProblem, FieldReader, InputError, exact_number, shown
from pricing.money import PRICE_PLACES, exact_decimal
from pricing.rate_card import TOKEN_CLASSES

PRICE_LIMIT: Final = "1000000"
PRICE: Final = Bound("0", PRICE_LIMIT, "currency per unit, at most 4 decimals")
GPU_PRICES: Final = ("price_per_gpu_hour", "price_per_slice_hour", "cost_sheet")
GPU_FIELDS: Final = ("accelerator", "resource", *GPU_PRICES)
UP_TO: Final = "up_to_tokens"
NOTHING: Final[tuple[object, ...]] = ([], ())
"""Empty sections: a version may price devices only, or tokens only."""
PROMPT: Final = Bound("1", str(LONGEST), "input tokens of a request, cached included", whole=True)
TOKEN_FIELDS: Final = ("model", UP_TO, *TOKEN_CLASSES, "cost_sheet")


class PriceListError(InputError):
    """Error of a price list that cannot be published; `problems` has one entry per bad field."""

    code = "price_list"


@dataclass(frozen=True)
class GpuPriceInput:
    """Line of a price list: an accelerator, or a resource that is its own SKU."""

    price: Decimal
    accelerator: str = ""
    resource: str = ""
    unit: str = GpuPrice.Unit.GPU_HOURS
    cost_sheet: str | None = None
    facility_kw: Decimal | None = None


@dataclass(frozen=True)
class SheetPrice:
    """GPU-hour price of a stored cost sheet; `lost`: its cost is above 0, but the rounded price is 0."""

    price: Decimal
    currency: str
    facility_kw: Decimal
    lost: bool = False


@dataclass(frozen=True)
class TokenSheetPrice:
    """Prices of a stored token cost sheet for 1M tokens of a model, by class (with its bucket, if it has some).

    `lost`: classes whose cost is above 0, but whose rounded price is 0.
    """

    model: str
    currency: str
    by_class: Mapping[str, Decimal]
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """Look-ups of prices of named sheets; each returns None for a name that is not stored."""

    gpu: Callable[[str], SheetPrice | None]
    tokens: Callable[[str], TokenSheetPrice | None]


@dataclass(frozen=True)
class PriceList:
    """Checked prices, and `content`: the same list in its stored and exported form."""

    gpu: list[GpuPriceInput] = field(default_factory=list)
    tokens: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    token_sheets: dict[str, str] = field(default_factory=dict)
    content: dict[str, list[dict[str, str]]] = field(default_factory=lambda: {"gpu": [], "tokens": []})


def parse_price_list(fields: object, *, currency: str, sources: Sources) -> PriceList:
    """Return the prices of a list in `currency`.  Raises PriceListError with a message for every bad field."""
    reader, found = FieldReader(fields, "a price list"), PriceList()
    if reader.fields.get("gpu") not in NOTHING:
        for item in reader.mappings("gpu", "a GPU price"):
            _gpu_entry(item, found, currency, sources)
    if reader.fields.get("tokens") not in NOTHING:
        _token_entries(reader.mappings("tokens", "token prices"), found, currency, sources)
    if reader.is_mapping:
        reader.finish(("gpu", "tokens"))
    if not reader.problems and not found.gpu and not found.tokens:
        reader.refuse("gpu", Message("is empty and so is tokens: a version is the complete list of all prices"))
    if reader.problems:
        raise PriceListError(reader.problems)
    return found


def slice_problems(prices: PriceList) -> list[FieldProblem]:
    """Return a problem for every slice listed as an accelerator: a commitment on its card would pay for it."""
    return [
        FieldProblem(("gpu", number, "accelerator"), Message(
            "%(value)s is a part of a device: list it as resource", value=shown(item.accelerator)
        ))
        for number, item in enumerate(prices.gpu)
        if is_part(item.accelerator)
    ]  # fmt: skip


def price_text(price: Decimal) -> str:
    """Format a price with its 4 decimals, as stored."""
    return exact_decimal(price, PRICE_PLACES)


def _gpu_entry(reader: FieldReader, found: PriceList, currency: str, sources: Sources) -> None:
    before = len(reader.problems)
    accelerator, resource = reader.name("accelerator", default=""), reader.name("resource", default="")
    if not accelerator and not resource and len(reader.problems) == before:
        reader.refuse("accelerator", Message("is missing: name an accelerator, or a resource with a price of its own"))
    if any((item.accelerator, item.resource) == (accelerator, resource) for item in found.gpu):
        reader.refuse("resource" if resource else "accelerator", Message(
            "%(value)s has two prices", value=shown(resource or accelerator)
        ))
    given = [name for name in GPU_PRICES if reader.has(name)]
    price = None
    if len(given) != 1:
        reader.refuse("price_per_gpu_hour", Message("give exactly one of %(names)s", names=", ".join(GPU_PRICES)))
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
        reader.refuse("cost_sheet", Message(
            "%(value)s is no stored cost sheet: store it first, or give the price itself", value=shown(name)
        ))
        return None
    if sheet.currency != currency:
        reader.refuse("cost_sheet", Message(
            "%(value)s is in %(currency)s, prices are in %(other)s",
            value=shown(name), currency=sheet.currency, other=currency,
        ))
        return None
    if _too_much(reader, name, sheet.price) or _lost(reader, name, ["price_per_gpu_hour"] if sheet.lost else ()):
        return None
    return GpuPriceInput(sheet.price, accelerator, resource, cost_sheet=name, facility_kw=sheet.facility_kw)


def _too_much(reader: FieldReader, sheet: str, price: Decimal) -> bool:
    """Return True and add a problem if a sheet's price is above the limit of written prices."""
    above = not PRICE.holds(Fraction(price))
    if above:
        reader.refuse("cost_sheet", Message(
            "%(value)s gives %(price)s, which %(range)s", value=shown(sheet), price=price_text(price), range=PRICE.expected
        ))
    return above


def _lost(reader: FieldReader, sheet: str, prices: Sequence[str]) -> bool:
    """Return True and add a problem if sheet prices round to zero, which would bill a cost at nothing."""
    if prices:
        reader.refuse("cost_sheet", Message(
            "%(value)s gives less than 0.00005 for %(prices)s, which a list shows as %(zero)s: write the prices yourself",
            value=shown(sheet), prices=", ".join(prices), zero=price_text(Decimal(0)),
        ))
    return bool(prices)


@dataclass(frozen=True)
class _TokenRow:
    """Written line of token prices, as far as it is valid by itself."""

    reader: FieldReader
    model: str
    up_to: int | None
    prices: dict[str, Decimal]
    cost_sheet: str = ""


def _token_entries(readers: Iterable[FieldReader], found: PriceList, currency: str, sources: Sources) -> None:
    """Add the lines of each model: one, or several buckets of ascending prompt lengths."""
    by_model: dict[str, list[_TokenRow]] = {}
    for reader in readers:
        row = _token_row(reader, currency, sources)
        by_model.setdefault(row.model, []).append(row)
    for rows in by_model.values():
        bucketed = any(row.reader.has("up_to_tokens") for row in rows)
        for row, context in _in_buckets(rows) if bucketed else ((row, "") for row in rows):
            _take(row, context, found)


def _token_row(reader: FieldReader, currency: str, sources: Sources) -> _TokenRow:
    model, cost_sheet = reader.name("model"), ""
    given = [name for name in (UP_TO, *TOKEN_CLASSES) if reader.has(name)]
    if reader.has("cost_sheet"):
        prices = _token_sheet_prices(reader, model, given, currency, sources)
        cost_sheet = reader.text("cost_sheet")
    else:
        given = [name for name in given if name != UP_TO]
        if not given:
            reader.refuse("input", Message(
                "give a price per 1M tokens for at least one of %(names)s", names=", ".join(TOKEN_CLASSES)
            ))
        asked = {name: _price(reader, name) for name in given}
        prices = {name: price for name, price in asked.items() if price is not None}
    up_to = reader.optional(UP_TO, PROMPT)
    reader.finish(TOKEN_FIELDS)
    return _TokenRow(reader, model, None if up_to is None else int(up_to), prices, cost_sheet)


def _in_buckets(rows: Sequence[_TokenRow]) -> Iterator[tuple[_TokenRow, str]]:
    """Yield each line with its bucket. Lines must ascend, price the same classes, and end with one for longer prompts."""
    classes = list(dict.fromkeys(name for row in rows for name in row.prices))
    first, ends = 0, "0"
    for number, row in enumerate(rows, start=1):
        for name in classes:
            # a price that is present but invalid has a problem already
            if name not in row.prices and not row.reader.has(name):
                row.reader.refuse(name, Message(
                    "is missing: every bucket of %(model)s prices %(classes)s",
                    model=shown(row.model), classes=", ".join(classes),
                ))
        if number == len(rows) and row.reader.has(UP_TO):
            given = shown(row.reader.fields[UP_TO]) if row.up_to is None else row.up_to
            row.reader.refuse(UP_TO, Message(
                "%(value)s must be left out: the last bucket of %(model)s takes all longer prompts",
                value=given, model=shown(row.model),
            ))
        elif number < len(rows) and not row.reader.has(UP_TO):
            row.reader.refuse(UP_TO, Message(
                "is missing, must be above %(ends)s: only the last bucket of %(model)s is open",
                ends=ends, model=shown(row.model),
            ))
        elif row.up_to is not None and row.up_to < first:
            row.reader.refuse(UP_TO, Message(
                "%(value)s must be above %(ends)s, where the bucket before it ends", value=row.up_to, ends=ends
            ))
        yield row, str(Context(first, row.up_to))
        if row.up_to is not None:
            first, ends = row.up_to + 1, str(row.up_to)


def _take(row: _TokenRow, context: str, found: PriceList) -> None:
    prices = {priced_class(name, context): price for name, price in row.prices.items()}
    for name in prices:
        if (row.model, name) in found.tokens:
            row.reader.refuse("model", Message("%(model)s has two %(name)s prices", model=shown(row.model), name=name))
    found.tokens.update({(row.model, name): price for name, price in prices.items()})
    entry = {"model": row.model} | ({} if row.up_to is None else {UP_TO: str(row.up_to)})
    if row.cost_sheet:
        found.token_sheets[row.model] = row.cost_sheet
        found.content["tokens"].append({**entry, "cost_sheet": row.cost_sheet})
    else:
        found.content["tokens"].append({**entry, **{name: price_text(price) for name, price in row.prices.items()}})


def _token_sheet_prices(
    reader: FieldReader, model: str, given: list[str], currency: str, sources: Sources
) -> dict[str, Decimal]:
    name = reader.text("cost_sheet")
    sheet = sources.tokens(name) if name else None
    if given:
        reader.refuse(given[0], Message("is given beside cost_sheet: give the prices, or the sheet that they come from"))
    elif sheet is None:
        reader.refuse("cost_sheet", Message(
            "%(value)s is no stored token cost sheet: store it first, or give the prices", value=shown(name)
        ))
    elif sheet.model != model:
        reader.refuse("model", Message(
            "%(value)s was not tested: %(name)s is of %(model)s", value=shown(model), name=name, model=sheet.model
        ))
    elif sheet.currency != currency:
        reader.refuse("cost_sheet", Message(
            "%(value)s is in %(currency)s, prices are in %(other)s",
            value=shown(name), currency=sheet.currency, other=currency,
        ))
    elif not _too_much(reader, name, max(sheet.by_class.values())) and not _lost(reader, name, sheet.lost):
        return dict(sheet.by_class)
    return {}


def _price(reader: FieldReader, name: str) -> Decimal | None:
    """Return a price with at most 4 decimals; None if a problem was added."""
    given = reader.fields[name]
    number = exact_number(given)
    # refused, not rounded: the published price is the written one
    if number is None or not PRICE.holds(number) or (number * 10**PRICE_PLACES).denominator != 1:
        reader.refuse(name, Message("%(value)s %(range)s", value=shown(given), range=PRICE.expected))
        return None
    return Decimal(exact_decimal(number, PRICE_PLACES))
