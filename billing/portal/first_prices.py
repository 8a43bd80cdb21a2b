"""Price lists for usage that exists already: the first list, and one that adds names without a price."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db.models import F, Min

from billing.rates.models import PriceVersion
from billing.rating.selectors import closed_until
from billing.usage.models import GpuAllocation
from billing.usage.store.dimensions import names_reported
from billing.usage.store.hours import hours_used, models_used
from metering.intervals import Interval, billing_month, month_of

Rows = dict[str, list[dict[str, str]]]
EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Instant before which no list begins."""


def reported_rows() -> Rows:
    """Return a row without a price for every accelerator and model that was reported."""
    accelerators = GpuAllocation.objects.order_by("accelerator").values_list("accelerator", flat=True).distinct()
    return {
        "gpu": [{"accelerator": name, "price_per_gpu_hour": ""} for name in accelerators],
        "tokens": [{"model": name} for name in names_reported("model")],
    }


def first_month(zone: str) -> tuple[str, datetime] | None:
    """Return the billing month of the first usage with its first instant; None if a list exists or nothing was used."""
    if PriceVersion.objects.exists():
        return None
    held, tokens = GpuAllocation.objects.aggregate(first=Min("started_at"))["first"], hours_used()
    known = [at for at in (tokens and tokens[0], held) if at is not None]
    if not known:
        return None
    month = month_of(min(known), zone)
    return month, billing_month(month, zone).start


@dataclass(frozen=True)
class MissingPrices:
    """Usage of open time without a price: the list to add it to, the hour of its first use, a row for each name."""

    base: PriceVersion
    start: datetime
    rows: Rows


def missing_prices(now: datetime) -> MissingPrices | None:
    """Return the names that the earliest list of open time lacks; None if everything that was used has a price.

    A list ends where the next begins, so each list that lacks a price needs a successor of its own. Names used before the
    first list are added to that list.
    """
    since = closed_until() or EARLIEST
    # a list that ends where it begins was never in force
    published = PriceVersion.objects.filter(sealed=True, valid_from__lt=now).exclude(valid_until=F("valid_from"))
    lists = list(published.exclude(valid_until__lte=since).order_by("valid_from").prefetch_related("gpu", "tokens"))
    if not lists:
        return None
    if lists[0].valid_from > since:
        window = Interval(since, lists[0].valid_from)
        if used := [*_gpus_used(window).values(), *models_used(window).values()]:
            return MissingPrices(lists[0], _whole_hour(max(min(used), since)), _rows_missing(lists[0], window))
    for version in lists:
        window = Interval(max(version.valid_from, since), min(version.valid_until or now, now))
        rows = _rows_missing(version, window)
        names = {name for table in rows.values() for row in table for name in row.values()}
        used = [at for name, at in [*_gpus_used(window).items(), *models_used(window).items()] if name in names]
        if used:
            return MissingPrices(version, max(_whole_hour(min(used)), window.start), rows)
    return None


def _rows_missing(version: PriceVersion, window: Interval) -> Rows:
    """Return a row without a price for every accelerator and model that was used in the window and is not in the list."""
    priced = {name for price in version.gpu.all() for name in (price.accelerator, price.resource)}
    models = {price.model for price in version.tokens.all()}
    return {
        "gpu": [{"accelerator": name, "price_per_gpu_hour": ""} for name in sorted(_gpus_used(window, priced))],
        "tokens": [{"model": name} for name in sorted(models_used(window).keys() - models)],
    }


def _gpus_used(window: Interval, besides: Collection[str] = ()) -> dict[str, datetime]:
    """Return the first instant of the window at which each accelerator was allocated, without those in `besides`."""
    held = GpuAllocation.objects.filter(observed_until__gt=window.start, started_at__lt=window.end)
    held = held.exclude(accelerator__in=besides).exclude(resource__in=besides)
    firsts = held.values_list("accelerator").annotate(first=Min("started_at"))
    return {name: max(first, window.start) for name, first in firsts}


def _whole_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
