"""Month of a page. Reading never stores a period: a month that nobody opened yet is shown from the set-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import Http404

from billing.invoices.models import BillingPeriod
from billing.tenancy.models import BillingSetup
from billing.usage.selectors import usage_span
from metering.intervals import MICROSECOND, IntervalError, billing_month, month_of, previous_month

MONTHS_OFFERED = 36


@dataclass(frozen=True, slots=True)
class MonthChoice:
    """Month of a page with its period, and the months that its picker offers, newest first.

    `ended`: the periods that are over and not closed, newest first.
    """

    month: str
    period: BillingPeriod
    offered: list[str]
    ended: list[BillingPeriod]

    @property
    def earlier(self) -> str | None:
        """Return the month before, if it is offered."""
        return next((month for month in self.offered if month < self.month), None)

    @property
    def later(self) -> str | None:
        """Return the month after, if it is offered."""
        return next((month for month in reversed(self.offered) if month > self.month), None)


def month_choice(asked: str, setup: BillingSetup, now: datetime) -> MonthChoice:
    """Return the requested month, else the newest with usage or invoices, else the current one.  Raises Http404."""
    current = month_of(now, setup.zone)
    periods = {period.month: period for period in BillingPeriod.objects.all()}
    used = _months_with_usage(setup.zone)
    billed = [known.month for known in periods.values() if known.status != BillingPeriod.Status.OPEN]
    month = asked or max([*used, *billed], default=current)
    offered = sorted({*periods, *used, current, month}, reverse=True)[:MONTHS_OFFERED]
    known = [periods.get(other) or _never_opened(other, setup) for other in offered]
    ended = [period for period in known if period.end <= now and period.status != BillingPeriod.Status.CLOSED]
    return MonthChoice(month, periods.get(month) or _never_opened(month, setup), offered, ended)


def period_shown(month: str, setup: BillingSetup) -> BillingPeriod:
    """Return the stored period, or an unsaved one from the set-up.  Raises Http404."""
    return BillingPeriod.objects.filter(month=month).first() or _never_opened(month, setup)


def _never_opened(month: str, setup: BillingSetup) -> BillingPeriod:
    """Return an unsaved row. No stored row has its key 0, so that its relations can be queried and are empty."""
    try:
        window = billing_month(month, setup.zone)
    except IntervalError as error:
        raise Http404(error.args[0]) from error
    return BillingPeriod(pk=0, month=month, zone=setup.zone, start=window.start, end=window.end)


def _months_with_usage(zone: str) -> list[str]:
    used = usage_span()
    return [] if used is None else _between(month_of(used.start, zone), month_of(used.end - MICROSECOND, zone))


def _between(first: str, last: str) -> list[str]:
    months = [last]
    while len(months) < MONTHS_OFFERED and months[-1] > first:
        months.append(previous_month(months[-1]))
    return months


def open_periods(setup: BillingSetup, now: datetime) -> Sequence[BillingPeriod]:
    """Return the running month, and those that ended and are not closed, newest first."""
    choice = month_choice(month_of(now, setup.zone), setup, now)
    return [choice.period, *(period for period in choice.ended if period.month != choice.month)]
