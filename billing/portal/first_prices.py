"""Price lists for usage that is there already: the first one, and one that adds what has no price."""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Min

from billing.rates.models import PriceVersion
from billing.rates.selectors import version_in_force
from billing.rating.selectors import closed_until
from billing.usage.models import GpuAllocation
from billing.usage.store.dimensions import names_reported
from billing.usage.store.hours import hours_used, models_used_since
from metering.intervals import billing_month, month_of

Rows = dict[str, list[dict[str, str]]]
HOUR: Final = timedelta(hours=1)


def reported_rows() -> Rows:
    """A row without a price for every accelerator and model that was reported."""
    accelerators = GpuAllocation.objects.order_by("accelerator").values_list("accelerator", flat=True).distinct()
    return {
        "gpu": [{"accelerator": name, "price_per_gpu_hour": ""} for name in accelerators],
        "tokens": [{"model": name} for name in names_reported("model")],
    }


def first_month(zone: str) -> tuple[str, datetime] | None:
    """The billing month of the first usage with its first instant; None where a list exists or nothing was used."""
    if PriceVersion.objects.exists():
        return None
    held, tokens = GpuAllocation.objects.aggregate(first=Min("started_at"))["first"], hours_used()
    known = [at for at in (tokens and tokens[0], held) if at is not None]
    if not known:
        return None
    month = month_of(min(known), zone)
    return month, billing_month(month, zone).start


def unpriced_rows(now: datetime) -> tuple[PriceVersion, datetime, Rows] | None:
    """The list in force, the first hour with usage of open time that it has no price of, and a row for each such name.

    None where everything has a price. What was used before that list began, or in its first hour, keeps waiting.
    """
    version = version_in_force(now)
    if version is None:
        return None
    since = max(filter(None, (version.valid_from + HOUR, closed_until())))
    priced = {name for price in version.gpu.all() for name in (price.accelerator, price.resource)}
    models = {price.model for price in version.tokens.all()}
    held = GpuAllocation.objects.filter(observed_until__gt=since).exclude(accelerator__in=priced)
    firsts = held.exclude(resource__in=priced).values_list("accelerator").annotate(first=Min("started_at"))
    accelerators = {name: max(first, since) for name, first in firsts}
    tokens = {name: first for name, first in models_used_since(since).items() if name not in models}
    if not accelerators and not tokens:
        return None
    first = min([*accelerators.values(), *tokens.values()]).replace(minute=0, second=0, microsecond=0)
    rows: Rows = {
        "gpu": [{"accelerator": name, "price_per_gpu_hour": ""} for name in sorted(accelerators)],
        "tokens": [{"model": name} for name in sorted(tokens)],
    }
    return version, max(first, version.valid_from + HOUR), rows
