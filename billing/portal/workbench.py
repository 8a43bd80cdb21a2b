"""The price workbench: texts of a form -> a checked cost sheet -> bars and tables; and the draft that it becomes.

Nothing is kept before it is saved as a draft: the address holds the inputs. Bars are hundredths of the chart's width.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext, gettext_noop

from billing.portal.charts import Chart, tornado_chart, waterfall_chart
from billing.portal.input_names import hint_of
from billing.portal.price_lists import published_versions
from billing.portal.slices import Card, SlicePrice, memory_of, slice_prices, with_slices
from billing.rates.models import CostSheet as StoredSheet
from billing.rates.models import PriceVersion
from billing.rates.price_file import version_content
from pricing.carbon import OF_A_REGION
from pricing.cost_sheet import COMPLETE, DEFAULTS, FOOTPRINT, SIMPLE, CostSheet, CostSheetError
from pricing.documents import DocumentError, parse_document
from pricing.fields import FieldProblem
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
"""Bytes; a year of hourly prices belongs into a calendar."""

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
"""Written as YAML or JSON within the form."""

CARD_MEMORY: Final = "card_memory_gb"
"""Not of the sheet: what the prices of the card's slices follow from beside its own."""
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
    "list_currency": gettext_noop("three letters, of the price list"),
    "rate_date": gettext_noop("day of the exchange rate, 2026-10-01"),
}


@dataclass
class Field:
    """One input as the form shows it."""

    name: str
    value: str
    hint: str
    required: bool
    errors: list[str] = field(default_factory=list)

    @property
    def document(self) -> bool:
        """Whether it is written as YAML or JSON."""
        return self.name in DOCUMENTS


@dataclass(frozen=True)
class Bar:
    """One row of a chart and of the table that says the same; the chart draws it from one of `ends` to the other."""

    name: str
    ends: tuple[Fraction, Fraction]
    amount: str
    share: str = ""
    low: str = ""
    high: str = ""
    price_at_low: str = ""
    price_at_high: str = ""
    simple: str = ""


@dataclass(frozen=True)
class Analysis:
    """Everything that the workbench tells about one sheet."""

    cost: GpuHourCost
    bars: list[Bar]
    swings: list[Bar]
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
        """What the price is made of, each component from where the one before ended."""
        return waterfall_chart([(bar.name, bar.ends, bar.amount) for bar in self.bars], self.cost.currency)

    @property
    def tornado(self) -> Chart:
        """How far each input moves the price, around where it stands."""
        rows = [(bar.name, bar.ends, f"{bar.price_at_low} – {bar.price_at_high}") for bar in self.swings]
        return tornado_chart(rows, self.here, self.cost.currency)

    @property
    def listed(self) -> dict[str, str]:
        """The prices of the list and what they were made with, where the sheet has terms for them."""
        return self.cost.listed() if self.cost.listing else {}

    @property
    def emitted(self) -> dict[str, str]:
        """Energy and CO2 of a used GPU-hour, with 4 decimals; empty without factors."""
        return {name: exact_decimal(value, 4) for name, value in self.cost.footprint.items()}

    @property
    def cost_text(self) -> str:
        """The cost with the 4 decimals of a price list."""
        return price_text(self.cost.cost)

    @property
    def against_published(self) -> Decimal | None:
        """How far the price is from the published one, in percent with one decimal."""
        if not self.published:
            return None
        return Decimal(exact_decimal((Fraction(self.cost.list_price) / Fraction(self.published) - 1) * 100, 1))

    @property
    def published_percent(self) -> Decimal | None:
        """Sold share from which the published price recovers this cost, in percent."""
        return _percent(self.published_share)

    @property
    def own_percent(self) -> Decimal | None:
        """Sold share from which the price of this sheet recovers its cost, in percent."""
        return _percent(self.own_share)


def _percent(share: Fraction | None) -> Decimal | None:
    return None if share is None else Decimal(exact_decimal(share * 100, 1))


def form_values(asked: Mapping[str, Any], stored: StoredSheet | None) -> dict[str, str]:
    """The texts of the form: as sent, else those of the stored sheet, else the defaults."""
    if "accelerator" in asked:
        return {name: str(asked.get(name, "")).strip() for name in FIELDS}
    inputs = stored.inputs if stored else DEFAULTS
    return {name: _shown_input(inputs.get(name)) for name in FIELDS}


def _shown_input(value: Any) -> str:
    """Texts and numbers as they are; a tariff as JSON in one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def uploaded_values(sent: UploadedFile | None) -> tuple[dict[str, str], Sequence[str]]:
    """The texts of the form from a sheet in a file, and what is wrong with it, fields that nobody knows among it."""
    if sent is None or sent.size is None:
        return {}, [gettext("file: is missing, choose a YAML or JSON file with a cost sheet")]
    if sent.size > LARGEST_SHEET:
        told = {"size": sent.size, "most": LARGEST_SHEET}
        return {}, [gettext("file: has %(size)d bytes, at most %(most)d are read") % told]
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
    """What the sheet is parsed from: empty inputs are absent.  Raises CostSheetError for what is no YAML."""
    fields: dict[str, Any] = {name: value for name, value in values.items() if value and name != CARD_MEMORY}
    for name in DOCUMENTS & fields.keys():
        try:
            fields[name] = parse_document(fields[name].encode(), name).value
        except DocumentError as error:
            raise CostSheetError([FieldProblem((name,), error.message)]) from error
    return fields


def read_form(values: Mapping[str, str]) -> tuple[list[tuple[str, list[Field]]], CostSheet | None]:
    """The form's groups, each refusal beside its field, and the sheet where nothing is refused."""
    problems: list[FieldProblem] = []
    sheet = None
    try:
        sheet = parse_cost_sheet(sheet_fields(values))
    except CostSheetError as error:
        problems = error.problems
    told: dict[str, list[str]] = {}
    for problem in problems:
        told.setdefault(str(problem.path[0]) if problem.path else "", []).append(problem.message)
    return [(gettext(group), [_field(name, values[name], told) for name in names]) for group, names in GROUPS], sheet


def _field(name: str, value: str, told: Mapping[str, list[str]]) -> Field:
    bound = BOUNDS.get(name)
    hint = hint_of(bound) if bound else gettext(HINTS[name])
    return Field(name, value, hint, name in SIMPLE or name in ("accelerator", "currency"), told.get(name, []))


def analysis(sheet: CostSheet, old: CostSheet | None, memory_gb: int) -> Analysis:
    """Bars, swings, break-even and comparison of a sheet; `old` is what it is compared with."""
    cost, simple = cost_of_gpu_hour(sheet), cost_of_gpu_hour(simple_sheet(sheet))
    published = published_price(sheet.accelerator, cost.list_currency)
    swings, here = _swing_bars(sheet)
    before = cost_of_gpu_hour(old) if old else None
    rows = compared(before, cost) if before else ()
    return Analysis(
        cost, _waterfall_bars(cost, simple), swings, here, _by_share(sheet), simple, published,
        break_even(sheet, sheet.listing.price_of_sheet(Fraction(published))) if published else None,
        break_even(sheet, Fraction(cost.price)),
        [(row, _money(row.old), _money(row.new), _money(row.difference)) for row in rows], before,
        slices_of(Card(sheet.accelerator, cost.list_price, published, memory_gb), published_versions().first()),
    )  # fmt: skip


def slices_of(card: Card, base: PriceVersion | None) -> list[SlicePrice]:
    """The slices of the card in the newest list, at the prices that follow from the card's."""
    return slice_prices(version_content(base)["gpu"], card) if base else []


def _money(value: Fraction | None) -> str:
    return "—" if value is None else price_text(value)


def _waterfall_bars(cost: GpuHourCost, simple: GpuHourCost) -> list[Bar]:
    """The complete model as bars, each with what the simple one has there; capital is its plain hardware."""
    whole = cost.cost * (1 + cost.markup)
    plain = {step.name: step.amount for step in waterfall(simple)}
    plain["capital"] = plain["hardware"]
    return [
        Bar(
            step.name, (step.start, step.start + step.amount), price_text(step.amount), _of(step.amount, whole, 1),
            simple=_money(plain.get(step.name)),
        )
        for step in waterfall(cost)
    ]  # fmt: skip


def _swing_bars(sheet: CostSheet) -> tuple[list[Bar], Fraction]:
    """The widest swings, and the price that they are swings of."""
    price = exact_price(sheet)
    bars = []
    for swing in [swing for swing in sensitivity(sheet) if swing.width][:SHOWN_SWINGS]:
        reached = (swing.price_at_low, swing.price_at_high, price)
        low, high = (exact_decimal(value, 4).rstrip("0").rstrip(".") for value in (swing.low, swing.high))
        bars.append(
            Bar(
                swing.field, (min(reached), max(reached)), price_text(swing.width), "", low, high,
                price_text(swing.price_at_low), price_text(swing.price_at_high),
            )
        )  # fmt: skip
    return bars, price


def _of(part: Fraction, whole: Fraction, places: int) -> str:
    return exact_decimal(part / whole * 100 if whole else 0, places)


def _by_share(sheet: CostSheet) -> list[tuple[str, Decimal, Decimal, bool]]:
    """(sold share in percent, cost to recover, price with markup, whether it is that of the sheet)."""
    own = sheet.get("sold_share", 1)
    shares = sorted({*map(Fraction, SOLD_SHARES), own})
    rows = []
    for share in shares:
        cost = cost_of_gpu_hour(at_sold_share(sheet, share))
        rows.append((exact_decimal(share * 100, 1), Decimal(price_text(cost.cost)), cost.price, share == own))
    return rows


def published_price(accelerator: str, currency: str = "") -> Decimal | None:
    """The price of the accelerator in the newest published list, or None; None too for a list in another currency."""
    version = published_versions().first()
    if version and currency and version.currency != currency:
        return None
    found = version.gpu.filter(accelerator=accelerator, resource="").first() if version else None
    return found.price if found else None


def draft_document(
    values: Mapping[str, str], *, name: str, valid_from: str, reason: str, sheet_name: str, base: PriceVersion | None
) -> dict[str, Any]:
    """The newest list with the accelerator priced by this sheet and its slices after it, as `price_draft_write` takes it.

    Raises CostSheetError for a bad sheet.
    """
    fields = sheet_fields(values)
    sheet = parse_cost_sheet(fields)
    accelerator, price = sheet.accelerator, cost_of_gpu_hour(sheet).list_price
    content = version_content(base) if base else {"gpu": [], "tokens": []}
    card = Card(accelerator, price, published_price(accelerator), memory_of(accelerator, values.get(CARD_MEMORY, "")))
    others = [row for row in content["gpu"] if row.get("accelerator") != accelerator or row.get("resource")]
    others = with_slices(others, slices_of(card, base))
    return {
        "name": name, "valid_from": valid_from, "reason": reason,
        "gpu": [{"accelerator": accelerator, "cost_sheet": sheet_name}, *others],
        "cost_sheets": [{"name": sheet_name, "sheet": fields}],
        **({"tokens": content["tokens"]} if content["tokens"] else {}),
    }  # fmt: skip
