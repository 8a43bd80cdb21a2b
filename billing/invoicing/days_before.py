"""A running month is compared with as many days of the month before, rated by today's books."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from billing.invoicing.lines import Line, invoice_lines
from billing.invoicing.models import BillingPeriod
from billing.invoicing.selectors import period_of
from billing.rating.assessment import Assessment, assess_slice
from billing.rating.books import Books
from billing.usage.selectors import last_ordinal
from metering.intervals import Interval, previous_month


@dataclass(frozen=True, slots=True)
class DaysBefore:
    """The first days of a month as the close after all closes so far would see them."""

    month: str
    window: Interval
    closing: int
    assessed: Assessment

    @classmethod
    def of(cls, period: BillingPeriod, now: datetime, books: Books) -> Self | None:
        """As many days of the month before as `period` has had by `now`; None where it has not begun."""
        before = period_of(previous_month(period.month))
        until = min(before.start + (now - period.start), before.end)
        if until <= before.start:
            return None
        window, closing = Interval(before.start, until), books.closing or last_ordinal() + 1
        assessed = assess_slice(
            window=window, zone=before.zone, books=books, closing=closing, correction=False, isolate=True
        )
        return cls(before.month, window, closing, assessed)

    @property
    def lines(self) -> list[Line]:
        """What teams would be charged or shown for them; what the platform carries is nobody's."""
        return invoice_lines(charge for charge in self.assessed.charges if not charge.key.platform)
