"""Usage of every line of a close by hour and job, read from the walk that rates a close.

The hours of a line add up to the usage that the line charges; `billing.exports.services.focus` compares both.
"""

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from decimal import Decimal

from billing.exports.focus.shares import Evidence
from billing.invoices.models import BillingPeriod
from billing.rates.selectors import allocation_policy_at
from billing.rating.assessment import RatingResult, rate_slice
from billing.rating.efficiency import Verdict
from billing.rating.gathering import teams_decided
from billing.rating.grains import Grain, Place
from billing.rating.models import EfficiencyVerdict
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.selectors import changes_known, changes_through, last_change, reference_data_with
from billing.rating.walk import RatedUsage, Slice, adjusting, rated_usage
from billing.usage.scope import EpochFilter
from billing.usage.selectors import late_epochs, late_windows
from metering.intervals import Interval, month_of
from pricing.allocation import ALLOCATED
from pricing.meters import Explanation
from pricing.money import EXACT
from pricing.rating import LineKey


@dataclass
class HourlyUsage:
    """Base units of each line by place, and the evidence of adjusted lines by job; of all lines, or of those in `only`.

    `list_prices`: on-demand price per unit of lines under a commitment. `faults`: errors of teams that cannot be rated:
    their rated lines have no usage, and lines of other teams that depend on theirs lack it.
    """

    only: Set[LineKey] | None = None
    places: dict[LineKey, dict[Place, Decimal]] = field(default_factory=lambda: defaultdict(dict))
    evidence: dict[LineKey, dict[str, Evidence]] = field(default_factory=lambda: defaultdict(dict))
    list_prices: dict[LineKey, Decimal] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, key: LineKey, place: Place, usage: Decimal) -> None:
        """Add `usage` at a place, unless it is 0."""
        if usage and (self.only is None or key in self.only):
            places = self.places[key]
            before = places.get(place)
            places[place] = usage if before is None else EXACT.add(before, usage)


class UsageOfClose:
    """Usage that the close of `period` charged: its own, and late usage of windows closed before it.

    Prices and owners are those known at that close, or after the changes of closed time up to `change_seq`. A large month
    has more hours than fit in memory, so they are read for some teams at a time; the shared inputs are read once.
    """

    def __init__(self, period: BillingPeriod, *, change_seq: int | None = None, as_of: int | None = None) -> None:
        """Read the shared inputs; `as_of`: for an open month, the number that a close now would have."""
        close_seq, own = period.close_number if as_of is None else as_of, period.window
        changes = changes_known(close_seq)
        late_change = change_seq is not None and change_seq != last_change(changes)
        reference_data = reference_data_with(changes_through(change_seq or 0) if late_change else changes)
        assessed = None
        is_open = period.close_seq is None
        if late_change or is_open or allocation_policy_at(own.start) is not None:
            assessed = rate_slice(
                window=own, zone=period.zone, reference_data=reference_data, close_seq=close_seq, correction=False,
            )  # fmt: skip
        self._faults = dict(assessed.faults) if assessed else {}
        self._allocated = _allocated(assessed) if assessed else {}
        self._own = own
        self._reference_data = reference_data
        judged: Iterable[EfficiencyVerdict | Verdict] = EfficiencyVerdict.objects.filter(close_seq=close_seq)
        self._verdicts = adjusting(assessed.verdicts if (late_change or is_open) and assessed else judged)
        self._names = NamesByTeam(reference_data)
        month, epochs = month_of(own.start, period.zone), EpochFilter(before=close_seq)
        gathers = teams_decided(own, close_seq)
        self._parts = [Slice.of(reference_data, own, month, epochs, gathered=gathers)]
        for late in late_windows(close_seq):
            window = Interval(late.start, late.end)
            month = month_of(late.start, period.zone)
            gathers = teams_decided(window, close_seq)
            epochs = late_epochs(close_seq)
            self._parts.append(Slice.of(reference_data, window, month, epochs, correction=True, gathered=gathers))

    def of(self, teams: Set[str], only: Set[LineKey] | None = None) -> HourlyUsage:
        """Return the hours of these teams: of all their lines, or of those in `only`."""
        found = HourlyUsage(only, faults=dict(self._faults))
        reading = Reading(teams, self._names.namespaces(teams), self._names.dimensions(teams))
        for part in self._parts:
            for item in rated_usage(
                part, self._reference_data, Grain.HOUR, reading, verdicts=self._verdicts, faults=found.faults
            ):
                self._take(found, item)
        for team in teams:
            for key, usage in self._allocated.get(team, ()):
                found.add(key, Place(self._own.start, "", "", self._own.end), usage)
        return found

    def _take(self, found: HourlyUsage, item: RatedUsage) -> None:
        key = item.key
        found.add(key, item.place, item.quantity)
        if item.list_price is not None:
            found.list_prices[key] = item.list_price
        if key.what.explained_by is Explanation.VERDICTS:
            job = item.place.resource
            verdict = self._verdicts[key.team, key.cluster, key.namespace, job, key.policy]
            found.evidence[key][job] = Evidence(verdict.mfu, verdict.hfu, verdict.coverage)


def windows_closed_before(close_seq: int) -> list[Interval]:
    """Return the billing months whose usage may be corrected by close `close_seq`."""
    rows = BillingPeriod.objects.filter(close_seq__lt=close_seq).order_by("close_seq")
    return [Interval(row.start, row.end) for row in rows]


def _allocated(assessed: RatingResult) -> dict[str, list[tuple[LineKey, Decimal]]]:
    """Return parts of idle time and shared cost by team; their only place is the month."""
    found: dict[str, list[tuple[LineKey, Decimal]]] = defaultdict(list)
    for charge in assessed.charges:
        if charge.key.kind in ALLOCATED:
            found[charge.key.team].append((charge.key, charge.usage_quantity))
    return found
