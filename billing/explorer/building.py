"""From the lines of a month to its cube: each line is shared out over its days, each day over the workloads of the day.

The usage that shares a line out is the walk of the close at a finer grain, so a line and its parts agree to the last digit.
What has no day of its own (late usage, idle and shared costs, credits) is spread evenly over the days of the month that
bills it, up to now.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from billing.explorer.cube import Rows, whole_units
from billing.explorer.month_lines import BilledLine, MonthLines
from billing.rating.grains import Grain, Place
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.selectors import reference_data_known
from billing.rating.walk import RatedUsage, Slice, adjusting, rated_usage
from billing.usage.selectors import EpochFilter
from metering.intervals import Interval
from pricing.commitments import UNUSED
from pricing.meters import GPU_TIME, TOKENS, Role
from pricing.money import EXACT, split_units
from pricing.rate_card import GPU_HOURS, MILLION_TOKENS, SLICE_HOURS
from pricing.rating import LineKey

DAY: Final = timedelta(days=1)
MICROSECOND: Final = timedelta(microseconds=1)
LATE: Final = "late"
"""The kind of what corrects earlier months, whatever it corrects."""
UNITS: Final = (GPU_HOURS, SLICE_HOURS, MILLION_TOKENS)
METERS: Final = (GPU_TIME, TOKENS)
"""Units in which a line counts usage, and what it is about; flags of a line are their places, from 1."""
NOWHERE: Final = ("", "", "", "", "")
WEIGHT_PLACES: Final = 12
Workload = tuple[str, str, str, str, str]
ByDay = dict[int, dict[Workload, Decimal]]


@dataclass(frozen=True)
class Days:
    """The local days of a billing month."""

    first: date
    midnights: Sequence[datetime]
    end: datetime

    @classmethod
    def of(cls, window: Interval, zone: str) -> "Days":
        """The days of a window that begins at a local midnight."""
        where = ZoneInfo(zone)
        day, after = (at.astimezone(where).date() for at in (window.start, window.end))
        number = (after - day).days
        nights = [datetime.combine(day + n * DAY, time(), where) for n in range(number)]
        return cls(day, nights, window.end)

    def parts(self, start: datetime, end: datetime) -> dict[int, int]:
        """Microseconds of a stretch of time by day."""
        bounds = [*self.midnights, self.end]
        found = {}
        for day in range(len(self.midnights)):
            lo, hi = max(start, bounds[day]), min(end, bounds[day + 1])
            if lo < hi:
                found[day] = (hi - lo) // MICROSECOND
        return found


@dataclass
class LineUsage:
    """What a line was made of, by day and workload; requests by day."""

    by_day: ByDay
    requests: dict[int, int]


def month_rows(month: MonthLines) -> Rows:
    """The lines of a month as rows of a cube."""
    window = Interval(month.period.start, month.period.end)
    days = Days.of(window, month.period.zone)
    passed = max(1, sum(midnight < month.as_of for midnight in days.midnights))
    usage, rows = _usage(month, window, days), Rows()
    nothing = LineUsage({}, {})
    for line in month.lines:
        _share_out(rows, line, usage.get(line.key, nothing), passed)
    return rows


def _usage(month: MonthLines, window: Interval, days: Days) -> Mapping[LineKey, LineUsage]:
    keys = [line.key for line in month.lines if not line.key.correction]
    teams = {key.team for key in keys}
    reference_data = reference_data_known(month.before)
    part = Slice.of(reference_data, window, month.period.month, EpochFilter(before=month.before))
    places = {(key.cluster, key.namespace) for key in keys if key.namespace}
    reading = Reading(teams, places, NamesByTeam(reference_data).dimensions(teams))
    found: dict[LineKey, LineUsage] = defaultdict(lambda: LineUsage(defaultdict(lambda: defaultdict(Decimal)), {}))
    number = {midnight: index for index, midnight in enumerate(days.midnights)}
    where = ZoneInfo(month.period.zone)
    items = rated_usage(
        part, reference_data, Grain.WORKLOAD_DAY, reading, verdicts=adjusting(month.verdicts), cuts=set(days.midnights),
        faults={},
    )  # fmt: skip
    known: dict[datetime, int] = {}
    for item in items:
        if item.place.until is not None:
            _spread(found[item.key].by_day, item, days)
            continue
        start = item.place.start or window.start
        if start not in known:
            local = start.astimezone(where)
            known[start] = number[datetime.combine(local.date(), time(), where)]
        _add(found[item.key], item, known[start])
    return found


def _add(usage: LineUsage, item: RatedUsage, day: int) -> None:
    parts, workload = usage.by_day[day], _workload(item.place) if item.key.namespace else NOWHERE
    parts[workload] = EXACT.add(parts[workload], item.quantity)
    if item.requests_once:
        usage.requests[day] = usage.requests.get(day, 0) + item.requests_once


def _workload(place: Place) -> Workload:
    return place.resource, place.queue, place.site, place.pool, place.tier


def _spread(by_day: ByDay, item: RatedUsage, days: Days) -> None:
    """What a commitment leaves unused belongs to no instant of the time for which it was bought."""
    start, end = item.place.start or days.midnights[0], item.place.until or days.end
    for day, microseconds in days.parts(start, end).items():
        by_day[day][NOWHERE] = EXACT.add(by_day[day][NOWHERE], Decimal(microseconds))


def _share_out(rows: Rows, line: BilledLine, usage: LineUsage, passed: int) -> None:
    number = rows.line(_facts(line.key), _flags(line), line.key.digest())
    weights = {day: {name: _weight(used) for name, used in parts.items()} for day, parts in sorted(usage.by_day.items())}
    by_day = {day: total for day, parts in weights.items() if (total := sum(parts.values()))}
    if not by_day:
        by_day = dict.fromkeys(range(passed), 1)
        weights = {day: {NOWHERE: 1} for day in by_day}
    shared = [_split(whole, list(by_day.values())) for whole in _measures(line)]
    for index, day in enumerate(by_day):
        parts = sorted((name, weight) for name, weight in weights[day].items() if weight)
        of_day = [_split(units[index], [weight for _, weight in parts]) for units in shared]
        for place, (workload, _) in enumerate(parts):
            amount, quantity, energy, co2 = (units[place] for units in of_day)
            requests = usage.requests.get(day, 0) if place == 0 else 0
            rows.row(number, workload, day, (amount, quantity, requests, energy, co2))


def _weight(used: Decimal) -> int:
    return int(EXACT.scaleb(used, WEIGHT_PLACES))


def _split(units: int, weights: list[int]) -> list[int]:
    if len(weights) == 1:
        return [units]
    if not units:
        return [0] * len(weights)
    sign = -1 if units < 0 else 1
    return [sign * share for share in split_units(abs(units), weights)]


def _measures(line: BilledLine) -> list[int]:
    """The measures of a line but requests, which are counted by day."""
    values = {"amount": line.amount, "quantity": line.quantity, "energy": line.energy_kwh, "co2": line.co2_kg}
    return [0 if value is None else whole_units(value, name) for name, value in values.items()]


def unit_of(key: LineKey) -> int:
    """In which of UNITS a line counts usage; an adjustment counts none again, and what was left unused was not used."""
    if key.what.role is not Role.USAGE or key.reason == UNUSED or key.unit not in UNITS:
        return 0
    return UNITS.index(key.unit) + 1


def _flags(line: BilledLine) -> tuple[int, int, int]:
    meter = line.key.what.meter
    return unit_of(line.key), 0 if meter is None else METERS.index(meter) + 1, int(line.shadow)


def _facts(key: LineKey) -> dict[str, str]:
    return {
        "team": key.team, "kind": LATE if key.correction else key.kind, "cluster": key.cluster, "namespace": key.namespace,
        "consumer": key.consumer, "accelerator": key.device, "model": key.model,
    }  # fmt: skip
