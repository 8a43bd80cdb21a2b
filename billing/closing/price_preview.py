"""Effect of a draft of a price list on a billing month: the month is chosen here, the rest is rating's."""

from datetime import datetime

from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.rates.models import PriceDraft
from billing.rates.selectors import draft_prices, hypothetical_version
from billing.rating.price_effect import PriceEffect, price_effect
from billing.tenancy.selectors import billing_setup
from metering.intervals import month_of, previous_month
from pricing.rate_card import PriceVersion


def last_month(now: datetime) -> str:
    """Return the last billing month that has ended by `now`."""
    return previous_month(month_of(now, billing_setup().zone))


def draft_effect(*, draft: PriceDraft, month: str) -> PriceEffect:
    """Compute the effect of a draft's prices on a month's usage.  Raises PriceListError, IntervalError, NoSetupError."""
    return month_effect(period=period_of(month), prices=hypothetical_version(draft.name, draft_prices(draft)))


def month_effect(*, period: BillingPeriod, prices: PriceVersion) -> PriceEffect:
    """Compute the effect of any price list on the usage of a period."""
    return price_effect(window=period.window, zone=period.zone, close_seq=period.close_seq, prices=prices)
