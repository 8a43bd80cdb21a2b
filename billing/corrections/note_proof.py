"""Proof of an issued note, built again from the documents that it corrects and the usage that it charges."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from billing.corrections.credited_lines import facts_of, given, month_of_close, row_key
from billing.corrections.effect import effect_of
from billing.corrections.note_lines import (
    BilledLine,
    NoteEntry,
    allowance,
    co2_of,
    note_document,
    note_draft,
    rebill,
    reversal,
    withdrawal,
)
from billing.invoices.models import Correction, InvoiceLine, Note, NoteLine
from billing.invoices.selectors import document_of
from pricing.money import round_to
from pricing.number_text import QUANTITY_PLACES
from pricing.rating import Charge


def note_again(note: Note) -> dict[str, Any]:
    """Build the document of a note again from the lines that it corrects; quantities and amounts are recomputed.

    Reversals mirror the line in the text of the corrected document, rebills price the exact usage again.
    """
    months = month_of_close()
    rows = note.lines.order_by("position").select_related(
        "invoice_line__invoice__team", "note_line__note__team", "invoice_line__invoice__period"
    )
    entries = [_entry(note, row, months) for row in rows]
    period = note.correction.period
    if period is None:
        raise ValueError(f"note {note.pk} is not issued: there is nothing to prove")
    draft = note_draft({**note.draft, "kind": note.kind}, entries)
    return note_document(draft, number=str(note.number), previous_sha256=note.previous_sha256, period=facts_of(period))


def _entry(note: Note, row: NoteLine, months: dict[int, str]) -> NoteEntry:
    if row.style == NoteLine.Style.REBILL:
        key = row_key(row, note.team.code, correction=row.charge_period != months[row.close_seq])
        charge = Charge(key, given(row.usage_quantity), given(row.unit_price), row.facility_kw)
        # the factors of CO2 may have changed since
        return replace(rebill(charge, row.close_seq, row.change_seq), co2=co2_of(_drafted(note, row)))
    line = _corrected(note, row, months)
    if row.style == NoteLine.Style.REVERSAL:
        return reversal(line)
    if row.style == NoteLine.Style.WITHDRAWAL:
        return withdrawal(line, -row.amount)
    quantity = None if row.quantity is None else -row.quantity
    return allowance(line, -row.amount, quantity=quantity, unit_price=row.unit_price)


def _drafted(note: Note, row: NoteLine) -> Mapping[str, Any]:
    return next((line for line in note.draft["lines"] if line["position"] == row.position), {})


def _corrected(note: Note, row: NoteLine, months: dict[int, str]) -> BilledLine:
    """Return the line that a row credits, with the figures in the text of its document."""
    stored = row.invoice_line or row.note_line
    if stored is None:
        raise ValueError(f"line {row.position} of {note.number}: takes from no line")
    document: Any = stored.invoice if isinstance(stored, InvoiceLine) else stored.note
    # an allowance may credit a rebill of its own note, whose text then names no document
    own = document.pk == note.pk and isinstance(stored, NoteLine)
    printed = next(line for line in document_of(document)["lines"] if line["position"] == stored.position)
    correction = row.charge_period != months[row.close_seq]
    return BilledLine(
        document=None if own else str(document.number), position=stored.position, close_seq=row.close_seq,
        key=row_key(stored, document.team.code, correction=correction), quantity=Decimal(printed["quantity"]),
        unit_price=Decimal(printed["unit_price"]), amount=Decimal(printed["amount"]),
        usage_quantity=given(row.usage_quantity) if row.style == NoteLine.Style.REVERSAL else Decimal("0"),
        facility_kw=row.facility_kw,
        energy_kwh=None if printed["energy_kwh"] is None else Decimal(printed["energy_kwh"]),
        # notes of before state no CO2
        co2=None if co2_of(_drafted(note, row)) is None else co2_of(printed),
    )  # fmt: skip


def correction_follows(correction: Correction) -> bool:
    """Return True if the charges of a correction follow from its change of closed time, or if there is none.

    Reversals are compared as documents print them: a line may have been billed again by hand as its close printed it.
    """
    if correction.change is None:
        return True
    moved = effect_of(correction.change).moved
    rows = list(NoteLine.objects.filter(note__correction=correction).select_related("note__team"))
    months = month_of_close()

    def line(row: NoteLine) -> tuple[Any, ...]:
        return row.close_seq, row_key(row, row.note.team.code, correction=row.charge_period != months[row.close_seq])

    taken = Counter((*line(row), -given(row.quantity)) for row in rows if row.style == NoteLine.Style.REVERSAL)
    billed = Counter(
        (*line(row), row.usage_quantity, row.unit_price) for row in rows if row.style == NoteLine.Style.REBILL
    )
    return taken == Counter(
        (item.close_seq, one.key, round_to(one.quantity, QUANTITY_PLACES)) for item in moved for one in item.before
    ) and billed == Counter(
        (item.close_seq, one.key, one.usage_quantity, one.unit_price) for item in moved for one in item.after
    )
