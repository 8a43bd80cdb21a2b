"""First day with figures: earlier days were not zero, but not metered, or nobody could be charged for them."""

from collections.abc import Collection
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db.models import F, Min, Q

from billing.invoices.models import BillingPeriod
from billing.tenancy.models import ConsumerOwnership, NamespaceOwnership
from billing.usage.selectors import usage_span
from metering.intervals import month_of


def first_day_known(teams: Collection[str], now: datetime, zone: str) -> date | None:
    """Return the start of the first month with usage or a close, or of the first ownership of `teams`; the later one.

    Returns None where neither is known.
    """
    span, first = usage_span(), BillingPeriod.objects.aggregate(first=Min("month"))["first"]
    months = [month for month in (first, span and month_of(min(span.start, now), zone)) if month]
    days = [date.fromisoformat(f"{min(months)}-01")] if months else []
    owned = _owned_from(teams)
    return max([*days, *([owned.astimezone(ZoneInfo(zone)).date()] if owned else [])], default=None)


def begun_after(teams: Collection[str], day: date, zone: str) -> set[str]:
    """Return the teams that own something now, but owned nothing when `day` began."""
    owners: set[str] = set()
    before: set[str] = set()
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    for model in (NamespaceOwnership, ConsumerOwnership):
        rows = model.objects.filter(team__code__in=list(teams))
        owners |= set(rows.values_list("team__code", flat=True).distinct())
        early = rows.filter(Q(valid_from=None) | Q(valid_from__lte=midnight))
        before |= set(early.values_list("team__code", flat=True).distinct())
    return owners - before


def _owned_from(teams: Collection[str]) -> datetime | None:
    """Return the start of the first ownership of teams; None where one has no start, or none is declared."""
    starts: list[datetime | None] = []
    for model in (NamespaceOwnership, ConsumerOwnership):
        rows = model.objects.filter(team__code__in=list(teams)).order_by(F("valid_from").asc(nulls_first=True))
        starts += rows.values_list("valid_from", flat=True)[:1]
    return None if None in starts else min((start for start in starts if start is not None), default=None)
