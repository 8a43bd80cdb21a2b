"""Corrections: issued credit notes and rebills, and for finance the corrections that wait for approval or issue."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.closing.due_credits import DueCredit, credits_due
from billing.corrections.corrected_before import Needed
from billing.corrections.credited_lines import credited_by_position
from billing.corrections.services import corrections as services
from billing.corrections.services.correction_kind import needed_of
from billing.inbox.services import draft_remove
from billing.invoices.acceptance import acceptance_of, due_of
from billing.invoices.labels import CORRECTION_REASON
from billing.invoices.models import Correction, Invoice
from billing.invoices.selectors import document_of, mails_of
from billing.invoices.services.mails import contacts_unsent
from billing.portal.access import form_page_for, invoice_or_404, note_or_404, page, staff_action, step_or_404
from billing.portal.asked import chosen, page_shown
from billing.portal.forms import Number, PageForm, ReasonForm, Text, acting
from billing.portal.selectors import corrections_waiting, notes_visible
from billing.portal.tables import Column, Table, columns, download
from billing.portal.totals import note_totals
from billing.portal.views.invoices import download_of, sections_of
from billing.runtime.translation import translated
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import company_calendar
from metering.messages import Message

CORRECTS = Column("corrects", of=lambda note: note.invoice and note.invoice.number)
NOTE = [
    *columns("number", "kind"), Column("team", of="team.code"),
    Column("month", of=lambda note: note.correction.period and note.correction.period.month), CORRECTS,
    Column("reason", of="correction.reason_code"), *columns("issued_at", "currency"), Column("total", "money"),
]  # fmt: skip
WAITING = [
    Column("correction", of=lambda note: str(note.correction.pk)), Column("status", of="correction.status"),
    Column("reason", of="correction.reason_code"), Column("asked_by", of="correction.requested_by"),
    Column("asked_at", of="correction.requested_at"), Column("kind"), Column("team", of="team.code"), CORRECTS,
    Column("lines", "count", lambda note: len(note.draft["lines"])), Column("total", "money"),
]  # fmt: skip


@page
def correction_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List issued notes of the teams that the user may see; for finance also waiting corrections."""
    return _list(request, setup)


def _list(request: HttpRequest, setup: BillingSetup, refused: PageForm | None = None) -> HttpResponse:
    notes = notes_visible(teams_visible_to(request.user))
    waiting = corrections_waiting() if access_of(request.user).may(Right.READ) else []
    tables = {
        "notes": lambda: Table.of("notes", notes, NOTE),
        "waiting": lambda: Table.of("corrections-waiting", (note for row in waiting for note in row.notes.all()), WAITING),
    }
    if (file := download(request, tables)) is not None:
        return file
    context = {
        "nav": "corrections", "setup": setup, "refused": refused,
        "page": page_shown(request, notes),
        "totals": note_totals(notes),
        "waiting": [(item, _net(item), _drop(key=item.pk).or_refused(refused), _needed(item)) for item in waiting],
    }  # fmt: skip
    return render(request, "portal/corrections.html", context, status=409 if refused else 200)


def _net(correction: Correction) -> Decimal | None:
    """Return the sum of a correction's notes; None for a single note, which has it itself."""
    totals = [note.total for note in correction.notes.all()]
    return sum(totals, Decimal("0.00")) if len(totals) > 1 else None


def _needed(correction: Correction) -> Needed | None:
    """Return the approval that a draft needs."""
    return needed_of(correction, timezone.now()) if correction.status == Correction.Status.DRAFT else None


@page
def note(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Show one credit note or rebill as in its document."""
    found = note_or_404(request, pk)
    document = document_of(found)
    context = {
        "nav": "corrections", "setup": setup, "note": found, "document": document, "sections": sections_of(document),
        "acceptance": acceptance_of(
            found, zone=document["period"]["zone"], calendar=company_calendar(setup), now=timezone.now()
        ),
        "due": due_of(found, document["period"]["zone"], company_calendar(setup)),
        "mails": mails_of(found), "unsent": contacts_unsent(found, timezone.now()), "mail_is_set": settings.MAIL_CONFIGURED,
    }  # fmt: skip
    return render(request, "portal/note.html", context)


@page
def note_download(request: HttpRequest, setup: BillingSetup, pk: int, kind: str) -> HttpResponse:
    found = note_or_404(request, pk)
    return download_of(kind, found, slugify(found.number or "") or f"note-{found.pk}")


def _drop(data: Any = None, *, key: int) -> PageForm:
    return ReasonForm(data, key=key, label=_("Why it is dropped"))


class CorrectionForm(PageForm):
    """Form of a correction of an issued invoice: whole lines or amounts, the reason, and new prices or quantities."""

    title, tick, button = _("Correct lines"), _("Whole line"), _("Ask for this correction")
    note = _(
        "Tick a line to credit all of it, or say an amount. With a new price or quantity, ticked lines are billed again. "
        "Nothing is owed before somebody else approves."
    )
    whole = forms.TypedMultipleChoiceField(coerce=int, required=False, widget=forms.CheckboxSelectMultiple)
    code = forms.ChoiceField(label=_("Reason"), choices=list(CORRECTION_REASON.items()))
    reason = Text(label=_("What was wrong"))
    evidence = Text(label=_("Evidence: ticket or page"), required=False)
    rebill_price = Number(label=_("Bill ticked lines again at this price"), required=False)
    rebill_quantity = Number(label=_("Bill ticked lines again with this quantity"), required=False)

    def __init__(self, lines: list[dict[str, Any]], data: Any = None, *, due: DueCredit | None = None) -> None:
        super().__init__(data, initial=None if due is None else _initial(due))
        self.due = due
        if due is not None:
            self.title, self.note, self.button = _("Credit note that is due"), DUE, _("Submit for approval")
        whole: Any = self.fields["whole"]
        whole.choices = [(line["position"], gettext("the whole of line %(n)s") % {"n": line["position"]}) for line in lines]
        for line in lines:
            position = {"n": line["position"]}
            amount = Number(label=gettext("line %(n)s") % position, required=False)
            amount.widget.attrs |= {"size": 10, "aria-label": gettext("amount of line %(n)s") % position}
            self.fields[_amount_of(line["position"])] = amount
        self.rows = [
            {**line, "tick": tick, "credit": self[_amount_of(line["position"])]}
            for line, tick in zip(lines, self["whole"], strict=True)
        ]
        self.below = [self[name] for name in ("code", "reason", "evidence", "rebill_price", "rebill_quantity")]

    def credits(self) -> list[services.LineCredit]:
        """Return the credits line by line; an amount goes before the whole line. Without a whole line the service refuses
        a new price or quantity.
        """
        asked, credits = self.cleaned_data, []
        drafted = {credit.position: credit for credit in self.due.credits} if self.due else {}
        again = asked["rebill_price"], asked["rebill_quantity"]
        for row in self.rows:
            position, amount = row["position"], asked[_amount_of(row["position"])]
            if position in drafted and amount == drafted[position].amount:
                credits.append(drafted[position])
            elif amount is not None:
                credits.append(services.LineCredit(position, amount, *(() if asked["whole"] else again)))
            elif position in asked["whole"]:
                credits.append(services.LineCredit(position, None, *again))
        return credits


DUE: Final = _(
    "Usage of these lines ended by what the platform carries, and that was learned after they were billed. Check the "
    "amounts and submit them: nothing is credited before somebody else approves. If nothing is due, say why under the "
    "checks of the close."
)


def _initial(due: DueCredit) -> dict[str, Any]:
    """Return the fields of a draft of a credit note, for a person to check."""
    amounts = {_amount_of(credit.position): credit.amount for credit in due.credits}
    return {**amounts, "code": Correction.Reason.SLA.value, "reason": translated(due.reason), "evidence": due.evidence}


def _amount_of(position: int) -> str:
    return f"amount-{position}"


@form_page_for(Right.CLOSE)
def correction_new(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    invoice = invoice_or_404(request, pk)
    number = invoice.number
    if number is None:
        raise Http404(f"invoice {pk} is not issued: change what it is made of instead")

    due = _due_of(invoice) if chosen(request, "due", ("1",)) else None

    def draft(code: str, reason: str, evidence: str, **_: object) -> object:
        wanted = services.Wanted(code, reason, evidence, **acting(request), carried=due.carried if due else ())
        return services.credit_note_draft(number=number, credits=form.credits(), wanted=wanted)

    form = CorrectionForm(lines_of(invoice), request.POST if request.method == "POST" else None, due=due)
    if form.is_bound and form.done(draft):
        if due is not None:
            draft_remove(number)
        return redirect("portal:corrections")
    context = {"nav": "corrections", "setup": setup, "invoice": invoice, "form": form}
    return render(request, "portal/invoice_lines.html", context, status=422 if form.is_bound else 200)


def _due_of(invoice: Invoice) -> DueCredit:
    """Return the draft of a credit note of an invoice.  Raises Http404 where none is due any more."""
    found = next((draft for draft in credits_due() if draft.invoice.pk == invoice.pk), None)
    if found is None:
        raise Http404(Message("no credit of %(number)s is due: it was submitted, or answered for", number=invoice.number))
    return found


def lines_of(invoice: Invoice) -> list[dict[str, Any]]:
    credited = credited_by_position(invoice)
    rows = invoice.lines.order_by("position").values(
        "position", "sku", "token_class", "reason", "consumer", "cluster", "namespace", "amount"
    )
    return [{**row, "credited": credited.get(row["position"])} for row in rows]


STEPS: Mapping[str, tuple[Callable[..., object], Callable[..., PageForm]]] = {
    "approve": (services.correction_approve, PageForm),
    "issue": (services.correction_issue, PageForm),
    "void": (services.correction_void, _drop),
}


@staff_action
def correction_step(request: HttpRequest, setup: BillingSetup, pk: int, step: str) -> HttpResponse:
    service, form_of = step_or_404(STEPS, step)
    if step != "approve" and not access_of(request.user).may(Right.CLOSE):
        raise PermissionDenied
    form = form_of(request.POST, key=pk)
    if form.done(service, correction_id=pk, **acting(request)):
        return redirect("portal:corrections")
    return _list(request, setup, form)
