"""Periods of the installation: each is opened once, with its zone and bounds."""

from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from metering.messages import UserError


class PeriodError(UserError, ValueError):
    """Error of a month that cannot be billed as requested."""

    code = "period"


def period_open(*, month: str) -> BillingPeriod:
    """Return the period of `month` ("2026-10"); its bounds are stored on first use."""
    period = period_of(month)
    if period.pk is None:
        facts = {"zone": period.zone, "start": period.start, "end": period.end}
        period, _ = BillingPeriod.objects.get_or_create(month=month, defaults=facts)
    return period
