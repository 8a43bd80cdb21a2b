"""Checks of a draft against its approval: its text as in the audit log, its total and lines as its charges give them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from billing.invoices.lines import DocumentLine, Line, invoice_lines, total_of
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine
from billing.invoices.services.drafts import LINE, UNREVIEWED, charges_by_invoice, line_row
from billing.rating.selectors import charges_of_close
from billing.runtime.canonical_json import document_hash
from billing.tenancy.models import AuditEntry
from metering.messages import Message
from pricing.number_text import amount_text

FROM_FACTORS: Final = ("co2_location_kg", "co2_market_kg")
"""Fields of a line that its charge does not have; the hash of the approved text covers them."""


class DraftText(msgspec.Struct):
    """Fields of a draft's text that its charges determine."""

    total: str
    lines: list[DocumentLine]


def drafts_differing(period: BillingPeriod, drafts: Sequence[Invoice]) -> Iterator[tuple[Invoice, Message]]:
    """Yield each draft that differs from its approval, with the difference. Each draft has `draft_text`, its stored text."""
    teams = [draft.team.code for draft in drafts]
    charges = charges_by_invoice(charges_of_close(period.close_number, teams))
    rows = defaultdict[int, list[tuple[Any, ...]]](list)
    for row in InvoiceLine.objects.filter(invoice__in=drafts).order_by("invoice_id", "position").values_list(*LINE):
        rows[row[0]].append(row)
    subjects = [f"{period.month} {team}" for team in teams]
    approvals = AuditEntry.objects.filter(action="invoice_approve", subject__in=subjects).order_by("id")
    approved = {(entry.subject, entry.actor): entry.detail for entry in approvals}
    for draft in drafts:
        text: str = draft.draft_text  # type: ignore[attr-defined]  # annotated by the caller's query
        lines = invoice_lines(charges.get((draft.team.code, draft.shadow), []))
        detail = approved.get((f"{period.month} {draft.team.code}", draft.approved_by))
        difference = _from_approval(draft, text, detail) or _from_charges(draft, text, lines, rows[draft.pk])
        if difference:
            yield draft, difference


def _from_approval(draft: Invoice, text: str, detail: dict[str, Any] | None) -> Message | None:
    if draft.approved_by == UNREVIEWED:
        return None
    if detail is None:
        return Message("the audit log has no approval by %(actor)s", actor=draft.approved_by)
    if detail.get("sha256") not in (None, document_hash(text)):
        return Message(
            "its text is not the one that %(actor)s approved, with a total of %(total)s",
            actor=draft.approved_by, total=detail["total"],
        )
    return None


def _from_charges(draft: Invoice, text: str, lines: list[Line], rows: list[tuple[Any, ...]]) -> Message | None:
    said = msgspec.json.decode(text, type=DraftText)
    total = total_of(lines)
    for found in (amount_text(draft.total), said.total):
        if found != amount_text(total):
            return Message("its total is %(found)s, its charges come to %(total)s", found=found, total=amount_text(total))
    if len(said.lines) != len(lines) or len(rows) != len(lines):
        return Message(
            "it has %(found)s lines and its text %(said)s, its charges give %(lines)s",
            found=len(rows), said=len(said.lines), lines=len(lines),
        )
    for line, written, row in zip(lines, said.lines, rows, strict=True):
        due = line.document_line()
        known = {name: getattr(written, name) for name in FROM_FACTORS}
        if written != msgspec.structs.replace(due, **known) or row != line_row(draft.pk, line):
            return Message(
                "its line %(position)s of %(sku)s is not the one of its charge, %(amount)s",
                position=line.position, sku=due.sku, amount=due.amount,
            )
    return None
