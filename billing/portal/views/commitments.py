"""What teams have committed to: hours bought, used and unused in a month; and terms that are proposed and decided."""

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from zoneinfo import ZoneInfo

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from billing.portal.access import page, page_for
from billing.portal.commitments import CommitmentUse, commitment_uses
from billing.portal.fresh import page_freshness, scope_seen
from billing.portal.months import month_choice
from billing.portal.statements import month_statements
from billing.portal.tables import Column, Table, download
from billing.portal.views.overview import stage_of
from billing.rates.models import CommitmentDraft
from billing.rates.selectors import commitment_drafts
from billing.rates.services import CommitmentTerms, RateError
from billing.rating.services.commitment_terms import (
    terms_approve,
    terms_propose,
    terms_propose_end,
    terms_reject,
    terms_withdraw,
)
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup, Team
from metering.messages import Message
from pricing.fields import exact_number

SHOWN = 50
STEPS: dict[str, tuple[Callable[..., CommitmentDraft], Right]] = {
    "approve": (terms_approve, Right.APPROVE),
    "reject": (terms_reject, Right.APPROVE),
    "withdraw": (terms_withdraw, Right.EDIT_PRICES),
}


@require_safe
@page
def commitment_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """The commitments of the teams that somebody may see, in a month."""
    return _list(request, setup)


def _list(request: HttpRequest, setup: BillingSetup, refused: str = "", status: int = 200) -> HttpResponse:
    now, asked_of = timezone.now(), request.resolver_match.kwargs.get("pk") if request.resolver_match else None
    choice = month_choice(request.GET.get("month", ""), setup, now)
    visible = teams_visible_to(request.user)
    teams = visible.filter(commitments__isnull=False).distinct()
    month = month_statements(choice.period, teams)
    fresh = page_freshness(request, choice.period, scope_seen(request), as_of=month.as_of)
    uses = commitment_uses(month, list(teams), now, stale=fresh is not None and fresh.stale)
    drafts = commitment_drafts(visible)
    tables = {"commitments": lambda: _table(choice.month, uses), "drafts": lambda: _drafts(drafts)}
    if (file := download(request, tables, fresh if request.GET.get("table") == "commitments" else None)) is not None:
        return file
    context = {
        "nav": "commitments", "fresh": fresh, "as_of": month.as_of,
        "setup": setup, "choice": choice, "period": choice.period, "month": month, "uses": uses,
        "stage": stage_of(month), "drafts": drafts[:SHOWN], "refused": refused, "asked_of": asked_of,
        "said": {} if asked_of or request.POST.get("ends") else request.POST,
        "paid": sum((use.amount for use in uses), Decimal("0.00")),
        "unused_paid": sum((use.unused_amount for use in uses), Decimal("0.00")),
        "teams": visible.order_by("code") if access_of(request.user).may(Right.EDIT_PRICES) else (),
    }  # fmt: skip
    return render(request, "portal/commitments.html", context, status=status)


def _table(month: str, uses: list[CommitmentUse]) -> Table:
    hours = ("bought", "used", "unused", "beyond")
    columns = [
        *(Column(name) for name in ("month", "team", "commitment", "accelerator")), Column("price_per_gpu_hour", "price"),
        *(Column(f"{name}_gpu_hours", "quantity") for name in hours), Column("used_share", "ratio"),
        Column("used_amount", "money"), Column("unused_amount", "money"), Column("unused_at_list_price", "money"),
        Column("burn_rate", "ratio"), Column("expected_used_gpu_hours", "quantity"),
        Column("expected_unused_gpu_hours", "quantity"),
    ]  # fmt: skip
    rows = [
        [month, use.team.code, use.commitment.name, use.commitment.accelerator, use.commitment.price,
         *(getattr(use, name) for name in hours), use.share, use.used_amount, use.unused_amount, use.unused_at_list,
         *((use.pace.burn, use.pace.used, use.pace.unused) if use.pace else (None, None, None))]
        for use in uses
    ]  # fmt: skip
    return Table(f"commitments-{month}", columns, rows)


def _drafts(drafts: Iterable[CommitmentDraft]) -> Table:
    columns = [
        *(Column(name) for name in ("state", "ends", "commitment", "team", "accelerator")),
        Column("gpu_hours_per_month", "quantity"), Column("price_per_gpu_hour", "price"),
        *(Column(name) for name in ("valid_from", "valid_until", "reason", "requested_by", "requested_at", "decided_by",
                                    "decided_at", "decision")),
    ]  # fmt: skip
    rows = [
        [row.word, str(row.ends).lower(), row.name, row.team_code, row.accelerator, row.gpu_hours, row.price,
         row.valid_from, row.valid_until, row.reason, row.requested_by, row.requested_at, row.decided_by, row.decided_at,
         row.decision]
        for row in drafts
    ]  # fmt: skip
    return Table("commitment-terms", columns, rows)


@require_POST
@page_for(Right.EDIT_PRICES)
def draft_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Propose terms, or (`ends`) the earlier end of a commitment; a refusal is told on the page."""
    actor, now, reason = request.user.get_username(), timezone.now(), _text(request, "reason")
    try:
        if request.POST.get("ends"):
            at = _needed_day(request, "valid_until", setup)
            terms_propose_end(name=_text(request, "name"), at=at, actor=actor, now=now, reason=reason)
        else:
            terms_propose(terms=_terms(request, setup), actor=actor, now=now, reason=reason)
    except RateError as error:
        return _list(request, setup, error.message, status=409)
    return redirect("portal:commitments")


@require_POST
@page
def draft_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Approve, reject or withdraw proposed terms; a refusal is told on the page."""
    if step not in STEPS:
        raise Http404(f"no step {step[:20]!r}")
    service, right = STEPS[step]
    if not access_of(request.user).may(right):
        raise PermissionDenied
    try:
        service(draft_id=pk, actor=request.user.get_username(), now=timezone.now(), reason=_text(request, "reason"))
    except RateError as error:
        return _list(request, setup, error.message, status=409)
    return redirect("portal:commitments")


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").replace("\0", "").strip()


def _terms(request: HttpRequest, setup: BillingSetup) -> CommitmentTerms:
    code = _text(request, "team")
    team = Team.objects.filter(code=code, is_group=False).first()
    if team is None:
        raise RateError(Message("team %(code)s: there is no such team", code=repr(code[:80])))
    hours, price = (_number(request, name) for name in ("gpu_hours_per_month", "price_per_gpu_hour"))
    return CommitmentTerms(
        _text(request, "name"), team, _text(request, "accelerator"), hours, price,
        _needed_day(request, "valid_from", setup), _day(request, "valid_until", setup),
    )  # fmt: skip


def _number(request: HttpRequest, name: str) -> Decimal:
    text = _text(request, name).replace(",", "")
    if exact_number(text) is None:
        raise RateError(Message("%(name)s %(text)s is not a decimal", name=name, text=repr(text[:40])))
    return Decimal(text)


def _needed_day(request: HttpRequest, name: str, setup: BillingSetup) -> datetime:
    found = _day(request, name, setup)
    if found is None:
        raise RateError(Message("%(name)s: write a day as 2026-11-30", name=name))
    return found


def _day(request: HttpRequest, name: str, setup: BillingSetup) -> datetime | None:
    """Local midnight at the beginning of a day, None where the field is empty.  Raises RateError."""
    text = _text(request, name)
    try:
        day = date.fromisoformat(text) if text else None
    except ValueError as error:
        raise RateError(Message("%(name)s %(text)s: write a day as 2026-11-30", name=name, text=repr(text[:20]))) from error
    return None if day is None else datetime.combine(day, time(), ZoneInfo(setup.zone)).astimezone(UTC)
