"""Whether the disputes of a month follow from those of the month before: opening + opened - decided = open at its end.

The left side is told by the steps of disputes, which are only ever added; the right side by the disputes themselves, as long
as nothing has happened to one since. A state that was changed without its step shows here.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from billing.corrections.models import Dispute
from billing.invoices.models import BillingPeriod
from metering.messages import Message

DECIDED = frozenset({Dispute.Status.UPHELD.value, Dispute.Status.REJECTED.value, Dispute.Status.WITHDRAWN.value})
BEGUN = frozenset({"open", Dispute.Status.ESCALATED.value})
"""Steps after which a dispute is open: it is opened, or a rejected one goes on."""


@dataclass(slots=True)
class Sum:
    """A number of disputes with their amount."""

    count: int = 0
    amount: Decimal = Decimal("0.00")

    def add(self, amount: Decimal, times: int = 1) -> None:
        self.count, self.amount = self.count + times, self.amount + times * amount

    def __str__(self) -> str:
        return f"{self.count} ({self.amount:,})"


@dataclass(slots=True)
class Rolled:
    """The disputes of a month. `open_at_end` is counted from the disputes, the others from their steps.

    `upheld`: whether any of them was upheld, also since.
    """

    opening: Sum
    opened: Sum
    decided: Sum
    open_at_end: Sum
    upheld: bool = False

    @property
    def agrees(self) -> bool:
        """Whether the month adds up, in number and amount."""
        count = self.opening.count + self.opened.count - self.decided.count
        amount = self.opening.amount + self.opened.amount - self.decided.amount
        return (count, amount) == (self.open_at_end.count, self.open_at_end.amount)

    @property
    def detail(self) -> Message:
        """The figures in words."""
        return Message(
            "%(before)s open before, %(opened)s opened or escalated, %(decided)s decided or withdrawn, %(end)s open at the "
            "end",
            before=self.opening, opened=self.opened, decided=self.decided, end=self.open_at_end,
        )


def dispute_rollforward(period: BillingPeriod, now: datetime) -> Rolled:
    """The disputes from the beginning of a month to its end, or to `now` while it runs."""
    until = min(period.end, now)
    rolled = Rolled(Sum(), Sum(), Sum(), Sum())
    known: dict[int, _Told] = {}
    rows = Dispute.objects.filter(opened_at__lt=period.end).order_by("steps__at", "steps__id")
    for dispute, amount, status, kind, at in rows.values_list("id", "amount", "status", "steps__kind", "steps__at"):
        rolled.upheld = rolled.upheld or status == Dispute.Status.UPHELD
        told = known.setdefault(dispute, _Told(amount, status not in DECIDED))
        turn = 1 if kind in BEGUN else -1 if kind in DECIDED else 0
        if at is not None and at >= until:
            told.later = True
        elif turn:
            told.open = turn > 0
            before = at is not None and at < period.start
            (rolled.opening if before else rolled.opened if turn > 0 else rolled.decided).add(amount, turn if before else 1)
    for told in known.values():
        if told.open if told.later else told.open_now:
            rolled.open_at_end.add(told.amount)
    return rolled


@dataclass(slots=True)
class _Told:
    """What is known of one dispute: whether it is open now, and was by its steps; `later`: whether steps followed."""

    amount: Decimal
    open_now: bool
    open: bool = False
    later: bool = False
