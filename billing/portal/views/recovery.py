"""Recovery of the cost of compute by what is billed, for finance."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.portal.access import page_for
from billing.portal.fresh import page_freshness
from billing.portal.months import month_choice
from billing.portal.recovery import MonthSum, Recovery, months_compared, recovery_of
from billing.portal.selectors import open_months
from billing.portal.statements import month_facets, sections_shown
from billing.portal.tables import BY_SECTION, DATED, Column, Table, columns, constant, download
from billing.portal.views.overview import stage_of
from billing.tenancy.access import Right, teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.usage.scope import EVERYTHING


@page_for(Right.READ_COSTS)
def recovery(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the recovery of each pool, idle and capacity, token price against cost, and the months beside each other."""
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    teams = teams_visible_to(request.user)
    month = month_facets(choice.period, teams)
    fresh = page_freshness(request, choice.period, EVERYTHING, unbilled=month.unbilled, as_of=month.as_of)
    still_open = open_months(request, teams, EVERYTHING, choice.ended)
    found, months = recovery_of(choice.period, month), months_compared(teams, still_open)
    table_fresh = None if request.GET.get("table") == "months" else fresh
    if (file := download(request, _tables(choice.month, found, months), table_fresh)) is not None:
        return file
    context = {
        "nav": "recovery", "setup": setup, "choice": choice, "period": choice.period, "month": month,
        "recovery": found, "months": months, "fresh": fresh, "as_of": month.as_of,
        "stage": stage_of(month), "sections": sections_shown(item.parts for item in months if item.parts),
    }  # fmt: skip
    return render(request, "portal/recovery.html", context)


HOURS = ("charged", "platform", "left", "idle", "offered")
POOL = [
    *columns("cluster", "accelerator"), *(Column(f"{name}_gpu_hours", "quantity", name) for name in HOURS),
    Column("cost_per_gpu_hour", "price", "hour_cost"), *columns("cost", "billed", look="money"),
    Column("recovered", "ratio"),
]  # fmt: skip
MARGIN = [
    *columns("model", "token_class"), Column("quantity_1m", "quantity", "millions"), Column("billed", "money"),
    Column("mean_price_per_1m", "price", "price"), Column("cost_per_1m", "price", "cost"), Column("margin", "ratio"),
]  # fmt: skip
MONTH = [
    Column("month"), *BY_SECTION, *columns("noted", "net", "change", look="money"), Column("state"),
    DATED,
]  # fmt: skip


def _tables(month: str, found: Recovery, months: list[MonthSum]) -> dict[str, Callable[[], Table]]:
    of_month = constant("month", month)
    return {
        "pools": lambda: Table.of(f"recovery-{month}", found.pools, [of_month, *POOL]),
        "tokens": lambda: Table.of(f"token-margins-{month}", found.margins, [of_month, *MARGIN]),
        "months": lambda: Table.of("months", months, MONTH),
    }
