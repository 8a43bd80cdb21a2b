"""Price lists: published versions, drafts before approval, comparisons, and the effect of a draft on a past month."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.closing.price_preview import last_month, month_effect
from billing.inbox.findings import findings_in
from billing.inbox.models import MonthFindings
from billing.invoices.selectors import period_of
from billing.portal.access import action, form_page_for, page, page_for, step_or_404
from billing.portal.asked import chosen
from billing.portal.first_prices import first_month, missing_prices, reported_rows
from billing.portal.forms import PageForm, acting
from billing.portal.htmx import HtmxRequest
from billing.portal.price_form import PriceForm, StepForm
from billing.portal.price_lists import (
    SheetChange,
    ShownEffect,
    ShownList,
    changes_against,
    changes_of,
    first_month_with_notice,
    free_list_name,
    in_currency,
    open_drafts,
    published_versions,
    sheet_changes,
    shown_draft,
    shown_version,
)
from billing.portal.selectors import policies, team_names
from billing.portal.tables import Column, Row, Table, columns, constant, download
from billing.rates import services
from billing.rates.models import CostSheet, PriceDraft, PriceVersion, TokenCostSheet
from billing.rates.price_file import export_yaml, version_content
from billing.rates.price_list import PriceListError
from billing.rates.selectors import base_of, notice_of, plain_version
from billing.rating.price_effect import PriceEffect
from billing.rating.price_warnings import draft_warnings
from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import company_calendar
from metering.intervals import IntervalError, month_of
from pricing.rate_card import TOKEN_CLASSES

STEPS: Mapping[str, tuple[Callable[..., Any], Right]] = {
    "submit": (services.price_draft_submit, Right.EDIT_PRICES),
    "rebase": (services.price_draft_rebase, Right.EDIT_PRICES),
    "withdraw": (services.price_draft_withdraw, Right.EDIT_PRICES),
    "approve": (services.price_draft_approve, Right.APPROVE),
    "reject": (services.price_draft_reject, Right.APPROVE),
}
State = PriceDraft.State
SHOWN_SHEETS = 500
MILLION = "1M Tokens"
CHANGE = [
    *(Column(name, of=f"key.{name}") for name in ("accelerator", "sku", "token_class", "unit")),
    Column("change"), *columns("old", "new", look="price"),
]  # fmt: skip
DRAFT = [
    *columns("name", "state", "valid_from"), Column("makers", of=lambda row: ", ".join(row.makers)), Column("reason"),
]  # fmt: skip
POLICY = [
    *columns("name", "valid_from", "valid_until", "penalise_on"), Column("min_minutes", "count"),
    *columns("hfu_below", "penalty", "mfu_above", "reward", "min_coverage", look="quantity"),
]  # fmt: skip


@page
def prices(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show every price version with its validity, the efficiency policies, and for readers of costs the drafts."""
    sees_drafts = access_of(request.user).may(Right.READ_COSTS)
    lists = [(version, shown_version(version)) for version in published_versions()]
    drafts = open_drafts() if sees_drafts else []
    tables = {
        "prices": lambda: _list_table((version.name, shown) for version, shown in lists),
        "drafts": lambda: Table.of("price-drafts", drafts, DRAFT),
        "policies": lambda: Table.of("efficiency-policies", policies(), POLICY),
    }  # fmt: skip
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "now": timezone.now(), "token_columns": TOKEN_CLASSES, "policies": policies(),
        "lists": lists, "drafts": drafts, "unpriced": _unpriced() if access_of(request.user).may(Right.EDIT_PRICES) else [],
    }  # fmt: skip
    return render(request, "portal/prices.html", context)


def _unpriced() -> list[str]:
    """Return the items that the last checks of open months found without a price, each once."""
    found = (item for row in MonthFindings.objects.all() for item in findings_in(row))
    return sorted({item.subject for item in found if item.kind == "unpriced"})


@page
def version(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show one published version: its prices, the changes that it made, its makers and approvers."""
    found = get_object_or_404(published_versions(), pk=pk)
    before, changes = changes_of(found)
    draft, shown = getattr(found, "draft", None), shown_version(found)
    tables = {
        "prices": lambda: _list_table([(found.name, shown)]),
        "changes": lambda: Table.of("price-changes", changes or (), CHANGE),
    }
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "now": timezone.now(), "token_columns": TOKEN_CLASSES, "version": found,
        "list": shown, "before": before, "changes": changes, "draft": draft,
        "steps": draft.steps.all() if draft else [],
    }  # fmt: skip
    return render(request, "portal/price_version.html", context)


@page_for(Right.READ_COSTS)
def draft(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show one draft: its prices and what they change, and the steps that the reader may take."""
    found = get_object_or_404(PriceDraft, pk=pk)
    tables = {
        "prices": lambda: _list_table([(found.name, shown_draft(found))]),
        "changes": lambda: Table.of("price-changes", changes_of(found)[1] or (), CHANGE),
    }
    file = download(request, tables)
    return _draft_page(request, setup, found) if file is None else file


def _draft_page(
    request: HttpRequest, setup: BillingSetup, found: PriceDraft, refused: PageForm | None = None, status: int = 200
) -> HttpResponse:
    access, name = access_of(request.user), actor_of(request)
    before, changes = changes_of(found)
    writes, made_it = access.may(Right.EDIT_PRICES), name in found.makers
    now, initial = timezone.now(), {"revision": found.revision}
    forms = {
        "submit": StepForm("submit", initial={**initial, "reason": found.reason}),
        **{step: StepForm(step, initial=initial) for step in ("approve", "reject", "rebase")},
    }  # fmt: skip
    context = {
        "nav": "prices", "setup": setup, "now": now, "token_columns": TOKEN_CLASSES, "draft": found,
        "refused": refused, "forms": {step: form.or_refused(refused) for step, form in forms.items()},
        "list": shown_draft(found), "before": before, "changes": changes,
        "base": base_of(found), "warnings": draft_warnings(found, now), "steps": found.steps.all(),
        "notice": notice_of(found, now), "notice_wanted": settings.PRICE_NOTICE_BUSINESS_DAYS,
        "can_edit": writes and found.state in (State.DRAFT, State.SUBMITTED, State.REJECTED),
        "can_submit": writes and found.state == State.DRAFT,
        "can_decide": access.may(Right.APPROVE) and not made_it and found.state == State.SUBMITTED,
        "waits_for_another": found.state == State.SUBMITTED and made_it, "month": last_month(now),
    }  # fmt: skip
    return render(request, "portal/price_draft.html", context, status=status)


@form_page_for(Right.EDIT_PRICES)
def draft_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show a new draft, copied from the newest published version or the one in the address; the first from reported usage.

    With `add` and usage of open time without a price: from the list in force, with rows for it, from its first hour on.
    """
    if request.method == "POST":
        return _store(request, setup, None)
    versions = {str(version.pk): version for version in published_versions()}
    source = versions.get(chosen(request, "from", versions, next(iter(versions), "")))
    month, start = first_month(setup.zone) or first_month_with_notice(
        timezone.now(), setup.zone, settings.PRICE_NOTICE_BUSINESS_DAYS, company_calendar(setup)
    )
    base, content = source, version_content(source) if source else reported_rows()
    if "add" in request.GET and (missing := missing_prices(timezone.now())) is not None:
        content = {part: [*entries, *missing.rows[part]] for part, entries in version_content(missing.base).items()}
        base, start = missing.base, missing.start
        month = month_of(start, setup.zone)
    initial = {"name": free_list_name(month), "valid_from": start, "revision": 0, "base": base.name if base else ""}
    return _form_page(request, setup, PriceForm(initial=initial, content=content), None)


@form_page_for(Right.EDIT_PRICES)
def draft_edit(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    found = get_object_or_404(PriceDraft, pk=pk)
    if request.method == "POST":
        return _store(request, setup, found)
    initial = {name: getattr(found, name) for name in ("name", "valid_from", "reason", "revision")}
    form = PriceForm(initial=initial, content=found.content)
    return _form_page(request, setup, form, found)


def _store(request: HttpRequest, setup: BillingSetup, known: PriceDraft | None) -> HttpResponse:
    def store(valid_from: datetime, revision: int | None, **words: str) -> PriceDraft:
        facts = {"valid_from": valid_from.astimezone(UTC), "content": form.content(), **acting(request), **words}
        if known is None:
            return services.price_draft_create(**facts)
        return services.price_draft_edit(draft=known, revision=revision or 0, **{**facts, "base": ""})

    form = PriceForm(request.POST)
    if form.done(store):
        return redirect("portal:price_draft", pk=form.made.pk)
    return _form_page(request, setup, form, known)


def _form_page(request: HttpRequest, setup: BillingSetup, form: PriceForm, known: PriceDraft | None) -> HttpResponse:
    context = {
        "nav": "prices", "setup": setup, "form": form, "draft": known,
        "sheets": CostSheet.objects.order_by("name").values_list("name", flat=True)[:SHOWN_SHEETS],
        "token_sheets": TokenCostSheet.objects.order_by("name").values_list("name", flat=True)[:SHOWN_SHEETS],
    }  # fmt: skip
    return render(request, "portal/price_form.html", context, status=400 if form.is_bound else 200)


@action
def draft_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Submit, approve, reject or withdraw a draft; an approval publishes it."""
    service, right = step_or_404(STEPS, step)
    if not access_of(request.user).may(right):
        raise PermissionDenied
    found = get_object_or_404(PriceDraft, pk=pk)
    form = StepForm(step, request.POST)

    def take(reason: str, revision: int | None) -> object:
        # None keeps the reason that the draft has
        words = None if step == "submit" and not reason else reason
        return service(draft=found, reason=words, revision=revision, **acting(request))

    if not form.done(take):
        found.refresh_from_db()
        fields = set(getattr(form.error, "by_field", ()))
        # 403 for an approver who made the draft, 409 for a draft that changed meanwhile
        status = 403 if "actor" in fields else 409 if {"state", "revision"} & fields else 400
        return _draft_page(request, setup, found, form, status)
    found.refresh_from_db()
    if found.version_id:
        return redirect("portal:price_version", pk=found.version_id)
    return redirect("portal:price_draft", pk=pk)


@page_for(Right.READ_COSTS)
def draft_effect(request: HtmxRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show the effect of a draft on the real usage of a month, per team and SKU."""
    found, month = get_object_or_404(PriceDraft, pk=pk), request.GET.get("month") or last_month(timezone.now())
    try:
        effect = month_effect(period=period_of(month), prices=plain_version(found))
    except IntervalError as error:
        raise Http404(error.args[0]) from error
    except PriceListError as error:
        effect, problems = None, error.messages
    else:
        problems = []
    if (file := download(request, {"effect": lambda: _effect_table(effect, month)})) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "draft": found, "month": month, "effect": effect, "problems": problems,
        "shown": ShownEffect.of(effect) if effect else None, "team_names": team_names(request),
    }  # fmt: skip
    part = "portal/parts/price_effect.html" if request.htmx else "portal/price_effect.html"
    return render(request, part, context)


@page
def compare(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    versions = list(published_versions())
    sees_costs = access_of(request.user).may(Right.READ_COSTS)
    drafts = list(open_drafts()) if sees_costs else []
    choices: dict[str, PriceDraft | PriceVersion] = {f"d{row.pk}": row for row in drafts}
    choices |= {f"v{row.pk}": row for row in versions}
    keys = list(choices)
    new = chosen(request, "new", choices, keys[0] if keys else "")
    old = chosen(request, "old", choices, next((key for key in keys if key != new), ""))
    changes = changes_against(choices.get(old), choices[new]) if new else None
    sheets = sheet_changes(choices.get(old), choices.get(new)) if sees_costs else []
    tables = {"changes": lambda: Table.of("price-changes", changes or (), CHANGE), "sheets": lambda: _sheets_table(sheets)}
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "prices", "setup": setup, "choices": choices, "old": choices.get(old), "new": choices.get(new),
        "old_key": old, "new_key": new, "changes": changes,
        "sheets": [_sheet_tables(one, str(choices.get(old)), str(choices.get(new))) for one in sheets],
    }  # fmt: skip
    return render(request, "portal/price_compare.html", context)


@page_for(Right.READ_COSTS)
def price_file(request: HttpRequest, setup: BillingSetup, kind: str, pk: int) -> HttpResponse:
    if kind not in ("draft", "version"):
        raise Http404(f"no price list of kind {kind!r}")
    found: PriceDraft | PriceVersion = (
        get_object_or_404(PriceDraft, pk=pk) if kind == "draft" else get_object_or_404(published_versions(), pk=pk)
    )
    response = HttpResponse(export_yaml(found, setup.zone), content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="prices-{kind}-{pk}.yaml"'
    return response


def _list_table(lists: Iterable[tuple[str, ShownList]]) -> Table:
    """Return every price of the lists, one a row."""
    names = ("list", "accelerator", "resource", "model", "token_class", "unit", "cost_sheet")
    rows: list[Row] = []
    for name, shown in lists:
        rows += [
            [name, item.accelerator, item.resource, None, None, item.unit, _sheet_name(item.cost_sheet), item.price]
            for item in shown.gpu
        ]
        rows += [
            [name, None, None, model.model, kind, MILLION, _sheet_name(model.cost_sheet), price]
            for model in shown.tokens for kind, price in model.by_class if price is not None
        ]  # fmt: skip
    return Table("prices", [*columns(*names), Column("price", "price")], rows)


def _sheet_name(sheet: CostSheet | TokenCostSheet | None) -> str | None:
    return sheet.name if sheet else None


def _sheet_tables(one: SheetChange, old: str, new: str) -> tuple[SheetChange, Table, Table]:
    """Return a sheet with its components and its differing inputs as tables of the page."""
    sides = [Column("old", "price", heading=old), Column("new", "price", heading=new)]
    prices = [cost.price if cost else None for cost in (one.old, one.new)]
    components = Table(
        "components",
        [Column("name", heading=_("Component"), words="price_part"),
         Column("old", "price", heading=in_currency(old, one.old, one.new)),
         Column("new", "price", heading=in_currency(new, one.new, one.old)),
         Column("difference", "price", heading=_("Difference"))],
        one.components, foot=(gettext("Price"), *prices, ""),
    )  # fmt: skip
    named = Column("name", heading=_("Inputs that differ"), words="price_input")
    return one, components, Table("inputs", [named, *sides], one.inputs)


def _sheets_table(sheets: Iterable[SheetChange]) -> Table:
    """Return components and differing inputs of the cost sheets behind two lists, as the page writes them."""
    rows: list[Row] = []
    for one in sheets:
        rows += [[one.accelerator, "component", *parts] for parts in one.components]
        rows += [[one.accelerator, "input", *parts, None] for parts in one.inputs]
    return Table("cost-sheets-compared", columns("accelerator", "kind", "name", "old", "new", "difference"), rows)


def _effect_table(effect: PriceEffect | None, month: str) -> Table:
    """Return the charges of each team for each SKU, as they were and with the list."""
    parts = [part for row in effect.by_team for part in effect.of_team(row.key.team)] if effect else []
    facts = [
        constant("month", month), *(Column(name, of=f"key.{name}") for name in ("team", "kind", "sku", "token_class")),
        Column("as_it_was", "money", "before"), Column("with_this_list", "money", "after"), Column("difference", "money"),
    ]  # fmt: skip
    return Table.of(f"effect-on-{month}", parts, facts)
