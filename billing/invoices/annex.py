"""Annex of an invoice: quantity and cost by consumer, for lines that cover all consumers of the team.

Each line's amount is shared out in proportion to tokens, to the cent by largest remainder, so that the parts add up to it.
The annex is computed from the usage that the close billed, at any later time again (ADR 0041).
"""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import xlsxwriter
from django.db.models import QuerySet

from billing.invoices.documents.delimited import BYTE_ORDER_MARK, spreadsheet_text
from billing.invoices.models import Invoice, InvoiceLine
from billing.rating.gathering import shared_out, used_in_close
from billing.runtime.canonical_json import canonical_json
from metering.messages import Message, UserError
from pricing.contexts import class_and_context
from pricing.money import round_to, split_amount
from pricing.number_text import QUANTITY_PLACES, amount_text, quantity_text
from pricing.rating import DIVISOR, LineKey

SCHEMA: Final = "suanpan/annex/1"


class AnnexError(UserError):
    """Error of a line whose usage differs from the billed usage, so that it cannot be shared out."""

    code = "annex"


class ConsumerPart(msgspec.Struct, frozen=True, gc=False):
    """Consumer's part of one line: `quantity` in the unit of the line, `tokens` exact, `amount` rounded."""

    position: int
    charge_period: str
    sku: str
    token_class: str
    context: str
    price_version: str
    consumer: str
    tokens: int
    quantity: Decimal
    unit: str
    amount: Decimal


COLUMNS: Final = ConsumerPart.__struct_fields__


def gathered_lines(invoice: Invoice) -> QuerySet[InvoiceLine]:
    """Return the token lines of an invoice that name no consumer."""
    return InvoiceLine.objects.filter(invoice=invoice, kind="tokens", consumer="").order_by("position")


def annex_of(invoice: Invoice) -> list[ConsumerPart]:
    """Return the parts of each gathered line of an invoice or draft by consumer.  Raises AnnexError.

    Grain: line and consumer, in this order; empty if every line names its consumer.
    """
    lines = {LineKey.of(row, team=invoice.team.code, platform=False): row for row in gathered_lines(invoice)}
    period = invoice.period
    used = used_in_close(list(lines), period.window, period.zone, period.close_number) if lines else {}
    found: list[ConsumerPart] = []
    for key, row in lines.items():
        parts = used.get(key, {})
        whole = sum(parts.values(), Decimal(0))
        # the parts must give the billed line: otherwise the ledger has changed since
        if not parts or round_to(whole / DIVISOR[key.unit], QUANTITY_PLACES) != row.quantity:
            raise AnnexError(Message(
                "line %(line)s of %(number)s: %(tokens)s tokens are found of the %(quantity)s million that it bills",
                line=row.position, number=invoice.number or "the draft", tokens=whole, quantity=row.quantity,
            ))
        amounts, names = shared_out(row.amount, parts), sorted(parts)
        quantities = split_amount(row.quantity, [parts[name] for name in names], QUANTITY_PLACES)
        token_class, context = class_and_context(key.token_class)
        found += [
            ConsumerPart(
                row.position, key.charge_period, key.sku, token_class, context, key.price_version, name, int(parts[name]),
                quantity, key.unit, amounts[name],
            )
            for name, quantity in zip(names, quantities, strict=True)
        ]  # fmt: skip
    return found


def annex_file(invoice: Invoice, suffix: str) -> bytes:
    """Return the annex as "json", "csv" or "xlsx" bytes.  Raises AnnexError."""
    parts = annex_of(invoice)
    if suffix == "json":
        return canonical_json(annex_document(invoice, parts)).encode()
    if suffix == "csv":
        sheet = io.StringIO()
        writer = csv.writer(sheet, lineterminator="\r\n")
        writer.writerow(COLUMNS)
        writer.writerows([_cell(value) for value in msgspec.structs.astuple(part)] for part in parts)
        return (BYTE_ORDER_MARK + sheet.getvalue()).encode("utf-8", "backslashreplace")
    content = io.BytesIO()
    with xlsxwriter.Workbook(content, {"in_memory": True, "strings_to_numbers": False}) as book:
        page = book.add_worksheet("consumers")
        page.write_row(0, 0, COLUMNS)
        for number, part in enumerate(parts, start=1):
            for column, value in enumerate(msgspec.structs.astuple(part)):
                if isinstance(value, str):
                    page.write_string(number, column, value)
                else:
                    page.write_number(number, column, value)
    return content.getvalue()


def annex_document(invoice: Invoice, parts: Sequence[ConsumerPart]) -> dict[str, Any]:
    """Return the annex as a JSON document: the parts of each line, by position."""
    return {
        "schema": SCHEMA, "number": invoice.number, "period": invoice.period.month, "team": invoice.team.code,
        "currency": invoice.currency,
        "consumers": [
            {
                **{name: getattr(part, name) for name in COLUMNS}, "context": part.context or None,
                "quantity": quantity_text(part.quantity), "amount": amount_text(part.amount),
            }
            for part in parts
        ],
    }  # fmt: skip


def _cell(value: Any) -> str:
    return spreadsheet_text(value) if isinstance(value, str) else f"{value:f}" if isinstance(value, Decimal) else str(value)
