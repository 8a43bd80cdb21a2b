"""What corrections moved, by team and month of usage: what is asked for is approved together with what was corrected before.

Whoever splits a credit asks for several below each limit; added up they are above it, in whichever order they are approved.
Parts of one team and month count at each limit. Parts of several teams or months are known by who asks for them: what one
person asks for within a billing month counts together at the limit above which it takes two approvers.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from django.db.models import Q, QuerySet, Sum

from billing.approvals.limits import Authority, Earlier
from billing.invoices.models import Correction, Note, NoteLine
from metering.intervals import billing_month, month_of

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
    """Whose approval it takes, and `earlier`: what counted with it, of the same teams and months, and where it takes two
    persons also of who asks.
    """

    authority: Authority
    earlier: Decimal

    @classmethod
    def of(cls, authority: Authority, earlier: Collection[Earlier]) -> Self:
        """With the sum of the earlier ones."""
        return cls(authority, sum((one.counted(all_asked=authority.persons > 1) for one in earlier), ZERO))


def corrected_before(months: Collection[TeamMonth], besides: Correction | None = None, zone: str = "UTC") -> list[Earlier]:
    """What other corrections moved of these teams and months, or whoever asks for `besides` asked for in the same billing
    month, also those that wait; dropped ones did not. Changes of closed time are asked for one by one.
    """
    codes, of = {team for team, _ in months}, {month for _, month in months}
    lines = NoteLine.objects.exclude(note__correction__status=Correction.Status.VOID)
    same = lines.filter(note__team__code__in=codes, charge_period__in=of)
    asked = set() if besides is None else _asked_with(besides, zone)
    concerned = Q(note__correction__in=same.values("note__correction")) | Q(note__correction__in=asked)
    moved = moved_by(lines.filter(concerned).exclude(note__correction=besides))
    parts = [
        Earlier(one.within(months).amount, one.amount, one.amount if correction in asked else ZERO)
        for correction, one in moved.items()
    ]
    return [part for part in parts if part.amount or part.asked]


def _asked_with(correction: Correction, zone: str) -> set[int]:
    """Corrections that the same person wrote in the same billing month."""
    month = billing_month(month_of(correction.requested_at, zone), zone)
    written = Correction.objects.filter(change=None, proposal__makers__contains=[correction.requested_by])
    within = written.filter(proposal__created_at__gte=month.start, proposal__created_at__lt=month.end)
    return set(within.values_list("pk", flat=True))


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
