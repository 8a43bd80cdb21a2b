"""All reads of periods and invoices."""

import json
from typing import Any

from django.db.models import QuerySet

from billing.invoicing.models import BillingPeriod, Invoice
from billing.tenancy.selectors import billing_setup
from metering.intervals import billing_month


def invoices_of(month: str) -> QuerySet[Invoice]:
    """The invoices and drafts of a month, by team."""
    return Invoice.objects.filter(period__month=month).select_related("team", "period").order_by("team__code")


def invoices_as_dict(month: str) -> dict[str, Any]:
    """The JSON of the contract: every invoice and draft of the month with its lines."""
    return {"period": month, "invoices": [invoice_as_dict(invoice) for invoice in invoices_of(month)]}


def invoice_as_dict(invoice: Invoice) -> dict[str, Any]:
    """One invoice as the contract gives it; its lines are those of the document."""
    document = document_of(invoice)
    return {
        "number": invoice.number,
        "status": invoice.status,
        "team": invoice.team.code,
        "currency": invoice.currency,
        "total": format(invoice.total, "f"),
        "sha256": invoice.sha256 or None,
        "previous_sha256": invoice.previous_sha256 or None,
        "issued_at": invoice.issued_at.isoformat() if invoice.issued_at else None,
        "lines": document["lines"],
        "subtotals": document["subtotals"],
    }


def document_of(invoice: Invoice) -> dict[str, Any]:
    """The document as issued, or what a draft would say."""
    document: dict[str, Any] = json.loads(invoice.document) if invoice.document else invoice.draft
    return document


def period_of(month: str) -> BillingPeriod:
    """The period of a month as it is stored, or, where nobody has opened it, as it would be; reading stores nothing.

    Raises NoSetupError or IntervalError.
    """
    period = BillingPeriod.objects.filter(month=month).first()
    if period is not None:
        return period
    zone = billing_setup().zone
    window = billing_month(month, zone)
    return BillingPeriod(month=month, zone=zone, start=window.start, end=window.end)


def period_list() -> QuerySet[BillingPeriod]:
    """All periods, the newest first."""
    return BillingPeriod.objects.order_by("-month")
