"""Building of a month's cube: each line is split over its days, each day over the workloads of the day.

The weights come from the walk of the close at a finer grain, so that a line and its parts agree to the last digit. Lines
without days of their own (late usage, idle and shared costs, credits) are spread evenly over the elapsed days of the month
that bills them. A token line of all consumers of a team is first shared out to them, as its annex is.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from billing.explorer.cube import (
    METER,
    NO_CO2,
    NO_ENERGY,
    OF_EARLIER,
    ONLY_SHOWN,
    UNIT,
    Rows,
    digest_of_note,
    places_of,
    priced_name,
    whole_units,
)
from billing.explorer.month_lines import BilledLine, MonthLines
from billing.rating.gathering import is_gathered, used_in_close
from billing.rating.grains import Grain, Place
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.selectors import reference_data_known
from billing.rating.walk import RatedUsage, Slice, adjusting, rated_usage
from billing.usage.scope import EpochFilter
from metering.intervals import MICROSECOND, Interval, day_of, midnights
from pricing.commitments import UNUSED
from pricing.meters import Role
from pricing.money import EXACT, split_amount, split_units
from pricing.rating import LineKey

DAY: Final = timedelta(days=1)
LATE: Final = "late"
"""Kind of all corrections of earlier months, whatever kind they correct."""
NOTE: Final = "note"
"""Kind of credit notes and rebills: money only, since usage stays the same."""
NOWHERE: Final = ("", "", "", "", "")
WEIGHT_PLACES: Final = 12
Workload = tuple[str, str, str, str, str]
BySlot = dict[int, dict[Workload, Decimal]]


@dataclass(frozen=True)
class Slots:
    """Consecutive time slots by number: the days of a month, or hours. `first`: the day of slot 0.

    Starts are in UTC: instants of one zone subtract and compare by wall clock, wrong on days of 23 or 25 hours.
    """

    first: date
    starts: Sequence[datetime]
    end: datetime

    @classmethod
    def days(cls, window: Interval, zone: str) -> "Slots":
        """Return the local days of a window that begins at a local midnight."""
        return cls(day_of(window.start, zone), midnights(window.start, window.end, zone)[:-1], window.end)

    def at(self, instant: datetime) -> int | None:
        """Return the number of the slot of an instant, or None."""
        return bisect_right(self.starts, instant) - 1 if self.starts[0] <= instant < self.end else None

    def parts(self, start: datetime, end: datetime) -> dict[int, int]:
        """Return the microseconds of [start, end) by slot."""
        bounds = [*self.starts, self.end]
        found = {}
        for number in range(len(self.starts)):
            lo, hi = max(start, bounds[number]), min(end, bounds[number + 1])
            if lo < hi:
                found[number] = (hi - lo) // MICROSECOND
        return found


@dataclass
class LineUsage:
    """Usage of a line by slot and workload; requests by slot."""

    used: BySlot = field(default_factory=lambda: defaultdict(lambda: defaultdict(Decimal)))
    requests: dict[int, int] = field(default_factory=dict)


def month_rows(month: MonthLines) -> Rows:
    days = Slots.days(month.period.window, month.period.zone)
    passed = max(1, sum(midnight < month.as_of for midnight in days.starts))
    usage, rows = _usage(month, month.period.window, days), Rows()
    consumers = _consumers(month)
    for line in month.lines:
        for name, part in _by_consumer(line, consumers.get(line.key, {})):
            key = line.key.changed(consumer=name)
            _share_out(rows, part, usage.get(key) or LineUsage(), passed, name)
    for noted in month.notes:
        facts = {**_facts(noted.key), "kind": NOTE, "consumer": noted.consumer or noted.key.consumer}
        number = rows.line(facts, (0, 0, OF_EARLIER, 0), digest_of_note(noted.note))
        rows.row(number, NOWHERE, (noted.day - days.first).days, (whole_units(noted.amount, "amount"), 0, 0, 0, 0))
    return rows


def _usage(month: MonthLines, window: Interval, days: Slots) -> Mapping[LineKey, LineUsage]:
    keys = [line.key for line in month.lines if not line.key.correction]
    teams = {key.team for key in keys}
    reference_data = reference_data_known(month.before)
    epochs = EpochFilter(before=month.before)
    part = Slice.of(reference_data, window, month.period.month, epochs)
    places = {(key.cluster, key.namespace) for key in keys if key.namespace}
    reading = Reading(teams, places, NamesByTeam(reference_data).dimensions(teams))
    items = rated_usage(
        part, reference_data, Grain.WORKLOAD_DAY, reading, verdicts=adjusting(month.verdicts), cuts=set(days.starts),
        faults={},
    )  # fmt: skip
    return usage_in(items, days)


def _consumers(month: MonthLines) -> Mapping[LineKey, Mapping[str, Decimal]]:
    """Return the tokens by consumer of each line that is of all consumers of its team."""
    keys = [line.key for line in month.lines if is_gathered(line.key)]
    return used_in_close(keys, month.period.window, month.period.zone, month.before) if keys else {}


def _by_consumer(line: BilledLine, used: Mapping[str, Decimal]) -> list[tuple[str, BilledLine]]:
    """Share a line out to its consumers, each part rounded as in the annex; the parts add up to the line."""
    if not used:
        return [(line.key.consumer, line)]
    names = sorted(used)
    weights = [used[name] for name in names]
    amounts, quantities = split_amount(line.amount, weights), split_amount(line.quantity, weights, places_of("quantity"))
    # tokens have neither energy nor CO2
    return [
        (name, replace(line, amount=amount, quantity=quantity))
        for name, amount, quantity in zip(names, amounts, quantities, strict=True)
    ]


def usage_in(items: Iterable[RatedUsage], slots: Slots) -> dict[LineKey, LineUsage]:
    """Sum rated usage by line, slot and workload; usage outside of the slots is left out."""
    found: dict[LineKey, LineUsage] = defaultdict(LineUsage)
    known: dict[datetime, int | None] = {}
    for item in items:
        start = item.place.start or slots.starts[0]
        if item.place.until is not None:
            _spread(found[item.key].used, item, slots)
            continue
        if start not in known:
            known[start] = slots.at(start)
        if (number := known[start]) is not None:
            _add(found[item.key], item, number)
    return found


def _add(usage: LineUsage, item: RatedUsage, number: int) -> None:
    parts, workload = usage.used[number], _workload(item.place) if item.key.namespace else NOWHERE
    parts[workload] = EXACT.add(parts[workload], item.quantity)
    if item.requests_once:
        usage.requests[number] = usage.requests.get(number, 0) + item.requests_once


def _workload(place: Place) -> Workload:
    return place.resource, place.queue, place.site, place.pool, place.tier


def _spread(used: BySlot, item: RatedUsage, slots: Slots) -> None:
    """Spread the unused part of a commitment evenly over its time: it has no instant of its own."""
    start, end = item.place.start or slots.starts[0], item.place.until or slots.end
    for number, microseconds in slots.parts(start, end).items():
        used[number][NOWHERE] = EXACT.add(used[number][NOWHERE], Decimal(microseconds))


def _share_out(rows: Rows, line: BilledLine, usage: LineUsage, passed: int, consumer: str) -> None:
    """Add the rows of a line, or of the part of it that a consumer has."""
    number = rows.line({**_facts(line.key), "consumer": consumer}, _flags(line), line.key.digest())
    weights = {day: {name: weight_of(used) for name, used in parts.items()} for day, parts in sorted(usage.used.items())}
    by_day = {day: total for day, parts in weights.items() if (total := sum(parts.values()))}
    if not by_day:
        # no usage of its own (late, idle, shared, credit): evenly over the days that have begun
        by_day = dict.fromkeys(range(passed), 1)
        weights = {day: {NOWHERE: 1} for day in by_day}
    shared = [split_signed(whole, list(by_day.values())) for whole in _measures(line)]
    for index, day in enumerate(by_day):
        parts = sorted((name, weight) for name, weight in weights[day].items() if weight)
        of_day = [split_signed(units[index], [weight for _, weight in parts]) for units in shared]
        for place, (workload, _) in enumerate(parts):
            amount, quantity, energy, co2 = (units[place] for units in of_day)
            # requests are counted per line and day: on one row only, or sums over workloads count them twice
            requests = usage.requests.get(day, 0) if place == 0 else 0
            rows.row(number, workload, day, (amount, quantity, requests, energy, co2))


def weight_of(used: Decimal) -> int:
    """Scale usage to a whole number, for use as a weight."""
    return int(EXACT.scaleb(used, WEIGHT_PLACES))


def split_signed(units: int, weights: list[int]) -> list[int]:
    """Split whole units of either sign by largest remainder."""
    if len(weights) == 1:
        return [units]
    if not units:
        return [0] * len(weights)
    sign = -1 if units < 0 else 1
    return [sign * share for share in split_units(abs(units), weights)]


def _measures(line: BilledLine) -> list[int]:
    """Return the measures of a line in whole units, without requests, which are counted by day."""
    values = {"amount": line.amount, "quantity": line.quantity, "energy": line.energy_kwh, "co2": line.co2_kg}
    return [0 if value is None else whole_units(value, name) for name, value in values.items()]


def unit_of(key: LineKey) -> int:
    """Return the UNIT of a line's usage, 0 for adjustments (they would count usage again) and unused commitments."""
    return 0 if key.what.role is not Role.USAGE or key.reason == UNUSED else UNIT.get(key.unit, 0)


def _flags(line: BilledLine) -> tuple[int, int, int, int]:
    unit, meter = unit_of(line.key), line.key.what.meter
    lacks = _lacks(line) if unit and line.key.what.takes_energy else 0
    way = ONLY_SHOWN if line.shadow else OF_EARLIER if line.key.correction else 0
    return unit, 0 if meter is None else METER[meter.name], way, lacks


def _lacks(line: BilledLine) -> int:
    if line.energy_kwh is None:
        return NO_ENERGY
    return NO_CO2 if line.co2_kg is None else 0


def _facts(key: LineKey) -> dict[str, str]:
    return {
        "team": key.team, "kind": LATE if key.correction else key.kind, "cluster": key.cluster, "namespace": key.namespace,
        "consumer": key.consumer, "accelerator": key.device, "model": key.model,
        "priced": priced_name(key.accelerator, key.sku, key.token_class, key.unit),
    }  # fmt: skip
