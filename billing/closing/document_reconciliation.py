"""Reconciliation of issued documents: one sum in lines, documents, pages, ledger journal and FOCUS."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import F

from billing.exports.journal import Chart, JournalError, journal_of
from billing.invoices.issued import issued_notes
from billing.invoices.models import BillingPeriod, Invoice, InvoiceSums, Note
from billing.invoices.selectors import document_of
from metering.messages import Message
from pricing.number_text import grouped_amount

ZERO = Decimal("0.00")
PLACEHOLDER = "(none)"
"""Cost centre for a team without one, whose journal waits for it; the sum is the same."""


def documents_disagreeing(period: BillingPeriod) -> tuple[int, Decimal, list[Message]]:
    """Return the number of documents issued in a period, their sum, and those whose sums differ, in words."""
    invoices = period.invoices.filter(number__isnull=False).select_related("team").defer("draft").order_by("number")
    documents: list[Invoice | Note] = [*invoices, *issued_notes(period.month)]
    kept = InvoiceSums.objects.filter(invoice__period=period)
    shown = dict(kept.values_list("invoice_id", F("gpu") + F("tokens") + F("other")))
    differing = [text for document in documents if (text := _differs(document, shown))]
    return len(documents), sum((document.total for document in documents), ZERO), differing


def _differs(stored: Invoice | Note, shown: Mapping[int, Decimal]) -> Message | None:
    """Return the sums in which a document differs from its total, in words; None if all agree. `shown`: sums on pages."""
    document = document_of(stored)
    team = document["recipient"]["team"]
    try:
        journal = journal_of(document, Chart(cost_centers={team: document["recipient"]["cost_center"] or PLACEHOLDER}))
    except JournalError as error:
        return error.message
    sums = {
        "lines": sum((Decimal(line["amount"]) for line in document["lines"]), ZERO),
        "journal": journal.net_of(Chart().consumer_account),
        "FOCUS": _in_focus(document, stored.issued_at) if stored.issued_at else ZERO,
        "document": Decimal(document["total"]),
    }  # fmt: skip
    if isinstance(stored, Invoice):
        sums["pages"] = shown.get(stored.pk, ZERO)
    wrong = [f"{name} {grouped_amount(amount)}" for name, amount in sums.items() if amount != stored.total]
    if not wrong:
        return None
    return Message(
        "%(number)s is %(total)s, but %(wrong)s",
        number=stored.number, total=grouped_amount(stored.total), wrong=", ".join(wrong),
    )


def _in_focus(document: dict[str, Any], issued_at: datetime) -> Decimal:
    from billing.exports.focus.billing_records import detail_rows  # loads Arrow, which few reports need

    billed: list[Decimal] = detail_rows(document, issued_at)["BilledCost"].to_pylist()
    return sum(billed, ZERO)
