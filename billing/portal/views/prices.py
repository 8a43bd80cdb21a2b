"""Price lists: published versions, drafts on their way to approval, comparisons, and what a draft would have done."""

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from billing.closing.price_preview import last_month, month_effect
from billing.invoices.selectors import period_of
from billing.portal.access import page, page_for
from billing.portal.htmx import HtmxRequest
from billing.portal.price_form import PriceForm, form_of_content, form_of_post
from billing.portal.price_lists import (
    changes_against,
    changes_of,
    first_month_with_notice,
    open_drafts,
    published_versions,
    sheet_changes,
    shown_draft,
    shown_version,
)
from billing.portal.price_tables import (
    changes_table,
    drafts_table,
    effect_table,
    list_table,
    policies_table,
    sheets_table,
)
from billing.portal.selectors import policies
from billing.portal.tables import download
from billing.rates.models import CostSheet, PriceDraft, PriceVersion, TokenCostSheet
from billing.rates.price_file import export_yaml, version_content
from billing.rates.price_list import GPU_PRICES, PriceListError
from billing.rates.selectors import notice_of, plain_version, price_draft_named
from billing.rates.services import (
    PriceDraftError,
    price_draft_approve,
    price_draft_create,
    price_draft_edit,
    price_draft_reject,
    price_draft_submit,
    price_draft_withdraw,
)
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import house_calendar
from metering.intervals import IntervalError
from pricing.rate_card import TOKEN_CLASSES

STEPS: Mapping[str, tuple[Callable[..., Any], Right]] = {
    "submit": (price_draft_submit, Right.EDIT_PRICES),
    "withdraw": (price_draft_withdraw, Right.EDIT_PRICES),
    "approve": (price_draft_approve, Right.APPROVE),
    "reject": (price_draft_reject, Right.APPROVE),
}
State = PriceDraft.State
SHOWN_SHEETS = 500


@require_safe
@page
def prices(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Every price version with its validity, the efficiency policies, and for some the drafts."""
    sees_drafts = access_of(request.user).may(Right.READ_COSTS)
    lists = [(version, shown_version(version)) for version in published_versions()]
    drafts = open_drafts() if sees_drafts else []
    tables = {
        "prices": lambda: list_table((version.name, shown) for version, shown in lists),
        "drafts": lambda: drafts_table(drafts), "policies": lambda: policies_table(policies()),
    }  # fmt: skip
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "now": timezone.now(), "token_columns": TOKEN_CLASSES, "policies": policies(),
        "lists": lists, "drafts": drafts,
    }  # fmt: skip
    return render(request, "portal/prices.html", context)


@require_safe
@page
def version(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """One published version: its prices, what changed with it, who made and who approved it."""
    found = get_object_or_404(published_versions(), pk=pk)
    before, changes = changes_of(found)
    draft, shown = getattr(found, "draft", None), shown_version(found)
    tables = {"prices": lambda: list_table([(found.name, shown)]), "changes": lambda: changes_table(changes)}
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "now": timezone.now(), "token_columns": TOKEN_CLASSES, "version": found,
        "list": shown, "before": before, "changes": changes, "draft": draft,
        "steps": draft.steps.all() if draft else [],
    }  # fmt: skip
    return render(request, "portal/price_version.html", context)


@require_safe
@page_for(Right.READ_COSTS)
def draft(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """One draft: its prices and what they change, and the steps that whoever looks may take."""
    found = get_object_or_404(PriceDraft, pk=pk)
    tables = {
        "prices": lambda: list_table([(found.name, shown_draft(found))]),
        "changes": lambda: changes_table(changes_of(found)[1]),
    }
    file = download(request, tables)
    return _draft_page(request, setup, found) if file is None else file


def _draft_page(request: HttpRequest, setup: BillingSetup, found: PriceDraft, **more: Any) -> HttpResponse:
    access, name = access_of(request.user), request.user.get_username()
    before, changes = changes_of(found)
    writes, made_it = access.may(Right.EDIT_PRICES), name in found.makers
    now = timezone.now()
    context = {
        "nav": "prices", "setup": setup, "now": now, "token_columns": TOKEN_CLASSES, "draft": found,
        "list": shown_draft(found), "before": before, "changes": changes, "steps": found.steps.all(),
        "notice": notice_of(found, now), "notice_wanted": settings.PRICE_NOTICE_BUSINESS_DAYS,
        "can_edit": writes and found.state in (State.DRAFT, State.SUBMITTED, State.REJECTED),
        "can_submit": writes and found.state == State.DRAFT,
        "can_decide": access.may(Right.APPROVE) and not made_it and found.state == State.SUBMITTED,
        "waits_for_another": found.state == State.SUBMITTED and made_it, "month": last_month(now),
    }  # fmt: skip
    status = more.pop("status", 200)
    return render(request, "portal/price_draft.html", {**context, **more}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@page_for(Right.EDIT_PRICES)
def draft_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """A new draft, begun from the newest published version or the one asked for."""
    if request.method == "POST":
        form = form_of_post(request.POST)
        return _store(request, setup, form, None)
    asked = request.GET.get("from", "")
    versions = published_versions()
    source = get_object_or_404(versions, pk=int(asked)) if asked.isdecimal() and len(asked) < 10 else versions.first()
    month, start = first_month_with_notice(
        timezone.now(), setup.zone, settings.PRICE_NOTICE_BUSINESS_DAYS, house_calendar(setup)
    )
    taken = PriceVersion.objects.filter(name=month).exists() or price_draft_named(month)
    content = version_content(source) if source else {"gpu": [], "tokens": []}
    form = form_of_content(content, name="" if taken else month, valid_from=start, zone=setup.zone)
    return _form_page(request, setup, form, None, source=source)


@require_http_methods(["GET", "HEAD", "POST"])
@page_for(Right.EDIT_PRICES)
def draft_edit(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """The prices, start and reason of a draft."""
    found = get_object_or_404(PriceDraft, pk=pk)
    if request.method == "POST":
        return _store(request, setup, form_of_post(request.POST), found)
    form = form_of_content(
        found.content, name=found.name, valid_from=found.valid_from, zone=setup.zone, reason=found.reason,
        revision=found.revision,
    )  # fmt: skip
    return _form_page(request, setup, form, found)


def _store(request: HttpRequest, setup: BillingSetup, form: PriceForm, known: PriceDraft | None) -> HttpResponse:
    start, now = form.start(setup.zone), timezone.now()
    actor, content = request.user.get_username(), form.content()
    try:
        if start is None:
            return _form_page(request, setup, form, known)
        if known is None:
            stored = price_draft_create(
                name=form.name, content=content, reason=form.reason, actor=actor, valid_from=start, now=now
            )
        else:
            stored = price_draft_edit(
                draft=known, name=form.name, content=content, reason=form.reason, actor=actor, valid_from=start, now=now,
                revision=form.revision,
            )
    except PriceDraftError as error:
        form.refuse(error.problems)
        return _form_page(request, setup, form, known)
    return redirect("portal:price_draft", pk=stored.pk)


def _form_page(
    request: HttpRequest, setup: BillingSetup, form: PriceForm, known: PriceDraft | None, **more: Any
) -> HttpResponse:
    context = {
        "nav": "prices", "setup": setup, "form": form, "draft": known, "sources": GPU_PRICES,
        "token_columns": TOKEN_CLASSES, **more,
        "sheets": CostSheet.objects.order_by("name").values_list("name", flat=True)[:SHOWN_SHEETS],
        "token_sheets": TokenCostSheet.objects.order_by("name").values_list("name", flat=True)[:SHOWN_SHEETS],
    }  # fmt: skip
    return render(request, "portal/price_form.html", context, status=400 if form.all_messages else 200)


@require_POST
@page
def draft_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Submit, approve, reject or withdraw a draft; an approval publishes it."""
    if step not in STEPS:
        raise Http404(f"no step {step!r}")
    service, right = STEPS[step]
    if not access_of(request.user).may(right):
        raise PermissionDenied
    found = get_object_or_404(PriceDraft, pk=pk)
    reason, revision = request.POST.get("reason", "").strip(), request.POST.get("revision", "")
    asked: dict[str, Any] = {"reason": reason or None} if step == "submit" else {"reason": reason}
    if revision.isdecimal() and len(revision) < 10:
        asked["revision"] = int(revision)
    try:
        service(draft=found, actor=request.user.get_username(), now=timezone.now(), **asked)
    except PriceDraftError as error:
        found.refresh_from_db()
        status = 403 if "actor" in error.by_field else 409 if {"state", "revision"} & set(error.by_field) else 400
        return _draft_page(request, setup, found, refused=error.by_field, status=status)
    found.refresh_from_db()
    if found.version_id:
        return redirect("portal:price_version", pk=found.version_id)
    return redirect("portal:price_draft", pk=pk)


@require_safe
@page_for(Right.READ_COSTS)
def draft_effect(request: HtmxRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """What a draft would have done to the real usage of a month, per team and SKU."""
    found, month = get_object_or_404(PriceDraft, pk=pk), request.GET.get("month") or last_month(timezone.now())
    if "\0" in month:
        raise Http404("a month has no NUL character")
    try:
        effect = month_effect(period=period_of(month), prices=plain_version(found))
    except IntervalError as error:
        raise Http404(str(error)) from error
    except PriceListError as error:
        effect, problems = None, error.messages
    else:
        problems = []
    if (file := download(request, {"effect": lambda: effect_table(effect, month)})) is not None:
        return file
    teams = [(row, effect.of_team(row.key.team)) for row in effect.by_team] if effect else []
    context = {
        "nav": "prices", "setup": setup, "draft": found, "month": month, "effect": effect, "teams": teams,
        "problems": problems,
    }  # fmt: skip
    part = "portal/parts/price_effect.html" if request.htmx else "portal/price_effect.html"
    return render(request, part, context)


@require_safe
@page
def compare(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Two lists side by side, price by price."""
    versions = list(published_versions())
    sees_costs = access_of(request.user).may(Right.READ_COSTS)
    drafts = list(open_drafts()) if sees_costs else []
    choices: dict[str, PriceDraft | PriceVersion] = {f"d{row.pk}": row for row in drafts}
    choices |= {f"v{row.pk}": row for row in versions}
    keys = list(choices)
    new = request.GET.get("new", "") or (keys[0] if keys else "")
    old = request.GET.get("old", "") or next((key for key in keys if key != new), "")
    if (new and new not in choices) or (old and old not in choices):
        raise Http404("no such price list")
    changes = changes_against(choices.get(old), choices[new]) if new else None
    sheets = sheet_changes(choices.get(old), choices.get(new)) if sees_costs else []
    tables = {"changes": lambda: changes_table(changes), "sheets": lambda: sheets_table(sheets)}
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "choices": choices, "old": choices.get(old), "new": choices.get(new),
        "old_key": old, "new_key": new, "changes": changes, "sheets": sheets,
    }  # fmt: skip
    return render(request, "portal/price_compare.html", context)


@require_safe
@page_for(Right.READ_COSTS)
def price_file(request: HttpRequest, setup: BillingSetup, kind: str, pk: int) -> HttpResponse:
    """A list as the YAML of the set-up file, with its cost sheets."""
    if kind not in ("draft", "version"):
        raise Http404(f"no price list of kind {kind!r}")
    found: PriceDraft | PriceVersion = (
        get_object_or_404(PriceDraft, pk=pk) if kind == "draft" else get_object_or_404(published_versions(), pk=pk)
    )
    response = HttpResponse(export_yaml(found, setup.zone), content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="prices-{kind}-{pk}.yaml"'
    return response
