"""Approval and issue of invoices. The number comes from a counter row that is locked inside the issuing transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from billing.invoices.approved_drafts import drafts_differing
from billing.invoices.lines import invoice_lines, numbered_text
from billing.invoices.models import BillingPeriod, Invoice, NumberSeries
from billing.invoices.selectors import drafts_of_close
from billing.invoices.services.drafts import charges_by_invoice, drafts_write, month_windows, parties_of
from billing.invoices.services.mails import mails_queue
from billing.rating.assessment import rate_period
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.runtime.gc_pause import collector_paused
from billing.runtime.progress import ProgressCallback, no_progress
from billing.tenancy.access import same_person, same_persons
from billing.tenancy.audit import audit_record, audit_record_each
from billing.tenancy.models import AuditEntry
from billing.tenancy.selectors import billing_setup
from metering.intervals import fiscal_quarter_of
from metering.messages import Message, UserError
from pricing.number_text import amount_text

ISSUE_BATCH: Final = 250


class ApprovalError(UserError, ValueError):
    """Error of an approval that the four-eyes rule forbids, or without anything to approve."""

    code = "approval"


def invoices_approve(
    *, month: str, actor: str, team: str | None = None, seen: int | None = None
) -> list[Invoice]:
    """Approve the drafts of a closed month, by another person than the one who closed it; `team` selects one draft.

    `seen`: the newest draft that the approver has seen; if there is a newer one, none is approved.
    The person who rebuilt a draft cannot approve it.  Raises ApprovalError. Approving again changes nothing.
    """
    with transaction.atomic():
        period = BillingPeriod.objects.filter(month=month).first()
        if period is None or not billed(period):
            raise ApprovalError(Message("period %(month)s is not closed: there is nothing to approve", month=month))
        if same_person(actor, period.closed_by):
            raise ApprovalError(Message("%(actor)s closed %(month)s: somebody else must approve", actor=actor, month=month))
        waiting = (Invoice.Status.DRAFT, Invoice.Status.PREVIEW)
        drafts = period.invoices.select_for_update().filter(status__in=waiting, shadow=False).order_by("team__code")
        if team is not None:
            if not period.invoices.filter(team__code=team).exists():
                raise ApprovalError(Message("team %(team)s: has no invoice of %(month)s", team=repr(team), month=month))
            drafts = drafts.filter(team__code=team)
        invoices = list(drafts)
        if seen is not None and any(invoice.pk > seen for invoice in invoices):
            raise ApprovalError(Message(
                "%(month)s: drafts were made since you looked: look at them, then approve", month=month
            ))
        if same_persons(actor, _rebuilders(period, invoices)):
            raise ApprovalError(Message(
                "%(actor)s made a draft of %(month)s again: somebody else must approve", actor=actor, month=month
            ))
        for invoice in invoices:
            invoice.status = Invoice.Status.APPROVED
            invoice.approved_by = actor
            invoice.save(update_fields=["status", "approved_by"])
            detail = {"total": amount_text(invoice.total), "sha256": document_hash(canonical_json(invoice.draft))}
            audit_record(actor=actor, action="invoice_approve", subject=f"{month} {invoice.team.code}", detail=detail)
    return invoices


def _rebuilders(period: BillingPeriod, drafts: Iterable[Invoice]) -> set[str]:
    """Return the people who rebuilt one of the drafts, after an earlier one of its team was voided."""
    voided = set(period.invoices.filter(status=Invoice.Status.VOID).values_list("team", flat=True))
    again = [f"{period.month} {draft.team.code}" for draft in drafts if draft.team_id in voided]
    if not again:
        return set()
    return set(AuditEntry.objects.filter(action="invoice_rebuild", subject__in=again).values_list("actor", flat=True))


def billed(period: BillingPeriod) -> bool:
    """Return True if a period has its drafts: it is closed, or its close blocks some teams and has billed the others."""
    if period.status == BillingPeriod.Status.CLOSED:
        return True
    return period.status == BillingPeriod.Status.CLOSING and period.held_teams.exists()


def invoices_preview(*, month: str, actor: str, team: str | None = None) -> list[Invoice]:
    """Show the drafts of a closed month to their teams before they are approved.  Raises ApprovalError."""
    with transaction.atomic():
        drafts = _of_month(month).select_for_update().filter(status=Invoice.Status.DRAFT)
        invoices = list(drafts.filter(team__code=team) if team is not None else drafts)
        for invoice in invoices:
            invoice.status = Invoice.Status.PREVIEW
            invoice.save(update_fields=["status"])
            audit_record(actor=actor, action="invoice_preview", subject=f"{month} {invoice.team.code}")
    return invoices


def invoice_void(*, month: str, team: str, reason: str, actor: str) -> Invoice:
    """Void a draft that is not issued; `invoice_rebuild` builds it again.  Raises ApprovalError."""
    if not reason.strip():
        raise ApprovalError(Message("say why the draft is voided"))
    with transaction.atomic():
        live = _of_month(month).select_for_update().filter(team__code=team, shadow=False)
        invoice = live.exclude(status=Invoice.Status.VOID).first()
        if invoice is None:
            raise ApprovalError(Message("team %(team)s has no draft of %(month)s", team=team, month=month))
        if invoice.status == Invoice.Status.ISSUED:
            raise ApprovalError(Message(
                "invoice %(number)s is issued: it is never voided; credit it with a note", number=invoice.number
            ))
        invoice.status, invoice.void_reason, invoice.approved_by = Invoice.Status.VOID, reason, ""
        invoice.save(update_fields=["status", "void_reason", "approved_by"])
        audit_record(actor=actor, action="invoice_void", subject=f"{month} {team}", detail={"reason": reason})
    return invoice


def invoice_rebuild(*, month: str, team: str, actor: str) -> Invoice:
    """Rebuild a voided draft from the usage of its close, with the team's current name and cost centre.

    Raises ApprovalError.
    """
    with transaction.atomic():
        invoices = _of_month(month).select_for_update(of=("self",)).filter(team__code=team, shadow=False)
        # drafts of a reopened close do not count
        known = [] if not invoices else list(invoices.filter(pk__in=drafts_of_close(invoices[0].period)))
        if not known or any(invoice.status != Invoice.Status.VOID for invoice in known):
            raise ApprovalError(Message(
                "team %(team)s has no voided draft of %(month)s: nothing to build again", team=team, month=month
            ))
        period, setup = known[0].period, billing_setup()
        assessment = rate_period(window=period.window, zone=period.zone, close_seq=period.close_seq)
        if (fault := assessment.faults.get(team)) or assessment.entangled:
            problems = fault or Message("what it pays hangs on teams that cannot be")
            raise ApprovalError(Message(
                "team %(team)s cannot be rated: %(problems)s; repair it, then build again", team=team, problems=problems
            ))
        charges = charges_by_invoice(assessment.charges).get((team, False), [])
        if not charges:
            raise ApprovalError(Message(
                "team %(team)s has no usage in %(month)s: nothing to build again", team=team, month=month
            ))
        lines = invoice_lines(charges)
        draft = (lines, parties_of(period, setup, known[0].team, lines, month_windows()))
        (invoice,) = drafts_write(period, setup, {team: known[0].team}, 1, [draft])
        audit_record(actor=actor, action="invoice_rebuild", subject=f"{month} {team}", detail={"total": str(invoice.total)})
        invoice.refresh_from_db(fields=["draft"])  # the stored draft has plain lines
    return invoice


def _of_month(month: str) -> QuerySet[Invoice]:
    period = BillingPeriod.objects.filter(month=month).first()
    if period is None or not billed(period):
        raise ApprovalError(Message("period %(month)s is not closed: it has no drafts", month=month))
    return Invoice.objects.filter(period=period).select_related("team", "period").order_by("team__code", "id")


def invoices_issue(*, month: str, actor: str, now: datetime, report_progress: ProgressCallback = no_progress) -> int:
    """Number and issue every approved draft of the month, in batches of one transaction; return the number issued.

    Concurrent callers are safe and may die at any point: numbers are taken and used in one transaction.
    Raises ApprovalError if a draft differs from its approval; invoices issued before stay issued.
    """
    waiting = Invoice.objects.filter(period__month=month, status=Invoice.Status.APPROVED).order_by("team__code", "id")
    ids, issued = list(waiting.values_list("id", flat=True)), 0
    fiscal_year = fiscal_quarter_of(month, settings.FISCAL_YEAR_START).year
    report_progress("issue", 0, len(ids))
    for first in range(0, len(ids), ISSUE_BATCH):
        with collector_paused():
            issued += _issue(ids[first : first + ISSUE_BATCH], fiscal_year, actor, now)
        report_progress("issue", min(first + ISSUE_BATCH, len(ids)), len(ids))
    return issued


def _issue(ids: Sequence[int], fiscal_year: int, actor: str, now: datetime) -> int:
    """Issue those of some drafts that are not issued yet, with the next numbers of their series."""
    # outside the transaction: the counter must exist before it can be locked
    for issuer in Invoice.objects.filter(pk__in=ids).values_list("issuer", flat=True).order_by("issuer").distinct():
        NumberSeries.objects.get_or_create(kind=NumberSeries.Kind.INVOICE, issuer=issuer, fiscal_year=fiscal_year)
    with transaction.atomic():
        # a second issuer waits here, then finds these drafts issued
        locked = NumberSeries.objects.select_for_update().filter(kind=NumberSeries.Kind.INVOICE, fiscal_year=fiscal_year)
        series = {row.issuer: row for row in locked.order_by("issuer")}
        drafts = Invoice.objects.select_for_update(of=("self",)).filter(pk__in=ids, status=Invoice.Status.APPROVED)
        unread = drafts.select_related("team").defer("draft").annotate(draft_text=Cast("draft", TextField()))
        invoices = list(unread.order_by("team__code", "id"))
        if invoices:
            _require_as_approved(invoices)
        _store(_numbered(invoices, series, now))
        audit_record_each(
            actor=actor, action="invoice_issue",
            entries=((str(x.number), {"total": str(x.total), "sha256": x.sha256}) for x in invoices),
        )  # fmt: skip
        mails_queue(*invoices, now=now)
        for row in series.values():
            row.save(update_fields=["last_number", "last_sha256"])
    return len(invoices)


def _require_as_approved(invoices: Sequence[Invoice]) -> None:
    period = BillingPeriod.objects.get(pk=invoices[0].period_id)
    for draft, difference in drafts_differing(period, invoices):
        raise ApprovalError(Message(
            "the draft of %(team)s for %(month)s is not what was approved: %(difference)s; void it and build it again",
            team=draft.team.code, month=period.month, difference=difference,
        ))


def _numbered(invoices: Iterable[Invoice], all_series: Mapping[str, NumberSeries], now: datetime) -> Iterator[Invoice]:
    """Yield each invoice with its next number and document: the database stores one while the next is built."""
    for invoice in invoices:
        series = all_series[invoice.issuer]
        invoice.sequence, invoice.fiscal_year = series.last_number + 1, series.fiscal_year
        invoice.number = f"{invoice.issuer}-{series.fiscal_year}-{invoice.sequence:06d}"
        invoice.previous_sha256 = series.last_sha256
        draft: str = invoice.draft_text  # type: ignore[attr-defined]  # annotated by the query of `_issue`
        invoice.document = numbered_text(draft, number=invoice.number, previous_sha256=series.last_sha256)
        invoice.sha256 = document_hash(invoice.document)
        invoice.status, invoice.issued_at = Invoice.Status.ISSUED, now
        series.last_number, series.last_sha256 = invoice.sequence, invoice.sha256
        yield invoice


def _store(invoices: Iterable[Invoice]) -> None:
    """Update all invoices in one pipeline, each document as a parameter: quoted into a statement it would be read twice."""
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.executemany(
            """UPDATE invoices_invoice SET number = %s, fiscal_year = %s, sequence = %s, previous_sha256 = %s,
                      document = %s, sha256 = %s, status = %s, issued_at = %s WHERE id = %s""",
            (
                (x.number, x.fiscal_year, x.sequence, x.previous_sha256, x.document, x.sha256, x.status, x.issued_at, x.pk)
                for x in invoices
            ),
        )
