"""Budgets, where each stands and will end, who is told, and the days that were unusual."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import get_language
from django.views.decorators.http import require_POST, require_safe

from billing.budgets.alert_quality import alert_quality
from billing.budgets.committed_forecast import contracted_ahead
from billing.budgets.expected import progress_of
from billing.budgets.forecast import FEWEST_DAYS
from billing.budgets.models import SCOPE_FIELDS, Alert, Budget, BudgetStatus, CostAnomaly, DailySpend, Mute
from billing.budgets.selectors import active_mutes, ladder_of, scope_of, standing_now, team_tree
from billing.budgets.services import BudgetError, feedback_put, mute_end, mute_put, recipients_put, thresholds_put
from billing.budgets.services.budgets import THRESHOLDS
from billing.portal.access import page
from billing.portal.budget_form import percents_written
from billing.portal.charts import Chart, DayRow, course_chart, day_rows
from billing.portal.tables import DATED, Column, Row, Table, download
from billing.portal.totals import budget_totals, forecast_of
from billing.rates.selectors import commitment_book
from billing.rating.freshness import Freshness, freshness
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup, Team
from metering.intervals import Interval
from metering.messages import Message

PAGE_SIZE = 50
ALERTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One budget of the list with its standing, which is None before it was first counted."""

    budget: Budget
    standing: BudgetStatus | None

    @property
    def used(self) -> Decimal | None:
        """Spent over planned, as a ratio."""
        return None if self.standing is None else self.standing.spent / self.standing.amount

    @property
    def expected(self) -> Decimal | None:
        """Forecast over planned, as a ratio; None without one that is as new as the spending."""
        if self.standing is None or (forecast := forecast_of(self.standing)) is None:
            return None
        return forecast / self.standing.amount


@require_safe
@page
def budget_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Every budget that somebody may see, the fullest first, found by name, scope or team."""
    now = timezone.now()
    wanted = request.GET.get("q", "").replace("\0", "").strip()
    standings = {row.budget_id: row for row in BudgetStatus.objects.filter(start__lte=now, end__gt=now)}
    rows = [BudgetRow(budget, standings.get(budget.pk)) for budget in _visible(request) if _matches(budget, wanted)]
    rows.sort(key=lambda row: (row.used is None, -(row.used or 0), str(row.budget)))
    if (file := download(request, {"budgets": lambda: _table(rows)})) is not None:
        return file
    context = {
        "nav": "budgets", "setup": setup, "q": wanted, "page": Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page")),
        "totals": budget_totals(rows, team_tree(), now) if len(rows) > 1 else [],
    }  # fmt: skip
    return render(request, "portal/budgets.html", context)


def _matches(budget: Budget, wanted: str) -> bool:
    """Whether a name of the budget has the text in it, whatever the case of letters."""
    names = (budget.name, budget.team.code, budget.team.name, *(getattr(budget, field) for field in SCOPE_FIELDS))
    return any(wanted.casefold() in name.casefold() for name in names)


def _table(rows: list[BudgetRow]) -> Table:
    sums = ("amount", "spent", "encumbered", "forecast_p10", "forecast_p50", "forecast_p90")
    columns = [Column("budget"), Column("team"), Column("period"), *(Column(name, "money") for name in sums), DATED]
    return Table(
        "budgets", columns,
        [
            [str(row.budget), row.budget.team.code, row.standing.period if row.standing else None,
             *(getattr(row.standing, name) if row.standing else None for name in (*sums, "data_through"))]
            for row in rows
        ],
    )  # fmt: skip


def _visible(request: HttpRequest) -> list[Budget]:
    access = access_of(request.user)
    budgets = Budget.objects.select_related("team").order_by("team__code", "id")
    return [budget for budget in budgets if access.may(Right.READ, budget.team)]


def budget_or_404(request: HttpRequest, pk: int) -> Budget:
    """A budget that the person may see.  Raises Http404."""
    budget = Budget.objects.select_related("team").prefetch_related("ladder", "channels", "plan").filter(pk=pk).first()
    if budget is None or not access_of(request.user).may(Right.READ, budget.team):
        raise Http404(f"no budget {pk} that {request.user} may see")
    return budget


def own_budget(request: HttpRequest, pk: int) -> Budget:
    """A budget whose recipients and mutes the person decides."""
    budget = budget_or_404(request, pk)
    if not access_of(request.user).may(Right.BUDGET, budget.team):
        raise PermissionDenied
    return budget


@require_safe
@page
def budget(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """One budget: so far, where it will end, thresholds, who was told what."""
    found = budget_or_404(request, pk)
    file = download(request, _tables(found, setup))
    return budget_page(request, setup, found) if file is None else file


def _tables(found: Budget, setup: BillingSetup) -> dict[str, Callable[[], Table]]:
    now = timezone.now()
    standing = standing_now(found, now)
    return {
        "days": lambda: _day_table([] if standing is None else _course(found, standing, now, setup)[0]),
        "thresholds": lambda: _threshold_table(_thresholds(found, standing)),
        "methods": lambda: Table(
            "forecast-methods", [Column("method"), Column("error", "ratio"), Column("chosen")],
            [[name, error, str(chosen).lower()] for name, error, chosen in _errors(standing)],
        ),
        "alerts": lambda: _alert_table(Alert.objects.filter(budget=found).prefetch_related("deliveries__channel")),
    }  # fmt: skip


def _day_table(rows: Iterable[DayRow]) -> Table:
    columns = [Column("day"), Column("spent_at_list_price", "money"), Column("sum", "money")]
    return Table("budget-by-day", columns, [[row.day.isoformat(), row.amount, row.total] for row in rows])


def _threshold_table(thresholds: Iterable[dict[str, Any]]) -> Table:
    columns = [Column("basis"), Column("percent", "count"), Column("amount", "money"), Column("fired")]
    return Table("thresholds", columns, [[item[column.name] for column in columns] for item in thresholds])


def _alert_table(alerts: Iterable[Alert]) -> Table:
    columns = [Column(name) for name in ("fired_at", "kind", "basis", "period", "level", "told")]
    sums = (Column("percent", "count"), Column("value", "money"), Column("amount", "money"))
    rows = [
        [row.fired_at, row.kind, row.basis, row.period, row.level,
         ", ".join(item.channel.name for item in row.deliveries.all() if item.sent_at), row.percent, row.value, row.amount]
        for row in alerts
    ]  # fmt: skip
    return Table("alerts", [*columns, *sums], rows)


def budget_page(
    request: HttpRequest, setup: BillingSetup, found: Budget, refusal: str = "", status: int = 200
) -> HttpResponse:
    """The page of a budget, with what was refused on top of it."""
    now = timezone.now()
    standing = standing_now(found, now)
    contracted = _contracted(found, standing, now, setup)
    days, chart = ([], None) if standing is None else _course(found, standing, now, setup)
    alerts = Alert.objects.filter(budget=found).prefetch_related("deliveries__channel")[:ALERTS_SHOWN]
    context = {
        "nav": "budgets", "setup": setup, "budget": found, "standing": standing, "row": BudgetRow(found, standing),
        "remaining": None if standing is None else standing.amount - standing.spent,
        "available": None if standing is None else standing.amount - standing.spent - standing.encumbered - contracted,
        "contracted": contracted, "days": days, "chart": chart, "fewest_days": FEWEST_DAYS,
        "thresholds": _thresholds(found, standing), "ladder": ladder_of(found), "alerts": alerts, "refusal": refusal,
        "percents": {name: ", ".join(str(value) for value in getattr(found, name)) for name in THRESHOLDS},
        "fresh": _fresh(found, standing, now),
        "errors": _errors(standing), "mutes": active_mutes(now).filter(team=found.team, budget__in=[found]),
        "recipients": "\n".join(channel.name for channel in found.channels.all()),
        "may_change": access_of(request.user).may(Right.BUDGET, found.team),
        "overrides": found.overrides.filter(until__gt=now).select_related("proposal").prefetch_related("proposal__steps"),
    }  # fmt: skip
    return render(request, "portal/budget.html", context, status=status)


def _fresh(found: Budget, standing: BudgetStatus | None, now: datetime) -> Freshness | None:
    """How fresh the figures of the budget are."""
    if standing is None:
        return None
    return freshness(scope_of(found, team_tree()).usage, Interval(standing.start, standing.end), now)


def _contracted(found: Budget, standing: BudgetStatus | None, now: datetime, setup: BillingSetup) -> Decimal:
    """What is to be paid in the months to come whether it is used or not."""
    if standing is None:
        return Decimal("0.00")
    period, scope = Interval(standing.start, standing.end), scope_of(found, team_tree())
    return contracted_ahead(scope, period, commitment_book(), now=now, zone=setup.zone)


def _course(found: Budget, standing: BudgetStatus, now: datetime, setup: BillingSetup) -> tuple[list[DayRow], Chart]:
    first, count, elapsed = progress_of(standing.start, standing.end, now, setup.zone)
    scope = scope_of(found, team_tree())
    sums: dict[date, Decimal] = defaultdict(Decimal)
    for row in DailySpend.objects.filter(day__gte=first, team__in=scope.teams):
        if scope.covers(row):
            sums[row.day] += row.amount
    rows = day_rows(sorted(sums.items()), first, min(int(elapsed), count))
    return rows, course_chart(standing, rows, first, count, elapsed, setup.currency)


def _errors(standing: BudgetStatus | None) -> list[tuple[str, Decimal, bool]]:
    """(method, back-tested error, whether it was chosen), the best first."""
    if standing is None:
        return []
    errors = [(name, Decimal(error)) for name, error in standing.forecast_errors.items()]
    return [(name, error, name == standing.forecast_method) for name, error in sorted(errors, key=lambda item: item[1])]


def _thresholds(found: Budget, standing: BudgetStatus | None) -> list[dict[str, Any]]:
    """Every threshold with its amount and when it fired in this period, at this amount."""
    if standing is None:
        return []
    fired = {
        (alert.basis, alert.percent): alert.fired_at
        for alert in Alert.objects.filter(budget=found, kind=Alert.Kind.THRESHOLD, period=standing.period)
        if alert.cause.endswith(f":r{found.revision}")
    }
    bases = {
        "actual": found.thresholds, "forecast": found.forecast_thresholds, "commitment": found.commitment_thresholds
    }  # fmt: skip
    return [
        {"basis": basis, "percent": percent, "amount": standing.amount * percent / 100, "fired": fired.get((basis, percent))}
        for basis, percents in bases.items()
        for percent in percents
    ]


@require_POST
@page
def recipients(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Replace who is told: one mail address or channel per line."""
    found = own_budget(request, pk)
    names = [line.strip() for line in request.POST.get("recipients", "").splitlines() if line.strip()]
    try:
        recipients_put(
            budget=found, names=names, actor=request.user.get_username(), language=get_language() or ""
        )
    except BudgetError as error:
        return budget_page(request, setup, found, error.message, 400)
    return redirect("portal:budget", pk=pk)


@require_POST
@page
def thresholds(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Replace the percentages at which somebody is told: of spending, of the forecast, with running jobs."""
    found = own_budget(request, pk)
    try:
        percents = {name: percents_written(name, request.POST.get(name, "")) for name in THRESHOLDS}
        thresholds_put(budget=found, percents=percents, actor=request.user.get_username())
    except BudgetError as error:
        return budget_page(request, setup, found, error.message, 400)
    return redirect("portal:budget", pk=pk)


@require_POST
@page
def mute(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Hold back alerts until a local time, with a reason."""
    found = own_budget(request, pk)
    try:
        until = local_moment("mute", request.POST.get("until", ""), setup.zone)
        reason = request.POST.get("reason", "")
        mute_put(budget=found, until=until, reason=reason, now=timezone.now(), actor=request.user.get_username())
    except BudgetError as error:
        return budget_page(request, setup, found, error.message, 400)
    return redirect("portal:budget", pk=pk)


def local_moment(what: str, text: str, zone: str) -> datetime:
    """A local date and time of a form.  Raises BudgetError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BudgetError(Message(
            "%(what)s until %(text)s: must be a local date and time such as 2026-10-31T18:00",
            what=what, text=repr(text[:40]),
        )) from error
    return moment.replace(tzinfo=ZoneInfo(zone)) if moment.tzinfo is None else moment


@require_POST
@page
def unmute(request: HttpRequest, setup: BillingSetup, pk: int, mute_pk: int) -> HttpResponse:
    """End a mute now."""
    found = own_budget(request, pk)
    held = Mute.objects.filter(pk=mute_pk, budget=found).first()
    if held is None:
        raise Http404(f"no mute {mute_pk} of budget {pk}")
    mute_end(mute=held, now=timezone.now(), actor=request.user.get_username())
    return redirect("portal:budget", pk=pk)


@require_safe
@page
def anomalies(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Unusual days of the teams that somebody may see, the newest first."""
    findings = CostAnomaly.objects.filter(team__in=_teams(request, Right.READ)).select_related("team")
    if (file := download(request, {"anomalies": lambda: _findings(findings)})) is not None:
        return file
    waiting = findings.filter(feedback="").count()
    shown = Paginator(findings, PAGE_SIZE).get_page(request.GET.get("page"))
    own = set(_teams(request, Right.BUDGET).values_list("pk", flat=True))
    rows = [(finding, finding.team_id in own) for finding in shown]
    context = {
        "nav": "anomalies", "setup": setup, "page": shown, "rows": rows, "waiting": waiting,
        "choices": CostAnomaly.Feedback.values, "quality": alert_quality(_teams(request, Right.READ), timezone.now()),
    }  # fmt: skip
    return render(request, "portal/anomalies.html", context)


def _findings(findings: Iterable[CostAnomaly]) -> Table:
    names = ("team", "kind", "sku", "day", "feedback")
    rows: list[Row] = [
        [row.team.code, row.kind, row.sku, row.day.isoformat(), row.feedback, row.amount, row.median] for row in findings
    ]
    return Table("anomalies", [*(Column(name) for name in names), Column("amount", "money"), Column("usual", "money")], rows)


def _teams(request: HttpRequest, right: Right) -> Any:
    access = access_of(request.user)
    return Team.objects.all() if access.may(right) else access.teams(right)


@require_POST
@page
def feedback(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Say whether a day was unusual, planned, or a false alarm."""
    finding = CostAnomaly.objects.select_related("team").filter(pk=pk, team__in=_teams(request, Right.READ)).first()
    if finding is None:
        raise Http404(f"no finding {pk} that {request.user} may see")
    if not access_of(request.user).may(Right.BUDGET, finding.team):
        raise PermissionDenied
    try:
        feedback_put(
            finding=finding, feedback=request.POST.get("feedback", ""), note=request.POST.get("note", ""),
            now=timezone.now(), actor=request.user.get_username(),
        )  # fmt: skip
    except BudgetError as error:
        raise Http404(str(error)) from error
    return redirect("portal:anomalies")
