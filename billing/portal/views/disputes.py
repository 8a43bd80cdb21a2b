"""Disputes: a team lead opens one from an invoice, finance works on it and decides."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from billing.approvals.limits import AuthorityError
from billing.corrections.dispute_holdback import AgedDisputes, aged, hold_of, why_not_held
from billing.corrections.disputed import dispute_figures, disputes_of, overdue
from billing.corrections.models import Dispute
from billing.corrections.note_lines import NoteError
from billing.corrections.services.dispute_holdback import HoldError, dispute_hold, dispute_let_go
from billing.corrections.services.disputes import (
    Claim,
    DisputeError,
    dispute_add_evidence,
    dispute_ask_evidence,
    dispute_escalate,
    dispute_open,
    dispute_reject,
    dispute_triage,
    dispute_uphold,
    dispute_withdraw,
)
from billing.portal.access import invoice_or_404, page, team_or_404
from billing.portal.tables import Column, Row, Table, download
from billing.portal.totals import aged_total, dispute_totals
from billing.portal.views.corrections import form_decimal, lines_of
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup
from pricing.money import round_to

PAGE_SIZE = 50
Status = Dispute.Status
STEPS: dict[str, Callable[..., Any]] = {
    "triage": dispute_triage,
    "ask": dispute_ask_evidence,
    "evidence": dispute_add_evidence,
    "uphold": dispute_uphold,
    "reject": dispute_reject,
    "escalate": dispute_escalate,
    "withdraw": dispute_withdraw,
    "hold": dispute_hold,
    "let_go": dispute_let_go,
}


@require_safe
@page
def dispute_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Disputes of the teams that somebody may see; for the house with how well they are handled."""
    disputes = disputes_of(teams_visible_to(request.user))
    now = timezone.now()
    tables = {"disputes": lambda: _table(disputes), "ages": lambda: _ages(aged(list(disputes), now), setup)}
    if (file := download(request, tables)) is not None:
        return file
    context: dict[str, Any] = {
        "nav": "disputes", "setup": setup, "page": Paginator(disputes, PAGE_SIZE).get_page(request.GET.get("page")),
        "totals": dispute_totals(disputes),
    }  # fmt: skip
    if access_of(request.user).may(Right.READ):
        figures, ages = dispute_figures(list(disputes), now), aged(list(disputes), now)
        context |= {
            "figures": figures, "rate": _percent(figures.rate), "upheld_share": _percent(figures.upheld_share),
            "ages": ages if figures.number else (), "undecided": aged_total(ages),
        }
    return render(request, "portal/disputes.html", context)


def _table(disputes: Iterable[Dispute]) -> Table:
    names = ("id", "document", "team", "positions", "reason", "status", "opened_by", "opened_at", "decided_by", "decided_at")
    rows = [
        [str(row.pk), row.document.number, row.team.code, " ".join(map(str, row.positions)), row.reason_code, row.status,
         row.opened_by, row.opened_at, row.decided_by, row.decided_at, row.currency, row.amount]
        for row in disputes
    ]  # fmt: skip
    return Table("disputes", [*(Column(name) for name in (*names, "currency")), Column("amount", "money")], rows)


def _ages(ages: Iterable[AgedDisputes], setup: BillingSetup) -> Table:
    rows = [[item.first_day, item.end_day, item.number, setup.currency, item.disputed, item.held] for item in ages]
    columns = [Column("days_from", "count"), Column("days_to", "count"), Column("disputes", "count"), Column("currency")]
    return Table("disputes-by-age", [*columns, Column("disputed", "money"), Column("off_the_ledger", "money")], rows)


def _percent(share: Any) -> str:
    """A ratio as per cent with one decimal; nothing for none."""
    return "" if share is None else f"{round_to(share * 100, 1)}%"


@require_http_methods(["GET", "HEAD", "POST"])
@page
def dispute_new(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Open a dispute on lines of an issued invoice; `line` in the address ticks one."""
    invoice = invoice_or_404(request, pk)
    team_or_404(request, invoice.team.code, Right.DISPUTE)
    if invoice.number is None:
        raise Http404(f"invoice {pk} is not issued: talk to finance before it is")
    refusal, wrong = "", {}
    if request.method == "POST":
        try:
            amount = form_decimal(request, "amount")
        except NoteError as error:
            wrong["amount"] = error.message
        else:
            try:
                claim = _claim(request, invoice.number, amount)
                opened = dispute_open(claim=claim, actor=request.user.get_username(), now=timezone.now())
                return redirect("portal:dispute", opened.pk)
            except (DisputeError, NoteError, AuthorityError) as error:
                refusal = error.message
    chosen = request.GET.get("line", "")
    context = {
        "nav": "disputes", "setup": setup, "invoice": invoice, "refusal": refusal, "wrong": wrong,
        "lines": [{**row, "ticked": str(row["position"]) == chosen} for row in lines_of(invoice)],
        "codes": Dispute.Reason.values,
    }  # fmt: skip
    return render(request, "portal/dispute_new.html", context, status=422 if refusal or wrong else 200)


def _claim(request: HttpRequest, number: str, amount: Decimal | None) -> Claim:
    positions = [int(text) for text in request.POST.getlist("line") if text.isdecimal()]
    code, statement, evidence = (
        request.POST.get(name, "").replace("\0", "").strip() for name in ("code", "statement", "evidence")
    )
    return Claim(number, positions, code, statement, evidence, amount)


@require_safe
@page
def dispute(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """One dispute: what is claimed, what happened, and what the person may do next."""
    found = _found(request, pk)
    file = download(request, {"steps": lambda: _history(found)})
    return _shown(request, setup, found) if file is None else file


def _history(found: Dispute) -> Table:
    rows: list[Row] = [[step.at, step.actor, step.kind, step.text] for step in found.steps.all()]
    return Table(f"dispute-{found.pk}", [Column(name) for name in ("at", "actor", "step", "text")], rows)


def _found(request: HttpRequest, pk: int) -> Dispute:
    found = disputes_of(teams_visible_to(request.user)).filter(pk=pk).first()
    if found is None:
        raise Http404(f"no dispute {pk} that {request.user} may see")
    return found


def _shown(
    request: HttpRequest, setup: BillingSetup, found: Dispute, refusal: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "nav": "disputes", "setup": setup, "dispute": found, "refusal": refusal, "steps": _steps(request, setup, found),
        "late": overdue(found, timezone.now()), "hold": hold_of(found),
    }  # fmt: skip
    return render(request, "portal/dispute.html", context, status=status)


def _steps(request: HttpRequest, setup: BillingSetup, found: Dispute) -> list[tuple[str, str]]:
    """What this person may do with the dispute as it is."""
    access = access_of(request.user)
    escalated = found.status == Status.ESCALATED
    waits = found.status in (Status.OPEN, Status.TRIAGED, Status.EVIDENCE, Status.ESCALATED)
    decides = waits and access.may(Right.APPROVE if escalated else Right.CLOSE)
    works = waits and not escalated and access.may(Right.CLOSE)
    ours = access.may(Right.DISPUTE, found.team)
    offered = [
        (works and found.status == Status.OPEN, "triage", _("Take it up")),
        (works and found.status != Status.EVIDENCE, "ask", _("Ask for evidence")),
        (waits and ours, "evidence", _("Add evidence")),
        (waits and access.may(Right.CLOSE) and not why_not_held(found, setup), "hold", _("Keep off the ledger")),
        (waits and access.may(Right.CLOSE) and _is_held(found), "let_go", _("Let go to the ledger")),
        (decides, "uphold", _("Uphold: credit it")),
        (decides, "reject", _("Reject")),
        (found.status == Status.REJECTED and found.escalated_at is None and ours, "escalate", _("Escalate")),
        (waits and ours, "withdraw", _("Withdraw")),
    ]
    return [(step, label) for allowed, step, label in offered if allowed]


def _is_held(found: Dispute) -> bool:
    hold = hold_of(found)
    return hold is not None and hold.ended_at is None


@require_POST
@page
def dispute_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Move a dispute on; a refusal is told on its page."""
    found = _found(request, pk)
    if step not in STEPS:
        raise Http404(f"no step {step!r}")
    text = request.POST.get("text", "").replace("\0", "").strip()
    try:
        STEPS[step](dispute_id=pk, actor=request.user.get_username(), now=timezone.now(), text=text)
    except (DisputeError, HoldError, NoteError, AuthorityError) as error:
        return _shown(request, setup, found, error.message, status=409)
    return redirect("portal:dispute", pk)
