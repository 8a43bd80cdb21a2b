"""Files of the explorer: its groups and its bars, with exact figures."""

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Final

from billing.explorer.query import COLUMNS, Query
from billing.explorer.results import UNIT_COSTS, Group
from billing.explorer.selectors import Explored
from billing.portal.tables import Cell, Column, Table

LOOKS: Final = {"cost": "money", "gpu_hours": "quantity", "slice_hours": "quantity", "energy": "quantity", "co2": "quantity"}


def groups_table(found: Explored, called: Mapping[str, str]) -> Table:
    query = found.query
    looks = {column: "price" if column in UNIT_COSTS else LOOKS.get(column, "count") for column in COLUMNS}
    looks |= {"before": LOOKS.get(query.metric, "count"), "change": LOOKS.get(query.metric, "count"), "share": "ratio"}
    whole = found.total.total

    def cell(column: str, group: Group) -> Cell:
        if column == "share":
            # a fraction, because the cell is rounded once, where the file is written
            return Fraction(group.total) / Fraction(whole) if whole else None
        return group.cell(column)

    columns = [
        *_name_columns(query, called), Column(query.metric, LOOKS.get(query.metric, "count"), "total"),
        *(Column(name, looks[name], partial(cell, name)) for name in query.columns),
    ]  # fmt: skip
    return Table.of(f"explorer-{query.first}-{query.last}", found.groups, columns)


def _name_columns(query: Query, called: Mapping[str, str]) -> list[Column]:
    columns: list[Column] = []
    for place, name in enumerate(query.by):
        columns.append(Column(name, of=partial(_name_at, place)))
        if name == "team":
            columns.append(Column("team_name", of=partial(_team_at, place, called)))
    return columns


def _name_at(place: int, group: Group) -> str:
    return group.names[place]


def _team_at(place: int, called: Mapping[str, str], group: Group) -> str:
    return called.get(group.names[place], "")


def series_table(found: Explored, called: Mapping[str, str]) -> Table:
    """Return every bar of every group, exact, one row each; bars of zero are left out."""
    query, rows = found.query, []
    for group in found.charted:
        names: list[Cell] = []
        for name, value in zip(query.by, group.names, strict=True):
            names += [value, called.get(value, "")] if name == "team" else [value]
        rows += [
            [step.span.first, step.span.last, *([step.name] if step.start else []), *names, bar]
            for step, bar in zip(found.steps, group.bars, strict=True)
            if bar
        ]
    names = [name for dimension in query.by for name in ([dimension, "team_name"] if dimension == "team" else [dimension])]
    hour = [Column("hour")] if query.step == "hour" else []
    columns = [Column("from"), Column("to"), *hour, *(Column(str(name)) for name in names),
               Column(query.metric, LOOKS.get(query.metric, "count"))]  # fmt: skip
    return Table(f"explorer-{query.step}-{query.first}-{query.last}", columns, rows)


