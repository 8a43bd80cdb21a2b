"""Page layout of the invoice: the plain data that the Typst template places.

Order, grouping, words and figures (as strings) are decided here; the template only places them. Text from outside
reaches the template as JSON strings, never as Typst source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from billing.invoices.documents.content import Invoice, Line, Period, cost_centers_text, known_facts, lines_of, sum_of
from billing.invoices.documents.fitting import is_one_line
from billing.invoices.documents.labels import (
    KINDS,
    MARKS,
    NOTE_REASONS,
    REASONS,
    SENTENCES,
    STYLES,
    TITLES,
    TOKEN_CLASSES,
    UNITS,
    WORDS,
    Label,
    Language,
    choose,
    inline,
    named,
)
from billing.invoices.documents.text import figure, fragments, visible
from pricing.meters import line_kind

MISSING = "–"
SMALLEST_ABACUS = 9
COLUMNS_OF_A_ROW = ("position", "item", "place", "quantity", "unit", "unit_price", "price_version", "amount")
ROWS_SHOWN_FOR = {
    "gpu": ("sku", "place"),
    "commitment": ("sku", "place"),
    "tokens": ("model", "consumer"),
    "efficiency": ("adjustment", "basis"),
    "interruption": ("adjustment", "basis"),
    "idle": ("sku", "place"),
    "shared": ("item", "place"),
}


@dataclass(frozen=True)
class Printing:
    """Facts of a print that the invoice lacks: hash, issue time, language, mark, end of the dispute window."""

    sha256: str | None
    issued_at: datetime | None
    language: Language
    mark: str | None
    due: datetime | None = None


@dataclass(frozen=True)
class Wording:
    """Words of one language, and names escaped for print."""

    language: Language
    undisplayable: Collection[str]

    def word(self, key: str) -> Label:
        return choose(WORDS[key], self.language)

    def code(self, table: dict[str, tuple[str, str]], key: str) -> Label:
        return [self.text(part) for part in named(table, key, self.language)]

    def text(self, value: str) -> str:
        return visible(value, self.undisplayable)

    def name(self, value: str | None) -> list[str]:
        """Return a name from outside as pieces between which it may break; a dash for None."""
        return fragments(self.text(value)) if value else [MISSING]


def page_content(invoice: Invoice, printing: Printing, undisplayable: Collection[str] = ()) -> dict[str, Any]:
    """Return the data of one document for ``templates/invoice/invoice.typ``: strings, lists, dicts, booleans and null."""
    wording = Wording(printing.language, undisplayable)
    sections = [_section(invoice, subtotal.kind, wording) for subtotal in invoice.subtotals]
    return {
        "language": printing.language,
        "labels": {key: wording.word(key) for key in WORDS} | {"invoice": wording.word(TITLES[invoice.kind])},
        "sentences": {key: choose(pair, printing.language) for key, pair in SENTENCES.items()},
        "mark": None if printing.mark is None else choose(MARKS[printing.mark], printing.language),
        "mark_kind": printing.mark,
        "number": wording.text(invoice.number) if invoice.number else None,
        "issuer": wording.name(invoice.issuer.name),
        "issuer_facts": _labelled(known_facts(invoice.issuer, ("legal_entity", "address", "tax_id", "contact")), wording),
        "recipient": _recipient(invoice, wording),
        "facts": _facts(invoice, printing, wording),
        "month": wording.text(invoice.period.month),
        "currency": wording.text(invoice.currency),
        "total": figure(invoice.total),
        "total_negative": invoice.total < 0,
        "abacus": abacus_digits(invoice),
        "sections": sections,
        "energy": _energy(invoice),
        "sha256": printing.sha256,
        "previous_sha256": invoice.previous_sha256,
    }


def _energy(invoice: Invoice) -> str | None:
    """Return energy, and its emissions by the average of the grid and by contract, if known."""
    if invoice.energy_kwh is None:
        return None
    energy = f"{figure(invoice.energy_kwh)} kWh"
    if invoice.co2_location_kg is None or invoice.co2_market_kg is None:
        return energy
    return f"{energy}, CO₂ {figure(invoice.co2_location_kg)} kg (location), {figure(invoice.co2_market_kg)} kg (market)"


def abacus_digits(invoice: Invoice) -> list[int]:
    """Return the total in the smallest unit of currency, one digit per rod, at least nine rods.

    The mark at the head of the invoice is an abacus set to its total.
    """
    digits = abs(invoice.total).as_tuple().digits
    return [0] * (SMALLEST_ABACUS - len(digits)) + list(digits)


def _recipient(invoice: Invoice, wording: Wording) -> dict[str, Any]:
    recipient = invoice.recipient
    return {
        "name": wording.name(recipient.name or recipient.team),
        "facts": [
            {"label": wording.word("team"), "value": wording.name(recipient.team)},
            {"label": wording.word("cost_center"), "value": wording.name(cost_centers_text(recipient))},
            *_labelled(known_facts(recipient, ("legal_entity", "attention")), wording),
        ],
    }


def _labelled(facts: Iterable[tuple[str, str]], wording: Wording) -> list[dict[str, Any]]:
    return [{"label": wording.word(name), "value": wording.name(value)} for name, value in facts]


def _facts(invoice: Invoice, printing: Printing, wording: Wording) -> list[dict[str, Any]]:
    period = invoice.period
    at_issue = inline(wording.word("at_issue"))
    rows = (
        ("number", wording.name(invoice.number) if invoice.number else [at_issue]),
        ("issue_date", [issue_date(printing.issued_at, period) or at_issue]),
        *([("dispute_until", [last_day(printing.due, period)])] if printing.due else []),
        ("month", [wording.text(f"{period.month}  ({period.zone})")]),
        ("bounds", [f"{_moment(period.start)} – {_moment(period.end)}"]),
        ("bounds_utc", [f"{_moment(period.start_utc)} – {_moment(period.end_utc)}"]),
        ("currency", [wording.text(invoice.currency)]),
        *_note_facts(invoice, wording),
    )
    return [{"label": wording.word(key), "value": value} for key, value in rows]


def _note_facts(invoice: Invoice, wording: Wording) -> list[tuple[str, list[str]]]:
    """Return for a note the invoice that it corrects, and the reason."""
    facts: list[tuple[str, list[str]]] = []
    if invoice.invoice is not None:
        facts.append(("corrects_invoice", wording.name(invoice.invoice.number)))
    if invoice.reason is not None:
        code = inline(wording.code(NOTE_REASONS, invoice.reason.code))
        facts.append(("note_reason", [code, " – ", *wording.name(invoice.reason.text)]))
    return facts


def issue_date(issued_at: datetime | None, period: Period) -> str | None:
    """Return the local day of the issue; None before it."""
    return None if issued_at is None else f"{issued_at.astimezone(ZoneInfo(period.zone)):%Y-%m-%d}"


def last_day(due: datetime, period: Period) -> str:
    """Return the last local day before `due`, which is the midnight after it."""
    return f"{(due - timedelta(microseconds=1)).astimezone(ZoneInfo(period.zone)):%Y-%m-%d}"


def _moment(timestamp: str) -> str:
    return f"{datetime.fromisoformat(timestamp):%Y-%m-%d %H:%M}"


def _section(invoice: Invoice, kind: str, wording: Wording) -> dict[str, Any]:
    lines = lines_of(invoice, kind)
    corrections = sum_of([line for line in lines if line.is_correction])
    item, place = ROWS_SHOWN_FOR.get(kind, ("item", "scope"))
    return {
        "title": wording.code(KINDS, kind),
        "columns": [wording.word(item), wording.word(place)],
        "rows": [_row(line, wording) for line in lines if not line.is_correction],
        "corrections": [_row(line, wording) for line in lines if line.is_correction],
        "corrections_amount": figure(corrections),
        "corrections_negative": corrections < 0,
        "subtotal": figure(sum_of(lines)),
        "negative": sum_of(lines) < 0,
    }


def _row(line: Line, wording: Wording) -> dict[str, Any]:
    """Return the text of each column; names are unbroken if the row fits one line."""
    row = _laid(line, wording)
    names = {column: "".join(row[column]) for column in ("item", "place", "unit", "price_version")}
    texts = {**row, **names}
    single = not (row["lead"] or row["item_notes"] or row["notes"]) and is_one_line(
        [texts[column] for column in COLUMNS_OF_A_ROW], inline(row["tag"])
    )
    return row | {"is_one_line": single} | ({column: [name] for column, name in names.items()} if single else {})


def _laid(line: Line, wording: Wording) -> dict[str, Any]:
    return {
        "position": str(line.position),
        "lead": _lead(line, wording),
        "item": wording.name(line.sku),
        "tag": wording.code(TOKEN_CLASSES, line.token_class) if line.token_class else [],
        "place": _place(line, wording),
        "item_notes": _notes(wording, context=line.context, jobs=None if line.jobs is None else str(line.jobs)),
        "notes": _notes(
            wording,
            **{"commitment" if line_kind(line.kind).bought else "policy": line.policy},
            correction_of=line.charge_period if line.is_correction else None,
            credits_line=line.credited_line,
        ),
        "quantity": MISSING if line.quantity is None else figure(line.quantity),
        "unit": fragments(wording.code(UNITS, line.unit)[-1]),
        "unit_price": MISSING if line.unit_price is None else figure(line.unit_price),
        "price_version": wording.name(line.price_version),
        "amount": figure(line.amount),
        "negative": line.amount < 0,
        "price_negative": line.unit_price is not None and line.unit_price < 0,
    }


def _lead(line: Line, wording: Wording) -> Label:
    """Return the label before an item: what a note does to the line, else the reason of an adjustment (reward, penalty)."""
    style = wording.code(STYLES, line.style) if line.style else []
    return style or (wording.code(REASONS, line.reason.partition(":")[0]) if line.reason else [])


def _place(line: Line, wording: Wording) -> list[str]:
    if line.consumer:
        return wording.name(line.consumer)
    if line.token_class:
        return wording.word("all_consumers")
    known = [part for part in (line.cluster, line.namespace) if part]
    return wording.name(" / ".join(known))


def _notes(wording: Wording, **notes: str | None) -> list[dict[str, Any]]:
    return [{"label": wording.word(key), "value": wording.name(value)} for key, value in notes.items() if value]
