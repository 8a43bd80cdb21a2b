"""From which day on there are figures: what was before it was not zero, nobody metered it or could be charged for it."""

from collections.abc import Collection
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db.models import F, Min, Q

from billing.invoices.models import BillingPeriod
from billing.tenancy.models import ConsumerOwnership, NamespaceOwnership
from billing.usage.selectors import usage_span
from metering.intervals import month_of


def first_day_known(teams: Collection[str], now: datetime, zone: str) -> date | None:
    """The first of the first month that has usage or was closed, or the day from which on one of `teams` owned anything,
    whichever is later; None where neither says anything.
    """
    span, first = usage_span(), BillingPeriod.objects.aggregate(first=Min("month"))["first"]
    months = [month for month in (first, span and month_of(min(span.start, now), zone)) if month]
    days = [date.fromisoformat(f"{min(months)}-01")] if months else []
    owned = _owned_from(teams)
    return max([*days, *([owned.astimezone(ZoneInfo(zone)).date()] if owned else [])], default=None)


def begun_after(teams: Collection[str], day: date, zone: str) -> set[str]:
    """Those of the teams that own something, but owned nothing when `day` began."""
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
    """When the first ownership of some teams began; None where one has no beginning, or none is declared."""
    starts: list[datetime | None] = []
    for model in (NamespaceOwnership, ConsumerOwnership):
        rows = model.objects.filter(team__code__in=list(teams)).order_by(F("valid_from").asc(nulls_first=True))
        starts += rows.values_list("valid_from", flat=True)[:1]
    return None if None in starts else min((start for start in starts if start is not None), default=None)
