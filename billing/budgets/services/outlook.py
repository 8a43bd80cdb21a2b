"""Stored past of spending, and the forecasts made from it."""

from datetime import date, datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import Max, Q, Sum

from billing.budgets.expected import Expected, Outlook
from billing.budgets.forecast import DAY
from billing.budgets.history import REMEMBERED_DAYS
from billing.budgets.models import BudgetStatus, CountedDays, DailySpend, DailyTeamSpend
from billing.budgets.repricing import prices_ahead
from billing.budgets.selectors import scope_of, team_tree
from billing.budgets.spending import Spent, local_days, spent_in
from billing.rates.selectors import commitment_book
from billing.rating.freshness import freshness
from billing.runtime.apart import each_apart
from billing.tenancy.selectors import billing_setup
from billing.usage.reported import Reported
from billing.usage.selectors import usage_span
from metering.intervals import Interval, day_of, midnight_of
from pricing.money import round_to

REDONE_DAYS: Final = 3
"""Number of the newest stored days that are summed again: usage comes late."""
REDONE_DAILY: Final = 62
"""Number of days summed again in the first run of a day: backdated owners or prices, and ended outages, change more."""
SPENT_STALE: Final = timedelta(hours=1)
"""Age from which a sum lacks usage that the counted days contain: the difference would reduce the forecast."""
STORE_LOCK: Final = 0x42445059


def days_store(*, now: datetime, rebuild: bool = False) -> int:
    """Sum the complete days that are not stored yet, and the newest again; returns how many rows are new.

    In the first run of a day more of the newest. With `rebuild` every remembered day is summed again.
    """
    zone = billing_setup().zone
    today = day_of(now, zone)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [STORE_LOCK])
        # counted through yesterday: not the first run of the day
        again = REDONE_DAYS if CountedDays.objects.filter(through=today - DAY).exists() else REDONE_DAILY
        CountedDays.objects.update_or_create(pk=1, defaults={"through": today - DAY})
        first = _first_day(today, zone, REMEMBERED_DAYS if rebuild else again)
        if first is None or first >= today:
            return 0
        parts = local_days(midnight_of(first, zone), now, zone)
        # deleted and inserted under the lock, in one transaction: readers never see a part of the past
        for model in (DailySpend, DailyTeamSpend):
            model.objects.filter(Q(day__gte=first) | Q(day__lt=today - REMEMBERED_DAYS * DAY)).delete()
        rows = [_day_row(first + item.part * DAY, item) for item in spent_in(parts)]
        DailySpend.objects.bulk_create(rows, batch_size=5000)
        summed = DailySpend.objects.filter(day__gte=first).values_list("day", "team").annotate(Sum("amount"))
        sums = (DailyTeamSpend(day=day, team=team, amount=amount) for day, team, amount in summed)
        DailyTeamSpend.objects.bulk_create(sums, batch_size=5000)
        return len(rows)


def _first_day(today: date, zone: str, again: int) -> date | None:
    """Return the first day to sum, `again` days of the stored ones included; None if there is no usage."""
    oldest = today - REMEMBERED_DAYS * DAY
    stored: date | None = DailySpend.objects.aggregate(last=Max("day"))["last"]
    if stored is not None:
        return max(oldest, stored - (again - 1) * DAY)
    used = usage_span()
    return None if used is None else max(oldest, day_of(used.start, zone))


def _day_row(day: date, item: Spent) -> DailySpend:
    return DailySpend(
        day=day, team=item.team, kind=item.kind, cluster=item.cluster, namespace=item.namespace, consumer=item.consumer,
        accelerator=item.accelerator, sku=item.sku, amount=round_to(item.amount, 6),
    )  # fmt: skip


def forecast_is_missing(*, now: datetime) -> bool:
    """Return True if the status of a current period has never been forecast."""
    return BudgetStatus.objects.filter(start__lte=now, end__gt=now, forecast_at=None).exists()


def forecasts_update(*, now: datetime) -> int:
    """Forecast every budget of a current period; returns how many have a forecast. A failure affects no other budget."""
    zone = billing_setup().zone
    standings = list(BudgetStatus.objects.filter(start__lte=now, end__gt=now).select_related("budget__team"))
    if not standings:
        return 0
    until, buyers = max(standing.end for standing in standings), {one.team for one in commitment_book().commitments}
    outlook = Outlook(now, zone, until, buyers, prices_ahead(now, until, zone))
    tree, reported = team_tree(now), Reported(now)

    def expected(standing: BudgetStatus) -> tuple[int, Expected]:
        scope, window = scope_of(standing.budget, tree), Interval(standing.start, standing.end)
        stale = freshness(scope, window, now, reported=reported).stale
        return standing.pk, outlook.of(scope, window, standing.spent, silent=stale)

    made = dict(each_apart([one for one in standings if now - one.as_of < SPENT_STALE], expected))
    for standing in standings:
        found = made.get(standing.pk, Expected(withheld="failed"))
        BudgetStatus.objects.filter(pk=standing.pk).update(
            forecast_p10=found.p10, forecast_p50=found.p50, forecast_p90=found.p90, forecast_method=found.method,
            forecast_errors={name: str(round_to(error, 4)) for name, error in found.errors.items()},
            forecast_windows=found.windows, forecast_at=now, forecast_withheld=found.withheld,
        )  # fmt: skip
    return sum(found.p50 is not None for found in made.values())
