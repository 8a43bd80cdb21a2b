"""Price workbench: texts of a form -> a checked cost sheet -> bars and tables; and the draft that it becomes.

Nothing is stored before it is saved as a draft: the address holds the inputs.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

from django.core.files.uploadedfile import UploadedFile
from django.forms import Textarea
from django.forms.boundfield import BoundField
from django.utils.functional import lazy
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _

from billing.closing.price_preview import month_effect
from billing.invoices.selectors import period_of
from billing.portal.charts import Chart, tornado_chart, waterfall_chart
from billing.portal.forms import Input, InputsForm, PageForm, Text
from billing.portal.input_names import hint_of
from billing.portal.price_lists import (
    difference_text,
    free_list_name,
    free_sheet_name,
    in_currency,
    money_text,
    published_versions,
)
from billing.portal.slices import MEMORY, Card, SlicePrice, memory_of, slice_prices, with_slices
from billing.portal.tables import Cell, Column, Table
from billing.rates.models import CostSheet as StoredSheet
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.price_file import version_content
from billing.rates.price_list import SheetPrice, parse_price_list
from billing.rates.selectors import hypothetical_version, stored_sources
from billing.rates.services import price_draft_write
from billing.rating.price_effect import PriceEffect
from metering.messages import Message
from pricing.carbon import OF_A_REGION
from pricing.cost_sheet import COMPLETE, DEFAULTS, FOOTPRINT, SIMPLE, CostSheet, CostSheetError
from pricing.documents import DocumentError, parse_document
from pricing.fields import FieldProblem, exact_number, shown
from pricing.listing import FIELDS as LISTING_FIELDS
from pricing.listing import NUMBERS as LISTING_NUMBERS
from pricing.money import exact_decimal
from pricing.tco import GpuHourCost, cost_of_gpu_hour, parse_cost_sheet
from pricing.what_if import (
    ComponentChange,
    at_sold_share,
    break_even,
    compared,
    exact_price,
    price_text,
    sensitivity,
    simple_sheet,
    waterfall,
)

LARGEST_SHEET: Final = 1 << 16
"""Most bytes of a sheet; a year of hourly prices belongs into a calendar."""

SHOWN_SWINGS: Final = 12
SOLD_SHARES: Final = ("0.50", "0.60", "0.65", "0.70", "0.80", "0.90", "1")
GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (gettext_noop("Names and price"), ("accelerator", "currency", "markup", "margin", "reserve_ratio")),
    (gettext_noop("Sold hours"), ("sold_share", "availability", "installed_gpus", "spare_gpus", "hours_per_month")),
    (
        gettext_noop("Purchase"),
        ("gpu_price", "server_price", "gpus_per_server", "network_price_per_port", "ports_per_gpu", "life_years",
         "residual_ratio", "cost_of_capital", "capital_method", "maintenance_ratio_per_year", "fabric_price", "fabric_gpus"),
    ),
    (
        gettext_noop("Power"),
        ("gpu_power_kw", "server_other_power_kw", "metered_kwh_per_gpu_hour", "pue", "electricity_price_per_kwh",
         "demand_charge_per_kw_month", "tariff", "metered_energy", "rent_includes_power"),
    ),
    (
        gettext_noop("Hosting and operations"),
        ("rack_rent_per_month", "bandwidth_per_month", "gpus_per_rack", "rack_power_kw", "labour_per_month",
         "software_per_month", "cluster_gpus", "cluster_capital", "operations_share", "pool_gpus",
         "licence_per_gpu_month", "scratch_tb_per_gpu", "storage_price_per_tb_month"),
    ),
    (gettext_noop("Price list"), LISTING_FIELDS),
    (gettext_noop("CO2, as information"), (*FOOTPRINT, *OF_A_REGION)),
)  # fmt: skip
BOUNDS: Final = {**SIMPLE, **COMPLETE, **FOOTPRINT, **LISTING_NUMBERS}
DOCUMENTS: Final = {"tariff", "metered_energy"}
"""Inputs that are written as YAML or JSON within the form."""

CARD_MEMORY: Final = "card_memory_gb"
"""Input outside the sheet: the prices of the card's slices follow from it and from the card's price."""
ON_THE_BENCH: Final = "the sheet on the workbench ".ljust(201, ".")
"""Name longer than any stored one, so that it names the unsaved sheet only."""

FIELDS: Final = (*(name for _, names in GROUPS for name in names), CARD_MEMORY)
HINTS: Final = {
    "accelerator": gettext_noop("name as usage reports it"),
    "currency": gettext_noop("three letters"),
    "tariff": gettext_noop("YAML or JSON, instead of a flat price"),
    "metered_energy": gettext_noop("YAML or JSON: counters, hosts, GPU-hours"),
    "capital_method": gettext_noop("annuity, or mean-book-value"),
    "rent_includes_power": gettext_noop("true or false"),
    "carbon_region": gettext_noop("CN, CN-East, SE: in place of a figure"),
    "carbon_year": gettext_noop("year of the factor"),
    "carbon_basis": gettext_noop("official average, official residual or lifecycle"),
    CARD_MEMORY: gettext_noop("GB of a whole card: the prices of its MIG slices follow from it"),
    "list_currency": gettext_noop("three letters, of the price list"),
    "rate_date": gettext_noop("day of the exchange rate, 2026-10-01"),
}


class SheetForm(InputsForm):
    """Form of a cost sheet; `sheet` is the parsed sheet, None if an input is wrong. An empty form is not bound."""

    sheet: CostSheet | None = None

    def __init__(self, values: Mapping[str, str], *, begun: bool = True) -> None:
        inputs = {name: _input(name) for name in FIELDS}
        super().__init__(values if begun else None, inputs, prefix="w", initial=values)

    @property
    def groups(self) -> list[tuple[str, list[BoundField]]]:
        return self.in_groups(GROUPS)

    def clean(self) -> None:
        try:
            self.sheet = parse_cost_sheet(sheet_fields(self.cleaned_data))
        except CostSheetError as error:
            self.keep_all(error.problems)
        written = self.cleaned_data[CARD_MEMORY]
        number = exact_number(written)
        if written and (number is None or not MEMORY.holds(number)):
            text = Message("%(value)s %(range)s", value=shown(written), range=MEMORY.expected)
            self.keep_all([FieldProblem((CARD_MEMORY,), text)])


def _input(name: str) -> Input:
    bound = BOUNDS.get(name)
    hint, starred = hint_of(bound) if bound else gettext(HINTS[name]), name in SIMPLE or name in ("accelerator", "currency")
    return Input(name, hint, starred=starred, **({"widget": Textarea(attrs={"rows": 2})} if name in DOCUMENTS else {}))


class DraftForm(PageForm):
    """Form of the draft of a price list that a workbench is saved as, and of the name under which its sheet is stored."""

    draft_name = Text(required=False, label=_("Name of the price list"))
    valid_from = Text(required=False, label=_("In force from"), help_text=lazy(get_current_timezone_name, str)())
    new_sheet = Text(required=False, label=_("Name of the new cost sheet"))
    reason = Text(
        required=False, label=_("Why do prices change?"), widget=Textarea(attrs={"rows": 2, "maxlength": 2000})
    )

    def __init__(self, data: Any = None, *, month: str = "", about: str = "") -> None:
        initial = {
            "draft_name": free_list_name(month), "valid_from": f"{month}-01", "new_sheet": free_sheet_name(about, month),
        }  # fmt: skip
        super().__init__(data, initial=initial, auto_id="d-%s")

    def refuse(self, error: Any) -> None:
        """Keep each problem of the draft beside its input."""
        self.error = error
        self.keep_all(error.problems, name="draft_name")


@dataclass(frozen=True)
class Bar:
    """Component of the price, in a chart from one of `ends` to the other and in a table; `simple`: by the simple model."""

    name: str
    ends: tuple[Fraction, Fraction]
    amount: str
    share: str
    simple: str


@dataclass(frozen=True)
class SwingBar:
    """Input from `low` to `high`, and its effect on the price: in a chart between `ends`, and in a table."""

    name: str
    ends: tuple[Fraction, Fraction]
    low: str
    high: str
    price_at_low: str
    price_at_high: str


@dataclass(frozen=True)
class Analysis:
    """Results of one sheet on the workbench."""

    cost: GpuHourCost
    bars: list[Bar]
    swings: list[SwingBar]
    here: Fraction
    by_share: list[tuple[str, Decimal, Decimal, bool]]
    simple: GpuHourCost
    published: Decimal | None
    published_share: Fraction | None
    own_share: Fraction | None
    changes: list[tuple[ComponentChange, str, str, str]]
    before: GpuHourCost | None
    slices: list[SlicePrice]

    @property
    def waterfall(self) -> Chart:
        """Return the components of the price, each from the end of the one before."""
        return waterfall_chart([(bar.name, bar.ends, bar.amount) for bar in self.bars], self.cost.price, self.cost.currency)

    @property
    def tornado(self) -> Chart:
        """Return the effect of each input on the price, around the current price."""
        rows = [(bar.name, bar.ends, f"{bar.price_at_low} – {bar.price_at_high}") for bar in self.swings]
        return tornado_chart(rows, self.here, self.cost.currency)

    @property
    def listed(self) -> dict[str, str]:
        """Return the prices of the list and their terms, if the sheet has such terms."""
        return self.cost.listed() if self.cost.listing else {}

    @property
    def emitted(self) -> dict[str, str]:
        """Return energy and CO2 of a used GPU-hour, with 4 decimals; empty without factors."""
        return {name: exact_decimal(value, 4) for name, value in self.cost.footprint.items()}

    @property
    def cost_text(self) -> str:
        """Return the cost with the 4 decimals of a price list."""
        return price_text(self.cost.cost)

    @property
    def against_published(self) -> Decimal | None:
        """Return the difference of the price from the published one, in percent with one decimal."""
        if not self.published:
            return None
        return Decimal(exact_decimal((Fraction(self.cost.list_price) / Fraction(self.published) - 1) * 100, 1))

    @property
    def published_percent(self) -> Decimal | None:
        """Return the sold share from which the published price recovers this cost, in percent."""
        return _percent(self.published_share)

    @property
    def own_percent(self) -> Decimal | None:
        """Return the sold share from which the price of this sheet recovers its cost, in percent."""
        return _percent(self.own_share)


def _percent(share: Fraction | None) -> Decimal | None:
    return None if share is None else Decimal(exact_decimal(share * 100, 1))


def form_values(asked: Mapping[str, Any], stored: StoredSheet | None) -> dict[str, str]:
    """Return the texts of the form: as sent, else those of the stored sheet, else the defaults."""
    if "accelerator" in asked:
        return {name: str(asked.get(name, "")).strip() for name in FIELDS}
    inputs = stored.inputs if stored else DEFAULTS
    return {name: _shown_input(inputs.get(name)) for name in FIELDS}


def _shown_input(value: Any) -> str:
    """Return texts and numbers unchanged; a tariff as JSON in one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def uploaded_values(sent: UploadedFile | None) -> tuple[dict[str, str], Sequence[str]]:
    """Return the texts of the form from a sheet in a file, and its problems, unknown fields among them."""
    if sent is None or sent.size is None:
        return {}, [gettext("file: is missing, choose a YAML or JSON file with a cost sheet")]
    if sent.size > LARGEST_SHEET:
        sizes = {"size": sent.size, "most": LARGEST_SHEET}
        return {}, [gettext("file: has %(size)d bytes, at most %(most)d are read") % sizes]
    try:
        given = parse_document(sent.read(), sent.name or "file").value
    except DocumentError as error:
        return {}, [error.message]
    known = given if isinstance(given, Mapping) else {}
    values = {name: _shown_input(known.get(name)) for name in FIELDS} if known else {}
    try:
        parse_cost_sheet(given)
    except CostSheetError as error:
        return values, error.messages
    return values, []


def sheet_fields(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that the sheet is parsed from, without empty inputs.  Raises CostSheetError for invalid YAML."""
    fields: dict[str, Any] = {name: value for name, value in values.items() if value and name != CARD_MEMORY}
    for name in DOCUMENTS & fields.keys():
        try:
            fields[name] = parse_document(fields[name].encode(), name).value
        except DocumentError as error:
            raise CostSheetError([FieldProblem((name,), error.message)]) from error
    return fields


def analysis(sheet: CostSheet, old: CostSheet | None, memory_gb: int) -> Analysis:
    """Calculate bars, swings, break-even and comparison of a sheet; `old`: the sheet that it is compared with."""
    cost, simple = cost_of_gpu_hour(sheet), cost_of_gpu_hour(simple_sheet(sheet))
    published = published_price(sheet.accelerator, cost.list_currency)
    swings, here = _swing_bars(sheet)
    before = cost_of_gpu_hour(old) if old else None
    rows = compared(before, cost) if before else ()
    return Analysis(
        cost, _waterfall_bars(cost, simple), swings, here, _by_share(sheet), simple, published,
        break_even(sheet, sheet.listing.price_of_sheet(Fraction(published))) if published else None,
        break_even(sheet, Fraction(cost.price)),
        [(row, money_text(row.old), money_text(row.new), difference_text(row, before, cost)) for row in rows], before,
        slices_of(Card(sheet.accelerator, cost.list_price, published, memory_gb), published_versions().first()),
    )  # fmt: skip


def slices_of(card: Card, base: PriceVersion | None) -> list[SlicePrice]:
    """Return the slices of the card in the newest list, at the prices that follow from the card's."""
    return slice_prices(version_content(base)["gpu"], card) if base else []


def _waterfall_bars(cost: GpuHourCost, simple: GpuHourCost) -> list[Bar]:
    """Return the complete model as bars, each with the simple model's amount; capital is its plain hardware."""
    whole = cost.cost * (1 + cost.markup)
    plain = {step.name: step.amount for step in waterfall(simple)}
    plain["capital"] = plain["hardware"]
    return [
        Bar(
            step.name, (step.start, step.start + step.amount), price_text(step.amount),
            exact_decimal(step.amount / whole * 100 if whole else 0, 1), money_text(plain.get(step.name)),
        )
        for step in waterfall(cost)
    ]  # fmt: skip


def _swing_bars(sheet: CostSheet) -> tuple[list[SwingBar], Fraction]:
    price = exact_price(sheet)
    bars = []
    for swing in [swing for swing in sensitivity(sheet) if swing.width][:SHOWN_SWINGS]:
        reached = (swing.price_at_low, swing.price_at_high, price)
        low, high = (exact_decimal(value, 4).rstrip("0").rstrip(".") for value in (swing.low, swing.high))
        prices = price_text(swing.price_at_low), price_text(swing.price_at_high)
        bars.append(SwingBar(swing.field, (min(reached), max(reached)), low, high, *prices))
    return bars, price


def _by_share(sheet: CostSheet) -> list[tuple[str, Decimal, Decimal, bool]]:
    """Return (sold share in percent, cost to recover, price with markup, True for the sheet's own share)."""
    own = sheet.get("sold_share", 1)
    shares = sorted({*map(Fraction, SOLD_SHARES), own})
    rows = []
    for share in shares:
        cost = cost_of_gpu_hour(at_sold_share(sheet, share))
        rows.append((exact_decimal(share * 100, 1), Decimal(price_text(cost.cost)), cost.price, share == own))
    return rows


def published_price(accelerator: str, currency: str = "") -> Decimal | None:
    """Return the price of the accelerator in the newest published list; None without one, or in another currency."""
    version = published_versions().first()
    if version and currency and version.currency != currency:
        return None
    found = version.gpu.filter(accelerator=accelerator, resource="").first() if version else None
    return found.price if found else None


def sheet_draft_write(
    *, sheet: CostSheet, values: Mapping[str, str], actor: str, now: datetime, draft_name: str, valid_from: str,
    new_sheet: str, reason: str,
) -> PriceDraft:  # fmt: skip
    """Store a sheet and a draft of the newest list with the accelerator and slices priced by it.  Raises PriceDraftError."""
    content = _priced_by(new_sheet, sheet, memory_of(sheet.accelerator, values[CARD_MEMORY]))
    base = published_versions().first()
    fields = {
        **({"based_on": base.name} if base else {}),
        "name": draft_name, "valid_from": valid_from, "reason": reason, "gpu": content["gpu"],
        "cost_sheets": [{"name": new_sheet, "sheet": sheet_fields(values)}],
        **({"tokens": content["tokens"]} if content["tokens"] else {}),
    }  # fmt: skip
    return price_draft_write(fields=fields, actor=actor, now=now)


def _priced_by(name: str, sheet: CostSheet, memory_gb: int) -> dict[str, Any]:
    """Return the newest list with the accelerator of `sheet` priced by the sheet of that name, and its slices after it."""
    base, accelerator = published_versions().first(), sheet.accelerator
    content = version_content(base) if base else {"gpu": [], "tokens": []}
    card = Card(accelerator, cost_of_gpu_hour(sheet).list_price, published_price(accelerator), memory_gb)
    others = [row for row in content["gpu"] if row.get("accelerator") != accelerator or row.get("resource")]
    others = with_slices(others, slices_of(card, base))
    return {**content, "gpu": [{"accelerator": accelerator, "cost_sheet": name}, *others]}


def sheet_effect(sheet: CostSheet, *, month: str, currency: str, memory_gb: int) -> PriceEffect:
    """Return the effect on usage of `month` of the newest published list with the accelerator and slices priced by `sheet`.

    Every other price stays.  Raises IntervalError for an invalid month, CostSheetError for a sheet in another currency,
    PriceListError for a list that cannot be priced.
    """
    cost = cost_of_gpu_hour(sheet)
    if cost.list_currency != currency:
        named = "list_currency" if cost.listing.currency else "currency"
        raise CostSheetError([FieldProblem((named,), Message(
            "%(value)s must be %(currency)s, in which prices are", value=repr(cost.list_currency), currency=currency
        ))])
    content = _priced_by(ON_THE_BENCH, sheet, memory_gb)
    own = SheetPrice(cost.list_price, cost.list_currency, cost.facility_kw.quantize(Decimal("1e-6")))
    stored = stored_sources()
    sources = replace(stored, gpu=lambda name: own if name == ON_THE_BENCH else stored.gpu(name))
    period = period_of(month)
    prices = parse_price_list(content, currency=currency, sources=sources)
    return month_effect(period=period, prices=hypothetical_version("workbench", prices))


def bench_tables(found: Analysis, against: str = "") -> dict[str, Callable[[], Table]]:
    """Return a table for each one that the page shows of a sheet; prices are in the sheet's currency.

    `against`: the name of the sheet that it is compared with.
    """
    name, currency, parts = found.cost.accelerator, found.cost.currency, {"words": "price_part"}
    named, value, price = Column("name", heading=_("Name"), **parts), {"value": _("Value")}, found.cost.price
    compared = {
        "before": in_currency(against, found.before, found.cost),
        "now": in_currency(gettext("Now"), found.cost, found.before), "difference": _("Difference"),
    }  # fmt: skip
    before = found.before.price if found.before else None
    return {
        "parts": _table(
            f"price-{name}", Column("component", heading=_("Component"), **parts),
            {"amount": currency, "percent": "%", "simple_model": _("Simple model")},
            [(bar.name, bar.amount, bar.share, bar.simple) for bar in found.bars],
            foot=(gettext("Price"), price, Decimal("100.0"), found.simple.price),
        ),
        "swings": _table(
            f"what-moves-{name}", Column("input", heading=_("Input"), words="price_input"),
            {"from": _("Low"), "to": _("High"), "price_at_from": _("Price at low"), "price_at_to": _("Price at high")},
            [(bar.name, bar.low, bar.high, bar.price_at_low, bar.price_at_high) for bar in found.swings],
        ),
        "by_share": _table(
            f"by-sold-share-{name}", Column("sold_percent", "percent", heading=_("Sold")),
            {"cost_to_recover": _("Cost to recover"), "price_with_markup": _("Price with markup")},
            [(share, cost, with_markup) for share, cost, with_markup, _own in found.by_share],
            notes=[_("this sheet") if own else "" for *_figures, own in found.by_share],
        ),
        "listed": _table(f"listed-{name}", named, value, found.listed.items()),
        "emitted": _table(f"energy-and-co2-{name}", named, value, found.emitted.items()),
        "slices": lambda: Table(
            f"slices-{name}",
            [Column("accelerator"), Column("resource", heading=_("Slice")), Column("share", heading=_("Share of the card")),
             Column("published", "price", heading=_("Published now")),
             Column("price", "price", heading=_("With this price"))],
            [(one.accelerator, one.resource, one.share or None, one.published, one.price) for one in found.slices],
            notes=[one.note for one in found.slices],
        ),
        "compared": _table(
            f"compared-{name}", Column("component", heading=_("Component"), **parts), compared,
            [(row.name, old, new, difference) for row, old, new, difference in found.changes],
            foot=(gettext("Price"), before, price, ""),
        ),
    }  # fmt: skip


def _table(
    name: str, first: Column, others: Mapping[str, object], rows: Iterable[Sequence[str | Decimal]], *,
    notes: Sequence[object] = (), foot: Sequence[Cell] = (),
) -> Callable[[], Table]:  # fmt: skip
    columns = [first, *(Column(other, "price", heading=heading) for other, heading in others.items())]
    cells = [[str(row[0]), *(_cell(value) for value in row[1:])] for row in rows]
    return lambda: Table(name, columns, cells, notes, foot)


def _cell(text: str | Decimal) -> Cell:
    """Return a figure as a number, a dash as None, any other text unchanged."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None if text in ("", "—") else str(text)
    return found if found.is_finite() else str(text)
