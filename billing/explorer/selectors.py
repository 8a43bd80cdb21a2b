"""The one read of the explorer: what a query comes to for the teams that somebody may see."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from django.db.models import Q

from billing.explorer.cube import OF_A_WORKLOAD, Column, Cube, Integers, unpacked
from billing.explorer.facts import CubeFacts, facts_of
from billing.explorer.models import CubeColumn, MonthCube
from billing.explorer.query import DAY, Query, Span, Step, steps_of
from billing.explorer.results import UNIT_COSTS, Group, exact
from billing.explorer.services.cubes import cubes_ready
from billing.explorer.sums import METRIC, Part, Selection, bars_of, is_whole, names_known
from billing.invoices.selectors import period_of
from billing.rating.freshness import Unbilled
from metering.intervals import Interval

CHARTED: Final = 10
LISTED: Final = 1_000
"""So many groups are told apart; of more, the smallest are one sum, but in a file."""
LINKED: Final = 50
"""So many groups lead to a line."""


@dataclass(frozen=True)
class Explored:
    """What a query comes to. `groups` in the order of its sort; `charted`: those with bars, the largest first.

    `number`: how many groups there are; `rest`: the sum of those that are not listed. `compared`: the days of the span
    before that are compared with as many of this one, None where none are. `missing`: months that are not summed yet.
    `shadow`: everything is only shown and nobody charged.
    """

    query: Query
    steps: list[Step]
    groups: list[Group]
    charted: list[Group]
    other: Group
    total: Group
    number: int
    rest: Decimal
    compared: Span | None
    months: Mapping[str, CubeFacts]
    as_of: datetime | None
    missing: list[str]
    shadow: bool
    today: date

    @property
    def preview(self) -> bool:
        """Whether some of it can still change."""
        return any(facts.preview for facts in self.months.values())

    @cached_property
    def open_months(self) -> list[str]:
        """The months that are not closed, the oldest first."""
        return sorted(month for month, facts in self.months.items() if facts.preview)

    @cached_property
    def unrated(self) -> dict[str, str]:
        """Why teams are in no sum of an open month."""
        return {team: problem for facts in self.months.values() for team, problem in facts.unrated.items()}

    @cached_property
    def unbilled(self) -> list[Unbilled]:
        """Usage of open months that is in no sum."""
        return [item for month in self.open_months for item in self.months[month].unbilled]


def open_window(found: Explored) -> Interval | None:
    """From the first to the last open month of an answer; None where all are closed."""
    if not found.open_months:
        return None
    return Interval(period_of(found.open_months[0]).start, period_of(found.open_months[-1]).end)


@dataclass(frozen=True)
class Explorer:
    """Reads for one reader: `teams` are all that they may ever see, `called` their names by code."""

    teams: Collection[str]
    now: datetime
    zone: str
    called: Mapping[str, str] = field(default_factory=dict)

    @property
    def today(self) -> date:
        return self.now.astimezone(ZoneInfo(self.zone)).date()

    def explore(self, query: Query, *, everything: bool = False) -> Explored:
        """What the query comes to. `everything`: every group is told apart and has bars, for a file."""
        steps = steps_of(query.span, query.step)
        cubes, missing = self._cubes(query.span)
        parts = _parts(cubes, query, steps)
        selection = Selection(parts, query, self.teams, self.called)
        sums = _Sums(selection, query)
        compared, earlier = self._compared(selection, cubes)
        groups = sums.groups(None if everything else LISTED, earlier)
        largest = sorted(groups, key=lambda group: (-group.total, group.names))
        charted = largest if everything else largest[:CHARTED]
        other, whole = sums.bars(charted, len(steps)), sums.whole(earlier)
        facts = {cube.month: facts_of(cube) for cube in cubes}
        as_of = min((cube.as_of for cube in cubes if facts[cube.month].preview), default=None)
        rest = whole.total - sum((group.total for group in groups), Decimal(0))
        ordered = in_order(groups, query, self.called)
        sums.lines(ordered[:LINKED])
        return Explored(
            query, steps, ordered, charted, other, whole, sums.number, rest, compared, facts, as_of, missing,
            selection.shadow, self.today,
        )  # fmt: skip

    def options(self, query: Query, dimensions: Sequence[str], most: int) -> dict[str, list[str] | None]:
        """The names of each dimension that can be asked for in the range; None where they are too many."""
        cubes, _ = self._cubes(query.span)
        asked = replace(query, by=tuple(dimensions), filters=(), columns=())
        parts = _parts(cubes, asked, [Step(query.span, "")])
        return {name: names_known(parts, name, self.teams, most) for name in dimensions}

    def _cubes(self, span: Span) -> tuple[list[MonthCube], list[str]]:
        passed = span.through(self.today)
        return cubes_ready(passed.months if passed else [], now=self.now)

    def _compared(self, selection: Selection, here: Sequence[MonthCube]) -> tuple[Span | None, "_Earlier | None"]:
        """What has wholly passed of the span, and as many days of the span before; nothing where that is not known."""
        query = selection.query
        whole = query.span.through(self.today - DAY)
        if whole is None or not {"before", "change"} & set(query.columns):
            return None, None
        before = query.span.before()
        before = before if whole == query.span else before.first_days(whole.days)
        cubes, missing = self._cubes(before)
        if missing or not cubes:
            return None, None
        then = self._selected(cubes, query.during(before), selection.shadow)
        same = selection if whole == query.span else self._selected(here, query.during(whole), selection.shadow)
        return before, _Earlier(same, then)

    def _selected(self, cubes: Sequence[MonthCube], query: Query, shadow: bool) -> Selection:
        asked = replace(query, columns=())
        parts = _parts(cubes, asked, [Step(query.span, "")], lines=False)
        return Selection(parts, asked, self.teams, self.called, shadow=shadow)


class _Earlier:
    """Sums of the days that are compared: of this span and of the one before."""

    def __init__(self, now: Selection, then: Selection) -> None:
        metric = METRIC[now.query.metric]
        self._now, self._then = (now, now.totals(metric)), (then, then.totals(metric))

    def of(self, names: tuple[str, ...]) -> tuple[int, int]:
        """Of one group: now and then."""
        now, then = (_total_of(selection, totals, names) for selection, totals in (self._now, self._then))
        return now, then

    @property
    def whole(self) -> tuple[int, int]:
        """Of all groups: now and then."""
        return int(self._now[1].sum()), int(self._then[1].sum())

    def largest(self, most: int | None) -> list[tuple[str, ...]]:
        """The groups with the largest sums then."""
        selection, totals = self._then
        order = np.argsort(-np.abs(totals), kind="stable")[:most]
        return [selection.names(place) for place in order.tolist() if totals[place]]


def _total_of(selection: Selection, totals: Integers, names: tuple[str, ...]) -> int:
    place = selection.find(names)
    return 0 if place is None else int(totals[place])


@dataclass
class _Sums:
    """The sums of a selection, by group."""

    selection: Selection
    query: Query

    def __post_init__(self) -> None:
        self.metric = METRIC[self.query.metric]
        self.totals = self.selection.totals(self.metric)
        self.number = int(np.count_nonzero(self.totals))
        self.place: dict[tuple[str, ...], int] = {}

    @property
    def wanted(self) -> list[str]:
        """The sums that the columns are made of."""
        names = [name for column in self.query.columns for name in UNIT_COSTS.get(column, (column,))[:2]]
        return [name for name in dict.fromkeys(names) if name in METRIC or name == "jobs"]

    def groups(self, most: int | None, earlier: _Earlier | None) -> list[Group]:
        """The groups with the largest sums, and those that had one before; without what adds up to nothing."""
        order = np.argsort(-np.abs(self.totals), kind="stable")[:most]
        self.place = {self.selection.names(place): place for place in order.tolist() if self.totals[place]}
        names = list(self.place)
        if earlier is not None:
            gone = [one for one in earlier.largest(most) if one not in self.place]
            known = {one: self.selection.find(one) for one in gone}
            names += [one for one, place in known.items() if place is None or not self.totals[place]]
            self.place |= {one: place for one, place in known.items() if place is not None and not self.totals[place]}
        groups = [self._group(one, earlier) for one in names]
        self._sum_columns(groups)
        return groups

    def _group(self, names: tuple[str, ...], earlier: _Earlier | None) -> Group:
        metric, place = self.query.metric, self.place.get(names)
        group = Group(names, metric, exact(0 if place is None else int(self.totals[place]), metric))
        if earlier is not None:
            group.comparable, group.before = (exact(units, metric) for units in earlier.of(names))
        return group

    def _sum_columns(self, groups: Sequence[Group]) -> None:
        for column in self.wanted:
            sums = self.selection.jobs()[0] if column == "jobs" else self.selection.totals(METRIC[column])
            for group in groups:
                place = self.place.get(group.names)
                group.sums[column] = exact(0 if place is None else int(sums[place]), column)

    def whole(self, earlier: _Earlier | None) -> Group:
        """All groups in one."""
        metric = self.query.metric
        found = Group((), metric, exact(int(self.totals.sum()), metric))
        if earlier is not None:
            found.comparable, found.before = (exact(units, metric) for units in earlier.whole)
        for column in self.wanted:
            units = self.selection.jobs()[1] if column == "jobs" else int(self.selection.values(METRIC[column]).sum())
            found.sums[column] = exact(units, column)
        return found

    def bars(self, charted: Sequence[Group], number: int) -> Group:
        """Give the groups their bars; returns the others as one group."""
        slots = np.full(self.selection.number, len(charted), dtype=np.int64)
        for slot, group in enumerate(charted):
            if group.names in self.place:
                slots[self.place[group.names]] = slot
        sums = self.selection.by_bar(self.metric, slots, len(charted) + 1, number)
        metric = self.query.metric
        for group, units in zip(charted, sums[:-1].tolist(), strict=True):
            group.bars = [exact(one, metric) for one in units]
        rest = [exact(one, metric) for one in sums[-1].tolist()]
        return Group((), metric, sum(rest, Decimal(0)), rest)

    def lines(self, groups: Sequence[Group]) -> None:
        """Give the groups their largest lines, where the span is one month."""
        if not self.query.span.month:
            return
        largest = self.selection.largest_lines([self.place[group.names] for group in groups if group.names in self.place])
        for group in groups:
            group.line = largest.get(self.place.get(group.names, -1))


def _parts(cubes: Sequence[MonthCube], query: Query, steps: Sequence[Step], *, lines: bool = True) -> list[Part]:
    """The months of a span with the columns that the query reads. `lines`: also what leads to the lines of one month."""
    of_jobs = query.of_jobs or "jobs" in _asked_sums(query)
    found: dict[int, dict[str, Column]] = {cube.pk: {} for cube in cubes}
    wanted = Q()
    for cube in cubes:
        whole = not of_jobs and is_whole(*bars_of(cube.month, steps))
        wanted |= Q(cube=cube, name__in=_columns(query, whole=whole, lines=lines))
    rows = CubeColumn.objects.filter(wanted) if cubes else CubeColumn.objects.none()
    for number, name, content in rows.values_list("cube_id", "name", "content"):
        found[number][name] = unpacked(bytes(content))
    return [Part.of(Cube(found[cube.pk]), cube.month, query.span, steps, of_jobs=of_jobs) for cube in cubes]


def _asked_sums(query: Query) -> set[str]:
    """What the columns of the table are made of."""
    return {name for column in query.columns for name in UNIT_COSTS.get(column, (column,))[:2]}


def _columns(query: Query, *, whole: bool, lines: bool) -> set[str]:
    """The columns that the query reads of a month, by row or, of a `whole` month, by line."""
    sums = _asked_sums(query)
    found = {"team", "shadow", *query.by, *query.filter, *(() if whole else ("line", "day"))}
    found |= {"job", "namespace", "unit"} if "jobs" in sums else set()
    metrics = [METRIC[name] for name in {query.metric, *sums} & METRIC.keys()]
    measures = {metric.measure for metric in metrics} | ({"quantity"} if "jobs" in sums else set())
    found |= {flag for metric in metrics for flag in ("unit", "meter", "kind") if getattr(metric, flag)}
    if lines and query.span.month:
        measures, found = measures | {"amount"}, found | {"digest"}
    found |= {"workload"} if found & set(OF_A_WORKLOAD) else set()
    return found | {f"whole_{name}" if whole else name for name in measures}


def in_order(groups: Sequence[Group], query: Query, called: Mapping[str, str]) -> list[Group]:
    """The groups as the table has them; what is not known stands last, whichever way."""
    column, down = query.sort.removeprefix("-"), query.sort.startswith("-")

    def name(group: Group) -> tuple[str, ...]:
        return tuple(called.get(one, one).casefold() for one in group.names)

    if column == "name":
        return sorted(groups, key=name, reverse=down)
    column = "total" if column == "share" else column
    known = [(cell, group) for group in sorted(groups, key=name) if (cell := group.cell(column)) is not None]
    unknown = [group for group in sorted(groups, key=name) if group.cell(column) is None]
    return [group for _, group in sorted(known, key=lambda pair: pair[0], reverse=down)] + unknown
