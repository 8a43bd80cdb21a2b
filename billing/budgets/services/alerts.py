"""Alerts for thresholds, burn rates and silence. Each cause fires once; unique rows in the database ensure that."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from django.db import transaction

from billing.budgets.committed_forecast import contracted_ahead
from billing.budgets.models import Alert, BudgetStatus, Channel, Delivery
from billing.budgets.selectors import scope_of, team_tree
from billing.budgets.services.counters import counters_refresh
from billing.budgets.spending import by_team, covered, spent_in
from billing.budgets.thresholds import BURN_RULES, burning, reached, share_of
from billing.rates.selectors import commitment_book
from billing.runtime.apart import each_apart
from billing.tenancy.selectors import billing_setup
from metering.intervals import Interval, day_of
from pricing.money import round_amount

WARNING_FROM, URGENT_FROM = 80, 100


def budgets_evaluate(*, now: datetime) -> list[Alert]:
    """Refresh every budget's status and fire due alerts; returns the alerts that this call fired.

    Any number of calls at once, or again, fire each cause once: threshold x period x revision of the amount. A budget whose
    thresholds cannot be evaluated blocks no other, nor do burn rates that fail.
    """
    standings = counters_refresh(now=now, past=True)
    tree, book, zone = team_tree(now), commitment_book(), billing_setup().zone

    def ahead(standing: BudgetStatus) -> Decimal:
        period = Interval(standing.start, standing.end)
        return contracted_ahead(scope_of(standing.budget, tree), period, book, now=now, zone=zone)

    current = [standing for standing in standings if standing.start <= now < standing.end]
    candidates: list[Alert] = []

    def look(due: Iterable[Alert]) -> None:
        for alert in due:  # one by one: alerts found before a failure are fired
            candidates.append(alert)

    each_apart(standings, lambda standing: look(_reached(standing, ahead, now)))
    each_apart(["burn rates"], lambda _: look(_burns(current, now)))
    candidates += [_silence(standing, standing.silent_since, zone, now) for standing in current if standing.silent_since]
    known = set(Alert.objects.filter(cause__in=[alert.cause for alert in candidates]).values_list("cause", flat=True))
    return [alert for alert in candidates if alert.cause not in known and alert_fire(alert)]


def alert_fire(alert: Alert, channels: Iterable[Channel] | None = None) -> bool:
    """Store the alert with a delivery to each channel, by default those of its budget; False if its cause fired before."""
    wanted = list(channels) if channels is not None else list(alert.budget.channels.all()) if alert.budget else []
    values = {field.attname: getattr(alert, field.attname) for field in Alert._meta.concrete_fields if not field.primary_key}
    with transaction.atomic():
        # the unique cause decides between concurrent calls
        stored, fired = Alert.objects.get_or_create(cause=values.pop("cause"), defaults=values)
        if fired:
            Delivery.objects.bulk_create(
                Delivery(alert=stored, channel=channel, next_attempt_at=alert.fired_at) for channel in wanted
            )
    alert.pk = stored.pk
    return fired


def _reached(
    standing: BudgetStatus, ahead: Callable[[BudgetStatus], Decimal], now: datetime
) -> Iterator[Alert]:
    """Yield an alert for each reached threshold, actual, forecast and committed.

    `ahead`: contracted minimum of the months to come. The lines of the running month contain theirs already.
    """
    budget = standing.budget
    yield from _of_basis(standing, "actual", standing.spent, budget.thresholds, now)
    current = standing.forecast_as_of(now) is None and now < standing.end
    if standing.forecast_p50 is not None and current and standing.silent_since is None:
        yield from _of_basis(standing, "forecast", standing.forecast_p50, budget.forecast_thresholds, now)
    if budget.commitment_thresholds:
        committed = standing.spent + standing.encumbered + ahead(standing)
        yield from _of_basis(standing, "commitment", committed, budget.commitment_thresholds, now)


def _of_basis(
    standing: BudgetStatus, basis: str, value: Decimal, percents: list[int], now: datetime
) -> Iterator[Alert]:
    for percent in reached(value, standing.amount, percents):
        yield _alert(
            standing, now, kind=Alert.Kind.THRESHOLD, level=_level(basis, percent), basis=basis, percent=percent,
            value=value,
            cause=f"threshold:{standing.budget_id}:{standing.period}:{basis}:{percent}:r{standing.budget.revision}",
        )  # fmt: skip


def _alert(standing: BudgetStatus, now: datetime, **facts: Any) -> Alert:
    """Build an alert of a budget; `facts` override those of its status."""
    budget = standing.budget
    known: dict[str, Any] = {
        "team": budget.team, "budget": budget, "period": standing.period, "amount": standing.amount,
        "owner": budget.owner or budget.team.code, "data_time": standing.data_through or standing.as_of, "fired_at": now,
    }  # fmt: skip
    return Alert(**{**known, **facts})


def _level(basis: str, percent: int) -> str:
    if basis == "actual" and percent >= URGENT_FROM:
        return Alert.Level.URGENT
    return Alert.Level.WARNING if percent >= WARNING_FROM else Alert.Level.INFO


def _burns(standings: list[BudgetStatus], now: datetime) -> Iterator[Alert]:
    if not standings:
        return
    bounds = sorted({now, *(now - span for rule in BURN_RULES for span in (rule.window, rule.confirm))})
    parts = [Interval(lo, hi) for lo, hi in pairwise(bounds)]
    spent, tree = by_team(spent_in(parts)), team_tree(now)
    day = day_of(now, billing_setup().zone)
    for standing in standings:
        own = covered(spent, scope_of(standing.budget, tree))
        for rule in BURN_RULES:
            window, confirm = (
                sum((item.amount for item in own if parts[item.part].start >= now - span), Fraction(0))
                for span in (rule.window, rule.confirm)
            )
            length, amount = standing.end - standing.start, Fraction(standing.amount)
            if burning(rule, window, confirm, amount, length):
                yield _alert(
                    standing, now, kind=Alert.Kind.BURN, basis=rule.name, value=round_amount(window),
                    amount=round_amount(amount * share_of(rule.window, length)),
                    level=Alert.Level.URGENT if rule.urgent else Alert.Level.WARNING,
                    data_time=standing.data_through or now,
                    cause=f"burn:{standing.budget_id}:{rule.name}:{day}:r{standing.budget.revision}",
                )  # fmt: skip


def _silence(standing: BudgetStatus, since: datetime, zone: str, now: datetime) -> Alert:
    """Build the alert that says that no other can fire while usage is not reported.

    Once per period and day on which the silence began, so that a reporter that is late again and again fires once a day.
    """
    day = day_of(since, zone)
    return _alert(
        standing, now, kind=Alert.Kind.SILENCE, level=Alert.Level.WARNING, basis="silence", value=standing.spent,
        data_time=since, cause=f"silence:{standing.budget_id}:{standing.period}:{day}",
    )  # fmt: skip
