"""Hours of some days: each part of a month is split over the hours of its day, on request.

Hours are not stored. The weights come from the walk of the close, cut at the hours of those days alone, so hours add up to
the stored days. Parts without hours of their own are spread evenly over the elapsed hours of the day.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Final

import numpy as np

from billing.explorer.building import LineUsage, Slots, Workload, split_signed, usage_in, weight_of
from billing.explorer.cube import MEASURES, OF_A_WORKLOAD, OF_ROWS, Cube
from billing.explorer.month_lines import judged_in
from billing.explorer.names import Integers
from billing.explorer.query import DAY, Step, TooFineError, hours_of
from billing.explorer.sums import Part
from billing.invoices.models import BillingPeriod
from billing.rating.grains import Grain
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.selectors import reference_data_known
from billing.rating.walk import RatedUsage, Slice, adjusting, rated_usage
from billing.runtime.gc_pause import collector_paused
from billing.usage.scope import EpochFilter
from metering.intervals import Interval
from metering.messages import Message

MOST_PARTS: Final = 30_000
"""Limit of parts of lines to split while a reader waits."""
READ: Final = frozenset({"digest", "cluster", "namespace", "consumer", "kind", "workload", *OF_A_WORKLOAD})
"""Columns that splitting reads in addition to those of the query."""
Weights = dict[tuple[int, Workload], list[tuple[int, int]]]


@dataclass(frozen=True)
class Asked:
    """Rows of a month to split by hour, and the time of its sums."""

    part: Part
    rows: Integers
    period: BillingPeriod
    as_of: datetime


def by_hour(months: Sequence[Asked], steps: Sequence[Step]) -> list[Part]:
    """Return the months with a row for each hour of the selected rows.  Raises TooFineError."""
    if sum(one.rows.size for one in months) > MOST_PARTS:
        raise TooFineError(Message(
            "Hours of so much take too long (more than %(n)s parts of lines): ask for fewer days or fewer teams",
            n=MOST_PARTS,
        ))  # fmt: skip
    bars: dict[date, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        bars[step.span.first].append(place)
    with collector_paused():
        return [_Sharing(one, bars).part() for one in months]


@dataclass(frozen=True)
class _Sharing:
    """Split of one month by hour. `bars`: the numbers of the hours of each day."""

    asked: Asked
    bars: Mapping[date, Sequence[int]]

    def part(self) -> Part:
        """Return the month by hour."""
        cube, rows = self.asked.part.cube, self.asked.rows
        if not rows.size:
            return self.asked.part
        place = {name: cube.numbers(name)[rows].tolist() for name in ("line", "workload", "day")}
        names = [name for name in MEASURES if name in cube.columns]
        measures = zip(*(cube.numbers(name)[rows].tolist() for name in names), strict=True)
        found: list[tuple[int, ...]] = []
        for line, workload, day, units in zip(*place.values(), measures, strict=True):
            weights, requests = self._weights(line, workload, day)
            slots = [slot for slot, _ in weights]
            parts = [
                self._of_requests(units[number], slots, requests) if name == "requests"
                else split_signed(units[number], [weight for _, weight in weights])
                for number, name in enumerate(names)
            ]  # fmt: skip
            found += zip([line] * len(slots), [workload] * len(slots), slots, *parts, strict=True)
        table = np.array(found, dtype=np.int64).T
        columns = dict(zip(("line", "workload", "day", *names), table, strict=True))
        return Part(Cube({**cube.columns, **columns}), self._bars, OF_ROWS)

    def _weights(self, line: int, workload: int, day: int) -> tuple[list[tuple[int, int]], dict[int, int]]:
        """Return the weights of a row over the hours of its day, and the requests of its line by hour."""
        usage = self._usage.get((self.asked.part.cube.digest(line), self._consumer[line]))
        found = [] if usage is None else self._by_day(line, usage).get((day, self._workloads[workload]), [])
        return found or [(slot, 1) for slot in self._begun(day)], {} if usage is None else usage.requests

    @staticmethod
    def _of_requests(units: int, slots: Sequence[int], requests: Mapping[int, int]) -> list[int]:
        weights = [requests.get(slot, 0) for slot in slots]
        return split_signed(units, weights if any(weights) else [1] * len(slots))

    def _by_day(self, line: int, usage: LineUsage) -> Weights:
        if line not in self._weighed:
            found: Weights = defaultdict(list)
            for slot, parts in sorted(usage.used.items()):
                for workload, used in parts.items():
                    if weight := weight_of(used):
                        found[self._day_of[slot], workload].append((slot, weight))
            self._weighed[line] = found
        return self._weighed[line]

    @cached_property
    def _weighed(self) -> dict[int, Weights]:
        return {}

    def _begun(self, day: int) -> list[int]:
        """Return the hours of a day that have begun; all where none has."""
        mine = [slot for slot, own in enumerate(self._day_of) if own == day]
        return [slot for slot in mine if self._slots.starts[slot] < self.asked.as_of] or mine

    @cached_property
    def _first(self) -> date:
        return date.fromisoformat(f"{self.asked.period.month}-01")

    @cached_property
    def _hours(self) -> list[tuple[int, datetime]]:
        """Return each hour from the first to the last selected day, with the number of its day.

        Starts are in UTC: instants of one zone compare by wall clock, which repeats the hour before a change.
        """
        days = self.asked.part.cube.numbers("day")[self.asked.rows]
        asked = range(int(days.min()), int(days.max()) + 1)
        days_hours = ((day, hours_of(self._first + day * DAY, self.asked.period.zone)) for day in asked)
        return [(day, start.astimezone(UTC)) for day, starts in days_hours for start in starts]

    @cached_property
    def _slots(self) -> Slots:
        last = self._hours[-1][0] + 1
        end = hours_of(self._first + last * DAY, self.asked.period.zone)[0]
        return Slots(self._first, [start for _, start in self._hours], end)

    @cached_property
    def _day_of(self) -> list[int]:
        return [day for day, _ in self._hours]

    @cached_property
    def _bars(self) -> Integers:
        """Return the bar of each hour; where the zone was another then, the last bar of a day takes the remaining hours."""
        found, seen = [], defaultdict[int, int](int)
        for day in self._day_of:
            mine = self.bars[self._first + day * DAY]
            found.append(mine[min(seen[day], len(mine) - 1)])
            seen[day] += 1
        return np.array(found, dtype=np.int32)

    @cached_property
    def _workloads(self) -> dict[int, Workload]:
        """Return the workloads of the selected rows, by number."""
        numbers = np.unique(self.asked.part.cube.numbers("workload")[self.asked.rows])
        named = [self.asked.part.cube.names(name).of_items(numbers) for name in OF_A_WORKLOAD]
        return dict(zip(numbers.tolist(), zip(*named, strict=True), strict=True))

    @cached_property
    def _consumer(self) -> dict[int, str]:
        """Return the consumers of the lines of the selected rows, by number."""
        numbers = np.unique(self.asked.part.cube.numbers("line")[self.asked.rows])
        return dict(zip(numbers.tolist(), self.asked.part.cube.names("consumer").of_items(numbers), strict=True))

    @cached_property
    def _usage(self) -> dict[tuple[str, str], LineUsage]:
        """Return the usage of the lines by hour and workload, by digest and consumer.

        Usage of a consumer is on a line of its own, or on one of all consumers of the team.
        """
        found: dict[tuple[str, str], LineUsage] = {}
        for key, usage in usage_in(self._items(), self._slots).items():
            found[key.digest(), key.consumer] = found[key.changed(consumer="").digest(), key.consumer] = usage
        return found

    def _items(self) -> Iterator[RatedUsage]:
        """Yield the usage of the hours; for teams with commitments of the whole month, which decides their coverage."""
        period, lines = self.asked.period, np.unique(self.asked.part.cube.numbers("line")[self.asked.rows])
        teams, clusters, namespaces, kinds = (
            self.asked.part.cube.names(name).of_items(lines) for name in ("team", "cluster", "namespace", "kind")
        )  # fmt: skip
        verdicts, before = judged_in(period, set(teams), judged="efficiency" in kinds)
        window, reference_data = period.window, reference_data_known(before)
        whole = Slice.of(reference_data, window, period.month, EpochFilter(before=before))
        asked, names = Interval(self._slots.starts[0], self._slots.end), NamesByTeam(reference_data)
        inside = replace(whole, devices=_within(whole.devices, asked), tokens=_within(whole.tokens, asked))
        committed = {one.team for one in reference_data.commitments.of_month(window)} & set(teams)
        places = {place for place in zip(clusters, namespaces, strict=True) if place[1]}
        # a commitment is used in order of time: its teams need the whole month, all others only the hours
        for part, some in ((whole, committed), (inside, set(teams) - committed)):
            if some:
                yield from rated_usage(
                    part, reference_data, Grain.WORKLOAD_DAY, Reading(some, places, names.dimensions(some)),
                    verdicts=adjusting(verdicts), cuts={*self._slots.starts, self._slots.end}, faults={},
                )  # fmt: skip


def _within(pieces: Sequence[Interval], asked: Interval) -> list[Interval]:
    return [part for piece in pieces if (part := piece.overlap(asked))]
