"""Pages of a team's month, down to single allocations and single requests."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from billing.corrections.disputed import disputed_amount
from billing.invoices.line_rollups import StatementLine
from billing.invoices.models import BillingPeriod
from billing.portal import drilldown
from billing.portal.access import page, team_or_404
from billing.portal.charts import days_chart, trend_chart
from billing.portal.drilldown import level_tables
from billing.portal.fresh import page_freshness, scope_of_team
from billing.portal.months import month_choice
from billing.portal.selectors import TrendPoint, budgets_of, invoiced_trend, open_months
from billing.portal.statements import ZERO, AnyVerdict, MonthStatements, Statement, idle_times, month_statements
from billing.portal.tables import Column, Table, columns, constant, download
from billing.portal.views.overview import stage_of, trend_table, unbilled_table
from billing.rates.selectors import allocation_policy_at
from billing.rating.evidence import evidence_of, find_verdict, verdicts_of
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup, Team
from billing.usage.archive.places import UnreadableArchiveError
from metering.messages import Message
from pricing.meters import GPU_TIME, Explanation


def _of_key(*names: str) -> list[Column]:
    return [Column(name, of=f"key.{name}") for name in names]


LINE = [
    *_of_key("kind", "cluster", "namespace", "consumer", "accelerator", "sku", "token_class", "charge_period"),
    Column("quantity", "quantity"), *_of_key("unit"), Column("unit_price", "price"),
    *_of_key("price_version", "policy", "reason"), Column("amount", "money"),
]  # fmt: skip
VERDICT = [
    *columns("cluster", "namespace", "job", "policy", "reason"), *columns("gpu_seconds", "minutes", look="quantity"),
    *columns("coverage", "mfu", "hfu", look="ratio"), Column("multiplier", "price"), Column("effect", "money"),
]  # fmt: skip


@page
def team(request: HttpRequest, setup: BillingSetup, code: str) -> HttpResponse:
    """Show the lines of a team's month by kind and place, with the verdicts behind its efficiency lines."""
    found = team_or_404(request, code)
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    period = choice.period
    month, statement = _statement(request, found, period)
    other = next((item for item in month.statements if item is not statement), None)
    scope = scope_of_team(found.code)
    fresh = page_freshness(request, period, scope, unbilled=month.unbilled, as_of=month.as_of)
    shown = TrendPoint(choice.month, statement.total, month.preview, data_through=fresh.data_through if fresh else None)
    earlier, own = [other for other in choice.ended if other.month < choice.month], Team.objects.filter(pk=found.pk)
    still_open = open_months(request, own, scope, earlier)
    points = [item.point(shadow=statement.shadow) for item in still_open]
    trend = invoiced_trend([found], shown, shadow=statement.shadow, still_open=points)
    tables = {
        "lines": lambda: _line_table(statement, choice.month), "trend": lambda: trend_table(trend),
        "verdicts": lambda: Table.of(f"efficiency-{found.code}-{choice.month}", month.verdicts(found), VERDICT),
        "unbilled": lambda: unbilled_table([choice.month], fresh),
    }  # fmt: skip
    if (file := download(request, tables, fresh)) is not None:
        return file
    budget = budgets_of([found], period).get(found.pk)
    context = {
        "nav": "overview", "setup": setup, "choice": choice, "period": period, "team": found, "statement": statement,
        "month": month, "stage": stage_of(month), "verdicts": month.verdicts(found), "budget": budget,
        "budget_used": replace(statement, budget=budget, other=other.total if other else ZERO).budget_used,
        "other": other, "as_of": month.as_of,
        "fresh": fresh, "trend": trend, "trend_chart": trend_chart(trend, choice.month, setup.currency),
        "idle_times": idle_times(month, found),
        "disputed": disputed_amount([statement.invoice]) if statement.invoice else ZERO,
        "has_corrections": any(line.key.correction for line in statement.lines),
    }  # fmt: skip
    return render(request, "portal/team.html", context)


def _line_table(statement: Statement, month: str) -> Table:
    lines = [line for section in statement.sections for group in section.groups for line in group.lines]
    cells = [constant("month", month), constant("team", statement.team.code), *LINE]
    return Table.of(f"lines-{statement.team.code}-{month}", lines, cells)


def _statement(request: HttpRequest, team: Team, period: BillingPeriod) -> tuple[MonthStatements, Statement]:
    """Return the charged or showback statement as in the address; else the one with usage of the month itself."""
    month = month_statements(period, teams_visible_to(request.user).filter(pk=team.pk))
    mode = request.GET.get("mode") or ("shadow" if month.is_shown else "chargeback")
    asked = [item for item in month.statements if item.shadow == (mode == "shadow")]
    return month, next(iter(asked or month.statements), Statement(team, []))


@page
def line(request: HttpRequest, setup: BillingSetup, code: str, digest: str) -> HttpResponse:
    """Show one line and its parts; `workload`, `day` and `hour` open the level below."""
    found = team_or_404(request, code)
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    period = choice.period
    month, statement = _statement(request, found, period)
    statement = next((item for item in month.statements if item.line(digest)), statement)  # charged or showback
    shown = statement.line(digest)
    if shown is None:
        raise Http404(f"team {code} has no line {digest} in {choice.month}")
    context: dict[str, Any] = {
        "nav": "overview", "setup": setup, "choice": choice, "period": period, "team": found, "line": shown,
        "month": month, "stage": stage_of(month), "statement": statement,
        "may_dispute": access_of(request.user).may(Right.DISPUTE, found),
        "fresh": page_freshness(request, period, scope_of_team(found.code), unbilled=month.unbilled, as_of=month.as_of),
    }  # fmt: skip
    if shown.key.what.explained_by is Explanation.POOL:
        context |= _idle(month, found, shown, period)
    if shown.key.counts_tokens:
        context["levels"] = {}
        try:
            _token_levels(context, request, shown, period)
        except UnreadableArchiveError as error:
            if "as" in request.GET:  # a file has no place for a message beside its rows
                raise
            context["unreadable"] = error.message
    else:
        context |= _device_levels(request, shown, period, month, month.verdicts(found))
    if (file := download(request, level_tables(context["levels"], shown, choice.month), context["fresh"])) is not None:
        return file
    if (by_day := context.get("by_day")) is not None:
        days = [(part.facts["day"], part.quantity, part.amount) for part in by_day.parts]
        colour = (shown.key.what.meter or GPU_TIME).name
        context["days_chart"] = days_chart(days, shown.key.unit, setup.currency, colour)
    return render(request, "portal/line.html", context)


def _idle(month: MonthStatements, team: Team, line: StatementLine, period: BillingPeriod) -> dict[str, Any]:
    """Return the pool's idle time, the team's part, and the price of the policy, from which the amount follows."""
    pool = (line.key.cluster, line.key.accelerator)
    policy = allocation_policy_at(period.start)
    rule = policy.rule_of(*pool) if policy else None
    times = [item for item in idle_times(month, team) if (item.cluster, item.accelerator) == pool]
    return {"idle": times[0] if times else None, "idle_price": rule.price if rule else None}


def _device_levels(
    request: HttpRequest, line: StatementLine, period: BillingPeriod, month: MonthStatements, judged: Sequence[AnyVerdict]
) -> dict[str, Any]:
    scope = drilldown.scope_of(line, period, month.reference_data, kept=month.as_of is not None)
    verdicts = [verdict for verdict in judged if _made(verdict, line)]
    jobs = [verdict.job for verdict in verdicts] if line.key.what.explained_by is Explanation.VERDICTS else None
    by_workload = drilldown.workloads(line, scope, jobs)
    found: dict[str, Any] = {"by_workload": drilldown.first_rows(by_workload), "verdicts": verdicts}
    chosen = request.GET.get("workload")
    if chosen is None:
        by_day = drilldown.days_allocated(line, scope, jobs)
        return found | {"by_day": by_day, "levels": {"workloads": by_workload, "days": by_day}}
    part = _part(by_workload, "job", chosen)
    holds = drilldown.holds(line, scope, chosen, part)
    return found | {"workload": chosen, "part": part, "holds": drilldown.first_rows(holds), "levels": {"holds": holds}}


def _made(verdict: AnyVerdict, line: StatementLine) -> bool:
    key = line.key
    same_place = (verdict.cluster, verdict.namespace) == (key.cluster, key.namespace)
    return same_place and (verdict.policy, verdict.reason) == (key.policy, key.reason)


def _token_levels(found: dict[str, Any], request: HttpRequest, line: StatementLine, period: BillingPeriod) -> None:
    """Put the level of the address into `found`, and each level above it.  Raises UnreadableArchiveError."""
    month = found["month"]
    scope = drilldown.scope_of(line, period, month.reference_data, kept=month.as_of is not None)
    by_day = drilldown.days_of_tokens(line, scope)
    found |= {"by_day": by_day, "levels": {"days": by_day}}
    if not line.key.consumer:
        by_consumer = drilldown.consumers(line, scope)
        found |= {"by_consumer": drilldown.first_rows(by_consumer)}
        found["levels"]["consumers"] = by_consumer
    if "day" not in request.GET:
        return
    day = _day(request.GET["day"])
    part = _part(by_day, "day", day)
    by_hour = drilldown.hours_of_tokens(line, scope, day, part)
    found |= {"day": day, "part": part, "by_hour": by_hour, "levels": {"hours": by_hour}}
    if "hour" not in request.GET:
        return
    hour = _instant(request.GET["hour"])
    part = _part(by_hour, "hour", hour)
    asked = drilldown.requests(line, scope, day, hour, part)
    found |= {"hour": hour, "part": part, "requests": asked, "levels": {"requests": asked}}


def _part(breakdown: drilldown.Breakdown, fact: str, value: object) -> drilldown.Part:
    for part in breakdown.parts:
        if part.facts[fact] == value:
            return part
    raise Http404(f"nothing of this line is in {fact} {value}")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise Http404(Message("day %(day)s: a day such as 2026-10-31", day=repr(text[:40]))) from error


def _instant(text: str) -> datetime:
    wrong = Http404(Message("hour %(hour)s: an hour such as 2026-10-31T09:00:00+08:00", hour=repr(text[:40])))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise wrong from error
    if instant.tzinfo is None:
        raise wrong
    return instant


@page
def evidence(request: HttpRequest, setup: BillingSetup, code: str) -> HttpResponse:
    found = team_or_404(request, code)
    period = month_choice(request.GET.get("month", ""), setup, timezone.now()).period
    close_seq = period.close_seq if period.status == BillingPeriod.Status.CLOSED else None
    asked = {name: request.GET.get(name, "") for name in ("cluster", "namespace", "job", "policy")}
    verdicts = verdicts_of(window=period.window, zone=period.zone, close_seq=close_seq, team=found.code)
    verdict = find_verdict(verdicts, **asked)
    if verdict is None:
        raise Http404(f"no verdict on {asked} in {period.month}")
    bundle = evidence_of(verdict, window=period.window, close_seq=close_seq)
    response = JsonResponse(bundle, json_dumps_params={"indent": 2, "ensure_ascii": False})
    response["Content-Disposition"] = f'attachment; filename="evidence-{period.month}-{bundle["sha256"][:12]}.json"'
    return response
