"""Queries of the explorer, answered for the teams that a reader may see."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Final

import numpy as np
from django.conf import settings

from billing.explorer.building import LATE, NOTE
from billing.explorer.compared import ComparedLines, compared_spans, priced_lines, priced_query
from billing.explorer.cube import (
    MEASURES,
    OF_A_WORKLOAD,
    OF_LINES,
    OF_ROWS,
    Column,
    Cube,
    unpacked,
)
from billing.explorer.facts import CubeFacts, facts_of
from billing.explorer.first_day import begun_after, first_day_known
from billing.explorer.hours import READ, Asked, by_hour
from billing.explorer.models import MonthCube
from billing.explorer.names import Integers
from billing.explorer.query import Address, Query, Span, Step, TooFineError, query_of, steps_of
from billing.explorer.results import UNIT_COSTS, Group, exact
from billing.explorer.services.cubes import cubes_ready
from billing.explorer.sums import METRIC, UNKNOWN, Part, Selection, kept_lines, names_known, sums_of
from billing.invoices.selectors import period_of
from billing.rating.freshness import Unbilled
from billing.runtime.parallel_reads import rows_read
from metering.intervals import Interval, day_of

COLUMNS_OF_CUBES: Final = """
    SELECT cube_id, name, content FROM explorer_cubecolumn
    WHERE (cube_id, name) IN (SELECT * FROM unnest(%(cubes)s::bigint[], %(names)s::text[]))
"""
CHARTED: Final = 10
LISTED: Final = 1_000
"""Limit of listed groups; the smallest of more are one sum, except in a file."""
COMPARING: Final = frozenset({"before", "change"})
LINKED: Final = 50
"""Limit of groups that link to a line."""


@dataclass(frozen=True)
class Explored:
    """Answer to a query. `groups` in the order of its sort; `charted`: those with bars, the largest first.

    `number`: count of groups; `rest`: the sum of those that are not listed. `compared`: the days of the previous span that
    are compared with as many of this one, None without comparison. `missing`: months without a cube yet. `shadow`: all
    figures are showback. `refused`: the reason why bars are not the hours that were asked for. `unknown`: usage missing from
    energy and CO2, by the names of UNKNOWN; only sums that are not 0. `unrated`: errors of the reader's teams that are in no
    sum of a month. `apart`: amount in no sum because it is showback, or, of a showback answer, because notes charge or
    credit it. `first_day`: the first day with figures. `begun`: that day, where earlier days without figures prevent a
    comparison.
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
    unknown: Mapping[str, Decimal]
    unrated: Mapping[str, str]
    apart: Decimal = Decimal(0)
    first_day: date | None = None
    begun: date | None = None
    refused: TooFineError | None = None

    @property
    def uncompared(self) -> "Explored":
        """Return the answer without comparison: with so much missing a change would be misleading."""
        total, groups = replace(self.total, before=None), [replace(group, before=None) for group in self.groups]
        return replace(self, total=total, groups=groups, compared=None)

    @property
    def preview(self) -> bool:
        """Return True if some amounts can still change."""
        return any(facts.preview for facts in self.months.values())

    @cached_property
    def open_months(self) -> list[str]:
        """Return the months that are not closed, the oldest first."""
        return sorted(month for month, facts in self.months.items() if facts.preview)

    @cached_property
    def unbilled(self) -> list[Unbilled]:
        """Return usage of open months in no sum; late usage of closed months, which every open month has, only once."""
        first = self.open_months[:1]
        found = ((month in first, item) for month in self.open_months for item in self.months[month].unbilled)
        return [item for is_first, item in found if is_first or not item.late]


def open_window(found: Explored) -> Interval | None:
    """Return the interval from the first to the last open month of an answer; None where all are closed."""
    if not found.open_months:
        return None
    return Interval(period_of(found.open_months[0]).start, period_of(found.open_months[-1]).end)


@dataclass(frozen=True)
class Explorer:
    """Queries for one reader: `teams` are all that the reader may see, `called` their names by code."""

    teams: Collection[str]
    now: datetime
    zone: str
    called: Mapping[str, str] = field(default_factory=dict)

    @property
    def today(self) -> date:
        return day_of(self.now, self.zone)

    def asked(
        self, address: Address, *, by: Sequence[str] = ("team",), usual: str = "this-month", coarser: bool = False
    ) -> Query:
        """Parse the query of an address today, with the fiscal years of the settings.  Raises QueryError."""
        return query_of(address, self.today, settings.FISCAL_YEAR_START, by=by, usual=usual, coarser=coarser)

    def answer(
        self, address: Address, *, by: Sequence[str] = ("team",), usual: str = "this-month", everything: bool = False
    ) -> Explored:
        """Answer the query of an address, in a coarser step where it has more hours than are shown.  Raises QueryError."""
        try:
            return self.explore(self.asked(address, by=by, usual=usual), everything=everything)
        except TooFineError as error:
            query = self.asked(address, by=by, usual=usual, coarser=True)
            return replace(self.explore(query, everything=everything), refused=error)

    def explore(self, query: Query, *, everything: bool = False) -> Explored:
        """Answer a query. `everything`: every group is listed and has bars, for a file.

        Raises TooFineError.
        """
        steps = steps_of(query.span, query.step, self.zone)
        cubes, missing = self._cubes(query.span)
        parts = self._by_hour(cubes, query, steps) if query.step == "hour" else _parts(cubes, query, steps)
        selection = Selection(parts, query, self.teams, self.called)
        sums = _Sums(selection, query)
        # the amount in the other mode (showback or charged), shown as a note, so that no mode is silently missing
        other_way = Selection(
            parts, query if query.search else replace(query, by=()), self.teams, self.called, shadow=not selection.shadow
        )
        apart = exact(int(other_way.values(METRIC[query.metric]).sum()), query.metric)
        first_day = first_day_known(query.filter.get("team", self.teams), self.now, self.zone)
        begun = self._begun_within(query, first_day)
        compared, earlier = (None, None) if begun else self._compared(selection, cubes)
        groups = sums.groups(None if everything else LISTED, earlier)
        if compared is not None and "team" in query.by:
            new, place = begun_after(self.teams, compared.first, self.zone), query.by.index("team")
            # a team that owned nothing before has no previous figure: 0 would show as an increase
            groups = [replace(one, before=None) if one.names[place] in new else one for one in groups]
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
            selection.shadow, self.today, sums.unknown, self._unrated(facts.values()), apart, first_day, begun,
        )  # fmt: skip

    def _unrated(self, months: Iterable[CubeFacts]) -> dict[str, str]:
        found = {team: problem for facts in months for team, problem in facts.unrated.items()}
        return {team: found[team] for team in sorted(found.keys() & set(self.teams))}

    def _by_hour(self, cubes: Sequence[MonthCube], query: Query, steps: Sequence[Step]) -> list[Part]:
        months = []
        for cube, part in zip(cubes, _parts(cubes, query, [Step(query.span, "")], also=READ, by_day=True), strict=True):
            rows = part.rows_kept(*kept_lines(part, query, self.teams))
            months.append(Asked(part, rows, period_of(cube.month), cube.as_of))
        return by_hour(months, steps)

    def noted(self, query: Query) -> Decimal:
        """Return the total of credit notes and rebills in the answer."""
        return self.explore(replace(query.only(kind=NOTE), by=(), step="month", columns=())).total.total

    def options(self, query: Query, dimensions: Sequence[str], most: int) -> dict[str, list[str] | None]:
        """Return the names of each dimension that the range has; None where there are too many."""
        cubes, _ = self._cubes(query.span)
        asked = replace(query, by=tuple(dimensions), filters=(), columns=())
        parts = _parts(cubes, asked, [Step(query.span, "")])
        return {name: names_known(parts, name, self.teams, most) for name in dimensions}

    def _cubes(self, span: Span) -> tuple[list[MonthCube], list[str]]:
        passed = span.through(self.today)
        return cubes_ready(passed.months if passed else [], now=self.now)

    def compared_lines(self, query: Query, by: str, *, shadow: bool) -> ComparedLines | None:
        """Return the priced sums of the compared days, now and before, by names of a dimension; None without comparison."""
        spans = compared_spans(query.span, self.today)
        if spans is None:
            return None
        sums, late_in = [], None
        for span in spans:
            cubes, missing = self._cubes(span)
            if missing or not cubes:
                return None
            asked = priced_query(query.during(span), by)
            late_in = _late_in(cubes) if late_in is None else late_in
            parts = _parts(cubes, asked, [Step(span, "")], lines=False, also=("quantity",), late_in=late_in)
            sums.append(priced_lines(Selection(parts, asked, self.teams, self.called, shadow=shadow), by))
        return ComparedLines(*spans, *sums)

    def _begun_within(self, query: Query, first_day: date | None) -> date | None:
        """Return the first day with figures, if the days to compare with are earlier."""
        spans = compared_spans(query.span, self.today)
        if spans is None or first_day is None or not COMPARING & set(query.columns):
            return None
        return first_day if spans[1].first < first_day else None

    def _compared(self, selection: Selection, here: Sequence[MonthCube]) -> tuple[Span | None, "_Earlier | None"]:
        """Select the days before for comparison, and the same days of this span; (None, None) where that is not known."""
        query = selection.query
        spans = compared_spans(query.span, self.today)
        if spans is None or not COMPARING & set(query.columns):
            return None, None
        whole, before = spans
        cubes, missing = self._cubes(before)
        unrated = self._unrated(facts_of(cube) for cube in (*here, *cubes)).keys() & query.filter.get("team", self.teams)
        if missing or not cubes or unrated:
            return None, None
        late_in = _late_in(here)
        then = self._selected(cubes, query.during(before), selection.shadow, late_in)
        if then.otherwise:
            return None, None
        same = selection if whole == query.span else self._selected(here, query.during(whole), selection.shadow, late_in)
        return before, _Earlier(same, then)

    def _selected(self, cubes: Sequence[MonthCube], query: Query, shadow: bool, late_in: str) -> Selection:
        asked = replace(query, columns=())
        parts = _parts(cubes, asked, [Step(query.span, "")], lines=False, late_in=late_in)
        return Selection(parts, asked, self.teams, self.called, shadow=shadow)


class _Earlier:
    """Sums of the compared days: of this span and of the previous one."""

    def __init__(self, now: Selection, then: Selection) -> None:
        metric = METRIC[now.query.metric]
        self._now, self._then = (now, now.totals(metric)), (then, then.totals(metric))

    def of(self, groups: Sequence[tuple[str, ...]]) -> list[tuple[int, int]]:
        """Return the totals of groups in this and the previous period."""
        now, then = (_totals_of(selection, totals, groups) for selection, totals in (self._now, self._then))
        return list(zip(now, then, strict=True))

    @property
    def whole(self) -> tuple[int, int]:
        """Return the totals of all groups in this and the previous period."""
        return int(self._now[1].sum()), int(self._then[1].sum())

    def largest(self, most: int | None) -> list[tuple[str, ...]]:
        """Return the groups with the largest sums in the previous period."""
        selection, totals = self._then
        return selection.names(_largest(totals, most))


def _largest(totals: Integers, most: int | None) -> list[int]:
    """Return the groups with the largest sums, without sums of 0."""
    sizes = np.abs(totals)
    some = np.flatnonzero(sizes)
    if most is not None and most < some.size:
        some = some[np.argpartition(sizes[some], -most)[-most:]]
    found: list[int] = some[np.argsort(-sizes[some], kind="stable")].tolist()
    return found


def _totals_of(selection: Selection, totals: Integers, groups: Sequence[tuple[str, ...]]) -> list[int]:
    places = selection.find(groups)
    return [int(totals[place]) if place >= 0 else 0 for place in places.tolist()]


@dataclass
class _Sums:
    selection: Selection
    query: Query

    def __post_init__(self) -> None:
        self.metric = METRIC[self.query.metric]
        self.totals = self.selection.totals(self.metric)
        self.sums = {
            column: self.selection.jobs[0] if column == "jobs" else self.selection.totals(METRIC[column])
            for column in self.wanted
        }
        self.counts = np.logical_or.reduce([sums != 0 for sums in (self.totals, *self.sums.values())])
        self.number = int(np.count_nonzero(self.counts))
        self.place: dict[tuple[str, ...], int] = {}

    @property
    def wanted(self) -> list[str]:
        """Return the names of the sums that the columns need."""
        names = [name for column in self.query.columns for name in UNIT_COSTS.get(column, (column,))[:2]]
        return [name for name in dict.fromkeys(names) if name in METRIC or name == "jobs"]

    def groups(self, most: int | None, earlier: _Earlier | None) -> list[Group]:
        """Return the groups with the largest sums, those with only another sum, and those that had one before."""
        places = _largest(self.totals, most)
        alone = self.selection.in_order(np.flatnonzero(self.counts & (self.totals == 0)))
        places += alone[: None if most is None else most - len(places)]
        self.place = dict(zip(self.selection.names(places), places, strict=True))
        names = list(self.place)
        if earlier is not None:
            gone = [one for one in earlier.largest(most) if one not in self.place]
            known = dict(zip(gone, self.selection.find(gone).tolist(), strict=True))
            names += [one for one, place in known.items() if place < 0 or not self.totals[place]]
            self.place |= {one: place for one, place in known.items() if place >= 0 and not self.totals[place]}
        groups = [self._group(one) for one in names]
        for group, sums in zip(groups, earlier.of(names) if earlier is not None else (), strict=False):
            group.comparable, group.before = (exact(units, self.query.metric) for units in sums)
        self._sum_columns(groups)
        return groups

    def _group(self, names: tuple[str, ...]) -> Group:
        place = self.place.get(names)
        return Group(names, self.query.metric, exact(0 if place is None else int(self.totals[place]), self.query.metric))

    def _sum_columns(self, groups: Sequence[Group]) -> None:
        for column, sums in self.sums.items():
            for group in groups:
                place = self.place.get(group.names)
                group.sums[column] = exact(0 if place is None else int(sums[place]), column)

    def whole(self, earlier: _Earlier | None) -> Group:
        metric = self.query.metric
        found = Group((), metric, exact(int(self.totals.sum()), metric))
        if earlier is not None:
            found.comparable, found.before = (exact(units, metric) for units in earlier.whole)
        for column in self.wanted:
            units = self.selection.jobs[1] if column == "jobs" else int(self.selection.values(METRIC[column]).sum())
            found.sums[column] = exact(units, column)
        return found

    @property
    def unknown(self) -> dict[str, Decimal]:
        """Return usage missing from energy and CO2, as far as the query has these metrics."""
        found = {name: int(self.selection.values(METRIC[name]).sum()) for name in _unknown(self.query)}
        return {name: exact(units, name) for name, units in found.items() if units}

    def bars(self, charted: Sequence[Group], number: int) -> Group:
        """Set the bars of the groups; return the other groups as one."""
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
        """Set the largest lines of the groups, where the span is one month."""
        if not self.query.span.month:
            return
        largest = self.selection.largest_lines([self.place[group.names] for group in groups if group.names in self.place])
        for group in groups:
            group.line = largest.get(self.place.get(group.names, -1))


def _late_in(cubes: Iterable[MonthCube]) -> str:
    """Return the first open month, or "".

    Whichever open month is closed next bills late usage, so every open month has it; of several only the first counts it,
    and the previous days do not count it again.
    """
    return next((cube.month for cube in cubes if facts_of(cube).preview), "")


def _parts(
    cubes: Sequence[MonthCube], query: Query, steps: Sequence[Step], *, lines: bool = True, also: Collection[str] = (),
    by_day: bool = False, late_in: str | None = None,
) -> list[Part]:  # fmt: skip
    """Read the cubes of a span with the columns of the query. `lines`: also the columns of links to lines of one month.

    also: further columns, sums by their measure.  by_day: by days whatever the query has.  late_in: the one open month that
    counts late usage, the first where it is None.
    """
    of_jobs = query.of_jobs or "jobs" in _asked_sums(query)
    found: dict[int, dict[str, Column]] = {cube.pk: {} for cube in cubes}
    wanted: list[tuple[int, str]] = []
    counting = _late_in(cubes) if late_in is None else late_in
    left_out = {cube.pk: {LATE} for cube in cubes if facts_of(cube).preview and cube.month != counting}
    for cube in cubes:
        sums = OF_ROWS if by_day else sums_of(cube.month, steps, of_jobs=of_jobs)
        names = _columns(query, sums, lines=lines) | {f"{sums}{name}" if name in MEASURES else name for name in also}
        names |= {"kind"} if cube.pk in left_out else set()
        wanted += [(cube.pk, name) for name in names]
    asked = {"cubes": [number for number, _ in wanted], "names": [name for _, name in wanted]}
    for number, name, content in rows_read(COLUMNS_OF_CUBES, asked):
        found[number][name] = unpacked(content)
    parts = [
        replace(Part.of(Cube(found[cube.pk]), cube.month, steps, of_jobs=of_jobs), left_out=left_out.get(cube.pk, set()))
        for cube in cubes
    ]
    return [replace(part, sums=OF_ROWS) for part in parts] if by_day else parts


def _asked_sums(query: Query) -> set[str]:
    """Return the names of the sums that the columns of the table need."""
    return {name for column in query.columns for name in UNIT_COSTS.get(column, (column,))[:2]}


def _unknown(query: Query) -> list[str]:
    """Return the names of the sums of missing usage for the metrics of a query."""
    asked = {query.metric, *query.columns} & UNKNOWN.keys()
    return list(dict.fromkeys(name for metric in asked for name in UNKNOWN[metric]))


def _columns(query: Query, of: str, *, lines: bool) -> set[str]:
    asked = _asked_sums(query) | set(_unknown(query))
    found = {"team", "shadow", *query.by, *query.filter}
    found |= {"job", "namespace", "cluster", "unit"} if "jobs" in asked else set()
    metrics = [METRIC[name] for name in {query.metric, *asked} & METRIC.keys()]
    measures = {metric.measure for metric in metrics} | ({"quantity"} if "jobs" in asked else set())
    found |= {flag for metric in metrics for flag in ("unit", "meter", "lacks", "kind") if getattr(metric, flag)}
    if lines and query.span.month:
        measures, found = measures | {"amount"}, found | {"digest"}
    places = [] if of == OF_LINES else ["line", *(["workload"] if found & set(OF_A_WORKLOAD) else [])]
    found |= {"day"} if of == OF_ROWS else set()
    return found | {f"{of}{name}" for name in (*places, *measures)}


def in_order(groups: Sequence[Group], query: Query, called: Mapping[str, str]) -> list[Group]:
    """Sort the groups as the table has them; unknown values are last, in either direction."""
    column, down = query.sort.removeprefix("-"), query.sort.startswith("-")

    def name(group: Group) -> tuple[str, ...]:
        return tuple(called.get(one, one).casefold() for one in group.names)

    if column == "name":
        return sorted(groups, key=name, reverse=down)
    column = "total" if column == "share" else column
    known = [(cell, group) for group in sorted(groups, key=name) if (cell := group.cell(column)) is not None]
    unknown = [group for group in sorted(groups, key=name) if group.cell(column) is None]
    return [group for _, group in sorted(known, key=lambda pair: pair[0], reverse=down)] + unknown
