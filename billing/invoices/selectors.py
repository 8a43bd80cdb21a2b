"""Reads of periods and invoices."""

import json
from typing import Any

from django.db.models import Case, F, JSONField, QuerySet, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from billing.approvals.models import Proposal
from billing.invoices.models import (
    BillingContact,
    BillingPeriod,
    Correction,
    DocumentEvent,
    DocumentMail,
    Invoice,
    JournalExport,
    Note,
)
from billing.tenancy.selectors import billing_setup
from billing.usage.selectors import last_close_seq
from metering.intervals import billing_month
from pricing.number_text import amount_text


def invoices_of(month: str) -> QuerySet[Invoice]:
    """Return the invoices, drafts and shadows of a month, by team, without voided ones."""
    invoices = Invoice.objects.filter(period__month=month).exclude(status=Invoice.Status.VOID)
    return invoices.select_related("team", "period").prefetch_related("events").order_by("team__code", "shadow")


def drafts_of_close(period: BillingPeriod) -> QuerySet[Invoice]:
    """Return every invoice and draft of a month, voided ones included, without those of a reopened close."""
    # a reopening stores the last draft of its close: later drafts belong to the next close
    reopened = Proposal.objects.filter(kind="reopening", subject=period.month, state=Proposal.State.APPROVED)
    taken_back = max((row.outcome["last_draft"] for row in reopened), default=0)
    return Invoice.objects.filter(period=period, pk__gt=taken_back)


def unbuilt_drafts(period: BillingPeriod) -> list[Invoice]:
    """Return voided drafts that were not rebuilt, one per team: each leaves its team without an invoice."""
    drafts = drafts_of_close(period)
    kept = set(drafts.exclude(status=Invoice.Status.VOID).values_list("team_id", "shadow"))
    voided = drafts.filter(status=Invoice.Status.VOID).select_related("team").order_by("team__code", "id")
    found = {(invoice.team_id, invoice.shadow): invoice for invoice in voided.defer("draft", "document")}
    return [invoice for name, invoice in found.items() if name not in kept]


def teams_without_invoice(period: BillingPeriod) -> list[str]:
    """Return teams that a month charges without an issued invoice: their drafts are pending, voided or blocked."""
    waiting = invoices_of(period.month).filter(shadow=False).exclude(status=Invoice.Status.ISSUED)
    unbuilt = (invoice.team.code for invoice in unbuilt_drafts(period) if not invoice.shadow)
    blocked = period.held_teams.values_list("team", flat=True)
    return sorted({*waiting.values_list("team__code", flat=True), *unbuilt, *blocked})


def invoices_as_dict(month: str) -> dict[str, Any]:
    """Return the JSON of the contract: every invoice and draft of the month with its lines."""
    return {"period": month, "invoices": [invoice_as_dict(invoice) for invoice in invoices_of(month)]}


def invoice_as_dict(invoice: Invoice) -> dict[str, Any]:
    """Return one invoice in the form of the contract; its lines are those of the document."""
    document = document_of(invoice)
    return {
        "number": invoice.number,
        "status": state_of(invoice),
        "shadow": invoice.shadow,
        "team": invoice.team.code,
        "currency": invoice.currency,
        "total": amount_text(invoice.total),
        "sha256": invoice.sha256 or None,
        "previous_sha256": invoice.previous_sha256 or None,
        "issued_at": invoice.issued_at.isoformat() if invoice.issued_at else None,
        "lines": document["lines"],
        "subtotals": document["subtotals"],
    }


def document_of(invoice: Invoice | Note) -> dict[str, Any]:
    """Return the issued document, or the content of a draft."""
    document: dict[str, Any] = json.loads(invoice.document) if invoice.document else invoice.draft
    return document


def with_cost_center(invoices: QuerySet[Invoice]) -> QuerySet[Any]:
    """Return invoices and drafts with the `cost_center` that each states: their team may have another one by now."""
    # drafts are stored as text: the cast reads one field of it
    return invoices.alias(said=Cast("draft", JSONField())).annotate(cost_center=KT("said__recipient__cost_center"))


def state_of(document: Invoice | Note) -> str:
    """Return the state of a document: draft, preview, approved, void; once issued (by events): issued, disputed, settled."""
    if document.number is None:
        return document.status if isinstance(document, Invoice) else document.correction.status
    kinds = [event.kind for event in document.events.all()]
    if kinds.count(DocumentEvent.Kind.DISPUTED) > kinds.count(DocumentEvent.Kind.DECIDED):
        return "disputed"
    return "settled" if DocumentEvent.Kind.SETTLED in kinds else "issued"


def notes_issued() -> QuerySet[Note]:
    """Return all issued credit notes and rebills, the newest first."""
    notes = Note.objects.filter(number__isnull=False).select_related("team", "correction__period", "invoice")
    return notes.order_by("-issued_at", "-id")


def corrections_all() -> QuerySet[Correction]:
    """Return all corrections with their notes, the newest first."""
    return Correction.objects.select_related("proposal").prefetch_related("notes__team", "notes__invoice").order_by("-id")


def note_as_dict(note: Note) -> dict[str, Any]:
    """Return one issued note as JSON; its lines are those of the document."""
    document = document_of(note)
    return {
        "period": document["period"]["month"],
        "number": note.number,
        "kind": note.kind,
        "team": note.team.code,
        "invoice": document["invoice"],
        "reason": document["reason"],
        "correction": note.correction_id,
        "currency": note.currency,
        "total": amount_text(note.total),
        "sha256": note.sha256,
        "previous_sha256": note.previous_sha256 or None,
        "issued_at": note.issued_at.isoformat() if note.issued_at else None,
        "lines": document["lines"],
        "subtotals": document["subtotals"],
    }


def correction_as_dict(correction: Correction) -> dict[str, Any]:
    """Return one correction as JSON, with its notes: drafts without a number, issued ones by number."""
    return {
        "id": correction.pk,
        "status": correction.status,
        "reason_code": correction.reason_code,
        "reason": correction.reason,
        "evidence": correction.evidence or None,
        "currency": correction.currency,
        "amount": amount_text(correction.amount),
        "requested_by": correction.requested_by,
        "decided_by": correction.decided_by or None,
        "notes": [
            {
                "kind": note.kind, "number": note.number, "team": note.team.code, "total": amount_text(note.total),
                "invoice": note.invoice.number if note.invoice else None, "lines": document_of(note)["lines"],
            }
            for note in correction.notes.all()
        ],
    }  # fmt: skip


def period_of(month: str) -> BillingPeriod:
    """Return the stored period of a month, or an unsaved one if it was never opened; a read stores nothing.

    Raises NoSetupError or IntervalError.
    """
    return BillingPeriod.objects.filter(month=month).first() or period_unopened(month)


def period_unopened(month: str) -> BillingPeriod:
    """Return an unsaved period of a month.  Raises NoSetupError or IntervalError."""
    zone = billing_setup().zone
    window = billing_month(month, zone)
    return BillingPeriod(month=month, zone=zone, start=window.start, end=window.end)


def known_before(period: BillingPeriod) -> int:
    """Return the close number before which a month is known: its own, or for an open month the next one."""
    return period.close_seq if period.close_seq is not None else last_close_seq() + 1


def mails_of(document: Invoice | Note) -> QuerySet[DocumentMail]:
    return document.mails.select_related("invoice", "note").order_by("address")


def mails_all() -> QuerySet[DocumentMail]:
    """Return all mails: failed, then pending, then sent ones; within each the newest first."""
    order = Case(
        When(status=DocumentMail.Status.FAILED, then=0), When(status=DocumentMail.Status.PENDING, then=1), default=2
    )
    return DocumentMail.objects.select_related("invoice__team", "note__team").order_by(order, "-queued_at", "-id")


def contacts_all() -> QuerySet[BillingContact]:
    """Return all billing contacts, those still in force first within each team."""
    return BillingContact.objects.select_related("team").order_by("team__code", F("valid_until").desc(nulls_first=True))


def last_export(period: BillingPeriod) -> JournalExport | None:
    """Return the last journal of a month that was exported to the ledger."""
    return period.journal_exports.order_by("-id").first() if period.pk else None


def journal_as_dict(export: JournalExport) -> dict[str, Any]:
    """Return one exported journal as JSON, with the acknowledgement of the ledger."""
    return {
        "batch_hash": export.batch_hash,
        "journals": export.journals,
        "debit": amount_text(export.debit),
        "exported_at": export.exported_at.isoformat(),
        "exported_by": export.exported_by,
        "reference": export.reference or None,
        "acknowledged_at": export.acknowledged_at.isoformat() if export.acknowledged_at else None,
        "acknowledged_by": export.acknowledged_by or None,
    }
