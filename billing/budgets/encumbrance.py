"""What running jobs will cost beyond what is spent already, as a close would bill it.

A team that has bought hours pays for them used or not: the lines of its month say them all, and a job that uses some up
turns unused hours into used ones. What it adds is what the close would bill with it, less what it would bill without it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from msgspec import structs

from billing.budgets.scope import BudgetPeriod, Scope
from billing.budgets.spending import Running, Spent, covered
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

_Month = tuple[dict[str, list[GpuUsage]], dict[str, list[InterruptedUsage]]]
"""Usage of an open month as a close now would see it, and what of that the platform carries, by team."""


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
        total = sum((job.cost_in(period.window) for job in covered(self._at_list, scope)), Fraction(0))
        for team in scope.teams & self._buying.keys():
            more = {team: [line for month in period.months for line in self._of_team(team, month)]}
            total += sum((line.amount for line in covered(more, scope)), Fraction(0))
        return total

    @cached_property
    def _reference_data(self) -> ReferenceData:
        return reference_data_known(last_close_seq() + 1)

    def _of_team(self, team: str, month: str) -> list[Spent]:
        if (team, month) not in self._more:
            self._more[team, month] = self._lines(team, month)
        return self._more[team, month]

    def _lines(self, team: str, month: str) -> list[Spent]:
        """What a close would bill of a team's month with its jobs and, negative, what it would bill without them."""
        part = Slice.of(self._reference_data, billing_month(month, self._zone), month, EpochFilter())
        ahead = [usage for job in self._buying[team] for usage in _ahead(job, part)]
        if not ahead:
            return []
        if BillingPeriod.objects.filter(month=month).exclude(status=BillingPeriod.Status.OPEN).exists():
            late = rate_gpu(ahead, self._reference_data.card).charges  # of a month that is cut off
            return [_spent(charge) for charge in late]
        all_owned, all_carried = self._month(part)
        owned, carried = all_owned.get(team, []), all_carried.get(team, [])
        own = CommitmentBook(one for one in self._reference_data.commitments.commitments if one.team == team)
        reference_data = replace(self._reference_data, commitments=own)
        return [
            _spent(charge, sign)
            for sign, usages in ((1, _together([*owned, *ahead])), (-1, owned))
            for charge in _billed(reference_data, part, usages, carried)
        ]

    def _month(self, part: Slice) -> _Month:
        if part.month not in self._months:
            owned, carried = self._months[part.month] = defaultdict(list), defaultdict(list)
            for usage, _ in device_usage(part, self._reference_data):
                owned[usage.team].append(usage)
            for item, _ in carried_usage(part, self._reference_data):
                carried[item.usage.team].append(item)
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
) -> list[Charge]:
    """The month's charges of devices: at list price, used and unused of what was bought."""
    found = covered_usage(reference_data, part, owned, carried)
    return [*rate_gpu(found.rest, reference_data.card).charges, *rate_commitments(found, reference_data.card).charges]


def _spent(charge: Charge, sign: int = 1) -> Spent:
    key, amount = charge.key, sign * charge.quantity * Fraction(charge.unit_price)
    return Spent(key.team, key.kind, key.cluster, key.namespace, "", key.accelerator, key.sku, amount)
