"""Settlement, the last state of a document: the ledger posted it, under a reference."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from billing.approvals.limits import require_right
from billing.corrections.credited_lines import document_numbered
from billing.invoices.models import DocumentEvent, Invoice, Note
from billing.invoices.selectors import state_of
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from metering.messages import Message

Kind = DocumentEvent.Kind


class SettlementError(ValueError):
    """Document that cannot be settled as requested."""


def documents_settle(*, numbers: Sequence[str], reference: str, actor: str, now: datetime) -> int:
    """Settle the documents of a journal that the ledger took, in the calling transaction; return the number of new ones.

    A document with an open dispute is settled, too: the dispute ends with a credit note, or leaves the document settled.
    """
    events = [
        DocumentEvent(**{field: pk}, kind=Kind.SETTLED, at=now, actor=actor[:200], reference=reference)
        for field, model in (("invoice_id", Invoice), ("note_id", Note))
        for pk in model._default_manager.filter(number__in=numbers)
        .exclude(events__kind=Kind.SETTLED)
        .order_by("number")
        .values_list("pk", flat=True)
    ]
    DocumentEvent.objects.bulk_create(events, ignore_conflicts=True)  # one may be settled by hand at the same time
    return len(events)


def document_settle(*, number: str, reference: str, actor: str, now: datetime) -> bool:
    """Record that the ledger posted an issued document; return False where that reference is already recorded.

    Raises SettlementError while a dispute is open, or where the document was posted under another reference, NoteError
    for a number that is not issued, AuthorityError.
    """
    if not reference.strip():
        raise SettlementError("name the posting in the ledger")
    require_right(actor, Message("record a posting"), Right.CLOSE)
    with transaction.atomic():
        document = document_numbered(number)
        type(document).objects.select_for_update().get(pk=document.pk)
        known = document.events.filter(kind=Kind.SETTLED).first()
        if known is not None:
            if known.reference == reference:
                return False
            raise SettlementError(f"{number} was posted as {known.reference} on {known.at:%Y-%m-%d}, not as {reference}")
        if state_of(document) == "disputed":
            raise SettlementError(f"{number} is disputed: decide that first")
        document.events.create(kind=Kind.SETTLED, at=now, actor=actor, reference=reference)
        audit_record(actor=actor, action="document_settle", subject=number, detail={"reference": reference})
    return True
