"""The token workbench: a stored load test, its runs under the bounds of the service, and three methods side by side."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.portal.access import page_for
from billing.portal.token_bench import CLASSES, token_bench
from billing.rates.models import TokenCostSheet
from billing.tenancy.access import Right
from billing.tenancy.models import BillingSetup
from pricing.token_methods import COMPARED

SHOWN_SHEETS = 500


@require_safe
@page_for(Right.READ_COSTS)
def token_workbench(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """What 1M tokens of a model cost by each method; the address holds every term."""
    sheets = {row.name: row for row in TokenCostSheet.objects.order_by("name")[:SHOWN_SHEETS]}
    name = request.GET.get("sheet", "") or next(iter(sheets), "")
    if name and name not in sheets:
        raise Http404(f"no token cost sheet {name!r}")
    found = token_bench(sheets[name], request.GET) if name else None
    rows = []
    if found and found.methods:
        for index, token_class in enumerate(CLASSES):
            rows.append((token_class, found.published[index], [method.prices[index] for method in found.methods]))
    context = {
        "nav": "workbench", "setup": setup, "sheets": list(sheets), "sheet_name": name, "stored": sheets.get(name),
        "found": found, "rows": rows, "methods": COMPARED,
    }  # fmt: skip
    return render(request, "portal/token_workbench.html", context)
