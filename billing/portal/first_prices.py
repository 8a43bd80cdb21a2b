"""The first price list: a row for all that was reported, from the month of the first usage on."""

from datetime import datetime

from django.db.models import Min

from billing.rates.models import PriceVersion
from billing.usage.models import GpuAllocation
from billing.usage.store.dimensions import names_reported
from billing.usage.store.hours import hours_used
from metering.intervals import billing_month, month_of

Rows = dict[str, list[dict[str, str]]]


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
