"""What charges are made from besides prices: ownership, and what could not be taken in. Read only."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.portal.access import page, staff_page
from billing.portal.selectors import (
    QUARANTINE_SHOWN,
    consumers_owned,
    namespaces_owned,
    quarantined,
)
from billing.tenancy.access import teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.usage.models import QuarantinedRecord


@require_safe
@page
def ownership(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Who owns which namespaces and consumers, since when."""
    teams = teams_visible_to(request.user)
    context = {
        "nav": "ownership", "setup": setup, "namespaces": namespaces_owned(teams), "consumers": consumers_owned(teams)
    }  # fmt: skip
    return render(request, "portal/ownership.html", context)


@require_safe
@staff_page
def quarantine(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Records that could not enter the ledger, with the reason."""
    wanted = request.GET.get("status", "")
    status = wanted if wanted in QuarantinedRecord.Status.values else QuarantinedRecord.Status.OPEN
    rows, total = quarantined(status)
    context = {
        "nav": "quarantine", "setup": setup, "rows": rows, "total": total, "status": status,
        "shown": QUARANTINE_SHOWN,
    }  # fmt: skip
    return render(request, "portal/quarantine.html", context)
