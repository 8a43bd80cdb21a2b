"""Encumbrance: cost of running jobs beyond what is spent already, as a close would bill it.

A team that has bought hours pays for them used or not: the lines of its month contain them all, and a job that uses some up
turns unused hours into used ones. A job adds what the close would bill with it, less what it would bill without it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from billing.budgets.scope import BudgetPeriod, Scope
from billing.budgets.spending import Running, Spent, by_team, covered, spent_on
from billing.invoices.models import BillingPeriod
from billing.rates.selectors import commitment_book
from billing.rating.grains import Grain
from billing.rating.readings import NamesByTeam, Reading
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.team_isolation import TeamRatingError
from billing.rating.walk import RatedUsage, Slice, listed_usage, rated_usage
from billing.usage.scope import EpochFilter
from billing.usage.selectors import last_close_seq
from metering.intervals import MICROSECOND, billing_month
from pricing.commitments import KIND as COMMITMENT
from pricing.money import EXACT
from pricing.rating import DIVISOR, GpuUsage


class Encumbrance:
    """Expected cost of running jobs for each scope; each month is read once."""

    def __init__(self, jobs: Mapping[str, list[Running]], zone: str) -> None:
        buyers = {one.team for one in commitment_book().commitments}
        self._zone = zone
        self._at_list = {team: running for team, running in jobs.items() if team not in buyers}
        self._buying = {team: running for team, running in jobs.items() if team in buyers}
        self._months: dict[str, Mapping[str, list[Spent]]] = {}
        self._faults: dict[str, str] = {}

    def of(self, scope: Scope, period: BudgetPeriod) -> Fraction:
        """Return the expected cost of the jobs for a scope in a period, not rounded.

        Jobs of teams without commitments count at the current price. Those of teams with commitments count at the prices of
        their time: zero for bought hours, if the scope includes these used or not; their price in a budget of a cluster or
        namespace, which includes no unused hours. Jobs of a team that changes its group count for the groups of their
        time, those of teams with commitments for the groups at the end of the period.  Raises TeamRatingError.
        """
        total = sum(
            (
                job.cost_in(piece)
                for job in covered(self._at_list, scope)
                for time in scope.times_of(job.team) or (period.window,)
                if (piece := time.overlap(period.window)) is not None
            ),
            Fraction(0),
        )
        if not self._buying:
            return total
        last = period.window.end - MICROSECOND
        lines = [
            line for month in period.months for line in covered(self._lines_of(month), scope)
            if scope.counts_at(line.team, last)
        ]  # fmt: skip
        if problems := {team: self._faults[team] for team in self._faults.keys() & scope.teams}:
            raise TeamRatingError(problems)
        return sum((line.amount for line in lines), total)

    @cached_property
    def _reference_data(self) -> ReferenceData:
        return reference_data_known(last_close_seq() + 1)

    def _lines_of(self, month: str) -> Mapping[str, list[Spent]]:
        if month not in self._months:
            self._months[month] = by_team(self._lines(month))
        return self._months[month]

    def _lines(self, month: str) -> Iterable[Spent]:
        """Return the lines that a close of the month would bill with the jobs, and negated those without them."""
        part = Slice.of(self._reference_data, billing_month(month, self._zone), month, EpochFilter())
        ahead = [usage for jobs in self._buying.values() for job in jobs for usage in self._ahead(job, part)]
        if not ahead:
            return []
        if BillingPeriod.objects.filter(month=month).exclude(status=BillingPeriod.Status.OPEN).exists():
            late = replace(part, devices=(), tokens=(), ahead=ahead)  # a month that is cut off: at list price
            return [_spent(item) for item in listed_usage(late, self._reference_data, Grain.LINE)]
        teams = {usage.team for usage in ahead}
        names = NamesByTeam(self._reference_data).namespaces(teams)
        reading = Reading(teams, names, kinds=frozenset({"gpu", COMMITMENT}))
        return [
            _spent(item, sign)
            # billed with the jobs, less billed without them: commitments make the two depend on each other
            for sign, expected in ((1, ahead), (-1, ()))
            for item in rated_usage(
                replace(part, ahead=expected), self._reference_data, Grain.LINE, reading, faults=self._faults
            )
        ]

    def _ahead(self, job: Running, part: Slice) -> Iterable[GpuUsage]:
        """Yield the usage that a job is expected to add after its last report, cut and owned as in a close."""
        for piece in part.devices:
            time = job.ahead.overlap(piece) if job.ahead else None
            owner = self._reference_data.namespaces.owner(job.cluster, job.namespace, piece.start)
            if time is not None and owner is not None:
                units = EXACT.multiply(job.units, time.microseconds)
                yield GpuUsage(
                    owner.team, owner.platform, job.cluster, job.namespace, job.device, job.resource, piece.start,
                    EXACT.multiply(units, job.device_fraction), units, part.month,
                )  # fmt: skip


def _spent(item: RatedUsage, sign: int = 1) -> Spent:
    return spent_on(item.key, sign * Fraction(item.quantity) / DIVISOR[item.key.unit] * Fraction(item.price))
