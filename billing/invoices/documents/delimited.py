"""The invoice as CSV: one row a line, stable English column names, for people with Excel and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.invoices.documents.content import Invoice, Line, read_document
from billing.invoices.documents.status import mark_of

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
# What spreadsheets take for the start of a formula; the full-width forms are folded by East Asian versions.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

COLUMNS = (
    "invoice_number", "status", "issued_at", "document_sha256", "issuer", "team", "recipient", "cost_center",
    "billing_period", "zone", "billing_period_start", "billing_period_end", "position", "kind", "charge_class",
    "charge_period", "cluster", "namespace", "consumer", "sku", "token_class", "quantity", "unit", "unit_price",
    "price_version", "policy", "reason", "jobs", "amount", "currency", "energy_kwh",
    "co2_location_kg", "co2_market_kg", "document_kind", "corrects_invoice",
    "correction_reason", "style", "credits_document", "credits_position", "context",
)  # fmt: skip


def render_csv(
    document: Mapping[str, Any],
    *,
    sha256: str | None = None,
    issued_at: datetime | None = None,
    status: str = "issued",
) -> bytes:
    """Render the lines of one invoice as CSV (RFC 4180, UTF-8 with byte order mark, CRLF).

    Grain: one row a line, in order of position, the facts of the document repeated. Numbers are written exactly as in
    the document, without thousands separators; text that a spreadsheet would run as a formula gets a leading
    apostrophe. Raises DocumentError, UnbalancedDocumentError, ValueError for an unknown status.
    """
    mark_of(status)
    invoice = read_document(document)
    head = _document_cells(invoice, sha256, issued_at, status)
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for line in sorted(invoice.lines, key=lambda line: line.position):
        writer.writerow({**head, **_line_cells(line)})
    return (BYTE_ORDER_MARK + sheet.getvalue()).encode("utf-8", "backslashreplace")


def harmless(value: str | None) -> str:
    """Text that no spreadsheet takes for a formula.

    >>> harmless("=HYPERLINK(1)"), harmless("nlp-train"), harmless(None)
    ("'=HYPERLINK(1)", 'nlp-train', '')
    """
    if value is None:
        return ""
    suspicious = value.startswith(FORMULA_STARTS) or value.lstrip().startswith(FORMULA_STARTS)
    return f"'{value}" if suspicious else value


def _plain(value: Decimal | None) -> str:
    return "" if value is None else f"{value:f}"


def _document_cells(invoice: Invoice, sha256: str | None, issued_at: datetime | None, status: str) -> dict[str, str]:
    return {
        "invoice_number": harmless(invoice.number),
        "status": status,
        "issued_at": "" if issued_at is None else issued_at.isoformat(),
        "document_sha256": sha256 or "",
        "issuer": harmless(invoice.issuer.name),
        "team": harmless(invoice.recipient.team),
        "recipient": harmless(invoice.recipient.name),
        "cost_center": harmless(invoice.recipient.cost_center),
        "billing_period": harmless(invoice.period.month),
        "zone": harmless(invoice.period.zone),
        "billing_period_start": harmless(invoice.period.start),
        "billing_period_end": harmless(invoice.period.end),
        "currency": harmless(invoice.currency),
        "document_kind": invoice.kind,
        "corrects_invoice": harmless(invoice.invoice.number) if invoice.invoice else "",
        "correction_reason": invoice.reason.code if invoice.reason else "",
    }


def _line_cells(line: Line) -> dict[str, str]:
    texts = {
        name: harmless(getattr(line, name))
        for name in (
            "kind", "charge_class", "charge_period", "cluster", "namespace", "consumer", "sku", "token_class",
            "unit", "price_version", "policy", "reason", "context",
        )
    }  # fmt: skip
    return {
        **texts,
        "position": str(line.position),
        "jobs": "" if line.jobs is None else str(line.jobs),
        "quantity": _plain(line.quantity),
        "unit_price": _plain(line.unit_price),
        "amount": _plain(line.amount),
        "energy_kwh": _plain(line.energy_kwh),
        "co2_location_kg": _plain(line.co2_location_kg),
        "co2_market_kg": _plain(line.co2_market_kg),
        "style": line.style or "",
        "credits_document": harmless(line.credits.document) if line.credits else "",
        "credits_position": str(line.credits.position) if line.credits else "",
    }
