"""Commitments of teams: hours bought, used and unused in a month; and terms that are proposed and decided."""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.portal.access import action, action_for, page, step_or_404
from billing.portal.commitments import CommitmentUse, commitment_uses
from billing.portal.forms import Midnight, Number, PageForm, ReasonForm, TeamChoice, Text, acting
from billing.portal.fresh import page_freshness, scope_seen
from billing.portal.months import month_choice
from billing.portal.statements import month_statements
from billing.portal.tables import Column, Table, columns, constant, download
from billing.portal.views.overview import stage_of
from billing.rates.models import Commitment, CommitmentDraft
from billing.rates.selectors import commitment_drafts
from billing.rates.services import CommitmentTerms
from billing.rating.services import commitment_terms as services
from billing.setup.policies import commitments_text
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup

SHOWN = 50
TERMS = [
    Column("state", of="word"), Column("ends", of=lambda row: str(row.ends).lower()), Column("commitment", of="name"),
    Column("team", of="team_code"), Column("accelerator"), Column("gpu_hours_per_month", "quantity", "gpu_hours"),
    Column("price_per_gpu_hour", "price", "price"), *columns("valid_from", "valid_until", "reason", "requested_by"),
    *columns("requested_at", "decided_by", "decided_at", "decision"),
]  # fmt: skip
STEPS: dict[str, tuple[Callable[..., CommitmentDraft], Right]] = {
    "approve": (services.terms_approve, Right.APPROVE),
    "reject": (services.terms_reject, Right.APPROVE),
    "withdraw": (services.terms_withdraw, Right.EDIT_PRICES),
}


class TermsForm(PageForm):
    """Form of the terms of a new commitment, and the reason for it."""

    name = Text(label=_("Name"), max_length=200)
    team = TeamChoice()
    accelerator = Text(
        label=_("Accelerator"), max_length=512, widget=forms.TextInput(attrs={"placeholder": "NVIDIA-H800"})
    )
    gpu_hours_per_month = Number(label=_("GPU-hours a month"))
    price_per_gpu_hour = Number(label=_("Price per GPU-hour"))
    valid_from = Midnight(label=_("From"))
    valid_until = Midnight(label=_("End date (exclusive)"), required=False)
    reason = Text(label=_("Reason"), max_length=services.MAX_REASON)


class EndForm(PageForm):
    """Form of the end of a stored commitment, with a reason."""

    known_by = ("name",)
    ends = Text(widget=forms.HiddenInput, initial="yes")
    name = Text(widget=forms.HiddenInput)
    valid_until = Midnight(label=_("End date (exclusive)"))
    reason = Text(label=_("Reason"), max_length=services.MAX_REASON)


def _decision(pk: int, data: Any = None) -> PageForm:
    return ReasonForm(data, key=pk, label=_("Reason"), required=False)


@page
def commitment_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List the commitments of the teams that the user may see, in a month."""
    return _list(request, setup)


def _yaml(uses: Sequence[CommitmentUse], zone: str) -> str:
    """Return the commitments of a page as the set-up file has them."""
    stored = Commitment.objects.filter(name__in=[use.commitment.name for use in uses]).select_related("team")
    return commitments_text(stored, zone)


def _list(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    now = timezone.now()
    choice = month_choice(request.GET.get("month", ""), setup, now)
    visible = teams_visible_to(request.user)
    teams = visible.filter(commitments__isnull=False).distinct()
    month = month_statements(choice.period, teams)
    fresh = page_freshness(request, choice.period, scope_seen(request), as_of=month.as_of)
    uses = commitment_uses(month, list(teams), now, stale=fresh is not None and fresh.stale)
    drafts = commitment_drafts(visible)
    tables = {
        "commitments": lambda: _table(choice.month, uses), "drafts": lambda: Table.of("commitment-terms", drafts, TERMS)
    }  # fmt: skip
    if (file := download(request, tables, fresh if request.GET.get("table") == "commitments" else None)) is not None:
        return file
    context = {
        "nav": "commitments", "fresh": fresh, "as_of": month.as_of,
        "setup": setup, "choice": choice, "period": choice.period, "month": month,
        "uses": [(use, EndForm(initial={"ends": "yes", "name": use.commitment.name}).or_refused(refused)) for use in uses],
        "drafts": [(draft, _decision(draft.pk).or_refused(refused)) for draft in drafts[:SHOWN]],
        "yaml": _yaml(uses, setup.zone), "stage": stage_of(month), "refused": refused,
        "form": TermsForm().or_refused(refused),
        "paid": sum((use.amount for use in uses), Decimal("0.00")),
        "unused_paid": sum((use.unused_amount for use in uses), Decimal("0.00")),
    }  # fmt: skip
    return render(request, "portal/commitments.html", context, status=409 if refused else 200)


def _table(month: str, uses: list[CommitmentUse]) -> Table:
    def pace(name: str) -> Callable[[CommitmentUse], Decimal | None]:
        return lambda use: getattr(use.pace, name) if use.pace else None

    facts = [
        constant("month", month), Column("team", of="team.code"), Column("commitment", of="commitment.name"),
        Column("accelerator", of="commitment.accelerator"), Column("price_per_gpu_hour", "price", "commitment.price"),
        *(Column(f"{name}_gpu_hours", "quantity", name) for name in ("bought", "used", "unused", "beyond")),
        Column("used_share", "ratio", "share"), *columns("used_amount", "unused_amount", look="money"),
        Column("unused_at_list_price", "money", "unused_at_list"), Column("burn_rate", "ratio", pace("burn")),
        Column("expected_used_gpu_hours", "quantity", pace("used")),
        Column("expected_unused_gpu_hours", "quantity", pace("unused")),
    ]  # fmt: skip
    return Table.of(f"commitments-{month}", uses, facts)


@action_for(Right.EDIT_PRICES)
def draft_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Propose terms, or (`ends`) the earlier end of a commitment."""

    def propose(reason: str, gpu_hours_per_month: Decimal, price_per_gpu_hour: Decimal, **terms: Any) -> object:
        asked = CommitmentTerms(gpu_hours=gpu_hours_per_month, price=price_per_gpu_hour, **terms)
        return services.terms_propose(terms=asked, reason=reason, **acting(request))

    def propose_end(name: str, valid_until: datetime, ends: str, reason: str) -> object:
        return services.terms_propose_end(name=name, at=valid_until, reason=reason, **acting(request))

    ends = EndForm(request.POST)
    form, act = (ends, propose_end) if ends["ends"].value() else (TermsForm(request.POST), propose)
    return redirect("portal:commitments") if form.done(act) else _list(request, setup, form)


@action
def draft_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Approve, reject or withdraw proposed terms."""
    service, right = step_or_404(STEPS, step)
    if not access_of(request.user).may(right):
        raise PermissionDenied
    form = _decision(pk, request.POST)
    if form.done(service, draft_id=pk, **acting(request)):
        return redirect("portal:commitments")
    return _list(request, setup, form)
