"""Late usage of closed months, as it is charged in the month shown."""

from collections.abc import Iterable
from decimal import Decimal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.portal.access import page
from billing.portal.asked import page_shown
from billing.portal.fresh import page_freshness, scope_seen
from billing.portal.late_usage import LateLine, late_lines
from billing.portal.months import month_choice
from billing.portal.tables import Column, Table, constant, download
from billing.tenancy.access import teams_visible_to
from billing.tenancy.models import BillingSetup

PAGE_SIZE = 100


@page
def late(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List every line of a month for usage of earlier months, of the teams that the user may see."""
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    found, as_of = late_lines(choice.period, teams_visible_to(request.user))
    fresh = page_freshness(request, choice.period, scope_seen(request), as_of=as_of)
    if (file := download(request, {"lines": lambda: _table(choice.month, found)}, fresh)) is not None:
        return file
    context = {
        "nav": "overview", "setup": setup, "choice": choice, "period": choice.period,
        "fresh": fresh, "as_of": as_of, "page": page_shown(request, found, PAGE_SIZE),
        "total": sum((item.line.amount for item in found), Decimal("0.00")),
    }  # fmt: skip
    return render(request, "portal/late.html", context)


def _table(month: str, found: Iterable[LateLine]) -> Table:
    def keys(*names: str) -> list[Column]:
        return [Column(name, of=f"line.key.{name}") for name in names]

    facts = [
        constant("month", month), Column("used_in", of="line.key.charge_period"), Column("team", of="team.code"),
        *keys("kind", "sku", "token_class"), Column("place"), *keys("unit"), Column("quantity", "quantity", "line.quantity"),
        Column("unit_price", "price", "line.unit_price"), Column("amount", "money", "line.amount"),
    ]  # fmt: skip
    return Table.of(f"late-{month}", found, facts)
