"""What charges are made from: besides prices: ownership, and what could not be taken in, with what becomes of it."""

from django import forms
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from billing.portal.access import page, page_for, staff_page
from billing.portal.forms import PageForm, Text, acting
from billing.portal.selectors import (
    QUARANTINE_SHOWN,
    consumers_owned,
    namespaces_owned,
    quarantined,
)
from billing.portal.tables import Column, Table, columns, download
from billing.tenancy.access import Right, teams_visible_to
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_dismiss, quarantine_replay
from billing.usage.services.replay import refusal_of

RULES_SHOWN = 100
TEAM = Column("team", of="team.code")
NAMESPACE = [
    *columns("cluster", "namespace"), TEAM, Column("platform", of=lambda row: str(row.platform).lower()),
    *columns("valid_from", "valid_until"),
]  # fmt: skip
CONSUMER = [*columns("source", "consumer"), TEAM, *columns("valid_from", "valid_until")]
RECORD = [
    *columns("received_at", "at", "door", "reporter", "reason", "error", "key", "status", "resolved_by", "resolution",
             "record", "corrected"), Column("times_received", "count"),
]  # fmt: skip


@require_safe
@page
def ownership(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Who owns which namespaces and consumers, since when."""
    teams = teams_visible_to(request.user)
    tables = {
        "namespaces": lambda: Table.of("namespaces", namespaces_owned(teams), NAMESPACE),
        "consumers": lambda: Table.of("consumers", consumers_owned(teams), CONSUMER),
    }
    if (file := download(request, tables)) is not None:
        return file
    wanted = request.GET.get("q", "").replace("\0", "").strip()
    named = Q(team__code__icontains=wanted)
    namespaces = namespaces_owned(teams).filter(named | Q(namespace__icontains=wanted))
    consumers = consumers_owned(teams).filter(named | Q(consumer__icontains=wanted))
    pages = Paginator(range(max(namespaces.count(), consumers.count())), RULES_SHOWN)
    shown = pages.get_page(request.GET.get("page"))
    part = slice((shown.number - 1) * RULES_SHOWN, shown.number * RULES_SHOWN)
    context = {
        "nav": "ownership", "setup": setup, "namespaces": namespaces[part], "consumers": consumers[part], "q": wanted,
        "page": shown, "many": pages.num_pages > 1 or wanted,
    }  # fmt: skip
    return render(request, "portal/ownership.html", context)


@require_safe
@staff_page
def quarantine(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Records that could not enter the ledger, with the reason."""
    status = _status(request.GET.get("status", ""))
    file = download(request, {"records": lambda: Table.of("quarantine", quarantined(status, None)[0], RECORD)})
    return _quarantine(request, setup) if file is None else file


def _status(wanted: str) -> str:
    return wanted if wanted in QuarantinedRecord.Status.values else QuarantinedRecord.Status.OPEN


class DecisionForm(PageForm):
    """What becomes of a record: taken in, corrected or as it came, or dismissed; and why."""

    action = forms.ChoiceField(choices=[("replay", "replay"), ("dismiss", "dismiss")])
    record = Text(required=False, widget=forms.Textarea(attrs={
        "rows": 6, "cols": 60, "class": "mono", "spellcheck": "false", "aria-label": _("The record, corrected"),
    }))
    reason = Text(
        label=_("Why"), max_length=2000, widget=forms.TextInput(attrs={"aria-label": _("Why"), "placeholder": _("Why")})
    )


@require_POST
@page_for(Right.OPERATE)
def quarantine_decide(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Take a record into the ledger, corrected or as it came, or dismiss it."""
    record = QuarantinedRecord.objects.filter(pk=pk).first()
    if record is None:
        raise Http404(f"no record {pk}")

    def decide(action: str, reason: str, record: str) -> object:
        if action == "dismiss":
            return quarantine_dismiss(record_id=pk, actor=actor_of(request), resolution=reason)
        return quarantine_replay(record_id=pk, reason=reason, corrected=record or None, **acting(request))

    form = DecisionForm(request.POST, key=pk)
    form.is_valid()
    if "action" in form.errors:
        raise Http404(form.message)
    return redirect("portal:quarantine") if form.done(decide) else _quarantine(request, setup, form)


def _quarantine(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    shown = _status(request.GET.get("status", ""))
    rows, total = quarantined(shown)
    now = timezone.now()
    explained = [
        (row, refusal_of(row, now), DecisionForm(key=row.pk, initial={"record": row.record}).or_refused(refused))
        for row in rows
    ]
    context = {
        "nav": "quarantine", "setup": setup, "rows": explained, "total": total, "status": shown,
        "shown": QUARANTINE_SHOWN, "refused": refused,
    }  # fmt: skip
    return render(request, "portal/quarantine.html", context, status=409 if refused else 200)
