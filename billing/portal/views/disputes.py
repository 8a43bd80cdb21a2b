"""Disputes: a team lead opens one from an invoice, finance works on it and decides."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.corrections.dispute_holdback import hold_of
from billing.corrections.disputed import AgedDisputes, aged, dispute_figures, disputes_of, overdue
from billing.corrections.labels import DISPUTE_REASON
from billing.corrections.models import Dispute
from billing.corrections.services import disputes as services
from billing.portal.access import action, form_page, invoice_or_404, page, step_or_404, team_or_404
from billing.portal.asked import page_shown
from billing.portal.forms import Number, PageForm, Text, acting
from billing.portal.tables import Column, Table, columns, constant, download
from billing.portal.totals import aged_total, dispute_totals
from billing.portal.views.corrections import lines_of
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup
from pricing.money import round_to

DISPUTE = [
    Column("id", of=lambda row: str(row.pk)), Column("document", of="document.number"), Column("team", of="team.code"),
    Column("positions", of=lambda row: " ".join(map(str, row.positions))), Column("reason", of="reason_code"),
    *columns("status", "opened_by", "opened_at", "decided_by", "decided_at", "currency"), Column("amount", "money"),
]  # fmt: skip
STEP = [*columns("at", "actor"), Column("step", of="kind"), Column("text")]
Status = Dispute.Status
STEPS: dict[str, Callable[..., Any]] = {
    "triage": services.dispute_triage,
    "ask": services.dispute_ask_evidence,
    "evidence": services.dispute_add_evidence,
    "uphold": services.dispute_uphold,
    "reject": services.dispute_reject,
    "escalate": services.dispute_escalate,
    "withdraw": services.dispute_withdraw,
}


@page
def dispute_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List disputes of the teams that the user may see; for finance with figures of their handling."""
    disputes = disputes_of(teams_visible_to(request.user))
    now = timezone.now()
    tables = {
        "disputes": lambda: Table.of("disputes", disputes, DISPUTE),
        "ages": lambda: _ages(aged(list(disputes), now), setup),
    }
    if (file := download(request, tables)) is not None:
        return file
    context: dict[str, Any] = {
        "nav": "disputes", "setup": setup, "page": page_shown(request, disputes),
        "totals": dispute_totals(disputes),
    }  # fmt: skip
    if access_of(request.user).may(Right.READ):
        figures, ages = dispute_figures(list(disputes), now), aged(list(disputes), now)
        context |= {
            "figures": figures, "rate": _percent(figures.rate), "upheld_share": _percent(figures.upheld_share),
            "ages": ages if figures.number else (), "undecided": aged_total(ages),
        }
    return render(request, "portal/disputes.html", context)


def _ages(ages: Iterable[AgedDisputes], setup: BillingSetup) -> Table:
    facts = [
        Column("days_from", "count", "first_day"), Column("days_to", "count", "end_day"),
        Column("disputes", "count", "number"), constant("currency", setup.currency),
        Column("disputed", "money"),
    ]  # fmt: skip
    return Table.of("disputes-by-age", ages, facts)


def _percent(share: Any) -> str:
    """Format a ratio as per cent with one decimal; empty for None."""
    return "" if share is None else f"{round_to(share * 100, 1)}%"


class DisputeForm(PageForm):
    """Form of a dispute: the wrong lines of an issued invoice, the amount, the reason and the evidence."""

    title, tick, button = _("Dispute lines"), _("Disputed"), _("Open the dispute")
    note = _("Tick the lines, say how much of them is wrong and what shows it. Finance answers within ten business days.")
    line = forms.TypedMultipleChoiceField(coerce=int, required=False, widget=forms.CheckboxSelectMultiple)
    code = forms.ChoiceField(label=_("Reason"), choices=list(DISPUTE_REASON.items()))
    amount = Number(label=_("Amount that is wrong (empty: all of the ticked lines)"), required=False)
    statement = Text(label=_("What is wrong"))
    evidence = Text(label=_("Evidence: link, ticket, figures"), required=False)

    def __init__(self, lines: list[dict[str, Any]], data: Any, ticked: str) -> None:
        super().__init__(data, initial={"line": [ticked]})
        choice: Any = self.fields["line"]
        choice.choices = [(line["position"], gettext("line %(n)s") % {"n": line["position"]}) for line in lines]
        self.rows = [{**line, "tick": tick} for line, tick in zip(lines, self["line"], strict=True)]
        self.below = [self[name] for name in ("code", "amount", "statement", "evidence")]


class StepForm(PageForm):
    text = Text(label=_("Comment"), required=False)


@form_page
def dispute_new(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Open a dispute on lines of an issued invoice; `line` in the address ticks one."""
    invoice = invoice_or_404(request, pk)
    team_or_404(request, invoice.team.code, Right.DISPUTE)
    number = invoice.number
    if number is None:
        raise Http404(f"invoice {pk} is not issued: talk to finance before it is")

    def start(line: list[int], code: str, **claim: Any) -> Dispute:
        return services.dispute_open(claim=services.Claim(number, line, code, **claim), **acting(request))

    sent = request.POST if request.method == "POST" else None
    form = DisputeForm(lines_of(invoice), sent, request.GET.get("line", ""))
    if form.is_bound and form.done(start):
        return redirect("portal:dispute", form.made.pk)
    context = {"nav": "disputes", "setup": setup, "invoice": invoice, "form": form}
    return render(request, "portal/invoice_lines.html", context, status=422 if form.is_bound else 200)


@page
def dispute(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show one dispute: the claim, its history, and the user's next steps."""
    found = _found(request, pk)
    file = download(request, {"steps": lambda: Table.of(f"dispute-{pk}", found.steps.all(), STEP)})
    return _shown(request, setup, found) if file is None else file


def _found(request: HttpRequest, pk: int) -> Dispute:
    return get_object_or_404(disputes_of(teams_visible_to(request.user)), pk=pk)


def _shown(request: HttpRequest, setup: BillingSetup, found: Dispute, refused: PageForm | None = None) -> HttpResponse:
    context = {
        "nav": "disputes", "setup": setup, "dispute": found, "refused": refused, "form": refused or StepForm(),
        "steps": _steps(request, found), "late": overdue(found, timezone.now()), "hold": hold_of(found),
    }  # fmt: skip
    return render(request, "portal/dispute.html", context, status=409 if refused else 200)


def _steps(request: HttpRequest, found: Dispute) -> list[tuple[str, str]]:
    access = access_of(request.user)
    escalated = found.status == Status.ESCALATED
    waits = found.status in (Status.OPEN, Status.TRIAGED, Status.EVIDENCE, Status.ESCALATED)
    # an escalated dispute is decided by approvers, not by the role that rejected it
    decides = waits and access.may(Right.APPROVE if escalated else Right.CLOSE)
    works = waits and not escalated and access.may(Right.CLOSE)
    ours = access.may(Right.DISPUTE, found.team)
    offered = [
        (works and found.status == Status.OPEN, "triage", gettext("Start review")),
        (works and found.status != Status.EVIDENCE, "ask", gettext("Ask for evidence")),
        (waits and ours, "evidence", gettext("Add evidence")),
        (decides, "uphold", gettext("Uphold: credit it")),
        (decides, "reject", gettext("Reject")),
        (found.status == Status.REJECTED and found.escalated_at is None and ours, "escalate", gettext("Escalate")),
        (waits and ours, "withdraw", gettext("Withdraw")),
    ]
    return [(step, label) for allowed, step, label in offered if allowed]


@action
def dispute_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    found = _found(request, pk)
    service = step_or_404(STEPS, step)
    form = StepForm(request.POST)
    if form.done(service, dispute_id=pk, **acting(request)):
        return redirect("portal:dispute", pk)
    return _shown(request, setup, found, form)
