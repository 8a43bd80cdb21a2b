"""The tables of the price workbench to take along: what a price is made of, what moves it, and what it is compared with."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation

from billing.portal.tables import Cell, Column, Table
from billing.portal.workbench import Analysis


def bench_tables(found: Analysis) -> dict[str, Callable[[], Table]]:
    """A table for each that the page shows of one sheet; prices are of the sheet's currency."""
    name = found.cost.accelerator
    changes = [(row.name, old, new, difference) for row, old, new, difference in found.changes]
    slices = [(one.accelerator, one.resource, one.share, one.published, one.price) for one in found.slices]
    of_slices = ("accelerator", "resource", "share")
    return {
        "parts": _table(f"price-{name}", "component", ("amount", "percent", "simple_model"), [
            (bar.name, bar.amount, bar.share, bar.simple) for bar in found.bars
        ]),
        "swings": _table(f"what-moves-{name}", "input", ("from", "to", "price_at_from", "price_at_to"), [
            (bar.name, bar.low, bar.high, bar.price_at_low, bar.price_at_high) for bar in found.swings
        ]),
        "by_share": _table(f"by-sold-share-{name}", "sold_percent", ("cost_to_recover", "price_with_markup"), [
            (share, cost, price) for share, cost, price, _own in found.by_share
        ]),
        "listed": _table(f"listed-{name}", "name", ("value",), found.listed.items()),
        "emitted": _table(f"energy-and-co2-{name}", "name", ("value",), found.emitted.items()),
        "slices": lambda: Table(
            f"slices-{name}",
            [*(Column(each) for each in of_slices), *(Column(each, "price") for each in ("published", "price"))],
            slices,
        ),
        "compared": _table(f"compared-{name}", "component", ("before", "now", "difference"), changes),
    }  # fmt: skip


def _table(
    name: str, first: str, others: Sequence[str], rows: Iterable[Sequence[str | Decimal]]
) -> Callable[[], Table]:
    columns = [Column(first), *(Column(other, "price") for other in others)]
    return lambda: Table(name, columns, [[str(row[0]), *(_cell(value) for value in row[1:])] for row in rows])


def _cell(text: str | Decimal) -> Cell:
    """A figure as a number, a dash as nothing, anything else as it is."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None if text in ("", "—") else str(text)
    return found if found.is_finite() else str(text)
