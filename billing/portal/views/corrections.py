"""Corrections: what was credited or billed again, and for finance what waits to be asked for, approved and issued."""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from billing.approvals.limits import AuthorityError
from billing.corrections.credited_lines import credited_by_position
from billing.corrections.note_lines import NoteError
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    correction_void,
    credit_note_draft,
)
from billing.invoices.acceptance import acceptance_of, due_of
from billing.invoices.models import Correction, Invoice, Note
from billing.invoices.selectors import document_of, mails_of
from billing.portal.access import invoice_or_404, note_or_404, page, page_for, staff_page
from billing.portal.selectors import corrections_waiting, notes_visible
from billing.portal.tables import Column, Table, download
from billing.portal.totals import note_totals
from billing.portal.views.invoices import download_of, sections_of
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import house_calendar
from metering.messages import Message

PAGE_SIZE = 50


@require_safe
@page
def correction_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Issued notes of the teams that somebody may see; for the house also what waits."""
    notes = notes_visible(teams_visible_to(request.user))
    sees_waiting = access_of(request.user).may(Right.READ)
    tables = {"notes": lambda: _table(notes), "waiting": lambda: _waiting(corrections_waiting() if sees_waiting else [])}
    file = download(request, tables)
    return _list(request, setup) if file is None else file


def _table(notes: Iterable[Note]) -> Table:
    names = ("number", "kind", "team", "month", "corrects", "reason", "issued_at", "currency")
    rows = [
        [row.number, row.kind, row.team.code, row.correction.period.month if row.correction.period else None,
         row.invoice.number if row.invoice else None, row.correction.reason_code, row.issued_at, row.currency, row.total]
        for row in notes
    ]  # fmt: skip
    return Table("notes", [*(Column(name) for name in names), Column("total", "money")], rows)


def _waiting(corrections: Iterable[Correction]) -> Table:
    """The notes of corrections that are not issued."""
    names = ("correction", "status", "reason", "asked_by", "asked_at", "kind", "team", "corrects")
    rows = [
        [str(item.pk), item.status, item.reason_code, item.requested_by, item.requested_at, note.kind, note.team.code,
         note.invoice and note.invoice.number, len(note.draft["lines"]), note.total]
        for item in corrections for note in item.notes.all()
    ]  # fmt: skip
    columns = [*(Column(name) for name in names), Column("lines", "count"), Column("total", "money")]
    return Table("corrections-waiting", columns, rows)


def _list(request: HttpRequest, setup: BillingSetup, refusal: str = "", status: int = 200) -> HttpResponse:
    notes = notes_visible(teams_visible_to(request.user))
    waiting = corrections_waiting() if access_of(request.user).may(Right.READ) else []
    context = {
        "nav": "corrections", "setup": setup, "refusal": refusal,
        "page": Paginator(notes, PAGE_SIZE).get_page(request.GET.get("page")),
        "totals": note_totals(notes),
        "waiting": [(item, _net(item)) for item in waiting],
    }  # fmt: skip
    return render(request, "portal/corrections.html", context, status=status)


def _net(correction: Correction) -> Decimal | None:
    """What the notes of a correction come to; a single note says it itself."""
    totals = [note.total for note in correction.notes.all()]
    return sum(totals, Decimal("0.00")) if len(totals) > 1 else None


@require_safe
@page
def note(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """One credit note or rebill, as its document says."""
    found = note_or_404(request, pk)
    document = document_of(found)
    context = {
        "nav": "corrections", "setup": setup, "note": found, "document": document, "sections": sections_of(document),
        "acceptance": acceptance_of(
            found, zone=document["period"]["zone"], calendar=house_calendar(setup), now=timezone.now()
        ),
        "due": due_of(found, document["period"]["zone"], house_calendar(setup)),
        "mails": mails_of(found), "mail_is_set": settings.MAIL_CONFIGURED,
    }  # fmt: skip
    return render(request, "portal/note.html", context)


@require_safe
@page
def note_download(request: HttpRequest, setup: BillingSetup, pk: int, kind: str) -> HttpResponse:
    """The note as a file."""
    found = note_or_404(request, pk)
    return download_of(kind, found, slugify(found.number or "") or f"note-{found.pk}")


@require_http_methods(["GET", "HEAD", "POST"])
@page_for(Right.CLOSE)
def correction_new(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Ask for a correction of lines of an issued invoice."""
    invoice = invoice_or_404(request, pk)
    if invoice.number is None:
        raise Http404(f"invoice {pk} is not issued: change what it is made of instead")
    refusal, lines = "", lines_of(invoice)
    figures, wrong = _figures(request, [row["position"] for row in lines])
    if request.method == "POST" and not wrong:
        try:
            credits = _credits(request, [row["position"] for row in lines], figures)
            credit_note_draft(number=invoice.number, credits=credits, wanted=_wanted(request))
            return redirect("portal:corrections")
        except (NoteError, AuthorityError) as error:
            refusal = error.message
    for row in lines:
        name = _amount_of(row["position"])
        row |= {"typed": request.POST.get(name, ""), "wrong": wrong.get(name, "")}
    context = {
        "nav": "corrections", "setup": setup, "invoice": invoice, "refusal": refusal, "wrong": wrong,
        "lines": lines, "codes": Correction.Reason.values,
    }  # fmt: skip
    return render(request, "portal/correction_new.html", context, status=422 if refusal or wrong else 200)


def lines_of(invoice: Invoice) -> list[dict[str, Any]]:
    """The lines of an issued invoice, with what was credited of each."""
    credited = credited_by_position(invoice)
    rows = invoice.lines.order_by("position").values(
        "position", "sku", "token_class", "reason", "consumer", "cluster", "namespace", "amount"
    )
    return [{**row, "credited": credited.get(row["position"])} for row in rows]


def _amount_of(position: int) -> str:
    return f"amount-{position}"


def _figures(request: HttpRequest, positions: Iterable[int]) -> tuple[dict[str, Decimal | None], dict[str, str]]:
    """The figures of the form by field, None for an empty one; and what is wrong, by field."""
    figures: dict[str, Decimal | None] = {}
    wrong: dict[str, str] = {}
    lines = {_amount_of(position): position for position in positions}
    for name in (*lines, "rebill_price", "rebill_quantity"):
        try:
            figures[name] = form_decimal(request, name)
        except NoteError as error:
            text = request.POST[name].strip()[:40]
            wrong[name] = (
                Message("line %(n)s: %(text)s is not an amount", n=lines[name], text=repr(text))
                if name in lines else error.message
            )
    return figures, wrong


def _credits(request: HttpRequest, positions: Iterable[int], figures: Mapping[str, Decimal | None]) -> list[LineCredit]:
    """What the form asks for."""
    whole = set(request.POST.getlist("whole"))
    price, quantity = figures["rebill_price"], figures["rebill_quantity"]
    credits = []
    for position in positions:
        amount = figures[_amount_of(position)]
        if str(position) in whole and amount is None:
            credits.append(LineCredit(position, None, price, quantity))
        elif amount is not None:
            credits.append(LineCredit(position, amount))
    return credits


def form_decimal(request: HttpRequest, name: str) -> Decimal | None:
    """A decimal of a form, None where it is empty.  Raises NoteError."""
    text = request.POST.get(name, "").strip().replace(",", "")
    try:
        value = Decimal(text) if text else None
    except InvalidOperation as error:
        raise NoteError(Message("%(name)s %(text)s is not a decimal", name=name, text=repr(text[:40]))) from error
    if value is not None and not value.is_finite():
        raise NoteError(Message("%(name)s %(text)s is not a number", name=name, text=repr(text[:40])))
    return value


def _wanted(request: HttpRequest) -> Wanted:
    texts = [request.POST.get(name, "").replace("\0", "").strip() for name in ("code", "reason", "evidence")]
    code, reason, evidence = texts
    return Wanted(code, reason, evidence, request.user.get_username(), timezone.now())


@require_POST
@staff_page
def correction_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    """Approve, issue or drop a correction; a refusal is told on the page."""
    facts: dict[str, Any] = {"correction_id": pk, "actor": request.user.get_username(), "now": timezone.now()}
    try:
        if step == "approve":
            correction_approve(**facts)
        elif step in ("issue", "void"):
            if not access_of(request.user).may(Right.CLOSE):
                raise PermissionDenied
            if step == "issue":
                correction_issue(**facts)
            else:
                correction_void(**facts, reason=request.POST.get("reason", "").replace("\0", ""))
        else:
            raise Http404(f"no step {step!r}")
    except (NoteError, AuthorityError) as error:
        return _list(request, setup, error.message, status=409)
    return redirect("portal:corrections")
