"""What running jobs will cost beyond what is spent already, as a close would bill it.

A team that has bought hours pays for them used or not: the lines of its month say them all, and a job that uses some up
turns unused hours into used ones. What it adds is what the close would bill with it, less what it would bill without it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from msgspec import structs

from billing.budgets.scope import BudgetPeriod, Scope
from billing.budgets.spending import Running, Spent, covered, encumbered
from billing.invoices.models import BillingPeriod
from billing.rates.selectors import commitment_book
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.walk import Slice, carried_usage, covered_usage, device_usage
from billing.usage.selectors import EpochFilter, last_close_seq
from metering.intervals import billing_month
from pricing.commitments import CommitmentBook, rate_commitments, usage_id
from pricing.money import EXACT
from pricing.rating import Charge, GpuUsage, InterruptedUsage, rate_gpu

Place = tuple[str, str, str, str, str]
"""Kind of line, cluster, namespace, accelerator and SKU."""


@dataclass(frozen=True, slots=True)
class _Month:
    """An open month as a close now would see it: what was held, and what of that the platform carries, by team."""

    part: Slice
    owned: Mapping[str, list[GpuUsage]]
    carried: Mapping[str, list[InterruptedUsage]]


class Encumbrance:
    """The jobs that run now, by team, and what each scope will pay for them; a month is read once."""

    def __init__(self, jobs: Mapping[str, list[Running]], zone: str) -> None:
        buyers = {one.team for one in commitment_book().commitments}
        self._zone = zone
        self._at_list = {team: held for team, held in jobs.items() if team not in buyers}
        self._buying = {team: held for team, held in jobs.items() if team in buyers}
        self._months: dict[str, _Month] = {}
        self._more: dict[tuple[str, str], list[Spent]] = {}

    def of(self, scope: Scope, period: BudgetPeriod) -> Fraction:
        """What the jobs are expected to cost a scope in a period, not rounded.

        Those of teams without commitments at the price of now. Of teams with commitments at the prices of their time:
        nothing for hours that were bought, where the scope counts these used or not; in a budget of one cluster or
        namespace, which has none of the unused ones, their price.
        """
        total = encumbered(covered(self._at_list, scope), period.window)
        for team in scope.teams & self._buying.keys():
            more = {team: [line for month in period.months for line in self._of_team(team, month)]}
            total += sum((line.amount for line in covered(more, scope)), Fraction(0))
        return total

    @cached_property
    def _reference_data(self) -> ReferenceData:
        return reference_data_known(last_close_seq() + 1)

    def _of_team(self, team: str, month: str) -> list[Spent]:
        if (team, month) not in self._more:
            self._more[team, month] = self._worked_out(team, month)
        return self._more[team, month]

    def _worked_out(self, team: str, month: str) -> list[Spent]:
        """The lines of a team's month that its jobs change, each by how much."""
        part = Slice.of(self._reference_data, billing_month(month, self._zone), month, EpochFilter())
        ahead = [usage for job in self._buying[team] for usage in _ahead(job, part)]
        if not ahead:
            return []
        if BillingPeriod.objects.filter(month=month).exclude(status=BillingPeriod.Status.OPEN).exists():
            late = rate_gpu(ahead, self._reference_data.card).charges  # of a month that is cut off
            return _lines(team, _by_place(late))
        known = self._month(part)
        own = CommitmentBook(one for one in self._reference_data.commitments.commitments if one.team == team)
        reference_data, owned, carried = (
            replace(self._reference_data, commitments=own),
            known.owned.get(team, []),
            known.carried.get(team, []),
        )
        changed = _billed(reference_data, known.part, _together([*owned, *ahead]), carried)
        for place, amount in _billed(reference_data, known.part, owned, carried).items():
            changed[place] -= amount
        return _lines(team, changed)

    def _month(self, part: Slice) -> _Month:
        if part.month not in self._months:
            owned, carried = defaultdict[str, list[GpuUsage]](list), defaultdict[str, list[InterruptedUsage]](list)
            for usage, _ in device_usage(part, self._reference_data):
                owned[usage.team].append(usage)
            for item, _ in carried_usage(part, self._reference_data):
                carried[item.usage.team].append(item)
            self._months[part.month] = _Month(part, owned, carried)
        return self._months[part.month]


def _ahead(job: Running, part: Slice) -> Iterable[GpuUsage]:
    """What a job is expected to hold from when it was last seen on, cut as the close cuts it."""
    for piece in part.devices:
        held = job.ahead.overlap(piece) if job.ahead else None
        if held is not None:
            units = EXACT.multiply(job.units, held.microseconds)
            yield GpuUsage(
                job.team, False, job.cluster, job.namespace, job.device, job.resource, piece.start,
                EXACT.multiply(units, job.device_fraction), units, part.month,
            )  # fmt: skip


def _together(usages: Iterable[GpuUsage]) -> list[GpuUsage]:
    """One usage per place and piece, as the close sums them."""
    found: dict[object, GpuUsage] = {}
    for usage in usages:
        name = usage_id(usage)
        known = found.get(name)
        found[name] = usage if known is None else structs.replace(
            known, device_us=EXACT.add(known.device_us, usage.device_us), unit_us=EXACT.add(known.unit_us, usage.unit_us)
        )  # fmt: skip
    return list(found.values())


def _billed(
    reference_data: ReferenceData, part: Slice, owned: list[GpuUsage], carried: list[InterruptedUsage]
) -> defaultdict[Place, Fraction]:
    """The month's lines of devices by place: at list price, used and unused of what was bought."""
    found = covered_usage(reference_data, part, owned, carried)
    return _by_place(
        [*rate_gpu(found.rest, reference_data.card).charges, *rate_commitments(found, reference_data.card).charges]
    )


def _by_place(charges: Iterable[Charge]) -> defaultdict[Place, Fraction]:
    amounts: defaultdict[Place, Fraction] = defaultdict(Fraction)
    for charge in charges:
        key = charge.key
        place = (key.kind, key.cluster, key.namespace, key.accelerator, key.sku)
        amounts[place] += charge.quantity * Fraction(charge.unit_price)
    return amounts


def _lines(team: str, amounts: Mapping[Place, Fraction]) -> list[Spent]:
    return [
        Spent(team, kind, cluster, namespace, "", accelerator, sku, amount)
        for (kind, cluster, namespace, accelerator, sku), amount in amounts.items()
        if amount
    ]
