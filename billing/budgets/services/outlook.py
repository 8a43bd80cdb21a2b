"""The stored past of spending, and the forecasts made from it."""

from collections.abc import Mapping
from datetime import date, datetime
from fractions import Fraction
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from django.db import connection, transaction
from django.db.models import Q, Sum

from billing.budgets.committed_forecast import Bought, as_billed, bought_ahead
from billing.budgets.forecast import Forecast, Progress, forecast, withheld
from billing.budgets.history import DAY, REMEMBERED_DAYS, Past, counted_through, last_stored_day, past_until
from billing.budgets.models import BudgetStatus, CountedDays, DailySpend, DailyTeamSpend
from billing.budgets.repricing import prices_ahead
from billing.budgets.scope import Scope
from billing.budgets.selectors import scope_of, team_tree
from billing.budgets.spending import Running, Spent, by_team, local_days, running_jobs, spent_in
from billing.rates.selectors import commitment_book
from billing.rating.freshness import freshness
from billing.rating.selectors import reference_data_known
from billing.tenancy.selectors import billing_setup
from billing.usage.reported import Reported
from billing.usage.selectors import last_close_seq
from metering.intervals import Interval
from pricing.money import round_amount, round_to

REDONE_DAYS: Final = 3
"""The newest stored days are summed again: usage comes late. Older ones only on demand."""
STORE_LOCK: Final = 0x42445059


def days_store(*, now: datetime, rebuild: bool = False) -> int:
    """Sum the complete days that are not stored yet, and the newest again; returns how many rows are new.

    With `rebuild` every remembered day is summed again.
    """
    zone = billing_setup().zone
    today = now.astimezone(ZoneInfo(zone)).date()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [STORE_LOCK])
        CountedDays.objects.update_or_create(pk=1, defaults={"through": today - DAY})
        first = _first_day(today, zone, rebuild)
        if first is None or first >= today:
            return 0
        where = ZoneInfo(zone)
        parts = local_days(datetime(first.year, first.month, first.day, tzinfo=where), now, zone)
        for model in (DailySpend, DailyTeamSpend):
            model.objects.filter(Q(day__gte=first) | Q(day__lt=today - REMEMBERED_DAYS * DAY)).delete()
        rows = [_day_row(first + item.part * DAY, item) for item in spent_in(parts)]
        DailySpend.objects.bulk_create(rows, batch_size=5000)
        _sum_by_team(first)
        return len(rows)


def _sum_by_team(first: date) -> None:
    summed = DailySpend.objects.filter(day__gte=first).values_list("day", "team").annotate(Sum("amount"))
    rows = (DailyTeamSpend(day=day, team=team, amount=amount) for day, team, amount in summed)
    DailyTeamSpend.objects.bulk_create(rows, batch_size=5000)


def _first_day(today: date, zone: str, rebuild: bool) -> date | None:
    oldest = today - REMEMBERED_DAYS * DAY
    stored = None if rebuild else last_stored_day()
    if stored is not None:
        return max(oldest, stored - (REDONE_DAYS - 1) * DAY)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT least((SELECT min(start) FROM usage_allocationrevision), (SELECT min(hour) FROM token_usage_hour))"
        )
        used = cursor.fetchone()[0]
    return None if used is None else max(oldest, used.astimezone(ZoneInfo(zone)).date())


def _day_row(day: date, item: Spent) -> DailySpend:
    return DailySpend(
        day=day, team=item.team, kind=item.kind, cluster=item.cluster, namespace=item.namespace, consumer=item.consumer,
        accelerator=item.accelerator, sku=item.sku, amount=round_to(item.amount, 6),
    )  # fmt: skip


def forecast_is_missing(*, now: datetime) -> bool:
    """Whether a standing of now was never looked at."""
    return BudgetStatus.objects.filter(start__lte=now, end__gt=now, forecast_at=None).exists()


def forecasts_update(*, now: datetime) -> int:
    """Forecast every standing of a period that contains `now`; returns how many have one."""
    zone = billing_setup().zone
    standings = list(BudgetStatus.objects.filter(start__lte=now, end__gt=now).select_related("budget__team"))
    if not standings:
        return 0
    past, tree, jobs = past_until(now, zone), team_tree(), by_team(running_jobs(now))
    until = max(standing.end for standing in standings)
    prices, bought, made = prices_ahead(now, until, zone), _bought(until, now, zone), 0
    reported, counted = Reported(now), counted_through()
    for standing in standings:
        scope = scope_of(standing.budget, tree)
        elapsed = progress_of(standing.start, standing.end, now, zone)[2]
        stale = freshness(scope.usage, Interval(standing.start, standing.end), now, reported=reported).stale
        if reason := withheld(elapsed, past.last, silent=stale, counted=counted):
            _keep(standing, None, Fraction(0), now, reason)
            continue
        own, hours = [job for team in scope.teams for job in jobs.get(team, ())], _until(bought, standing.end, zone)
        answer, extra = _forecast(standing, scope, past, own, prices.dearer(scope, standing.end), hours, now, zone)
        made += answer is not None
        _keep(standing, answer, extra, now, "" if answer else "history")
    return made


def _bought(until: datetime, now: datetime, zone: str) -> list[Bought]:
    buyers = {one.team for one in commitment_book().commitments}
    return bought_ahead(until, reference_data_known(last_close_seq() + 1), buyers, now=now, zone=zone) if buyers else []


def _until(bought: list[Bought], end: datetime, zone: str) -> list[Bought]:
    """What of it lies in a period that ends then."""
    return [item for item in bought if item.first < end.astimezone(ZoneInfo(zone)).date()]


def _forecast(
    standing: BudgetStatus, scope: Scope, past: Past, jobs: list[Running], dearer: Mapping[date, Fraction],
    bought: list[Bought], now: datetime, zone: str,
) -> tuple[Forecast | None, Fraction]:
    """The forecast of regular usage, and what is spent beyond it: adjustments and corrections, which do not go on.

    `jobs`: those of all the scope's teams.
    """
    history = past.of_scope(scope)
    start, days, elapsed = progress_of(standing.start, standing.end, now, zone)
    today = start + int(elapsed) * DAY
    regular = sum((amount for day, amount in history.items() if start <= day < today), Fraction(0)) + past.today_of(scope)
    by_day = partial(encumbered_by_day, now=now, end=standing.end, zone=zone)
    progress = Progress(start, days, elapsed, regular, by_day([job for job in jobs if scope.covers(job)]), dearer)
    answer = forecast(progress, history)
    if answer is not None:
        answer = as_billed(answer, progress, scope, bought, past, jobs, by_day)
    return answer, Fraction(standing.spent) - regular


def progress_of(start: datetime, end: datetime, now: datetime, zone: str) -> tuple[date, int, Fraction]:
    """First local day, how many local days, and how many of them have passed, the part of today included."""
    where = ZoneInfo(zone)
    first, last, today = (at.astimezone(where).date() for at in (start, end, now))
    midnight = datetime(today.year, today.month, today.day, tzinfo=where)
    tomorrow = datetime.combine(today + DAY, midnight.timetz())
    so_far = Fraction(Interval(midnight, now).microseconds, Interval(midnight, tomorrow).microseconds)
    return first, (last - first).days, (today - first).days + so_far


def encumbered_by_day(jobs: list[Running], now: datetime, end: datetime, zone: str) -> Mapping[date, Fraction]:
    """What running jobs are expected to cost on each remaining local day of the period; what began stays with today."""
    where = ZoneInfo(zone)
    costs: dict[date, Fraction] = {}
    for day in local_days(now, end, zone):
        cost = sum((job.cost_in(day) for job in jobs), Fraction(0))
        if cost:
            costs[day.start.astimezone(where).date()] = cost
    return costs


def _keep(standing: BudgetStatus, answer: Forecast | None, extra: Fraction, now: datetime, reason: str) -> None:
    values: dict[str, object] = dict.fromkeys(("forecast_p10", "forecast_p50", "forecast_p90"))
    values |= {"forecast_method": "", "forecast_errors": {}, "forecast_windows": 0, "forecast_at": now}
    values |= {"forecast_withheld": reason}
    if answer is not None:
        ends = {"forecast_p10": answer.p10, "forecast_p50": answer.p50, "forecast_p90": answer.p90}
        values |= {name: None if end is None else round_amount(end + extra) for name, end in ends.items()}
        values |= {
            "forecast_method": answer.method, "forecast_windows": answer.windows,
            "forecast_errors": {name: str(round_to(error, 4)) for name, error in answer.errors.items()},
        }  # fmt: skip
    BudgetStatus.objects.filter(pk=standing.pk).update(**values)
