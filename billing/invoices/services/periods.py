"""The periods of the installation: each is opened once, with its zone and currency."""

from billing.invoices.models import BillingPeriod
from billing.tenancy.selectors import billing_setup
from metering.intervals import billing_month
from metering.messages import UserError


class PeriodError(UserError, ValueError):
    """A month that cannot be billed as asked."""

    code = "period"


def period_open(*, month: str) -> BillingPeriod:
    """The period of `month` ("2026-10"), with its bounds stored the first time it is asked for."""
    period = BillingPeriod.objects.filter(month=month).first()
    if period is not None:
        return period
    setup = billing_setup()
    window = billing_month(month, setup.zone)
    period, _ = BillingPeriod.objects.get_or_create(
        month=month, defaults={"zone": setup.zone, "start": window.start, "end": window.end}
    )
    return period
