"""Price lists for pages: published versions and drafts in one shape, with the sheets behind their prices."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

from django.db.models import QuerySet

from billing.rates.models import CostSheet, PriceDraft, PriceVersion, TokenCostSheet
from billing.rates.price_diff import PriceChange, price_changes
from billing.rates.price_file import in_written_order
from billing.rates.price_list import PriceListError
from billing.rates.selectors import draft_prices, plain_version, price_draft_named, price_version_before
from billing.rating.price_effect import Effect, PriceEffect
from metering.intervals import billing_month, month_of, next_month
from pricing.business_days import BusinessCalendar, business_days_between
from pricing.contexts import SEPARATOR, class_and_context, in_order, priced_class
from pricing.rate_card import TOKEN_CLASSES
from pricing.tco import GpuHourCost, cost_of_gpu_hour, parse_cost_sheet
from pricing.what_if import ComponentChange, price_text


@dataclass(frozen=True, slots=True)
class GpuLine:
    accelerator: str
    resource: str
    unit: str
    price: Decimal
    facility_kw: Decimal | None
    cost_sheet: CostSheet | None

    @property
    def inputs(self) -> list[tuple[str, Any]]:
        """Return the fields of the cost sheet, in the order in which people write them."""
        return list(in_written_order(self.cost_sheet.inputs).items()) if self.cost_sheet else []


@dataclass(frozen=True, slots=True)
class TokenLine:
    """Prices of one model by class, in the order of TOKEN_CLASSES; None for a class without a price.

    A model with prices by prompt length has a line for each `context`.
    """

    model: str
    context: str
    prices: list[Decimal | None]
    cost_sheet: TokenCostSheet | None

    @property
    def by_class(self) -> list[tuple[str, Decimal | None]]:
        """Return every class with its price, in the same order."""
        return list(zip(TOKEN_CLASSES, self.prices, strict=True))


@dataclass(frozen=True)
class ShownList:
    """Price list for pages. `problems`: why a draft has no prices, such as a sheet that is gone or changed."""

    gpu: list[GpuLine] = field(default_factory=list)
    tokens: list[TokenLine] = field(default_factory=list)
    problems: Sequence[str] = ()


def published_versions() -> QuerySet[PriceVersion]:
    """Return all published versions, newest first."""
    rows = PriceVersion.objects.filter(sealed=True).select_related("draft")
    return rows.prefetch_related("gpu__cost_sheet", "tokens__cost_sheet").order_by("-valid_from", "-pk")


def open_drafts() -> QuerySet[PriceDraft]:
    """Return the drafts that may still be published, newest first."""
    return PriceDraft.objects.exclude(state__in=(PriceDraft.State.APPROVED, PriceDraft.State.WITHDRAWN))


def shown_version(version: PriceVersion) -> ShownList:
    gpu = [
        GpuLine(row.accelerator, row.resource, row.unit, row.price, row.facility_kw, row.cost_sheet)
        for row in version.gpu.all()
    ]
    by_class: dict[str, dict[str, Decimal]] = defaultdict(dict)
    sheets: dict[str, TokenCostSheet] = {}
    for row in version.tokens.all():
        by_class[row.model][row.token_class] = row.price
        if row.cost_sheet:
            sheets[row.model] = row.cost_sheet
    return ShownList(_ordered(gpu), _token_lines(by_class, sheets))


def shown_draft(draft: PriceDraft) -> ShownList:
    """Return the prices of a draft; prices of cost sheets follow the sheets as they are now."""
    try:
        prices = draft_prices(draft)
    except PriceListError as error:
        return ShownList(problems=error.messages)
    sheets = {sheet.name: sheet for sheet in CostSheet.objects.filter(name__in=[item.cost_sheet for item in prices.gpu])}
    gpu = [
        GpuLine(item.accelerator, item.resource, item.unit, item.price, item.facility_kw, sheets.get(item.cost_sheet or ""))
        for item in prices.gpu
    ]
    by_class: dict[str, dict[str, Decimal]] = defaultdict(dict)
    for (model, token_class), price in prices.tokens.items():
        by_class[model][token_class] = price
    stored = {row.name: row for row in TokenCostSheet.objects.filter(name__in=list(prices.token_sheets.values()))}
    return ShownList(
        _ordered(gpu), _token_lines(by_class, {model: stored[name] for model, name in prices.token_sheets.items()})
    )


def changes_against(old: PriceVersion | PriceDraft | None, new: PriceVersion | PriceDraft) -> list[PriceChange] | None:
    """Return the changes price by price; None if there is no list to compare with, or a draft cannot be priced."""
    if old is None:
        return None
    try:
        return price_changes(plain_version(old), plain_version(new))
    except PriceListError:
        return None


def changes_of(listed: PriceVersion | PriceDraft) -> tuple[PriceVersion | None, list[PriceChange] | None]:
    """Return the published version before a list, and the changes since."""
    before = price_version_before(listed)
    return before, changes_against(before, listed)


@dataclass(frozen=True)
class SheetChange:
    """Change of the sheet behind the price of one accelerator in two lists: components, and the inputs that differ."""

    accelerator: str
    old: GpuHourCost | None
    new: GpuHourCost | None
    components: list[tuple[str, str, str, str]]
    inputs: list[tuple[str, str, str]]


def sheet_changes(old: PriceVersion | PriceDraft | None, new: PriceVersion | PriceDraft | None) -> list[SheetChange]:
    """Return a change for each accelerator whose sheet differs between the lists; a list without one has no components."""
    before, after = _sheets(old), _sheets(new)
    names = sorted(before.keys() | after.keys())
    return [
        _sheet_change(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def _sheets(listed: PriceVersion | PriceDraft | None) -> dict[str, dict[str, Any]]:
    """Return accelerator -> inputs of the sheet that its price comes from."""
    if listed is None:
        return {}
    shown = shown_version(listed) if isinstance(listed, PriceVersion) else shown_draft(listed)
    return {line.accelerator: line.cost_sheet.inputs for line in shown.gpu if line.cost_sheet and not line.resource}


def _sheet_change(accelerator: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> SheetChange:
    costs = [cost_of_gpu_hour(parse_cost_sheet(inputs)) if inputs else None for inputs in (old, new)]
    parts = [{part.name: part.cost_per_gpu_hour for part in cost.components} if cost else {} for cost in costs]
    rows = [ComponentChange(name, parts[0].get(name), parts[1].get(name)) for name in dict.fromkeys([*parts[1], *parts[0]])]
    components = [(row.name, money_text(row.old), money_text(row.new), difference_text(row, *costs)) for row in rows]
    fields = in_written_order({**(old or {}), **(new or {})})
    pairs = [(name, str((old or {}).get(name, "—")), str((new or {}).get(name, "—"))) for name in fields]
    differing = [pair for pair in pairs if pair[1] != pair[2]] if old and new else []
    return SheetChange(accelerator, costs[0], costs[1], components, differing)


def money_text(value: Fraction | None) -> str:
    """Return the text with the decimals of a price; a dash for None."""
    return "—" if value is None else price_text(value)


def difference_text(row: ComponentChange, old: GpuHourCost | None, new: GpuHourCost | None) -> str:
    """Return a signed difference, a dash between two currencies; a component missing from a sheet costs nothing there."""
    if old is None or new is None or old.currency != new.currency:
        return "—"
    return f"{'+' if row.difference > 0 else ''}{price_text(row.difference)}"


def in_currency(heading: str, cost: GpuHourCost | None, other: GpuHourCost | None) -> str:
    """Return the heading of a sheet's figures, with its currency if the other sheet is in another one."""
    return f"{heading}, {cost.currency}" if cost and other and cost.currency != other.currency else heading


@dataclass(frozen=True, slots=True)
class TeamEffect:
    """Effect of a list on a team: its lines that change, the largest change first, and those that stay as they were."""

    whole: Effect
    changed: list[Effect]
    same: list[Effect]

    @property
    def same_amount(self) -> Decimal:
        return sum((row.after for row in self.same), Decimal("0.00"))


@dataclass(frozen=True)
class ShownEffect:
    """Effect of a list for pages: `teams` with a line that changes, the largest change first, and the `others`."""

    teams: list[TeamEffect]
    others: list[TeamEffect]

    @classmethod
    def of(cls, effect: PriceEffect) -> Self:
        """Group the lines by team, each line once."""
        rows: dict[str, list[Effect]] = defaultdict(list)
        for row in sorted(effect.rows, key=lambda row: (-abs(row.difference), row.key)):
            rows[row.key.team].append(row)
        teams = [
            TeamEffect(
                whole, [row for row in rows[whole.key.team] if row.difference],
                [row for row in rows[whole.key.team] if not row.difference],
            )
            for whole in effect.by_team
        ]  # fmt: skip
        return cls([team for team in teams if team.changed], [team for team in teams if not team.changed])

    @property
    def others_amount(self) -> Decimal:
        """Return the amount of the teams for which nothing changes."""
        return sum((team.same_amount for team in self.others), Decimal("0.00"))

    @property
    def same(self) -> list[Effect]:
        """Return the unchanged lines of all teams."""
        return [row for team in (*self.teams, *self.others) for row in team.same]


def first_month_with_notice(
    now: datetime, zone: str, notice: int, calendar: BusinessCalendar
) -> tuple[str, datetime]:
    """Return the first billing month that begins after `notice` business days of the company, and its first instant.

    A month with which a published list begins is skipped: no other list may begin there.
    """
    begun = {*PriceVersion.objects.filter(valid_from__gt=now).values_list("valid_from", flat=True)}
    month = next_month(month_of(now, zone))
    while (start := billing_month(month, zone).start) in begun or business_days_between(now, start, zone, calendar) < notice:
        month = next_month(month)
    return month, start


def free_list_name(month: str) -> str:
    """Return the month as a name, with the first number behind it that no list or draft has if the month is taken."""
    taken = {*PriceVersion.objects.values_list("name", flat=True)}
    # more candidates than names are taken, so that one is free
    names = (month, *(f"{month}-{number}" for number in range(2, len(taken) + PriceDraft.objects.count() + 3)))
    return next(name for name in names if name not in taken and not price_draft_named(name))


def free_sheet_name(about: str, month: str) -> str:
    """Return subject and month as a name, with the first number that no cost sheet or load test has if it is taken."""
    taken = {*CostSheet.objects.values_list("name", flat=True), *TokenCostSheet.objects.values_list("name", flat=True)}
    names = (f"{about} {month}", *(f"{about} {month}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _ordered(lines: list[GpuLine]) -> list[GpuLine]:
    return sorted(lines, key=lambda line: (line.accelerator, line.resource))


def _token_lines(by_class: dict[str, dict[str, Decimal]], sheets: dict[str, TokenCostSheet]) -> list[TokenLine]:
    lines = []
    for model, prices in sorted(by_class.items()):
        contexts = sorted({class_and_context(name)[1] for name in prices}, key=lambda text: in_order(f"{SEPARATOR}{text}"))
        for context in contexts:
            shown = [prices.get(priced_class(name, context)) for name in TOKEN_CLASSES]
            lines.append(TokenLine(model, context, shown, sheets.get(model)))
    return lines
