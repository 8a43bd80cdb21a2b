"""Price lists, what changes between two of them, and what a list would have done, as tables to take along."""

from collections.abc import Iterable, Sequence

from billing.portal.price_lists import SheetChange, ShownList
from billing.portal.tables import Cell, Column, Row, Table
from billing.rates.models import EfficiencyPolicy, PriceDraft
from billing.rates.price_diff import PriceChange
from billing.rating.price_effect import Effect, PriceEffect
from pricing.rate_card import TOKEN_CLASSES

MILLION = "1M Tokens"
POLICY_COLUMNS = ("hfu_below", "penalty", "mfu_above", "reward", "min_coverage")


def list_table(lists: Iterable[tuple[str, ShownList]]) -> Table:
    """Every price of the lists, one a row."""
    columns = [Column(name) for name in ("list", "accelerator", "resource", "model", "token_class", "unit", "cost_sheet")]
    rows: list[Sequence[Cell]] = []
    for name, shown in lists:
        for item in shown.gpu:
            sheet = item.cost_sheet.name if item.cost_sheet else None
            rows.append([name, item.accelerator, item.resource, None, None, item.unit, sheet, item.price])
        for model in shown.tokens:
            sheet = model.cost_sheet.name if model.cost_sheet else None
            for kind, price in zip(TOKEN_CLASSES, model.prices, strict=True):
                if price is not None:
                    rows.append([name, None, None, model.model, kind, MILLION, sheet, price])
    return Table("prices", [*columns, Column("price", "price")], rows)


def changes_table(changes: Iterable[PriceChange] | None) -> Table:
    """Price by price; empty where a list has none."""
    columns = [Column(name) for name in ("accelerator", "sku", "token_class", "unit", "change")]
    rows: list[Row] = [
        [row.key.accelerator, row.key.sku, row.key.token_class, row.key.unit, row.change, row.old, row.new]
        for row in changes or ()
    ]
    return Table("price-changes", [*columns, Column("old", "price"), Column("new", "price")], rows)


def sheets_table(sheets: Iterable[SheetChange]) -> Table:
    """Components and differing inputs of the cost sheets behind two lists, as the page writes them."""
    names = ("accelerator", "kind", "name", "old", "new", "difference")
    rows: list[Sequence[Cell]] = []
    for one in sheets:
        rows += [[one.accelerator, "component", *parts] for parts in one.components]
        rows += [[one.accelerator, "input", *parts, None] for parts in one.inputs]
    return Table("cost-sheets-compared", [Column(name) for name in names], rows)


def effect_table(effect: PriceEffect | None, month: str) -> Table:
    """What each team would have been charged for each SKU."""
    columns = [Column("month"), Column("team"), Column("kind"), Column("sku"), Column("token_class")]
    parts: list[Effect] = [part for row in effect.by_team for part in effect.of_team(row.key.team)] if effect else []
    rows: list[Row] = [
        [month, part.key.team, part.key.kind, part.key.sku, part.key.token_class, part.before, part.after, part.difference]
        for part in parts
    ]
    sums = (Column("as_it_was", "money"), Column("with_this_list", "money"), Column("difference", "money"))
    return Table(f"effect-on-{month}", [*columns, *sums], rows)


def drafts_table(drafts: Iterable[PriceDraft]) -> Table:
    """Lists on their way to approval."""
    names = ("name", "state", "valid_from", "makers", "reason")
    rows: list[Row] = [[row.name, row.state, row.valid_from, ", ".join(row.makers), row.reason] for row in drafts]
    return Table("price-drafts", [Column(name) for name in names], rows)


def _bounds(row: EfficiencyPolicy) -> list[Cell]:
    return [getattr(row, name) for name in POLICY_COLUMNS]


def policies_table(found: Iterable[EfficiencyPolicy]) -> Table:
    """Efficiency policies with their bounds."""
    names = ("name", "valid_from", "valid_until", "penalise_on")
    columns = [*(Column(name) for name in names), Column("min_minutes", "count")]
    rows: list[Row] = [
        [row.name, row.valid_from, row.valid_until, row.penalise_on, row.min_minutes, *_bounds(row)] for row in found
    ]
    return Table("efficiency-policies", [*columns, *(Column(name, "quantity") for name in POLICY_COLUMNS)], rows)
