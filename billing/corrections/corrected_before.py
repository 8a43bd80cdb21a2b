"""Amounts of earlier corrections, by team and month of usage, which count together with a request for its approval.

A credit that is split into requests below a limit would evade it; together they are above it, in whichever order they are
approved. Parts of one team and month count at each limit. Parts of several teams or months are recognised by their
requester: the requests of one person in a billing month count together at the limit above which two approvers are needed.

Drafts count, so that two approvals at once see each other. Counted by document, a rebill and the late lines of the next
invoice would begin anew; counted over all time, each small credit of a team would take an approver in the end.
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
"""Team code and a month of its usage."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Credited and charged amounts of a correction, each positive, by team and month of usage."""

    months: Mapping[TeamMonth, tuple[Decimal, Decimal]]

    @property
    def amount(self) -> Decimal:
        """Return the larger of the credited and the charged sum."""
        return max(sum(column, ZERO) for column in zip(*self.months.values(), strict=True)) if self.months else ZERO

    def within(self, months: Collection[TeamMonth]) -> Self:
        """Return the part of these teams and months."""
        return type(self)({month: amounts for month, amounts in self.months.items() if month in months})


@dataclass(frozen=True, slots=True)
class Needed:
    """Required approval, and `earlier`: the amount that counted with it.

    Earlier amounts are of the same teams and months, and, where two persons are required, also of the same requester.
    """

    authority: Authority
    earlier: Decimal

    @classmethod
    def of(cls, authority: Authority, earlier: Collection[Earlier]) -> Self:
        """Build with the sum of the earlier amounts."""
        return cls(authority, sum((one.counted(all_asked=authority.persons > 1) for one in earlier), ZERO))


def corrected_before(months: Collection[TeamMonth], besides: Correction | None = None, zone: str = "UTC") -> list[Earlier]:
    """Return earlier corrections of these teams and months, and requests by the requester of `besides` in the same month.

    Pending corrections count, void ones do not. The requester of a change of closed time does not count.
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
    """Return the corrections that the same person requested in the same billing month."""
    month = billing_month(month_of(correction.requested_at, zone), zone)
    written = Correction.objects.filter(change=None, proposal__makers__contains=[correction.requested_by])
    within = written.filter(proposal__created_at__gte=month.start, proposal__created_at__lt=month.end)
    return set(within.values_list("pk", flat=True))


def moved_by(lines: QuerySet[NoteLine]) -> dict[int, Moved]:
    """Return the amounts of the corrections of these lines, by their ids.

    A change of closed time reverses and charges every line that it covers, so only the difference counts.
    """
    credited, charged = (
        Sum("amount", filter=Q(note__kind=kind), default=ZERO) for kind in (Note.Kind.CREDIT, Note.Kind.REBILL)
    )
    rows = lines.order_by().values_list(
        "note__correction", "note__correction__change", "note__team__code", "charge_period"
    ).annotate(credited=credited, charged=charged)  # fmt: skip
    found = defaultdict[int, dict[TeamMonth, tuple[Decimal, Decimal]]](dict)
    for correction, change, team, month, credit, charge in rows:
        # credits are stored negative
        found[correction][team, month] = (-credit, charge) if change is None else net(credit + charge)
    return {correction: Moved(months) for correction, months in found.items()}


def net(difference: Decimal) -> tuple[Decimal, Decimal]:
    """Split a difference into a credited and a charged amount.

    >>> net(Decimal("-5.00"))
    (Decimal('5.00'), Decimal('0.00'))
    """
    return max(-difference, ZERO), max(difference, ZERO)
