"""Overview of a month."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import unbuilt_drafts, with_cost_center
from billing.portal.access import page_of_anybody
from billing.portal.asked import page_shown
from billing.portal.charts import trend_chart
from billing.portal.fresh import page_freshness, scope_seen
from billing.portal.late_usage import late_amount
from billing.portal.months import month_choice
from billing.portal.selectors import TrendPoint, invoiced_trend, open_months, team_rows
from billing.portal.statements import Month, Statement, month_statements, sections_shown
from billing.portal.tables import BY_SECTION, DATED, Column, Table, columns, constant, download
from billing.rating.freshness import Freshness
from billing.tenancy.access import teams_visible_to
from billing.tenancy.models import BillingSetup

TEAM = [
    Column("team", of="team.code"), Column("name", of="team.name"), Column("cost_center"),
    Column("mode", of=lambda row: "shadow" if row.shadow else "chargeback"),
    *BY_SECTION, *columns("total", "budget", look="money"), Column("budget_used", "ratio"),
    Column("invoice", of=lambda row: row.invoice.number if row.invoice else None),
    Column("status", of=lambda row: row.invoice.status if row.invoice else None),
]  # fmt: skip


@page_of_anybody
def overview(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the charges of every visible team for a month, the use of its budget, and the stage of the month."""
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    period = choice.period
    teams = teams_visible_to(request.user)
    month = month_statements(period, teams, summed=True)
    rows, wanted = team_rows(month), request.GET.get("q", "").strip()
    # cost centres of all rows are read for a search only: a page shows a part of a thousand teams
    found = [row for row in _charged(rows) if _named(row, wanted)] if wanted else rows
    scope = scope_seen(request)
    fresh = page_freshness(request, period, scope, unbilled=month.unbilled, as_of=month.as_of)
    shown = TrendPoint(choice.month, month.total, month.preview, data_through=fresh.data_through if fresh else None)
    earlier = [other for other in choice.ended if other.month < choice.month]
    still_open = open_months(request, teams, scope, earlier)
    trend = invoiced_trend(teams, shown, still_open=[item.point() for item in still_open])
    tables = {
        "teams": lambda: Table.of(f"teams-{choice.month}", _charged(found), [constant("month", choice.month), *TEAM]),
        "trend": lambda: trend_table(trend),
        "unbilled": lambda: unbilled_table([choice.month], fresh),
    }
    if (file := download(request, tables, fresh)) is not None:
        return file
    page = page_shown(request, found)
    page.object_list = _charged(page.object_list)
    context = {
        "nav": "overview", "setup": setup, "choice": choice, "period": period, "month": month, "rows": rows, "q": wanted,
        "fresh": fresh,
        "page": page,
        "largest": max((row.gpu + row.tokens for row in rows), default=None),
        "late": late_amount(month.charged),
        "trend": trend, "net": trend[-1], "trend_chart": trend_chart(trend, choice.month, setup.currency),
        "totals": month.sums, "sections": sections_shown(row.parts for row in rows),
        "stage": stage_of(month), "as_of": month.as_of,
    }  # fmt: skip
    return render(request, "portal/overview.html", context)


def _charged(rows: Iterable[Statement]) -> list[Statement]:
    """Return rows with the cost centre that their invoices name, as a journal has it, not the team's current one."""
    listed = list(rows)
    invoices = Invoice.objects.filter(pk__in=[row.invoice.pk for row in listed if row.invoice])
    named = dict(with_cost_center(invoices).values_list("pk", "cost_center"))
    return [replace(row, charged_center=named[row.invoice.pk]) if row.invoice else row for row in listed]


def _named(row: Statement, wanted: str) -> bool:
    """Return True if the text is in a team's code, name or cost centre."""
    return any(wanted.casefold() in text.casefold() for text in (row.team.code, row.team.name, row.cost_center))


def unbilled_table(months: Sequence[str], fresh: Freshness | None) -> Table:
    """Return usage of open months that is in no charge yet. `partly_priced`: a part has no price and is in no amount."""
    cells = [
        constant("month", " ".join(months)), Column("reason", of="why"), Column("unit"), Column("quantity", "quantity"),
        Column("amount_at_list_price", "money", "amount"),
        Column("partly_priced", of=lambda item: "yes" if item.partly else ""),
    ]  # fmt: skip
    return Table.of(f"not-billable-{'-'.join(months)}", fresh.unbilled if fresh else (), cells)


def trend_table(trend: Sequence[TrendPoint]) -> Table:
    """Return the months of a trend: invoiced totals with notes, and the part of the notes."""
    state = Column("state", of=lambda point: "preview" if point.preview else "invoiced")
    amounts = [Column("total", "money"), Column("of_it_notes", "money", "noted")]
    return Table.of("by-month", trend, [Column("month"), state, *amounts, DATED])


def stage_of(month: Month) -> str:
    """Return the stage of a month: preview, closing, closed, or issued once all visible charged teams have their invoice."""
    if month.preview:
        return "closing" if month.period.status == BillingPeriod.Status.CLOSING else "preview"
    invoices = month.period.invoices.filter(team__in=month.teams, shadow=False).exclude(status=Invoice.Status.VOID)
    found = invoices.aggregate(all=Count("pk"), numbered=Count("number"))
    issued = found["all"] and found["all"] == found["numbered"]
    teams = {team.pk for team in month.teams} if issued else set()
    return "issued" if issued and teams.isdisjoint(row.team_id for row in unbuilt_drafts(month.period)) else "closed"
