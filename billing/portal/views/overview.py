"""A month at a glance."""

from decimal import Decimal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.portal.access import page
from billing.portal.months import month_choice
from billing.portal.selectors import TrendPoint, invoiced_trend, team_rows
from billing.portal.statements import MonthStatements, month_statements
from billing.tenancy.access import teams_visible_to
from billing.tenancy.models import BillingSetup


@require_safe
@page
def overview(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """What every visible team owes for a month, how much of its budget that is, and where the month stands."""
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    period = choice.period
    teams = teams_visible_to(request.user)
    month = month_statements(period, teams)
    rows = team_rows(month)
    context = {
        "nav": "overview", "setup": setup, "choice": choice, "period": period, "month": month, "rows": rows,
        "largest": max((row.gpu + row.tokens for row in rows), default=None),
        "trend": invoiced_trend(teams, TrendPoint(choice.month, month.total, month.preview)),
        "totals": {
            "gpu": month.of_kind("gpu"), "tokens": month.of_kind("tokens"),
            "adjustments": sum((row.adjustments for row in rows), Decimal("0.00")),
        },
        "stage": stage_of(month), "as_of": timezone.now(),
    }  # fmt: skip
    return render(request, "portal/overview.html", context)


def stage_of(month: MonthStatements) -> str:
    """Where the month stands: preview, closing, closed, or issued once every visible invoice that is charged is."""
    if month.preview:
        return "closing" if month.period.status == "closing" else "preview"
    invoices = [item.invoice for item in month.statements if item.invoice and not item.invoice.shadow]
    return "issued" if invoices and all(invoice.number for invoice in invoices) else "closed"
