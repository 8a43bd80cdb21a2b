"""Price workbench (edit a cost sheet, see its results, save it as a draft) and the planner of training runs."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import urlencode

from billing.closing.price_preview import last_month
from billing.portal.access import action_for, page, page_for
from billing.portal.asked import none_of
from billing.portal.forms import acting
from billing.portal.htmx import HtmxRequest
from billing.portal.planner import in_groups, own_mfu_p90, planned, planner_values, published_prices
from billing.portal.price_lists import ShownEffect, first_month_with_notice
from billing.portal.selectors import team_names
from billing.portal.slices import memory_of
from billing.portal.tables import download
from billing.portal.workbench import (
    CARD_MEMORY,
    DraftForm,
    SheetForm,
    analysis,
    bench_tables,
    form_values,
    sheet_draft_write,
    sheet_effect,
    uploaded_values,
)
from billing.rates.models import CostSheet
from billing.rates.price_list import PriceListError
from billing.rates.selectors import PolicyBook
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import company_calendar
from metering.intervals import IntervalError
from pricing.cost_sheet import CostSheetError
from pricing.tco import parse_cost_sheet

SHOWN_SHEETS = 500


@page_for(Right.READ_COSTS)
def workbench(request: HtmxRequest, setup: BillingSetup) -> HttpResponse:
    """Show a cost sheet, its price and the effect of each input; the address holds every input."""
    context = _context(request, setup, request.GET)
    if (file := download(request, context["tables"])) is not None:
        return file
    part = "portal/parts/workbench_result.html" if request.htmx else "portal/workbench.html"
    return render(request, part, context)


def _context(request: HttpRequest, setup: BillingSetup, asked: Any) -> dict[str, Any]:
    name = asked.get("sheet", "")
    sheets = {row.name: row for row in CostSheet.objects.order_by("name")[:SHOWN_SHEETS]}
    against = asked.get("against", "") or name
    for field, wanted in (("sheet", name), ("against", against)):
        if wanted and wanted not in sheets:
            raise none_of(field, wanted, sheets)
    stored = sheets.get(name)
    values, begun = form_values(asked, stored), "accelerator" in asked or stored is not None
    memory = memory_of(values["accelerator"], values[CARD_MEMORY])
    form = SheetForm({**values, CARD_MEMORY: values[CARD_MEMORY] or str(memory)}, begun=begun)
    sheet = form.sheet if form.is_valid() else None
    old = sheets.get(against)
    month, _ = first_month_with_notice(timezone.now(), setup.zone, 0, company_calendar(setup))
    found = analysis(sheet, parse_cost_sheet(old.inputs) if old else None, memory) if sheet else None
    return {
        "nav": "workbench", "setup": setup, "sheets": list(sheets), "sheet_name": name, "against": against,
        "form": form, "begun": begun, "values": values, "refusals": form.messages,
        "found": found, "tables": bench_tables(found, against) if found else {},
        "draft": DraftForm(month=month, about=values["accelerator"] or "sheet"),
        "can_save": access_of(request.user).may(Right.EDIT_PRICES), "effect_month": _month(asked),
        "address": urlencode(values),
    }  # fmt: skip


@page_for(Right.READ_COSTS)
def workbench_effect(request: HtmxRequest, setup: BillingSetup) -> HttpResponse:
    """Show the cost of a month by team with the sheet of the address; every other price stays as published."""
    values, month = form_values(request.GET, None), _month(request.GET)
    effect, form = None, SheetForm(values)
    try:
        if form.is_valid() and form.sheet:
            memory = memory_of(form.sheet.accelerator, values[CARD_MEMORY])
            effect = sheet_effect(form.sheet, month=month, currency=setup.currency, memory_gb=memory)
    except (CostSheetError, PriceListError) as error:
        form.keep_all(error.problems)
    except IntervalError as error:
        raise Http404(error.args[0]) from error
    context = {
        "nav": "workbench", "setup": setup, "month": month, "effect": effect, "problems": form.messages,
        "shown": ShownEffect.of(effect) if effect else None, "team_names": team_names(request),
        "address": urlencode(values),
    }  # fmt: skip
    part = "portal/parts/price_effect.html" if request.htmx else "portal/workbench_effect.html"
    return render(request, part, context)


def _month(asked: Any) -> str:
    """Return the month in the address, else the last one that is over.  Raises Http404."""
    month = str(asked.get("month") or last_month(timezone.now()))
    if "\0" in month:
        raise Http404("a month has no NUL character")
    return month


@action_for(Right.READ_COSTS)
def workbench_upload(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Open a YAML or JSON sheet from a file: nothing is stored, and a refused sheet stays in the form."""
    values, refusals = uploaded_values(request.FILES.get("file"))
    context = _context(request, setup, values)
    if refusals:
        context.update(refusals=refusals, begun=True)
    return render(request, "portal/workbench.html", context, status=400 if refusals else 200)


@action_for(Right.EDIT_PRICES)
def workbench_save(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Store the sheet and a draft in which it prices its accelerator; every other price stays as published."""
    values = form_values(request.POST, None)
    form, draft = SheetForm(values), DraftForm(request.POST)
    if form.is_valid() and draft.done(sheet_draft_write, sheet=form.sheet, values=values, **acting(request)):
        return redirect("portal:price_draft", pk=draft.made.pk)
    context = _context(request, setup, request.POST)
    context |= {"refusals": [*form.messages, *draft.messages], "form": form, "draft": draft}
    return render(request, "portal/workbench.html", context, status=400)


@page
def planner(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the needs of a training run: low, base and high; the address holds every input."""
    prices, now = published_prices(), timezone.now()
    values = planner_values(request.GET, prices, lambda accelerator: own_mfu_p90(accelerator, now))
    plan = planned(values, PolicyBook().at(now)) if "tokens" in request.GET else None
    context = {
        "nav": "planner", "setup": setup, "groups": in_groups(values), "plan": plan, "prices": prices, "values": values,
    }  # fmt: skip
    return render(request, "portal/planner.html", context)
