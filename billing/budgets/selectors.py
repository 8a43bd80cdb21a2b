"""Reads of budgets: budgets in force with their period, their status, mutes and raised caps."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.db.models import Q, QuerySet, Sum

from billing.approvals.models import Proposal
from billing.budgets.group_times import GroupTimes
from billing.budgets.models import Budget, BudgetStatus, CapOverride, Mute
from billing.budgets.scope import BudgetPeriod, Scope, period_at
from billing.budgets.thresholds import DEFAULT_LADDER, Rung
from billing.invoices.models import BillingPeriod
from billing.tenancy.models import Team
from metering.intervals import MICROSECOND


def team_tree(now: datetime) -> dict[str, frozenset[str]]:
    """Return for every team and group its own code with those of all teams below it now."""
    return GroupTimes.read().below_at(now)


def scope_of(budget: Budget, tree: Mapping[str, frozenset[str]]) -> Scope:
    return Scope(
        tree[budget.team.code], budget.cluster, budget.namespace, budget.consumer, budget.accelerator, budget.model
    )


def ladder_of(budget: Budget) -> tuple[Rung, ...]:
    """Return the budget's ladder, or the default: refusal at the whole amount."""
    return tuple(row.rung for row in budget.ladder.all()) or DEFAULT_LADDER


def period_of(budget: Budget, instant: datetime, zone: str) -> BudgetPeriod | None:
    """Return the budget's period that contains the instant, if the budget is in force then."""
    if (budget.valid_from and instant < budget.valid_from) or (budget.valid_until and budget.valid_until <= instant):
        return None
    plan = {row.month: row.amount for row in budget.plan.all()}
    return period_at(
        instant, kind=budget.period, amount=budget.amount, plan=plan, zone=zone, year_begins=settings.FISCAL_YEAR_START
    )


def budgets_with_periods(now: datetime, zone: str, *, past: bool) -> list[tuple[Budget, BudgetPeriod]]:
    """Return every budget with its current period and, if `past`, the previous one while any of its months is not closed."""
    closed = set(BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).values_list("month", flat=True))
    found: list[tuple[Budget, BudgetPeriod]] = []
    for budget in Budget.objects.select_related("team").prefetch_related("plan", "ladder", "channels"):
        current = period_of(budget, now, zone)
        if current is not None:
            found.append((budget, current))
        if past and (before := _before(budget, now, zone)) is not None and not closed.issuperset(before.months):
            found.append((budget, before))
    return found


def _before(budget: Budget, now: datetime, zone: str) -> BudgetPeriod | None:
    kind = "quarter" if budget.period == Budget.Period.QUARTER else "month"
    current = period_at(
        now, kind=kind, amount=budget.amount, plan={}, zone=zone, year_begins=settings.FISCAL_YEAR_START
    )
    return None if current is None else period_of(budget, current.window.start - MICROSECOND, zone)


def monthly_amounts(teams: Iterable[Team], month: str, instant: datetime, zone: str) -> dict[int, Decimal]:
    """Return each team's amount for the month, from its budget for everything, by team id."""
    kinds = (Budget.Period.MONTH, Budget.Period.PLAN)
    empty = Q(cluster="", namespace="", consumer="", accelerator="", model="")
    rows = Budget.objects.filter(empty, team__in=list(teams), period__in=kinds).order_by("-period").prefetch_related("plan")
    found: dict[int, Decimal] = {}
    for budget in rows:
        period = period_of(budget, instant, zone)
        if period is not None and period.label == month:
            found.setdefault(budget.team_id, period.amount)
    return found


def status_now(budget: Budget, now: datetime) -> BudgetStatus | None:
    """Return the stored status of the period that contains `now`; None before the first refresh."""
    return budget.standings.filter(start__lte=now, end__gt=now).first()


def active_mutes(now: datetime) -> QuerySet[Mute]:
    """Return the mutes that hold back alerts now."""
    return Mute.objects.filter(since__lte=now, until__gt=now)


def cap_raises(now: datetime) -> dict[int, Decimal]:
    """Return the amount by which approved overrides raise the cap of each budget now, by budget id."""
    rows = CapOverride.objects.filter(proposal__state=Proposal.State.APPROVED, until__gt=now).order_by()
    return {budget: amount for budget, amount in rows.values_list("budget").annotate(Sum("amount"))}
