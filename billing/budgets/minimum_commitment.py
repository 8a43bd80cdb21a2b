"""What teams have committed to pay in the months of a period that have not begun, used or not.

The running month needs nothing of it: its lines say the whole commitment already, used and unused (`billing.rating`).
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from billing.budgets.scope import Scope
from billing.budgets.spending import Spent, by_team, covered
from metering.intervals import Interval, billing_month, month_of, next_month
from pricing.commitments import KIND, Commitment, CommitmentBook
from pricing.money import AMOUNT_PLACES, EXACT, round_amount, round_part
from pricing.rate_card import GPU_HOURS
from pricing.rating import DIVISOR


def contracted_ahead(scope: Scope, period: Interval, book: CommitmentBook, *, now: datetime, zone: str) -> Decimal:
    """The contracted minimum of the months of `period` after that of `now`, as far as the scope covers it.

    Of a commitment to 100 GPU-hours a month at 8.00, 1,600.00 in the first month of a quarter. As the line of unused hours
    it has an accelerator and no place: a budget of one cluster or namespace has none of it.
    """
    lines = by_team(line for month in _months_ahead(period, now, zone) for line in _lines(book, billing_month(month, zone)))
    return round_amount(sum((line.amount for line in covered(lines, scope)), start=Fraction(0)))


def _months_ahead(period: Interval, now: datetime, zone: str) -> Iterator[str]:
    month = max(next_month(month_of(now, zone)), month_of(period.start, zone))
    while billing_month(month, zone).start < period.end:
        yield month
        month = next_month(month)


def _lines(book: CommitmentBook, month: Interval) -> Iterator[Spent]:
    for one in book.of_month(month):
        yield Spent(one.team, KIND, "", "", "", one.accelerator, one.accelerator, Fraction(_worth(one, month)))


def _worth(one: Commitment, month: Interval) -> Decimal:
    """Rounded as the line of the invoice is."""
    return round_part(EXACT.multiply(one.bought(month), one.price), DIVISOR[GPU_HOURS], AMOUNT_PLACES)
