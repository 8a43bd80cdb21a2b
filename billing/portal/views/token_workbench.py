"""Token workbench: a load test, stored or uploaded, its runs under the bounds of the service, methods side by side."""

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from billing.portal.access import action_for, page_for
from billing.portal.forms import acting
from billing.portal.price_lists import first_month_with_notice
from billing.portal.token_bench import CLASSES, TermsForm, sheet_asked, token_bench
from billing.portal.token_report import ReportForm, TokenDraftForm, kept_text, token_draft_write
from billing.rates.models import TokenCostSheet
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import company_calendar

SHOWN_SHEETS = 500


@page_for(Right.READ_COSTS)
def token_workbench(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the cost of 1M tokens of a model by each method; the address holds every term."""
    name = request.GET.get("sheet", "") or next(iter(_sheets()), "")
    given = sheet_asked(_stored(name).inputs, request.GET) if name else None
    return _page(request, setup, given, sheet_name=name)


@action_for(Right.READ_COSTS)
def token_report(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the workbench of reports in files, or of the page's own reports under other terms; nothing is stored."""
    form = ReportForm(request.POST, request.FILES.getlist("file"))
    given = _asked(form, setup, request.POST) if form.is_valid() else None
    return _page(request, setup, given, upload=form, report=kept_text(form.reports) if given else "")


@action_for(Right.EDIT_PRICES)
def token_save(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Store the report with its terms, and a draft in which it prices its model; every other price stays as published."""
    form, draft, name = ReportForm(request.POST), TokenDraftForm(request.POST), request.POST.get("sheet", "")
    given = None
    if name:
        given = sheet_asked(_stored(name).inputs, request.POST)
    elif form.is_valid():
        given = _asked(form, setup, request.POST)
    if given and draft.done(token_draft_write, sheet=given, **acting(request)):
        return redirect("portal:price_draft", pk=draft.made.pk)
    report = form["report"].value() if given and not name else ""
    return _page(request, setup, given, upload=None if name else form, draft=draft, sheet_name=name, report=report)


def _asked(form: ReportForm, setup: BillingSetup, asked: Mapping[str, Any]) -> dict[str, Any]:
    return sheet_asked({"currency": setup.currency, "report": form.reports}, asked)


def _sheets() -> list[str]:
    return list(TokenCostSheet.objects.order_by("name").values_list("name", flat=True)[:SHOWN_SHEETS])


def _stored(name: str) -> TokenCostSheet:
    # the name may come by POST, which `access` does not check for NUL
    found = TokenCostSheet.objects.filter(name=name).first() if "\0" not in name else None
    if found is None:
        raise Http404(f"no token cost sheet {name!r}")
    return found


def _page(
    request: HttpRequest, setup: BillingSetup, given: Mapping[str, Any] | None, *, upload: ReportForm | None = None,
    draft: TokenDraftForm | None = None, sheet_name: str = "", report: str = "",
) -> HttpResponse:  # fmt: skip
    found = token_bench(given) if given else None
    reports = given["report"] if given else []
    first = reports[0] if isinstance(reports, list) and reports else reports or {}
    month, _ = first_month_with_notice(timezone.now(), setup.zone, 0, company_calendar(setup))
    refusals = [text for form in (upload, draft) if form is not None for text in form.messages]
    context = {
        "nav": "workbench", "setup": setup, "sheets": _sheets(), "sheet_name": sheet_name, "report": report,
        "found": found, "kept_terms": TermsForm(given, hidden=True) if given else None, "deployment": first,
        "given": given, "classes": CLASSES, "upload": upload or ReportForm(), "refusals": refusals,
        "draft": draft or TokenDraftForm(month=month, about=first.get("model", "")),
        "can_save": access_of(request.user).may(Right.EDIT_PRICES),
    }  # fmt: skip
    return render(request, "portal/token_workbench.html", context, status=400 if refusals else 200)
