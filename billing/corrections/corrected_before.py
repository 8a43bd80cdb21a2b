"""What corrections moved, by team and month of usage: what is asked for is approved together with what was corrected before.

Whoever splits a credit asks for several below each limit; added up they are above it, in whichever order they are approved.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from django.db.models import Q, QuerySet, Sum

from billing.approvals.limits import Authority, Earlier
from billing.invoices.models import Correction, Note, NoteLine

ZERO = Decimal("0.00")
TeamMonth = tuple[str, str]
"""A team and a month of its usage."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What was credited and what was charged instead, each positive, by team and month of usage."""

    months: Mapping[TeamMonth, tuple[Decimal, Decimal]]

    @property
    def amount(self) -> Decimal:
        """What was credited or what was charged, whichever is more."""
        return max(sum(column, ZERO) for column in zip(*self.months.values(), strict=True)) if self.months else ZERO

    def within(self, months: Collection[TeamMonth]) -> Self:
        """The part that is of these teams and months."""
        return type(self)({month: amounts for month, amounts in self.months.items() if month in months})


@dataclass(frozen=True, slots=True)
class Needed:
    """Whose approval it takes, and `earlier`: what was corrected of the same teams and months before."""

    authority: Authority
    earlier: Decimal

    @classmethod
    def of(cls, authority: Authority, earlier: Collection[Earlier]) -> Self:
        """With the sum of the earlier ones."""
        return cls(authority, sum((one.amount for one in earlier), ZERO))


def corrected_before(months: Collection[TeamMonth], besides: Correction | None = None) -> list[Earlier]:
    """What other corrections moved of these teams and months, also those that wait; dropped ones did not."""
    codes, of = {team for team, _ in months}, {month for _, month in months}
    lines = NoteLine.objects.exclude(note__correction__status=Correction.Status.VOID)
    same = lines.exclude(note__correction=besides).filter(note__team__code__in=codes, charge_period__in=of)
    moved = moved_by(lines.filter(note__correction__in=same.values("note__correction")))
    parts = [Earlier(one.within(months).amount, one.amount) for one in moved.values()]
    return [part for part in parts if part.amount]


def moved_by(lines: QuerySet[NoteLine]) -> dict[int, Moved]:
    """What the corrections of these lines moved, by their ids.

    Of a change of closed time, which takes back and charges every line that it touches, only the difference counts.
    """
    credited, charged = (
        Sum("amount", filter=Q(note__kind=kind), default=ZERO) for kind in (Note.Kind.CREDIT, Note.Kind.REBILL)
    )
    rows = lines.order_by().values_list(
        "note__correction", "note__correction__change", "note__team__code", "charge_period"
    ).annotate(credited=credited, charged=charged)  # fmt: skip
    found = defaultdict[int, dict[TeamMonth, tuple[Decimal, Decimal]]](dict)
    for correction, change, team, month, credit, charge in rows:
        found[correction][team, month] = (-credit, charge) if change is None else net(credit + charge)
    return {correction: Moved(months) for correction, months in found.items()}


def net(difference: Decimal) -> tuple[Decimal, Decimal]:
    """A difference as what is credited and what is charged.

    >>> net(Decimal("-5.00"))
    (Decimal('5.00'), Decimal('0.00'))
    """
    return max(-difference, ZERO), max(difference, ZERO)
