"""The token workbench: a load test, stored or uploaded, its runs under the bounds of the service, methods side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from billing.portal.access import page_for
from billing.portal.token_bench import CLASSES, sheet_asked, token_bench
from billing.portal.token_report import TOLD_BY_PEOPLE, draft_of_tokens, kept_reports, kept_text, uploaded_reports
from billing.rates.models import TokenCostSheet
from billing.rates.services import PriceDraftError, price_draft_write
from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup
from metering.intervals import month_of, next_month
from metering.messages import Message
from pricing.token_methods import COMPARED
from pricing.token_sheet import TokenSheetError

SHOWN_SHEETS = 500


@require_safe
@page_for(Right.READ_COSTS)
def token_workbench(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """What 1M tokens of a model cost by each method; the address holds every term."""
    name = request.GET.get("sheet", "") or next(iter(_sheets()), "")
    given = sheet_asked(_stored(name).inputs, request.GET) if name else None
    return render(request, "portal/token_workbench.html", _context(request, setup, given, sheet_name=name))


@require_POST
@page_for(Right.READ_COSTS)
def token_report(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """The same of reports in files, or of those that the page holds already under other terms; nothing is stored."""
    refusals: Sequence[str]
    if request.POST.get("report"):
        try:
            reports, refusals = kept_reports(request.POST["report"]), []
        except ValueError as error:
            reports, refusals = [], [Message.of(error)]
    else:
        reports, refusals = uploaded_reports(request.FILES.getlist("file"), request.POST)
    given = None
    if reports and not refusals:
        given = sheet_asked({"currency": setup.currency, "report": reports}, request.POST)
    context = _context(request, setup, given, report=kept_text(reports) if given else "", refusals=refusals)
    return render(request, "portal/token_workbench.html", context, status=400 if refusals else 200)


@require_POST
@page_for(Right.EDIT_PRICES)
def token_save(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Store the report with its terms, and a draft in which it prices its model; every other price stays as published."""
    sent, given = request.POST, None
    try:
        inputs = _stored(sent.get("sheet", "")).inputs if sent.get("sheet") else {
            "currency": setup.currency, "report": kept_reports(sent.get("report", "")),
        }  # fmt: skip
        given = sheet_asked(inputs, sent)
        document = draft_of_tokens(given, sent.dict())
        draft = price_draft_write(fields=document, actor=actor_of(request), now=timezone.now())
    except (TokenSheetError, PriceDraftError) as error:
        refusals = [problem.message for problem in error.problems]
    except ValueError as error:
        refusals = [Message.of(error)]
    else:
        return redirect("portal:price_draft", pk=draft.pk)
    more = {"sheet_name": sent.get("sheet", ""), "report": sent.get("report", "") if given else "", "sent": sent}
    return render(
        request, "portal/token_workbench.html", _context(request, setup, given, refusals=refusals, **more), status=400
    )


def _sheets() -> list[str]:
    return list(TokenCostSheet.objects.order_by("name").values_list("name", flat=True)[:SHOWN_SHEETS])


def _stored(name: str) -> TokenCostSheet:
    found = TokenCostSheet.objects.filter(name=name).first() if "\0" not in name else None
    if found is None:
        raise Http404(f"no token cost sheet {name!r}")
    return found


def _context(request: HttpRequest, setup: BillingSetup, given: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    found = token_bench(given) if given else None
    rows = []
    if found and found.methods:
        for index, token_class in enumerate(CLASSES):
            rows.append((token_class, found.published[index], [method.prices[index] for method in found.methods]))
    reports = given["report"] if given else []
    first = reports[0] if isinstance(reports, list) and reports else reports or {}
    month = next_month(month_of(timezone.now(), setup.zone))
    return {
        "nav": "workbench", "setup": setup, "sheets": _sheets(), "found": found, "rows": rows, "methods": COMPARED,
        "deployment": first, "given": given, "classes": CLASSES, "month": month,
        "told": [(name, request.POST.get(name, "")) for name in TOLD_BY_PEOPLE],
        "can_save": access_of(request.user).may(Right.EDIT_PRICES), **more,
    }  # fmt: skip
