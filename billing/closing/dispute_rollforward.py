"""Roll-forward of disputes: opening + opened - decided = open at the end of the month.

The left side comes from the steps of disputes, which are only ever added; the right side from the disputes themselves, as
long as no later step changed one. A state that was changed without its step shows here.
"""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from billing.corrections.models import Dispute
from billing.invoices.models import BillingPeriod
from metering.messages import Message

DECIDED = frozenset({Dispute.Status.UPHELD.value, Dispute.Status.REJECTED.value, Dispute.Status.WITHDRAWN.value})
BEGUN = frozenset({"open", Dispute.Status.ESCALATED.value})
"""Steps after which a dispute is open: it is opened, or a rejected one is escalated."""


@dataclass(slots=True)
class Sum:
    """Number of disputes with their amount."""

    count: int = 0
    amount: Decimal = Decimal("0.00")

    def add(self, amount: Decimal, times: int = 1) -> None:
        self.count, self.amount = self.count + times, self.amount + times * amount

    def __str__(self) -> str:
        return f"{self.count} ({self.amount:,})"


@dataclass(slots=True)
class Rolled:
    """Disputes of a month. `open_at_end` is counted from the disputes, the others from their steps.

    `upheld`: True if any of them was upheld, also since.
    """

    opening: Sum = field(default_factory=Sum)
    opened: Sum = field(default_factory=Sum)
    decided: Sum = field(default_factory=Sum)
    open_at_end: Sum = field(default_factory=Sum)
    upheld: bool = False

    @property
    def agrees(self) -> bool:
        """Return True if the month adds up, in number and amount."""
        count = self.opening.count + self.opened.count - self.decided.count
        amount = self.opening.amount + self.opened.amount - self.decided.amount
        return (count, amount) == (self.open_at_end.count, self.open_at_end.amount)

    @property
    def detail(self) -> Message:
        """Return the figures in words."""
        return Message(
            "%(before)s open before, %(opened)s opened or escalated, %(decided)s decided or withdrawn, %(end)s open at the "
            "end",
            before=self.opening, opened=self.opened, decided=self.decided, end=self.open_at_end,
        )


def dispute_rollforward(period: BillingPeriod, now: datetime) -> Rolled:
    """Roll the disputes from the beginning of a month to its end, or to `now` while it runs."""
    until, rolled = min(period.end, now), Rolled()
    for dispute in Dispute.objects.filter(opened_at__lt=period.end).prefetch_related("steps"):
        rolled.upheld = rolled.upheld or dispute.status == Dispute.Status.UPHELD
        is_open, later = False, False
        for step in sorted(dispute.steps.all(), key=lambda one: (one.at, one.pk)):
            turn = 1 if step.kind in BEGUN else -1 if step.kind in DECIDED else 0
            if step.at >= until:
                later = True
            elif turn and step.at < period.start:
                rolled.opening.add(dispute.amount, turn)
            elif turn:
                (rolled.opened if turn > 0 else rolled.decided).add(dispute.amount)
            is_open = turn > 0 if turn and step.at < until else is_open
        # the dispute's own state is of now: only without later steps is it that of the end
        if is_open if later else dispute.status not in DECIDED:
            rolled.open_at_end.add(dispute.amount)
    return rolled
