"""Content of an invoice or note: typed form of ``suanpan/invoice/1`` and ``suanpan/note/1``.

The canonical JSON (and its SHA-256) is made at the issue; here it is only read. Missing keys mean null, unknown keys are
ignored, so a later document with more facts still renders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from pricing.money import round_amount

SCHEMA = "suanpan/invoice/1"
NOTE_SCHEMA = "suanpan/note/1"
CORRECTION = "Correction"
MARKS: Final[Mapping[str, str | None]] = {
    "draft": "draft", "preview": "draft", "approved": "draft", "issued": None, "disputed": None, "settled": None,
    "void": "void",
}  # fmt: skip
"""Mark of a document by its state. A dispute or a settlement is not printed: an issued file keeps its bytes."""


class DocumentError(ValueError):
    """Error of a document that cannot be rendered; the message names the document and the value."""


class UnbalancedDocumentError(DocumentError):
    """Error of a document whose sums are not the sums of its lines."""


class Issuer(msgspec.Struct, frozen=True):
    name: str
    legal_entity: str | None = None
    address: str | None = None
    tax_id: str | None = None
    contact: str | None = None


class DatedCenter(msgspec.Struct, frozen=True):
    """Cost centre from a local time on; the first of a document from its beginning."""

    value: str
    valid_from: str | None = None


class Recipient(msgspec.Struct, frozen=True):
    team: str
    name: str | None = None
    cost_center: str | None = None
    cost_centers: tuple[DatedCenter, ...] = ()
    legal_entity: str | None = None
    attention: str | None = None


class Period(msgspec.Struct, frozen=True):
    """Half-open billing period: ``start`` belongs to it, ``end`` does not."""

    month: str
    zone: str
    start: str
    end: str
    start_utc: str
    end_utc: str


class Credited(msgspec.Struct, frozen=True):
    """Line that a line of a note credits; without document it is in the note itself."""

    position: int
    document: str | None = None


class Reference(msgspec.Struct, frozen=True):
    """Invoice that a note corrects."""

    number: str
    month: str


class Reason(msgspec.Struct, frozen=True):
    """Reason of a note."""

    code: str
    text: str


class Line(msgspec.Struct, frozen=True):
    """Charge line. ``amount`` is already rounded; it is printed, never recomputed from quantity and price."""

    position: int
    kind: str
    quantity: Decimal | None
    unit: str
    unit_price: Decimal | None
    amount: Decimal
    cluster: str | None = None
    namespace: str | None = None
    consumer: str | None = None
    sku: str | None = None
    token_class: str | None = None
    context: str | None = None
    price_version: str | None = None
    policy: str | None = None
    reason: str | None = None
    charge_class: str | None = None
    charge_period: str | None = None
    jobs: int | None = None
    energy_kwh: Decimal | None = None
    co2_location_kg: Decimal | None = None
    co2_market_kg: Decimal | None = None
    style: str | None = None
    credits: Credited | None = None

    @property
    def is_correction(self) -> bool:
        return self.charge_class == CORRECTION

    @property
    def credited_line(self) -> str | None:
        """Return the line that a line of a note credits, as `AI-INFRA-2026-000001 #3`."""
        if self.credits is None:
            return None
        return f"{self.credits.document or ''} #{self.credits.position}".strip()


class Subtotal(msgspec.Struct, frozen=True):
    kind: str
    amount: Decimal


class Invoice(msgspec.Struct, frozen=True):
    """Invoice or note as printed. ``number`` is null until issue; only a note has a reason."""

    schema: str
    issuer: Issuer
    recipient: Recipient
    period: Period
    currency: str
    lines: tuple[Line, ...]
    subtotals: tuple[Subtotal, ...]
    total: Decimal
    number: str | None = None
    previous_sha256: str | None = None
    energy_kwh: Decimal | None = None
    co2_location_kg: Decimal | None = None
    co2_market_kg: Decimal | None = None
    kind: str = "invoice"
    shadow: bool = False
    reason: Reason | None = None
    invoice: Reference | None = None


def known_facts(party: Issuer | Recipient, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return name and value of the facts of a party that the document has; older documents have none of them."""
    return [(name, value) for name in names if (value := getattr(party, name))]


def cost_centers_text(recipient: Recipient) -> str:
    """Return the cost centre of a document; of several, each with its local beginning.

    >>> moved = DatedCenter("CC-211", "2026-10-11T00:00:00+08:00")
    >>> cost_centers_text(Recipient("nlp", cost_center="CC-211", cost_centers=(DatedCenter("CC-210"), moved)))
    'CC-210 · 2026-10-11 00:00 CC-211'
    """
    if not recipient.cost_centers:
        return recipient.cost_center or ""
    return " · ".join(
        f"{datetime.fromisoformat(center.valid_from):%Y-%m-%d %H:%M} {center.value or '—'}" if center.valid_from
        else center.value or "—" for center in recipient.cost_centers
    )  # fmt: skip


def mark_of(status: str) -> str | None:
    """Return the mark `draft` before the issue, `void` for a void draft, None for an issued document.

    Raises ValueError for an unknown status, so that a new one is never printed as if it were issued.
    """
    if status not in MARKS:
        raise ValueError(f"status {status!r}: no rule says how such a document is marked")
    return MARKS[status]


def mark_on(status: str, *, shadow: bool) -> str | None:
    """Return the mark of a document: a shadow is always marked as one, since it is never owed."""
    mark = mark_of(status)
    return "shadow" if shadow and mark != "void" else mark


def read_document(document: Mapping[str, Any]) -> Invoice:
    """Return the canonical document as immutable types, checked to add up.

    Raises DocumentError for another schema, a missing or mistyped key, or a number that is not finite, and
    UnbalancedDocumentError if lines, subtotals and total disagree: a sheet that does not add up is never printed.
    """
    try:
        invoice = msgspec.convert(document, Invoice)
    except msgspec.ValidationError as error:
        raise DocumentError(f"invoice {document.get('number')!r}: {error}") from error
    if invoice.schema not in (SCHEMA, NOTE_SCHEMA):
        raise DocumentError(f"invoice {invoice.number!r}: schema {invoice.schema!r}, expected {SCHEMA!r}")
    _require_finite(invoice)
    _require_balance(invoice)
    return invoice


def sum_of(lines: Iterable[Line]) -> Decimal:
    """Return the sum of amounts, with the decimals of an amount also for no lines."""
    return sum((line.amount for line in lines), round_amount(0))


def lines_of(invoice: Invoice, kind: str) -> tuple[Line, ...]:
    """Return the lines of one kind: current usage first, corrections of earlier periods last, each in order of position."""
    lines = (line for line in invoice.lines if line.kind == kind)
    return tuple(sorted(lines, key=lambda line: (line.is_correction, line.position)))


def _require_finite(invoice: Invoice) -> None:
    for line in invoice.lines:
        for value in (line.quantity, line.unit_price, line.amount):
            if value is not None and not value.is_finite():
                raise DocumentError(f"invoice {invoice.number!r} line {line.position}: {value} is not a number")


def _require_balance(invoice: Invoice) -> None:
    stated = {subtotal.kind: subtotal.amount for subtotal in invoice.subtotals}
    counted: dict[str, Decimal] = {kind: round_amount(0) for kind in stated}
    for line in invoice.lines:
        counted[line.kind] = counted.get(line.kind, round_amount(0)) + line.amount
    if stated != counted or sum_of(invoice.lines) != invoice.total:
        raise UnbalancedDocumentError(
            f"invoice {invoice.number!r}: lines give {counted}, total {sum_of(invoice.lines)};"
            f" stated {stated}, total {invoice.total}"
        )
