"""Ownership: the payers of namespaces and consumers with their dates, and usage without an owner."""

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.invoices.models import BillingPeriod
from billing.portal.access import page
from billing.portal.asked import page_shown
from billing.portal.months import month_choice
from billing.portal.selectors import consumers_owned, namespaces_owned
from billing.portal.statements import month_statements
from billing.portal.tables import Column, Table, columns, download
from billing.rating.assessment import Unowned
from billing.setup.owners import owners_declared, sections_text
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup, Team

RULES_SHOWN = 100
TEAM = Column("team", of="team.code")
NAMESPACE = [
    *columns("cluster", "namespace"), TEAM, Column("platform", of=lambda row: str(row.platform).lower()),
    *columns("valid_from", "valid_until"),
]  # fmt: skip
CONSUMER = [*columns("source", "consumer"), TEAM, *columns("valid_from", "valid_until")]
UNOWNED = [*columns("kind", "subject"), Column("quantity", "quantity"), Column("unit"), Column("amount", "money")]


@page
def ownership(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    teams = teams_visible_to(request.user)
    month, unowned = _unowned(request, setup)
    tables = {
        "namespaces": lambda: Table.of("namespaces", namespaces_owned(teams), NAMESPACE),
        "consumers": lambda: Table.of("consumers", consumers_owned(teams), CONSUMER),
        "unowned": lambda: Table.of(f"unowned-{month}", unowned, UNOWNED),
    }
    if (file := download(request, tables)) is not None:
        return file
    wanted = request.GET.get("q", "").strip()
    named = Q(team__code__icontains=wanted)
    namespaces = namespaces_owned(teams).filter(named | Q(namespace__icontains=wanted))
    consumers = consumers_owned(teams).filter(named | Q(consumer__icontains=wanted))
    # one paginator for both lists, as long as the longer one
    shown = page_shown(request, range(max(namespaces.count(), consumers.count())), RULES_SHOWN)
    part = slice((shown.number - 1) * RULES_SHOWN, shown.number * RULES_SHOWN)
    namespaces, consumers = namespaces[part], consumers[part]
    context = {
        "nav": "ownership", "setup": setup, "namespaces": namespaces, "consumers": consumers, "q": wanted,
        "page": shown, "many": shown.paginator.num_pages > 1 or wanted, "month": month, "unowned": unowned,
        "yaml": sections_text(owners_declared(namespaces, consumers)),
    }  # fmt: skip
    return render(request, "portal/ownership.html", context)


def _unowned(request: HttpRequest, setup: BillingSetup) -> tuple[str, list[Unowned]]:
    """Return unowned usage of the month in the address, else of the newest with usage; none for readers of some teams."""
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    if not access_of(request.user).may(Right.READ) or choice.period.status == BillingPeriod.Status.CLOSED:
        return choice.month, []
    # without teams: only the assessment of the month is needed, no statement
    found = month_statements(choice.period, Team.objects.none(), summed=True).assessment
    items = found.unowned if found else []
    return choice.month, sorted(items, key=lambda item: (item.kind, item.subject))
