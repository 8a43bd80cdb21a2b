"""A running month is compared with the month before up to the same day and time, rated by today's books.

Not up to the last midnight: what the month has cost so far has today in it, and both are to be of the same length. The
moment is a whole minute by the clock of the house, which the page names; where a night had an hour more or less, the clock
counts and not the hours that passed.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from zoneinfo import ZoneInfo

from billing.invoices.lines import Line, invoice_lines
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.rating.assessment import RatingResult, rate_slice
from billing.rating.reference_data import ReferenceData
from billing.usage.selectors import last_ordinal
from metering.intervals import Interval, previous_month


def same_moment(period: BillingPeriod, before: BillingPeriod, now: datetime) -> datetime:
    """The day and time of the month before at which it is compared with `period` at `now`; its end where it is shorter."""
    began, begun = (month.start.astimezone(ZoneInfo(month.zone)).replace(tzinfo=None) for month in (before, period))
    here = now.astimezone(ZoneInfo(period.zone)).replace(tzinfo=None, second=0, microsecond=0)
    return min((began + (here - begun)).replace(tzinfo=ZoneInfo(before.zone)).astimezone(UTC), before.end)


@dataclass(frozen=True, slots=True)
class DaysBefore:
    """The first days of a month as the close after all closes so far would see them."""

    month: str
    window: Interval
    closing: int
    assessed: RatingResult

    @classmethod
    def of(cls, period: BillingPeriod, now: datetime, reference_data: ReferenceData) -> Self | None:
        """The month before up to where `period` is at `now`; None where it has not begun."""
        before = period_of(previous_month(period.month))
        until = same_moment(period, before, now)
        if until <= before.start:
            return None
        window, closing = Interval(before.start, until), reference_data.closing or last_ordinal() + 1
        assessed = rate_slice(
            window=window, zone=before.zone, reference_data=reference_data, closing=closing, correction=False, isolate=True
        )
        return cls(before.month, window, closing, assessed)

    @property
    def lines(self) -> list[Line]:
        """What teams would be charged or shown for them; what the platform carries is nobody's."""
        return invoice_lines(charge for charge in self.assessed.charges if not charge.key.platform)
