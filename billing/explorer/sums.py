"""PURE: sums of cubes by group and by bar, in whole numbers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from billing.explorer.cube import (
    METER,
    NO_CO2,
    NO_ENERGY,
    OF_A_WORKLOAD,
    OF_EARLIER,
    OF_LINES,
    OF_PAIRS,
    OF_ROWS,
    ONLY_SHOWN,
    UNIT,
    Cube,
)
from billing.explorer.names import Integers, Joined, joined
from billing.explorer.query import NAMELESS, Query, Step
from metering.intervals import next_month
from pricing.meters import GPU_TIME, TOKENS
from pricing.rate_card import GPU_HOURS, MILLION_TOKENS, SLICE_HOURS

Flags = npt.NDArray[np.bool_]
GPU_HOUR, SLICE_HOUR, TOKEN = UNIT[GPU_HOURS], UNIT[SLICE_HOURS], UNIT[MILLION_TOKENS]
CHARGED = 0
OF_GPU, OF_TOKENS = METER[GPU_TIME.name], METER[TOKENS.name]
LONGEST_MONTH: Final = 31


class Metric(NamedTuple):
    """Sum: its measure, unit (0: any), meter, the missing figure of its lines, their kind."""

    measure: str
    unit: int = 0
    meter: int = 0
    lacks: int = 0
    kind: str = ""


METRIC: Final[Mapping[str, Metric]] = {
    "cost": Metric("amount"), "gpu_hours": Metric("quantity", GPU_HOUR), "slice_hours": Metric("quantity", SLICE_HOUR),
    "tokens": Metric("quantity", TOKEN), "requests": Metric("requests"), "energy": Metric("energy"), "co2": Metric("co2"),
    "gpu_cost": Metric("amount", meter=OF_GPU), "request_cost": Metric("amount", kind="tokens"),
    "token_cost": Metric("amount", meter=OF_TOKENS),
    "without_co2": Metric("energy", lacks=NO_CO2), "without_energy": Metric("quantity", GPU_HOUR, lacks=NO_ENERGY),
    "slices_without_energy": Metric("quantity", SLICE_HOUR, lacks=NO_ENERGY),
}  # fmt: skip
"""Sums: those of queries, the parts of unit costs, and usage missing from energy and CO2. Late requests are not counted, so
their cost is excluded from `request_cost`."""
UNKNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "energy": ("without_energy", "slices_without_energy"),
    "co2": ("without_co2", "without_energy", "slices_without_energy"),
}
"""Sums of missing usage, by metric."""


@dataclass(frozen=True)
class Part:
    """Month of a span. `bars`: the bar of each of its days (-1: outside).

    `sums`: the prefix of the summed columns (OF_ROWS and so on); with the whole month in one bar days are not distinguished.
    `left_out`: kinds of charge that do not count here.
    """

    cube: Cube
    bars: Integers
    sums: str
    left_out: Collection[str] = ()

    @classmethod
    def of(cls, cube: Cube, month: str, steps: Sequence[Step], *, of_jobs: bool) -> "Part":
        """Build the part of a month that is in the steps."""
        return cls(cube, bars_of(month, steps)[0], sums_of(month, steps, of_jobs=of_jobs))

    def rows_of(self, name: str, rows: Integers) -> Integers:
        """Return the codes of the names of a dimension, in some rows."""
        return self.of_rows(name, self.cube.names(name).codes, rows)

    def of_rows(self, name: str, column: Integers, rows: Integers) -> Integers:
        if self.sums == OF_LINES:
            return column[rows]
        found: Integers = column[self.owner("workload" if name in OF_A_WORKLOAD else "line", rows)]
        return found

    def owner(self, name: str, rows: Integers) -> Integers:
        """Return the line, or the workload, of some rows."""
        if self.sums == OF_LINES:
            return rows
        found: Integers = self.cube.numbers(f"{self.sums}{name}")[rows]
        return found

    def measure(self, name: str) -> Integers:
        return self.cube.numbers(f"{self.sums}{name}")

    def bar(self, rows: Integers) -> Integers:
        if self.sums != OF_ROWS:
            return np.full(rows.size, self.bars[0], dtype=np.int32)
        found: Integers = self.bars[self.cube.numbers("day")[rows]]
        return found

    def rows_kept(self, lines: Flags, workloads: Flags | None) -> Integers:
        """Return the rows of some lines and workloads within the days."""
        if self.sums == OF_LINES:
            return np.flatnonzero(lines)
        kept = lines[self.cube.numbers(f"{self.sums}line")]
        if self.sums == OF_ROWS and bool((self.bars < 0).any()):
            kept &= (self.bars >= 0)[self.cube.numbers("day")]
        if workloads is not None:
            kept &= workloads[self.cube.numbers(f"{self.sums}workload")]
        return np.flatnonzero(kept)


def bars_of(month: str, steps: Sequence[Step]) -> tuple[Integers, int]:
    """Return the bar of each day of a month, and the number of days."""
    first = date.fromisoformat(f"{month}-01")
    number = (date.fromisoformat(f"{next_month(month)}-01") - first).days
    bars = np.full(LONGEST_MONTH, -1, dtype=np.int32)
    for place, step in enumerate(steps):
        lo, hi = max(0, (step.span.first - first).days), min(number, (step.span.last - first).days + 1)
        if lo < hi:
            bars[lo:hi] = place
    return bars, number


def sums_of(month: str, steps: Sequence[Step], *, of_jobs: bool) -> str:
    """Return the coarsest sums that distinguish the bars, and workloads if needed."""
    bars, number = bars_of(month, steps)
    whole = bool((bars[:number] == bars[0]).all()) and bars[0] >= 0
    return (OF_PAIRS if of_jobs else OF_LINES) if whole else OF_ROWS


def _named(part: Part, name: str, wanted: Collection[str]) -> Flags:
    """Return a mask of the lines or workloads that have one of the names."""
    return part.cube.names(name).among(wanted)


def kept_lines(part: Part, query: Query, teams: Collection[str]) -> tuple[Flags, Flags | None]:
    """Return masks of the lines and workloads that pass filters and rights."""
    lines, workloads = _named(part, "team", teams), None
    if part.left_out:
        lines &= ~_named(part, "kind", part.left_out)
    for name, wanted in query.filters:
        found = _named(part, name, {"" if value == NAMELESS else value for value in wanted})
        if name not in OF_A_WORKLOAD:
            lines &= found
        else:
            workloads = found if workloads is None else workloads & found
    return lines, workloads


class Selection:
    """Rows of a query, of all months, with the number of their group and bar.

    shadow: rows are showback, else charged. None: charged; where no usage of its months is charged, showback, even beside
    notes and late usage of charged months. `otherwise`: no usage of its months is selected, but some in the other mode, so
    the sum is not the usage of the teams.
    """

    def __init__(
        self, parts: Sequence[Part], query: Query, teams: Collection[str], called: Mapping[str, str],
        shadow: bool | None = None,
    ) -> None:  # fmt: skip
        self.query, self._parts = query, parts
        kept = [kept_lines(part, query, teams) for part in parts]

        def rows_of(*ways: int) -> list[Integers]:
            return [
                part.rows_kept(lines & np.isin(part.cube.numbers("shadow"), ways), jobs)
                for part, (lines, jobs) in zip(parts, kept, strict=True)
            ]

        billed = rows_of(CHARGED, OF_EARLIER)
        charged = any(
            (part.of_rows("shadow", part.cube.numbers("shadow"), rows) == CHARGED).any()
            for part, rows in zip(parts, billed, strict=True)
        )
        shown = [] if charged and not shadow else rows_of(ONLY_SHOWN)
        any_shown = any(rows.size for rows in shown)
        self.shadow = not charged and any_shown if shadow is None else shadow
        self._rows = shown if self.shadow else billed
        self.otherwise = charged and not any_shown if self.shadow else any_shown and not charged
        self._names = [self._joined(name) for name in query.by]
        if query.search:
            self._search(called)

    def _joined(self, name: str) -> Joined:
        """Join a dimension of all months."""
        return joined([(part.cube.names(name), part.rows_of(name, rows)) for part, rows in self._pairs])

    @property
    def _pairs(self) -> list[tuple[Part, Integers]]:
        return list(zip(self._parts, self._rows, strict=True))

    def _search(self, called: Mapping[str, str]) -> None:
        wanted = self.query.search.casefold()
        found = np.zeros(sum(rows.size for rows in self._rows), dtype=bool)
        for name, column in zip(self.query.by, self._names, strict=True):
            texts = [f"{item} {called.get(item, '') if name == 'team' else ''}" for item in column.texts.whole.to_pylist()]
            found |= np.array([wanted in text.casefold() for text in texts], dtype=bool)[column.codes]
        self._names = [replace(column, codes=column.codes[found]) for column in self._names]
        ends = np.cumsum([rows.size for rows in self._rows])[:-1]
        self._rows = [rows[own] for rows, own in zip(self._rows, np.split(found, ends), strict=True)]

    @property
    def group(self) -> Integers:
        return self._grouped[1]

    @property
    def number(self) -> int:
        """Return the upper bound of all groups."""
        return int(self._grouped[0].size)

    def names(self, groups: Sequence[int]) -> list[tuple[str, ...]]:
        pair, found = self._grouped[0][list(groups)], list[list[str]]()
        for column in reversed(self._names):
            pair, places = np.divmod(pair, column.size)
            found.append(column.texts.at(places).to_pylist())
        return list(zip(*reversed(found), strict=True)) if found else [()] * len(groups)

    def in_order(self, groups: Integers) -> list[int]:
        """Sort groups by the order of names in the months."""
        found: list[int] = groups[np.argsort(self._grouped[0][groups], kind="stable")].tolist()
        return found

    def find(self, groups: Sequence[tuple[str, ...]]) -> Integers:
        """Return the numbers of groups by their names, -1 where there is none."""
        pairs = self._grouped[0]
        if not groups or not pairs.size:
            return np.full(len(groups), -1, dtype=np.int64)
        if not self._names:
            return np.zeros(len(groups), dtype=np.int64)
        places = [column.places(names) for names, column in zip(zip(*groups, strict=True), self._names, strict=True)]
        pair, (most, place) = self._paired(places), max(zip(self._names, places, strict=True), key=_size)
        # further pairs are sorted (np.unique), those before are not
        later = np.minimum(most.size + np.searchsorted(pairs[most.size :], pair), pairs.size - 1)
        place = np.where(pairs[place] == pair, place, later)
        return np.where((pairs[place] == pair) & np.all(np.array(places) >= 0, axis=0), place, -1)

    def _paired(self, places: Sequence[Integers]) -> Integers:
        """Combine the places of names in each dimension into one number."""
        pair = places[0]
        for column, place in zip(self._names[1:], places[1:], strict=True):
            pair = pair * column.size + place
        return pair

    @cached_property
    def _grouped(self) -> tuple[Integers, Integers]:
        """Return the pair of names of each group, -1 where a number is unused, and the group of each row.

        A group has the number of its name in the dimension with the most names; further pairs of such a name come after.
        Numbering all pairs in order takes several times as long where there are millions of names.
        """
        if not self._names:
            number = sum(rows.size for rows in self._rows)
            return np.zeros(1, dtype=np.int64), np.zeros(number, dtype=np.int64)
        places = [column.codes for column in self._names]
        pair, (most, place) = self._paired(places), max(zip(self._names, places, strict=True), key=_size)
        pairs = np.full(most.size, -1, dtype=np.int64)
        pairs[place] = pair
        others = np.flatnonzero(pairs[place] != pair)
        if not others.size:
            return pairs, place
        further, which = np.unique(pair[others], return_inverse=True)
        group = place.copy()
        group[others] = most.size + which
        return np.concatenate([pairs, further]), group

    def values(self, metric: Metric) -> Integers:
        """Return the value of a metric in each row."""
        return _in_one([_values(part, rows, metric) for part, rows in self._pairs])

    def totals(self, metric: Metric) -> Integers:
        return _summed(self.group, self.values(metric), self.number)

    def by_bar(self, metric: Metric, slots: Integers, number: int, bars: int) -> Integers:
        """Sum each slot by bar. `slots`: the slot of each group, `number` of them."""
        bar = _in_one([part.bar(rows) for part, rows in self._pairs])
        place = slots[self.group] * bars + bar
        return _summed(place, self.values(metric), number * bars).reshape(number, bars)

    @cached_property
    def jobs(self) -> tuple[Integers, int]:
        """Count workloads with device usage, per group and in total; one name in two namespaces or clusters is two."""
        job, namespace, cluster = self._joined("job"), self._joined("namespace"), self._joined("cluster")
        used = self.values(METRIC["gpu_hours"]) + self.values(METRIC["slice_hours"]) > 0
        used &= job.codes != job.places([""])[0]
        place = cluster.codes * namespace.size + namespace.codes
        every, one = np.unique(place[used] * job.size + job.codes[used], return_inverse=True)
        whose = np.unique(self.group[used] * every.size + one) // max(1, every.size)
        return _summed(whose, np.ones(whose.size, dtype=np.int64), self.number), int(every.size)

    def largest_lines(self, groups: Sequence[int]) -> dict[int, tuple[str, str]]:
        """Return team and digest of the line with the largest part, for some groups of one month."""
        if len(self._parts) != 1 or not groups:
            return {}
        (part,), (rows,) = self._parts, self._rows
        asked = np.zeros(self.number, dtype=bool)
        asked[list(groups)] = True
        mine = np.flatnonzero(asked[self.group])
        group, value = self.group[mine], np.abs(self.values(METRIC["cost"])[mine])
        best = np.full(self.number, -1, dtype=np.int64)
        np.maximum.at(best, group, value)
        lines = part.owner("line", rows)
        team, found = part.cube.names("team"), {}
        # backwards, so that the first of equal parts is written last and stays
        for place in np.flatnonzero(value == best[group])[::-1].tolist():
            line = int(lines[mine[place]])
            found[int(group[place])] = (team.names[team.codes[line]], part.cube.digest(line))
        return found


def _size(column: tuple[Joined, Integers]) -> int:
    return column[0].size


def _values(part: Part, rows: Integers, metric: Metric) -> Integers:
    values = part.measure(metric.measure)[rows]
    for name in ("unit", "meter", "lacks"):
        if wanted := getattr(metric, name):
            values = np.where(part.of_rows(name, part.cube.numbers(name), rows) == wanted, values, 0)
    if metric.kind:
        values = np.where(part.of_rows("kind", _named(part, "kind", {metric.kind}), rows), values, 0)
    return values


def _in_one(arrays: Sequence[Any]) -> Integers:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _summed(places: Integers, values: Integers, number: int) -> Integers:
    sums = np.zeros(number, dtype=np.int64)
    np.add.at(sums, places, values)
    return sums


def names_known(parts: Iterable[Part], dimension: str, teams: Collection[str], most: int) -> list[str] | None:
    """Return the names of a dimension in the rows of teams; None where there are more than `most`."""
    found: set[str] = set()
    for part in parts:
        column, theirs = part.cube.names(dimension), _named(part, "team", teams)
        met = np.zeros(len(column.names), dtype=bool)
        met[part.rows_of(dimension, part.rows_kept(theirs, None))] = True
        found |= {column.names[place] for place in np.flatnonzero(met).tolist()} - {""}
        if len(found) > most:
            return None
    return sorted(found)
