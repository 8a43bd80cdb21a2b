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
    """Invoice Detail: one row a line. `due_at`: when the amount is final; without, it is due when it is issued."""
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
    """The document that a line corrects, or its own: of a note the one that it credits, else the invoice it is about."""
    credited = (line.get("credits") or {}).get("document")
    about = (document.get("invoice") or {}).get("number")
    return str(credited or about or document["number"])


def _grain(line: Mapping[str, Any]) -> str:
    """The properties that distinguish this line from the others, as FOCUS names them; ours begin with `x_`."""
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
    """Billing Period: one row per issuer. It came about with its first instant and last changed with its last invoice."""
    row = {
        "BillingPeriodStart": start, "BillingPeriodEnd": end, "BillingPeriodStatus": "Closed",
        "BillingPeriodCreated": start, "BillingPeriodLastUpdated": whole_second(max(filter(None, [closed_at, *issued_at]))),
    }  # fmt: skip
    return pa.Table.from_pylist([row | {"InvoiceIssuerName": issuer} for issuer in issuers], schema=BILLING_PERIOD)


def whole_second(instant: datetime) -> datetime:
    """FOCUS writes instants without a fraction of a second."""
    return instant.astimezone(UTC).replace(microsecond=0)
