"""Export of the ledger journal of a month to a file, and parsing of its chart of accounts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db import transaction

from billing.corrections.dispute_holdback import held_parts, part_of, parts_to_post, posted_parts
from billing.corrections.models import DisputeHoldback
from billing.corrections.services.settlement import documents_settle
from billing.exports.center_amounts import center_amounts
from billing.exports.journal import Chart, Journal, batch_hash, held_journal, journal_csv, journals_of
from billing.invoices.acceptance import acceptance_of
from billing.invoices.issued import Issued, NotIssuedError, issued_documents
from billing.invoices.models import BillingPeriod, Invoice, JournalExport
from billing.invoices.selectors import document_of
from billing.runtime.atomic_file import atomic_file
from billing.tenancy.audit import audit_record
from billing.tenancy.selectors import company_calendar
from metering.messages import Message, UserError
from pricing.documents import DocumentError, parse_yaml, read_text
from pricing.fields import shown

ZERO = Decimal("0.00")
BY_TEAM = ("cost_centers", "internal_orders")
MAX_REFERENCE = 200
MOST_CHART_BYTES = 1024 * 1024


class AcknowledgementError(UserError, ValueError):
    """Acknowledgement of a journal that does not fit the export."""

    code = "journal_acknowledgement"


class ChartError(UserError, ValueError):
    """Chart of accounts with a field that is unknown or of another type."""

    code = "chart"


@dataclass(frozen=True)
class Exported:
    """Contents of the written file."""

    journals: list[Journal]
    debit: Decimal
    credit: Decimal
    posted_otherwise: list[str] = field(default_factory=list)
    """References of acknowledged exports of the same journals with other rows, from another chart."""


def journal_export(
    *, month: str, path: Path, chart: Chart, exported_by: str = "", now: datetime | None = None,
    accepted_at: datetime | None = None, spreadsheet: bool = False,
) -> Exported:  # fmt: skip
    """Write one balanced journal per issued invoice and note; the same month and chart give the same bytes.

    With `exported_by` and `now` the ledger's acknowledgement is expected from then on, and the journal posts parts held back
    by earlier releases and not posted since; without, it is only a file. With `accepted_at` only documents accepted by that
    instant, or disputed beyond the days of acceptance, are posted; the rest follows with a later export, and journals
    in both have the same ids. `spreadsheet`: the file is for people, not for the ledger.

    Raises NoPeriodError, NotIssuedError, JournalError.
    """
    with transaction.atomic():
        # of two exports at once each would post a part
        list(BillingPeriod.objects.select_for_update(no_key=True).filter(month=month))
        period, documents = issued_documents(month)
        otherwise = _posted_otherwise(period, documents, chart)
        if accepted_at is not None:
            documents = _accepted(period, documents, accepted_at)
        if now is not None:
            for hold in parts_to_post():
                hold.posted_with, hold.posted_at = period, now
                hold.save(update_fields=["posted_with", "posted_at"])
        journals = _journals(documents, posted_parts(period), period, chart)
        debit, credit = sum((j.debit for j in journals), ZERO), sum((j.credit for j in journals), ZERO)
        exported = Exported(journals, debit, credit, otherwise)
        with atomic_file(path) as draft:
            draft.write_bytes(journal_csv(exported.journals, spreadsheet=spreadsheet))
        if now is not None:
            _expect_acknowledgement(period, exported, exported_by, now)
    return exported


def _posted_otherwise(period: BillingPeriod, documents: Sequence[Issued], chart: Chart) -> list[str]:
    """Return references of acknowledged exports whose journals, built again with this chart, differ from the ledger's."""
    found = []
    for export in period.journal_exports.exclude(acknowledged_at=None).order_by("id"):
        known = {*export.documents, *export.in_part}
        mine = [document for document in documents if document.number in known]
        posted = [hold for hold in posted_parts(period, at=export.exported_at) if hold.dispute.document.number in known]
        journals = _journals(mine, posted, period, chart)
        if export.batch_hash not in (batch_hash(journals), batch_hash(journals, guarded=True)):
            found.append(export.reference)
    return found


def _journals(
    documents: Sequence[Issued], posted: Sequence[DisputeHoldback], period: BillingPeriod, chart: Chart
) -> list[Journal]:
    """Return the journals of a month: each of its documents followed by its held parts, then held parts of other months."""
    held, mine = held_parts(documents), {document.number for document in documents}
    ours = {"month": period.month, "end": period.end.isoformat(), "zone": period.zone}
    journals, split = [], center_amounts(period, documents)
    for document in documents:
        number, text = str(document.number), document_of(document)
        journals += journals_of(text, chart, held.get(number, ()), split.get(number))
        journals += [held_journal(text, chart, part_of(hold)) for hold in posted if hold.dispute.document.number == number]
    for hold in posted:
        other = hold.dispute.document
        if other.number not in mine and _period_of(other) != period:
            journals.append(held_journal(document_of(other), chart, part_of(hold), ours))
    return journals


def _period_of(document: Issued) -> BillingPeriod | None:
    """Return the period in whose journal a document is."""
    return document.period if isinstance(document, Invoice) else document.correction.period


def _accepted(period: BillingPeriod, documents: list[Issued], now: datetime) -> list[Issued]:
    """Return documents that are accepted, or disputed beyond the days of acceptance.  Raises NotIssuedError."""
    calendar, found = company_calendar(), []
    for document in documents:
        acceptance = acceptance_of(document, zone=period.zone, calendar=calendar, now=now)
        if acceptance is not None and acceptance.state != "waiting" and now >= acceptance.until:
            found.append(document)
    if not found:
        raise NotIssuedError(Message("no document of %(month)s is accepted yet: nothing to post", month=period.month))
    return found


def _expect_acknowledgement(period: BillingPeriod, exported: Exported, actor: str, now: datetime) -> None:
    """Store the batch, unless the same batch was exported before."""
    numbers = list(dict.fromkeys(journal.invoice_number for journal in exported.journals))
    facts = {
        "journals": len(exported.journals), "debit": exported.debit, "exported_at": now, "exported_by": actor,
        "documents": numbers,
    }  # fmt: skip
    batch = batch_hash(exported.journals)
    _, made = JournalExport.objects.get_or_create(period=period, batch_hash=batch, defaults=facts)
    if made:
        detail = {"batch_hash": batch, "debit": str(exported.debit)}
        audit_record(actor=actor, action="journal_export", subject=period.month, detail=detail)


def journal_acknowledge(*, month: str, batch: str, reference: str, actor: str, now: datetime) -> JournalExport:
    """Record that the ledger took a batch, under its own reference; with the same reference again, nothing changes.

    The documents of the batch are settled then; a disputed one stays disputed until the decision.
    Raises AcknowledgementError for a batch that was not exported, an empty reference, or another one than is recorded.
    """
    reference = reference.strip()
    if not reference or len(reference) > MAX_REFERENCE:
        raise AcknowledgementError(Message(
            "reference: name the posting in the ledger, in at most %(most)s characters", most=MAX_REFERENCE
        ))
    with transaction.atomic():
        exports = JournalExport.objects.select_for_update(of=("self",)).select_related("period")
        found = exports.filter(period__month=month, batch_hash=batch).first()
        if found is None:
            raise AcknowledgementError(Message(
                "batch %(batch)s: no such journal of %(month)s was exported", batch=repr(batch[:64]), month=month
            ))
        if found.acknowledged_at is not None:
            if found.reference != reference:
                raise AcknowledgementError(Message(
                    "journal of %(month)s: was acknowledged as %(reference)s, not as %(other)s",
                    month=month, reference=found.reference, other=reference,
                ))
            return found
        found.reference, found.acknowledged_at, found.acknowledged_by = reference, now, actor
        found.save(update_fields=["reference", "acknowledged_at", "acknowledged_by"])
        settled = documents_settle(numbers=found.documents, reference=reference, actor=actor, now=now)
        detail = {"reference": reference, "batch_hash": batch, "settled": settled}
        audit_record(actor=actor, action="journal_acknowledge", subject=month, detail=detail)
    return found


def chart_read(path: Path) -> dict[str, Any]:
    """Read the fields of a chart from a YAML file.  Raises ChartError naming the field."""
    return chart_of(path.read_bytes(), path)


def chart_of(text: bytes, path: Path) -> dict[str, Any]:
    """Parse the fields of a chart from YAML; `path`: its name in errors.  Raises ChartError naming the field."""
    if len(text) > MOST_CHART_BYTES:
        raise ChartError(Message("%(file)s: larger than %(most)s bytes", file=path, most=MOST_CHART_BYTES))
    try:
        content = parse_yaml(read_text(text, str(path)), str(path))
    except DocumentError as error:
        raise ChartError(error.message) from error
    if not isinstance(content, dict):
        raise ChartError(Message("%(file)s: must be a mapping of fields", file=path))
    known = [item.name for item in fields(Chart)]
    for name in content:
        if name not in known:
            raise ChartError(Message(
                "%(file)s: field %(name)s is none of %(names)s", file=path, name=repr(str(name)[:40]), names=", ".join(known)
            ))
    return {name: _value(path, name, value) for name, value in content.items()}


def _value(path: Path, name: str, value: object) -> object:
    """Check the value of a field; numbers stay the text that was written.  Raises ChartError."""
    if name == "posting_date":
        try:
            return date.fromisoformat(value if isinstance(value, str) else "")
        except ValueError as error:
            raise ChartError(Message(
                "%(file)s: posting_date %(value)s must be a date such as 2026-10-31", file=path, value=shown(value)
            )) from error
    if name in BY_TEAM:
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise ChartError(Message("%(file)s: %(name)s must map team codes to text", file=path, name=name))
    elif not isinstance(value, str):
        raise ChartError(Message("%(file)s: %(name)s %(value)s must be text", file=path, name=name, value=shown(value)))
    return value
