"""The levels below a line as tables to take along: workloads, holds, days, hours, requests.

Every row, not only those that a page shows; requests alone end with one row for all that are too many to list.
"""

from collections.abc import Callable, Mapping
from datetime import date
from functools import partial

from billing.invoices.line_rollups import StatementLine
from billing.portal.drilldown import Breakdown, Part
from billing.portal.tables import Cell, Column, Table

FACTS: Mapping[str, tuple[str, ...]] = {
    "workloads": ("job", "holds", "first", "last"),
    "holds": ("pod", "allocation_id", "node", "first", "last", "end_reason", "devices", "device_fraction"),
    "days": ("day", "requests"),
    "hours": ("hour", "requests"),
    "requests": ("time", "id", "source"),
}
"""By level: the facts of a part that are columns of its table."""


def level_tables(
    levels: Mapping[str, Breakdown], line: StatementLine, month: str
) -> dict[str, Callable[[], Table]]:
    """A table for every level that the page shows."""
    return {name: partial(_table, name, rows, line, month) for name, rows in levels.items()}


def _table(name: str, rows: Breakdown, line: StatementLine, month: str) -> Table:
    facts = [fact for fact in FACTS[name] if any(fact in part.facts for part in rows.parts)]
    columns = [
        *(Column(fact, "count" if fact in ("holds", "requests", "devices") else "text") for fact in facts),
        Column("base_units", "quantity"), Column("quantity", "quantity"), Column("unit"), Column("amount", "money"),
    ]  # fmt: skip
    parts = [*rows.parts, rows.rest] if rows.rest else rows.parts
    return Table(f"{name}-{line.key.sku}-{month}", columns, [_row(part, facts, line.key.unit) for part in parts])


def _row(part: Part, facts: list[str], unit: str) -> list[Cell]:
    named = [part.facts.get(fact) for fact in facts]
    return [*(value.isoformat() if isinstance(value, date) else value for value in named), part.usage, part.quantity,
            unit, part.amount]  # fmt: skip
