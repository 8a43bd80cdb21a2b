"""Finance: does what we bill cover what the compute costs?"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.portal.access import page_for
from billing.portal.fresh import page_freshness
from billing.portal.month_facets import month_facets
from billing.portal.months import month_choice
from billing.portal.open_months import open_months
from billing.portal.recovery import MonthSum, Recovery, months_compared, recovery_of
from billing.portal.tables import DATED, Column, Table, download
from billing.portal.views.overview import stage_of_period
from billing.tenancy.access import Right, teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.usage.scope import EVERYTHING


@require_safe
@page_for(Right.READ_COSTS)
def recovery(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Recovery of each pool, idle and capacity, token price against cost, and the months beside each other."""
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
        "stage": stage_of_period(choice.period, teams, preview=month.preview),
    }  # fmt: skip
    return render(request, "portal/recovery.html", context)


def _tables(month: str, found: Recovery, months: list[MonthSum]) -> dict[str, Callable[[], Table]]:
    return {
        "pools": lambda: _pools(month, found), "tokens": lambda: _tokens(month, found), "months": lambda: _months(months)
    }  # fmt: skip


def _pools(month: str, found: Recovery) -> Table:
    hours = ("charged", "platform", "left", "idle", "offered")
    columns = [
        Column("month"), Column("cluster"), Column("accelerator"),
        *(Column(f"{name}_gpu_hours", "quantity") for name in hours), Column("cost_per_gpu_hour", "price"),
        Column("cost", "money"), Column("billed", "money"), Column("recovered", "ratio"),
    ]  # fmt: skip
    rows = [
        [month, pool.cluster, pool.accelerator, *(getattr(pool, name) for name in hours), pool.hour_cost, pool.cost,
         pool.billed, pool.recovered]
        for pool in found.pools
    ]  # fmt: skip
    return Table(f"recovery-{month}", columns, rows)


def _tokens(month: str, found: Recovery) -> Table:
    columns = [
        Column("month"), Column("model"), Column("token_class"), Column("quantity_1m", "quantity"),
        Column("billed", "money"), Column("mean_price_per_1m", "price"), Column("cost_per_1m", "price"),
        Column("margin", "ratio"),
    ]  # fmt: skip
    rows = [
        [month, item.model, item.token_class, item.millions, item.billed, item.price, item.cost, item.margin]
        for item in found.margins
    ]
    return Table(f"token-margins-{month}", columns, rows)


def _months(months: list[MonthSum]) -> Table:
    names = ("gpu", "tokens", "adjustments", "noted", "net", "change")
    columns = [Column("month"), *(Column(name, "money") for name in names)]
    columns += [Column("state"), DATED]
    rows = [
        [item.month, *(getattr(item, name) for name in names),
         "closed" if item.closed else "estimate" if item.estimate else "open", item.data_through]
        for item in months
    ]  # fmt: skip
    return Table("months", columns, rows)
