"""PURE: sums of cubes by group and by bar, in whole numbers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from billing.explorer.cube import OF_A_WORKLOAD, Coded, Cube, Integers
from billing.explorer.query import NAMELESS, Query, Span, Step
from metering.intervals import next_month

Flags = npt.NDArray[np.bool_]
GPU_HOUR, SLICE_HOUR, TOKEN = 1, 2, 3
OF_GPU, OF_TOKENS = 1, 2
LONGEST_MONTH: Final = 31
DIRECT_GROUPS: Final = 2_000_000
"""With more pairs of names than that, only those that occur are numbered."""


class Metric(NamedTuple):
    """A sum: of which measure, in which unit (0: in any), about which meter, of which kind of line."""

    measure: str
    unit: int = 0
    meter: int = 0
    kind: str = ""


METRIC: Final[Mapping[str, Metric]] = {
    "cost": Metric("amount"), "gpu_hours": Metric("quantity", GPU_HOUR), "slice_hours": Metric("quantity", SLICE_HOUR),
    "tokens": Metric("quantity", TOKEN), "requests": Metric("requests"), "energy": Metric("energy"), "co2": Metric("co2"),
    "gpu_cost": Metric("amount", meter=OF_GPU), "request_cost": Metric("amount", kind="tokens"),
    "token_cost": Metric("amount", meter=OF_TOKENS),
}  # fmt: skip
"""What is asked for, and what unit costs are made of. Requests that came late are not counted, so their cost is apart."""


@dataclass(frozen=True)
class Part:
    """A month of a span. `bars`: the bar of each of its days (-1: it is outside).

    `whole`: all of it is in one bar and no workload is told apart, so that each line is one row.
    """

    cube: Cube
    bars: Integers
    whole: bool

    @classmethod
    def of(cls, cube: Cube, month: str, span: Span, steps: Sequence[Step], *, of_jobs: bool = True) -> "Part":
        """The month as far as it lies in the span, which is cut into steps."""
        bars, number = bars_of(month, steps)
        return cls(cube, bars, not of_jobs and is_whole(bars, number))

    def rows_of(self, name: str, rows: Integers) -> Integers:
        """The codes of the names of a dimension, in some rows."""
        return self.of_rows(name, self.cube.names(name).codes, rows)

    def of_rows(self, name: str, column: Integers, rows: Integers) -> Integers:
        """A column of lines, or of workloads, in some rows."""
        if self.whole:
            return column[rows]
        owner = "workload" if name in OF_A_WORKLOAD else "line"
        found: Integers = column[self.cube.numbers(owner)[rows]]
        return found

    def measure(self, name: str) -> Integers:
        """A measure by row."""
        return self.cube.numbers(f"whole_{name}" if self.whole else name)

    def bar(self, rows: Integers) -> Integers:
        """The bar of some rows."""
        if self.whole:
            return np.full(rows.size, self.bars[0], dtype=np.int32)
        found: Integers = self.bars[self.cube.numbers("day")[rows]]
        return found

    def rows_kept(self, lines: Flags, workloads: Flags | None) -> Integers:
        """The rows of some lines and workloads within the days."""
        if self.whole:
            return np.flatnonzero(lines)
        kept = lines[self.cube.numbers("line")]
        if bool((self.bars < 0).any()):
            kept &= (self.bars >= 0)[self.cube.numbers("day")]
        if workloads is not None:
            kept &= workloads[self.cube.numbers("workload")]
        return np.flatnonzero(kept)


def bars_of(month: str, steps: Sequence[Step]) -> tuple[Integers, int]:
    """The bar of each day of a month, and how many days it has."""
    first = date.fromisoformat(f"{month}-01")
    number = (date.fromisoformat(f"{next_month(month)}-01") - first).days
    bars = np.full(LONGEST_MONTH, -1, dtype=np.int32)
    for place, step in enumerate(steps):
        lo, hi = max(0, (step.span.first - first).days), min(number, (step.span.last - first).days + 1)
        if lo < hi:
            bars[lo:hi] = place
    return bars, number


def is_whole(bars: Integers, number: int) -> bool:
    """Whether all days of a month are in one bar."""
    return bool((bars[:number] == bars[0]).all()) and bars[0] >= 0


def _named(part: Part, name: str, wanted: Collection[str]) -> Flags:
    """Which lines or workloads have one of the names."""
    column = part.cube.names(name)
    return np.array([value in wanted for value in column.names], dtype=bool)[column.codes]


def kept_lines(part: Part, query: Query, teams: Collection[str]) -> tuple[Flags, Flags | None]:
    """Which lines and workloads the filters and the rights keep."""
    lines, workloads = _named(part, "team", teams), None
    for name, wanted in query.filters:
        found = _named(part, name, {"" if value == NAMELESS else value for value in wanted})
        if name not in OF_A_WORKLOAD:
            lines &= found
        else:
            workloads = found if workloads is None else workloads & found
    return lines, workloads


class Selection:
    """The rows that a query keeps, of all months, with the number of their group and bar."""

    def __init__(
        self, parts: Sequence[Part], query: Query, teams: Collection[str], called: Mapping[str, str],
        shadow: bool | None = None,
    ) -> None:  # fmt: skip
        self.query, self._parts = query, parts
        kept = [kept_lines(part, query, teams) for part in parts]
        only_shown = [part.cube.numbers("shadow").astype(bool) for part in parts]
        pairs = list(zip(parts, kept, only_shown, strict=True))
        self.shadow, self._rows = False, [part.rows_kept(lines & ~shown, jobs) for part, (lines, jobs), shown in pairs]
        if shadow is True or (shadow is None and not any(rows.size for rows in self._rows)):
            others = [part.rows_kept(lines & shown, jobs) for part, (lines, jobs), shown in pairs]
            self.shadow = bool(shadow) or any(rows.size for rows in others)
            self._rows = others if self.shadow else self._rows
        self._names = [self._coded(name) for name in query.by]
        if query.search:
            self._search(called)

    def _coded(self, name: str) -> Coded:
        """A dimension of all months with one list of names."""
        if len(self._parts) == 1:
            (part,), (rows,) = self._parts, self._rows
            return Coded(part.cube.names(name).names, part.rows_of(name, rows).astype(np.int64))
        known, found = dict[str, int](), []
        for part, rows in zip(self._parts, self._rows, strict=True):
            names, codes = part.cube.names(name).names, part.rows_of(name, rows)
            places = np.zeros(len(names), dtype=np.int64)
            places[codes] = 1
            met = np.flatnonzero(places)
            mine = [names[place] for place in met.tolist()]
            new = [item for item in mine if item not in known]
            known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
            places[met] = np.fromiter(map(known.__getitem__, mine), np.int64, len(mine))
            found.append(places[codes])
        return Coded(list(known), _joined(found))

    def _search(self, called: Mapping[str, str]) -> None:
        wanted = self.query.search.casefold()
        found = np.zeros(sum(rows.size for rows in self._rows), dtype=bool)
        for name, column in zip(self.query.by, self._names, strict=True):
            texts = [f"{item} {called.get(item, '') if name == 'team' else ''}" for item in column.names]
            found |= np.array([wanted in text.casefold() for text in texts], dtype=bool)[column.codes]
        self._names = [Coded(column.names, column.codes[found]) for column in self._names]
        ends = np.cumsum([rows.size for rows in self._rows])[:-1]
        self._rows = [rows[own] for rows, own in zip(self._rows, np.split(found, ends), strict=True)]

    @property
    def group(self) -> Integers:
        """The number of the group of each row."""
        return self._grouped[1]

    @property
    def number(self) -> int:
        """How many groups there are."""
        return int(self._grouped[0].size)

    def names(self, group: int) -> tuple[str, ...]:
        """The names of a group."""
        pair, found = int(self._grouped[0][group]), []
        for column in reversed(self._names):
            pair, place = divmod(pair, len(column.names))
            found.append(column.names[place])
        return tuple(reversed(found))

    def find(self, names: tuple[str, ...]) -> int | None:
        """The number of the group of these names."""
        pair = 0
        for name, column, places in zip(names, self._names, self._places, strict=True):
            if name not in places:
                return None
            pair = pair * len(column.names) + places[name]
        place = int(np.searchsorted(self._grouped[0], pair))
        return place if place < self.number and self._grouped[0][place] == pair else None

    @cached_property
    def _places(self) -> list[dict[str, int]]:
        return [dict(zip(column.names, range(len(column.names)), strict=True)) for column in self._names]

    @cached_property
    def _grouped(self) -> tuple[Integers, Integers]:
        """The pairs of names that occur, in order, and which of them each row has."""
        if not self._names:
            number = sum(rows.size for rows in self._rows)
            return np.zeros(1, dtype=np.int64), np.zeros(number, dtype=np.int64)
        pair, size = self._names[0].codes, len(self._names[0].names)
        for column in self._names[1:]:
            pair, size = pair * len(column.names) + column.codes, size * len(column.names)
        if size > DIRECT_GROUPS:
            found, places = np.unique(pair, return_inverse=True)
            return found, places
        occurs = np.zeros(size, dtype=bool)
        occurs[pair] = True
        found = np.flatnonzero(occurs)
        place = np.zeros(size, dtype=np.int64)
        place[found] = np.arange(found.size)
        return found, place[pair]

    def values(self, metric: Metric) -> Integers:
        """What each row has of a metric."""
        return _joined([_values(part, rows, metric) for part, rows in zip(self._parts, self._rows, strict=True)])

    def totals(self, metric: Metric) -> Integers:
        """The sum of each group."""
        return _summed(self.group, self.values(metric), self.number)

    def by_bar(self, metric: Metric, slots: Integers, number: int, bars: int) -> Integers:
        """Sums of each slot by bar. `slots`: of each group, `number` of them."""
        bar = _joined([part.bar(rows) for part, rows in zip(self._parts, self._rows, strict=True)])
        place = slots[self.group] * bars + bar
        return _summed(place, self.values(metric), number * bars).reshape(number, bars)

    def jobs(self) -> tuple[Integers, int]:
        """How many workloads used devices: of each group, and of all. One of a name in two namespaces counts twice."""
        job, namespace = self._coded("job"), self._coded("namespace")
        used = (self.values(METRIC["gpu_hours"]) + self.values(METRIC["slice_hours"]) > 0) & (
            np.array([bool(name) for name in job.names], dtype=bool)[job.codes]
        )
        one = namespace.codes[used] * len(job.names) + job.codes[used]
        whose = np.unique(np.stack([self.group[used], one]), axis=1)
        return _summed(whose[0], np.ones(whose.shape[1], dtype=np.int64), self.number), int(np.unique(one).size)

    def largest_lines(self, groups: Sequence[int]) -> dict[int, tuple[str, str]]:
        """Of some groups of one month the team and the digest of the line with the largest part."""
        if len(self._parts) != 1 or not groups:
            return {}
        (part,), (rows,) = self._parts, self._rows
        asked = np.zeros(self.number, dtype=bool)
        asked[list(groups)] = True
        mine = np.flatnonzero(asked[self.group])
        group, value = self.group[mine], np.abs(self.values(METRIC["cost"])[mine])
        best = np.full(self.number, -1, dtype=np.int64)
        np.maximum.at(best, group, value)
        lines = rows if part.whole else part.cube.numbers("line")[rows]
        team, found = part.cube.names("team"), {}
        for place in np.flatnonzero(value == best[group])[::-1].tolist():
            line = int(lines[mine[place]])
            found[int(group[place])] = (team.names[team.codes[line]], part.cube.digest(line))
        return found


def _values(part: Part, rows: Integers, metric: Metric) -> Integers:
    values = part.measure(metric.measure)[rows]
    for name in ("unit", "meter"):
        if wanted := getattr(metric, name):
            values = np.where(part.of_rows(name, part.cube.numbers(name), rows) == wanted, values, 0)
    if metric.kind:
        values = np.where(part.of_rows("kind", _named(part, "kind", {metric.kind}), rows), values, 0)
    return values


def _joined(arrays: Sequence[Any]) -> Integers:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _summed(places: Integers, values: Integers, number: int) -> Integers:
    sums = np.zeros(number, dtype=np.int64)
    np.add.at(sums, places, values)
    return sums


def names_known(parts: Iterable[Part], dimension: str, teams: Collection[str], most: int) -> list[str] | None:
    """The names of a dimension in the rows of teams; None where they are more than `most`."""
    found: set[str] = set()
    for part in parts:
        column, theirs = part.cube.names(dimension), _named(part, "team", teams)
        met = np.zeros(len(column.names), dtype=bool)
        met[part.rows_of(dimension, part.rows_kept(theirs, None))] = True
        found |= {column.names[place] for place in np.flatnonzero(met).tolist()} - {""}
        if len(found) > most:
            return None
    return sorted(found)
