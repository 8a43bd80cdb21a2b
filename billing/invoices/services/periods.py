"""The periods of the installation: each is opened once, with its zone and currency."""

from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from metering.messages import UserError


class PeriodError(UserError, ValueError):
    """A month that cannot be billed as asked."""

    code = "period"


def period_open(*, month: str) -> BillingPeriod:
    """The period of `month` ("2026-10"), with its bounds stored the first time it is asked for."""
    period = period_of(month)
    if period.pk is None:
        facts = {"zone": period.zone, "start": period.start, "end": period.end}
        period, _ = BillingPeriod.objects.get_or_create(month=month, defaults=facts)
    return period
