"""Forms of policies, carbon factors and the billing set-up: the input is previewed with its effects in open months, and then
stored.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.invoices.models import BillingPeriod
from billing.portal.access import action_for, staff_page
from billing.portal.forms import PageForm
from billing.portal.months import open_periods
from billing.portal.policy_form import FORMS, SECTION_OF
from billing.portal.tables import Column, Table, download
from billing.portal.views.owners import FORM, TextForm, looked_at
from billing.setup.policies import billing_declared, policies_apply, policies_declared, policies_preview, policies_text
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup
from pricing.carbon import LIFECYCLE, OFFICIAL, RESIDUAL

BASIS: Final = {OFFICIAL: _("official average"), RESIDUAL: _("official residual"), LIFECYCLE: _("lifecycle")}
POLICY: Final = [
    Column("section", of=lambda row: row[0]), Column("name", of=lambda row: row[1].get("name") or row[1]["cluster"]),
    Column("valid_from", of=lambda row: row[1]["valid_from"]),
]  # fmt: skip


@staff_page
def policies(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show every policy and carbon factor, with the forms that add one."""
    return _page(request, setup)


def _page(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None, kind: str = "") -> HttpResponse:
    stored = policies_declared(setup.zone)
    rows = [(section, entry) for section, entries in stored.items() for entry in entries]
    if (file := download(request, {"policies": lambda: Table.of("policies", rows, POLICY)})) is not None:
        return file
    context = {
        "nav": "policies", "setup": setup, "stored": stored,
        "carbon": [(entry, _source_words(entry["source"])) for entry in stored["carbon"]], "refused": refused,
        "yaml": policies_text(stored), "billing": policies_text({"billing": billing_declared(setup)}),
        "forms": {name: refused if name == kind else _form(name, setup, stored) for name in FORMS},
    }  # fmt: skip
    return render(request, "portal/policies.html", context, status=409 if refused else 200)


def _source_words(source: str) -> str:
    """Return the source of figures; the basis of a known factor is in the language of the reader."""
    place, comma, basis = source.rpartition(", ")
    return f"{place}{comma}{BASIS[basis]}" if basis in BASIS else source


def _form(kind: str, setup: BillingSetup, stored: Any, data: Any = None) -> Any:
    """Return a form of that kind, filled with the latest policy of its section."""
    if kind == "billing":
        return FORMS[kind](data, latest=billing_declared(setup))
    latest = next(reversed(stored.get(SECTION_OF.get(kind, ""), ())), None)
    return FORMS[kind](data, latest=latest)


@action_for(Right.OPERATE)
def policy_look(request: HttpRequest, setup: BillingSetup, kind: str) -> HttpResponse:
    """Preview the changes of a form, and their effects in open months; nothing is stored."""
    if kind not in FORMS:
        raise Http404(f"no form {kind!r}")
    form = _form(kind, setup, policies_declared(setup.zone), request.POST)
    periods = open_periods(setup, timezone.now())
    looked = looked_at(request, form, policies_preview, periods)
    if looked is None:
        return _page(request, setup, form, kind)
    context = {
        "nav": "policies", "setup": setup, "back": "policies", "called": _("Policies"), "store": "policy_store",
        "nothing": _nothing_moves(periods, form.cleaned_data.get("valid_from")), **looked,
    }  # fmt: skip
    return render(request, "portal/preview.html", context)


def _nothing_moves(periods: Sequence[BillingPeriod], begins: datetime | None) -> str:
    """Return the reason why no amount changes, such as a policy that begins after every open month."""
    if begins is None or any(begins < period.end for period in periods):
        return gettext("No amount of an open month changes.")
    text = gettext("It begins on %(begins)s, after the last open month: there is no month to compare.")
    return text % {"begins": timezone.localtime(begins).date().isoformat()}


@action_for(Right.OPERATE)
def policy_store(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Apply a text that was previewed."""
    form = TextForm(request.POST, key="text")
    done = form.done(policies_apply, name=FORM, actor=actor_of(request))
    return redirect("portal:policies") if done else _page(request, setup, form)
