"""Invoice as CSV: one row per line, stable English column names, for people with Excel and for programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from billing.invoices.documents.content import Invoice, Line, mark_of, read_document

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
# Characters that start a formula in spreadsheets; East Asian versions fold the full-width forms.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
DAMAGED = re.compile(r"\d{16,}|\d+(\.\d+)?[eE]\d+", re.ASCII)
"""Pattern of names that a spreadsheet takes for a number and changes."""


@dataclass(frozen=True, slots=True)
class Row:
    """Source of a CSV row: one line, and the facts of its document, some of which are not in the document."""

    document: Invoice
    status: str
    issued_at: str | None
    sha256: str | None
    line: Line


COLUMNS: Final = {
    "invoice_number": "document.number", "status": "status", "issued_at": "issued_at", "document_sha256": "sha256",
    "issuer": "document.issuer.name", "team": "document.recipient.team", "recipient": "document.recipient.name",
    "cost_center": "document.recipient.cost_center", "billing_period": "document.period.month",
    "zone": "document.period.zone", "billing_period_start": "document.period.start",
    "billing_period_end": "document.period.end", "position": "line.position", "kind": "line.kind",
    "charge_class": "line.charge_class", "charge_period": "line.charge_period", "cluster": "line.cluster",
    "namespace": "line.namespace", "consumer": "line.consumer", "sku": "line.sku", "token_class": "line.token_class",
    "quantity": "line.quantity", "unit": "line.unit", "unit_price": "line.unit_price",
    "price_version": "line.price_version", "policy": "line.policy", "reason": "line.reason", "jobs": "line.jobs",
    "amount": "line.amount", "currency": "document.currency", "energy_kwh": "line.energy_kwh",
    "co2_location_kg": "line.co2_location_kg", "co2_market_kg": "line.co2_market_kg", "document_kind": "document.kind",
    "corrects_invoice": "document.invoice.number", "correction_reason": "document.reason.code", "style": "line.style",
    "credits_document": "line.credits.document", "credits_position": "line.credits.position", "context": "line.context",
}  # fmt: skip
"""Attribute path of each column's value; the cell is empty if any part of the path is null."""


def render_csv(
    document: Mapping[str, Any],
    *,
    sha256: str | None = None,
    issued_at: datetime | None = None,
    status: str = "issued",
) -> bytes:
    """Return the lines of one invoice as CSV (RFC 4180, UTF-8 with byte order mark, CRLF).

    Grain: one row per line, in order of position, the facts of the document repeated. Numbers are written exactly as in
    the document, without thousands separators; text that a spreadsheet would run as a formula or change as a number
    gets a leading apostrophe. Raises DocumentError, UnbalancedDocumentError, ValueError for an unknown status.
    """
    mark_of(status)
    invoice, issued = read_document(document), None if issued_at is None else issued_at.isoformat()
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in sorted(invoice.lines, key=lambda line: line.position):
        row = Row(invoice, status, issued, sha256, line)
        writer.writerow([_cell(row, place) for place in COLUMNS.values()])
    return (BYTE_ORDER_MARK + sheet.getvalue()).encode("utf-8", "backslashreplace")


def _cell(row: Row, place: str) -> str:
    value: Any = row
    for name in place.split("."):
        value = None if value is None else getattr(value, name)
    # plain digits: a spreadsheet rounds a number with an exponent
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, int) else spreadsheet_text(value)


def spreadsheet_text(value: str | None) -> str:
    """Return text that a spreadsheet shows unchanged: with an apostrophe if it would run a formula or change a number.

    Spreadsheets cut numbers to 15 digits and compute exponents. They drop leading zeros too, but a cost centre such as 00120
    has to be the same text in every file.

    >>> spreadsheet_text("1234567890123456"), spreadsheet_text("12e45"), spreadsheet_text("00120"), spreadsheet_text("210")
    ("'1234567890123456", "'12e45", '00120', '210')
    """
    text = harmless(value)
    return f"'{text}" if DAMAGED.fullmatch(text) else text


def harmless(value: str | None) -> str:
    """Return text that no spreadsheet takes for a formula.

    >>> harmless("=HYPERLINK(1)"), harmless("nlp-train"), harmless(None)
    ("'=HYPERLINK(1)", 'nlp-train', '')
    """
    if value is None:
        return ""
    suspicious = value.startswith(FORMULA_STARTS) or value.lstrip().startswith(FORMULA_STARTS)
    return f"'{value}" if suspicious else value
