"""Budgets with their status, forecast and recipients, and unusual days of spending."""

from collections import defaultdict
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import get_language

from billing.budgets import services
from billing.budgets.alert_quality import alert_quality
from billing.budgets.committed_forecast import contracted_ahead
from billing.budgets.expected import progress_of
from billing.budgets.group_times import GroupTimes
from billing.budgets.models import (
    SCOPE_FIELDS,
    Alert,
    Budget,
    BudgetStatus,
    CapOverride,
    CostAnomaly,
    CountedDays,
    DailySpend,
    Mute,
)
from billing.budgets.scope import Scope
from billing.budgets.selectors import active_mutes, ladder_of, status_now, team_tree
from billing.budgets.services.budgets import THRESHOLDS, loosens
from billing.budgets.services.changes import changes_waiting
from billing.budgets.spending import spent_in
from billing.portal.access import action, form_page, page
from billing.portal.anomaly_days import unusual_days
from billing.portal.asked import PAGE_SIZE, page_shown
from billing.portal.budget_form import (
    BudgetForm,
    ChangeForm,
    FeedbackForm,
    MuteForm,
    OverrideForm,
    RecipientsForm,
    ThresholdsForm,
)
from billing.portal.charts import Chart, DayRow, course_chart, day_rows
from billing.portal.forms import PageForm, acting
from billing.portal.tables import Column, Table, columns, download
from billing.portal.totals import BudgetRow, budget_totals
from billing.rates.selectors import commitment_book
from billing.rating.freshness import freshness
from billing.setup.budgets import budget_text, budgets_text
from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup, Team
from metering.intervals import Interval, day_of, midnight_of
from pricing.money import round_to

FINDINGS_SHOWN = 10
ALERTS_SHOWN = 20


def _counted_as(name: str, look: str = "text") -> Column:
    """Return a column of a budget's standing, empty before the first count."""
    return Column(name, look, lambda row: getattr(row.standing, name, None))


def _forecast(name: str) -> Column:
    return Column(f"forecast_{name}", "money", lambda row: getattr(row.expected, name, None))


ROW = [
    Column("budget", of=lambda row: str(row.budget)), Column("team", of="budget.team.code"), _counted_as("period"),
    *(_counted_as(name, "money") for name in ("amount", "spent", "encumbered")),
    *(_forecast(name) for name in ("p10", "p50", "p90")),
    *(_counted_as(name) for name in ("data_through", "as_of", "forecast_at")),
]  # fmt: skip
DAY = [Column("day"), Column("spent_at_list_price", "money", "amount"), Column("sum", "money", "total")]
THRESHOLD = [
    Column(name, look, itemgetter(name))
    for name, look in (("basis", "text"), ("percent", "count"), ("amount", "money"), ("fired", "text"))
]
ALERT = [
    *columns("fired_at", "kind", "basis", "period", "level"),
    Column("told", of=lambda row: ", ".join(item.channel.name for item in row.deliveries.all() if item.sent_at)),
    Column("percent", "count"), *columns("value", "amount", look="money"),
]  # fmt: skip
FINDING = [
    Column("team", of="team.code"), *columns("kind", "sku", "day", "feedback"), Column("amount", "money"),
    Column("usual", "money", "median"),
]  # fmt: skip


@page
def budget_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List the budgets that the user may see, the fullest first, searched by name, scope or team."""
    now = timezone.now()
    wanted = request.GET.get("q", "").strip()
    standings = {row.budget_id: row for row in BudgetStatus.objects.filter(start__lte=now, end__gt=now)}
    rows = [BudgetRow(budget, standings.get(budget.pk), now) for budget in _visible(request) if _matches(budget, wanted)]
    rows.sort(key=lambda row: (row.used is None, -(row.used or 0), str(row.budget)))
    if (file := download(request, {"budgets": lambda: Table.of("budgets", rows, ROW)})) is not None:
        return file
    context = {
        "nav": "budgets", "setup": setup, "q": wanted, "now": now, "page": page_shown(request, rows),
        "totals": budget_totals(rows, team_tree(now), now) if len(rows) > 1 else [],
        "may_make": access_of(request.user).somewhere(Right.BUDGET),
        "yaml": budgets_text([row.budget for row in rows[:PAGE_SIZE]], setup.zone),
    }  # fmt: skip
    return render(request, "portal/budgets.html", context)


def _matches(budget: Budget, wanted: str) -> bool:
    """Return True if a name of the budget contains the text, in any case."""
    names = (budget.name, budget.team.code, budget.team.name, *(getattr(budget, field) for field in SCOPE_FIELDS))
    return any(wanted.casefold() in name.casefold() for name in names)


def _visible(request: HttpRequest) -> list[Budget]:
    access = access_of(request.user)
    budgets = Budget.objects.select_related("team").order_by("team__code", "id")
    return [budget for budget in budgets if access.may(Right.READ, budget.team)]


def budget_or_404(request: HttpRequest, pk: int) -> Budget:
    """Return a budget that the user may see.  Raises Http404."""
    budgets = Budget.objects.select_related("team").prefetch_related("ladder", "channels", "plan")
    budget = get_object_or_404(budgets, pk=pk)
    if not access_of(request.user).may(Right.READ, budget.team):
        raise Http404(f"no budget {pk} that {request.user} may see")
    return budget


def own_budget(request: HttpRequest, pk: int) -> Budget:
    """Return a budget that the user may change.  Raises Http404, PermissionDenied."""
    budget = budget_or_404(request, pk)
    if not access_of(request.user).may(Right.BUDGET, budget.team):
        raise PermissionDenied
    return budget


@form_page
def budget_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the form and create its budget; a refused form keeps its input. A lead may choose the teams they lead."""
    teams = access_of(request.user).budget_teams
    if not teams.exists():
        raise PermissionDenied

    def make(team: Team, **wish: Any) -> Any:
        return services.budget_new(team=team, wish=services.BudgetWish(**wish), actor=actor_of(request))

    sent = request.POST if request.method == "POST" else None
    form = BudgetForm(sent, teams=teams, currency=setup.currency, today=timezone.localdate())
    if form.is_bound and form.done(make):
        return redirect("portal:budget", pk=form.made.pk)
    context = {"nav": "budgets", "setup": setup, "form": form}
    return render(request, "portal/budget_new.html", context, status=400 if form.is_bound else 200)


@page
def budget(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show one budget: spending, forecast, thresholds, and the alerts sent with their recipients."""
    found = budget_or_404(request, pk)
    file = download(request, _tables(found, setup))
    return budget_page(request, setup, found) if file is None else file


def _tables(found: Budget, setup: BillingSetup) -> dict[str, Callable[[], Table]]:
    now = timezone.now()
    standing = status_now(found, now)

    def days() -> list[DayRow]:
        if standing is None:
            return []
        scope = GroupTimes.read().scope_in(found, Interval(standing.start, standing.end))
        return _course(scope, standing, setup)[0]

    return {
        "days": lambda: Table.of("budget-by-day", days(), DAY),
        "thresholds": lambda: Table.of("thresholds", _thresholds(found, standing) if standing else (), THRESHOLD),
        "methods": lambda: Table(
            "forecast-methods", [Column("method"), Column("error", "ratio"), Column("chosen")],
            [[name, error, str(chosen).lower()] for name, error, chosen in (_errors(standing) if standing else ())],
        ),
        "alerts": lambda: Table.of(
            "alerts", Alert.objects.filter(budget=found).prefetch_related("deliveries__channel"), ALERT
        ),
    }  # fmt: skip


def budget_page(
    request: HttpRequest, setup: BillingSetup, found: Budget, refused: PageForm | None = None, status: int = 400
) -> HttpResponse:
    """Render the page of a budget; with a refused form, under that status."""
    now = timezone.now()
    standing = status_now(found, now)
    context = {
        "nav": "budgets", "setup": setup, "budget": found, "standing": standing, "row": BudgetRow(found, standing, now),
        "now": now,
        "ladder": ladder_of(found), "refused": refused,
        "alerts": Alert.objects.filter(budget=found).prefetch_related("deliveries__channel")[:ALERTS_SHOWN],
        "forms": {name: form.or_refused(refused) for name, form in _forms(found, setup).items()},
        "mutes": active_mutes(now).filter(team=found.team, budget__in=[found]),
        "may_change": access_of(request.user).may(Right.BUDGET, found.team),
        "change": changes_waiting(found).first(),
        "overrides": found.overrides.filter(until__gt=now).select_related("proposal").prefetch_related("proposal__steps"),
        **(_counted(found, standing, now, setup) if standing else {}),
    }  # fmt: skip
    return render(request, "portal/budget.html", context, status=status if refused else 200)


def _forms(found: Budget, setup: BillingSetup) -> dict[str, PageForm]:
    """Return the forms of the page in their initial state."""
    override = OverrideForm(key="override")
    override.fields["amount"].help_text = setup.currency
    names = "\n".join(channel.name for channel in found.channels.all())
    return {
        "thresholds": ThresholdsForm(key="thresholds", initial={name: getattr(found, name) for name in THRESHOLDS}),
        "recipients": RecipientsForm(key="recipients", initial={"recipients": names}),
        "override": override, "mute": MuteForm(key="mute"),
    }  # fmt: skip


def _counted(found: Budget, standing: BudgetStatus, now: datetime, setup: BillingSetup) -> dict[str, Any]:
    """Return the figures of a counted budget. `contracted` is to be paid in months to come, used or not."""
    window = Interval(standing.start, standing.end)
    scope = GroupTimes.read().scope_in(found, window)
    left = standing.amount - standing.spent
    contracted = contracted_ahead(scope, window, commitment_book(), now=now, zone=setup.zone)
    days, chart = _course(scope, standing, setup)
    fresh = freshness(scope, window, now)
    return {
        "remaining": left, "available": left - standing.encumbered - contracted, "contracted": contracted, "days": days,
        "chart": chart, "thresholds": _thresholds(found, standing), "fresh": fresh,
        "counted": freshness(scope, window, standing.as_of) if standing.spent_as_of(now) else fresh,
        "errors": _errors(standing),
    }  # fmt: skip


def _course(scope: Scope, standing: BudgetStatus, setup: BillingSetup) -> tuple[list[DayRow], Chart]:
    """Return rows and chart of the period as of its last sum; the rows are the days that were added up.

    The day of a team that changes its group counts as far as the team belongs to the budget.
    """
    first, count, elapsed = progress_of(standing.start, standing.end, standing.as_of, setup.zone)
    through = CountedDays.objects.values_list("through", flat=True).first()
    counted = 0 if through is None else max(0, (through - first).days + 1)
    sums: dict[date, Decimal] = defaultdict(Decimal)
    bounds = {bound for _, times in scope.partly for time in times for bound in (time.start, time.end)}
    moved = {day_of(at, setup.zone): at for at in bounds if standing.start < at < standing.end}
    for row in DailySpend.objects.filter(day__gte=first, team__in=scope.teams):
        cut = row.day in moved and scope.times_of(row.team) is not None
        if scope.covers(row) and not cut and scope.counts_at(row.team, midnight_of(row.day, setup.zone)):
            sums[row.day] += row.amount
    for day in moved:
        parts = Interval(midnight_of(day, setup.zone), midnight_of(day + timedelta(days=1), setup.zone)).cut(bounds)
        for item in spent_in(parts):
            if scope.times_of(item.team) and scope.covers(item) and scope.counts_at(item.team, parts[item.part].start):
                sums[day] += round_to(item.amount, 6)
    rows = day_rows(sorted(sums.items()), first, min(int(elapsed), count, counted))
    return rows, course_chart(standing, rows, first, count, elapsed, setup.currency)


def _errors(standing: BudgetStatus) -> list[tuple[str, Decimal, bool]]:
    """Return (method, back-tested error, True for the chosen method), the best first."""
    errors = [(name, Decimal(error)) for name, error in standing.forecast_errors.items()]
    return [(name, error, name == standing.forecast_method) for name, error in sorted(errors, key=lambda item: item[1])]


def _thresholds(found: Budget, standing: BudgetStatus) -> list[dict[str, Any]]:
    """Return every threshold with its amount, and when it fired in this period for this amount."""
    fired = {
        (alert.basis, alert.percent): alert.fired_at
        for alert in Alert.objects.filter(budget=found, kind=Alert.Kind.THRESHOLD, period=standing.period)
        # an alert of an earlier revision fired for another amount
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


@action
def recipients(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Replace the recipients of alerts: one mail address or channel per line."""

    def put(recipients: list[str]) -> bool:
        actor, language = actor_of(request), get_language() or ""
        return services.recipients_put(budget=found, names=recipients, actor=actor, language=language)

    found, form = own_budget(request, pk), RecipientsForm(request.POST, key="recipients")
    return redirect("portal:budget", pk=pk) if form.done(put) else budget_page(request, setup, found, form)


@action
def thresholds(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Replace the percentages at which alerts are sent: of spending, of the forecast, with running jobs."""

    def put(**percents: tuple[int, ...]) -> bool:
        return services.thresholds_put(budget=found, percents=percents, actor=actor_of(request))

    found, form = own_budget(request, pk), ThresholdsForm(request.POST, key="thresholds")
    return redirect("portal:budget", pk=pk) if form.done(put) else budget_page(request, setup, found, form)


@action
def mute(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Mute alerts until a local time, with a reason."""
    found, form = own_budget(request, pk), MuteForm(request.POST, key="mute")
    if form.done(services.mute_put, budget=found, **acting(request)):
        return redirect("portal:budget", pk=pk)
    return budget_page(request, setup, found, form)


@action
def unmute(request: HttpRequest, setup: BillingSetup, pk: int, mute_pk: int) -> HttpResponse:
    found = own_budget(request, pk)
    services.mute_end(mute=get_object_or_404(Mute, pk=mute_pk, budget=found), **acting(request))
    return redirect("portal:budget", pk=pk)


@action
def override_ask(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Request a higher cap: amount, end, reason."""
    found, form = own_budget(request, pk), OverrideForm(request.POST, key="override")
    if form.done(services.cap_override_ask, budget=found, **acting(request)):
        return redirect("portal:budget", pk=pk)
    return budget_page(request, setup, found, form)


@action
def override_step(request: HttpRequest, setup: BillingSetup, pk: int, override_pk: int, step: str) -> HttpResponse:
    """Approve a cap override that another user requested, or end one."""
    found = budget_or_404(request, pk)
    override = get_object_or_404(CapOverride.objects.select_related("budget__team"), pk=override_pk, budget=found)
    if step == "approve":
        return _step(request, setup, found, services.cap_override_approve, override_id=override.pk)
    if step != "end":
        raise Http404(f"no step {step[:20]!r}")
    own_budget(request, pk)
    return _step(request, setup, found, services.cap_override_end, override=override)


def _step(
    request: HttpRequest, setup: BillingSetup, found: Budget, act: Callable[..., object], **which: object
) -> HttpResponse:
    form = PageForm(request.POST)
    done = form.done(act, **which, **acting(request))
    return redirect("portal:budget", pk=found.pk) if done else budget_page(request, setup, found, form, 409)


@form_page
def budget_change(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Change name, amount or end: form, preview, then the change is saved, or proposed if a second person must agree."""
    found, now = own_budget(request, pk), timezone.now()
    form = ChangeForm(request.POST if request.method == "POST" else None, budget=found, currency=setup.currency)
    seen = form.seen if form.is_bound and form.is_valid() else ""
    if seen and form.cleaned_data["looked"] == seen:
        try:
            services.budget_change(team=found.team, wish=form.wish, reason=form.cleaned_data["reason"], **acting(request))
        except services.BudgetError as error:
            form.refuse(error)
        else:
            return redirect("portal:budget", pk=pk)
    context = {
        "nav": "budgets", "setup": setup, "budget": found, "form": form, "waits": changes_waiting(found).first(),
        "look": _look(found, form.wish, now, setup) | {"seen": seen} if seen and not form.errors else None,
    }  # fmt: skip
    refused = form.is_bound and context["look"] is None
    return render(request, "portal/budget_change.html", context, status=400 if refused else 200)


def _look(found: Budget, wish: services.BudgetWish, now: datetime, setup: BillingSetup) -> dict[str, Any]:
    """Return the preview of a wish, with what is left in the current period if the budget has one amount."""
    look = {"wish": wish, "loose": loosens(found, wish), "yaml": budget_text(found, wish, setup.zone)}
    standing = None if wish.plan else status_now(found, now)
    spent = None if standing is None else standing.spent
    left = {} if spent is None else {"before": found.amount - spent, "after": wish.amount - spent}
    return {**look, "spent": spent, **left}


@action
def budget_change_step(request: HttpRequest, setup: BillingSetup, pk: int, change_pk: int, step: str) -> HttpResponse:
    """Approve a change that another user requested, or withdraw it."""
    found = budget_or_404(request, pk)
    if step not in ("approve", "end") or not changes_waiting(found).filter(pk=change_pk).exists():
        raise Http404(f"no change {change_pk} of budget {pk}, or no step {step[:20]!r}")
    if step == "approve":
        return _step(request, setup, found, services.budget_change_approve, change_id=change_pk)
    own_budget(request, pk)
    return _step(request, setup, found, services.budget_change_end, change_id=change_pk)


@page
def anomalies(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List unusual days of the teams that the user may see, newest first."""
    findings = CostAnomaly.objects.filter(team__in=_teams(request, Right.READ)).select_related("team")
    if (file := download(request, {"anomalies": lambda: Table.of("anomalies", findings, FINDING)})) is not None:
        return file
    waiting = findings.filter(feedback="").count()
    shown = page_shown(request, findings, FINDINGS_SHOWN)
    own = set(_teams(request, Right.BUDGET).values_list("pk", flat=True))
    rows = [(day, _feedback_form(day.finding, own)) for day in unusual_days(list(shown), setup.currency)]
    context = {
        "nav": "anomalies", "setup": setup, "page": shown, "rows": rows, "waiting": waiting,
        "quality": alert_quality(_teams(request, Right.READ), timezone.now()),
    }  # fmt: skip
    return render(request, "portal/anomalies.html", context)


def _feedback_form(finding: CostAnomaly, own: set[int]) -> FeedbackForm | None:
    """Return the feedback form for users who may answer, else None."""
    if finding.team_id not in own:
        return None
    return FeedbackForm(key=finding.pk, initial={"note": finding.feedback_note})


def _teams(request: HttpRequest, right: Right) -> Any:
    access = access_of(request.user)
    return Team.objects.all() if access.may(right) else access.teams(right)


@action
def feedback(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Store the feedback on a day: unusual, planned, or a false alarm."""
    findings = CostAnomaly.objects.select_related("team").filter(team__in=_teams(request, Right.READ))
    finding = get_object_or_404(findings, pk=pk)
    if not access_of(request.user).may(Right.BUDGET, finding.team):
        raise PermissionDenied
    form = FeedbackForm(request.POST)
    if not form.done(services.feedback_put, finding=finding, **acting(request)):
        raise Http404(form.message)
    return redirect("portal:anomalies")
