"""PURE: rows of Invoice Detail and Billing Period."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from billing.exports.focus.columns import BILLING_PERIOD, INVOICE_DETAIL
from billing.exports.focus.cost_and_usage import (
    billing_facts,
    charge_category,
    description,
    detail_id,
    of_commitment,
    service,
    sku_price_id,
    sub_account,
)

TERMS = "internal transfer"


def detail_rows(document: Mapping[str, Any], issued_at: datetime, due_at: datetime | None = None) -> pa.Table:
    """Return rows of Invoice Detail, one per line. `due_at`: when the amount is final; by default the time of issue."""
    issued = whole_second(issued_at)
    head = billing_facts(document) | {
        "InvoiceDetailCreated": issued, "InvoiceDetailLastUpdated": issued, "InvoiceIssueDate": issued,
        "InvoiceIssueStatus": "Issued", "PaymentCurrency": document["currency"],
        "PaymentDueDate": whole_second(due_at or issued_at), "PaymentTerms": TERMS,
    }  # fmt: skip
    rows = [
        {
            **head,
            "BilledCost": Decimal(line["amount"]),
            "ChargeCategory": charge_category(line),
            "InvoiceDetailId": detail_id(document, line),
            "InvoiceDetailDescription": description(line),
            "InvoiceDetailGrain": _grain(line),
            "ReferenceInvoiceId": corrected_document(document, line),
        }
        for line in document["lines"]
    ]
    return pa.Table.from_pylist(rows, schema=INVOICE_DETAIL)


def corrected_document(document: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    """Return the number of the document that a line corrects: credited by a note, or the subject of a note; else its own."""
    credited = (line.get("credits") or {}).get("document")
    about = (document.get("invoice") or {}).get("number")
    return str(credited or about or document["number"])


def _grain(line: Mapping[str, Any]) -> str:
    """Return the properties that distinguish this line from others, by their FOCUS names; custom ones begin with `x_`."""
    facts = service(line)
    grain = {
        "ServiceName": facts["ServiceName"], "SkuId": facts["SkuId"], "SkuMeter": facts["SkuMeter"],
        "SkuPriceId": sku_price_id(line, bought=of_commitment(line)), "SubAccountId": sub_account(line),
        "x_ChargeMonth": line["charge_period"], "x_PolicyVersion": line["policy"],
        "x_PriceVersion": line["price_version"], "x_Reason": line["reason"],
    }  # fmt: skip
    return json.dumps({name: value for name, value in grain.items() if value}, sort_keys=True, ensure_ascii=False)


def period_rows(
    *, start: datetime, end: datetime, closed_at: datetime | None, issued_at: Sequence[datetime], issuers: Sequence[str]
) -> pa.Table:
    """Return rows of Billing Period, one per issuer; created at the period's start, last updated by its last invoice."""
    row = {
        "BillingPeriodStart": start, "BillingPeriodEnd": end, "BillingPeriodStatus": "Closed",
        "BillingPeriodCreated": start, "BillingPeriodLastUpdated": whole_second(max(filter(None, [closed_at, *issued_at]))),
    }  # fmt: skip
    return pa.Table.from_pylist([row | {"InvoiceIssuerName": issuer} for issuer in issuers], schema=BILLING_PERIOD)


def whole_second(instant: datetime) -> datetime:
    """Drop the fraction of a second, which FOCUS instants do not have."""
    return instant.astimezone(UTC).replace(microsecond=0)
