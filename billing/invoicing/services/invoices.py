"""Approving and issuing. The number comes from a counter row that is locked inside the issuing transaction."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from billing.invoicing.lines import canonical_json, document_hash, invoice_lines, numbered_document
from billing.invoicing.models import BillingPeriod, Invoice, NumberSeries
from billing.invoicing.services.closing import charges_by_invoice, drafts_write, parties_of
from billing.rating.assessment import assess
from billing.tenancy.audit import audit_record
from billing.tenancy.selectors import billing_setup
from metering.intervals import Interval


class ApprovalError(ValueError):
    """An approval that the four-eyes rule forbids, or that has nothing to approve."""


def invoices_approve(*, month: str, actor: str, team: str | None = None) -> list[Invoice]:
    """Approve the drafts of a closed month, by somebody else than who closed it."""
    with transaction.atomic():
        period = BillingPeriod.objects.filter(month=month).first()
        if period is None or period.status != BillingPeriod.Status.CLOSED:
            raise ApprovalError(f"period {month} is not closed: there is nothing to approve")
        if actor == period.closed_by:
            raise ApprovalError(f"{actor} closed {month}: somebody else must approve")
        waiting = (Invoice.Status.DRAFT, Invoice.Status.PREVIEW)
        drafts = period.invoices.select_for_update().filter(status__in=waiting, shadow=False).order_by("team__code")
        if team is not None:
            drafts = drafts.filter(team__code=team)
        invoices = list(drafts)
        for invoice in invoices:
            invoice.status = Invoice.Status.APPROVED
            invoice.approved_by = actor
            invoice.save(update_fields=["status", "approved_by"])
            audit_record(actor=actor, action="invoice_approve", subject=f"{month} {invoice.team.code}")
    return invoices


def invoices_preview(*, month: str, actor: str, team: str | None = None) -> list[Invoice]:
    """Show the drafts of a closed month to their teams before anybody approves them.  Raises ApprovalError."""
    with transaction.atomic():
        drafts = _of_month(month).select_for_update().filter(status=Invoice.Status.DRAFT)
        invoices = list(drafts.filter(team__code=team) if team is not None else drafts)
        for invoice in invoices:
            invoice.status = Invoice.Status.PREVIEW
            invoice.save(update_fields=["status"])
            audit_record(actor=actor, action="invoice_preview", subject=f"{month} {invoice.team.code}")
    return invoices


def invoice_void(*, month: str, team: str, reason: str, actor: str) -> Invoice:
    """Drop a draft that is not issued; `invoice_rebuild` makes it again.  Raises ApprovalError."""
    if not reason.strip():
        raise ApprovalError("say why the draft is voided")
    with transaction.atomic():
        live = _of_month(month).select_for_update().filter(team__code=team, shadow=False)
        invoice = live.exclude(status=Invoice.Status.VOID).first()
        if invoice is None:
            raise ApprovalError(f"team {team} has no draft of {month}")
        if invoice.status == Invoice.Status.ISSUED:
            raise ApprovalError(f"invoice {invoice.number} is issued: it is never voided; credit it with a note")
        invoice.status, invoice.void_reason, invoice.approved_by = Invoice.Status.VOID, reason, ""
        invoice.save(update_fields=["status", "void_reason", "approved_by"])
        audit_record(actor=actor, action="invoice_void", subject=f"{month} {team}", detail={"reason": reason})
    return invoice


def invoice_rebuild(*, month: str, team: str, actor: str) -> Invoice:
    """Build a voided draft again from the usage of its close, with the team's name and cost centre as they are now.

    Raises ApprovalError.
    """
    with transaction.atomic():
        invoices = _of_month(month).select_for_update().filter(team__code=team, shadow=False)
        known = list(invoices)
        if not known or any(invoice.status != Invoice.Status.VOID for invoice in known):
            raise ApprovalError(f"team {team} has no voided draft of {month}: nothing to build again")
        period, setup = known[0].period, billing_setup()
        assessment = assess(window=Interval(period.start, period.end), zone=period.zone, ordinal=period.ordinal)
        charges = charges_by_invoice(assessment.charges).get((team, False), [])
        draft = (invoice_lines(charges), parties_of(period, setup, known[0].team), False)
        (invoice,) = drafts_write(period, setup, {team: known[0].team}, [draft])
        audit_record(actor=actor, action="invoice_rebuild", subject=f"{month} {team}", detail={"total": str(invoice.total)})
    return invoice


def _of_month(month: str) -> QuerySet[Invoice]:
    period = BillingPeriod.objects.filter(month=month, status=BillingPeriod.Status.CLOSED).first()
    if period is None:
        raise ApprovalError(f"period {month} is not closed: it has no drafts")
    return Invoice.objects.filter(period=period).select_related("team", "period").order_by("team__code", "id")


def invoices_issue(*, month: str, actor: str, now: datetime) -> int:
    """Number and issue every approved draft of the month, each in its own transaction; returns how many it issued.

    Any number of callers may do this at once and die at any point: a number is taken and used in one transaction.
    """
    waiting = Invoice.objects.filter(period__month=month, status=Invoice.Status.APPROVED).order_by("team__code")
    return sum(_issue(invoice_id, actor, now) for invoice_id in waiting.values_list("id", flat=True))


def _issue(invoice_id: int, actor: str, now: datetime) -> bool:
    facts = Invoice.objects.select_related("period").get(pk=invoice_id)
    fiscal_year = int(facts.period.month[:4])
    series_facts = {"kind": NumberSeries.Kind.INVOICE, "issuer": facts.issuer, "fiscal_year": fiscal_year}
    NumberSeries.objects.get_or_create(**series_facts)
    with transaction.atomic():
        series = NumberSeries.objects.select_for_update().get(**series_facts)
        invoice = Invoice.objects.select_for_update().get(pk=invoice_id)
        if invoice.status != Invoice.Status.APPROVED:
            return False
        invoice.sequence = series.last_number + 1
        invoice.fiscal_year = fiscal_year
        invoice.number = f"{invoice.issuer}-{fiscal_year}-{invoice.sequence:06d}"
        invoice.previous_sha256 = series.last_sha256
        invoice.document = canonical_json(
            numbered_document(invoice.draft, number=invoice.number, previous_sha256=series.last_sha256)
        )
        invoice.sha256 = document_hash(invoice.document)
        invoice.status = Invoice.Status.ISSUED
        invoice.issued_at = now
        invoice.save()
        series.last_number, series.last_sha256 = invoice.sequence, invoice.sha256
        series.save(update_fields=["last_number", "last_sha256"])
        audit_record(
            actor=actor, action="invoice_issue", subject=invoice.number,
            detail={"total": str(invoice.total), "sha256": invoice.sha256},
        )  # fmt: skip
        return True
