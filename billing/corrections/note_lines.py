"""PURE: lines, sums and text of notes from the lines of issued documents that they correct.

A credit note reverses a line with its quantity and price, so that it mirrors the charge to the cent; a rebill charges
the same usage again, correctly. An allowance credits an amount of a line and leaves its usage alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.invoices.lines import energy_or_none, token_class_fields
from metering.messages import UserError
from pricing.meters import line_kind
from pricing.money import Number, round_to, split_amount
from pricing.number_text import (
    ENERGY_PLACES,
    QUANTITY_PLACES,
    amount_text,
    amounts_text,
    energy_text,
    price_text,
    quantity_text,
)
from pricing.rating import Charge, LineKey

SCHEMA = "suanpan/note/1"
REVERSAL, WITHDRAWAL, ALLOWANCE, REBILL = "reversal", "withdrawal", "allowance", "rebill"
CREDIT_KIND = "credit"
CO2_FIELDS = "co2_location_kg", "co2_market_kg"
Co2 = tuple[Decimal, Decimal]
ZERO = Decimal("0.00")


class NoteError(UserError, ValueError):
    """Correction that cannot be made as requested."""

    code = "correction"


@dataclass(frozen=True, slots=True)
class BilledLine:
    """Charged line: `document` and `position` are its place, `close_seq` its close, `key` what it charges.

    Quantity, price and amount are as printed; `usage_quantity` is the exact usage in base units. `document` None is the
    note that has the line; `row` is the stored row. `co2`: its kilograms, by the average of the grid and by contracts.
    """

    document: str | None
    position: int
    close_seq: int
    key: LineKey
    quantity: Decimal
    unit_price: Decimal
    amount: Decimal
    usage_quantity: Decimal
    facility_kw: Decimal | None = None
    energy_kwh: Decimal | None = None
    change_seq: int = 0
    row: Any = field(default=None, compare=False)
    co2: Co2 | None = None


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """Line of a note. `of` is the line that it credits; a rebill has none."""

    style: str
    key: LineKey
    close_seq: int
    amount: Decimal
    quantity: Decimal | None = None
    unit_price: Decimal | None = None
    usage_quantity: Decimal | None = None
    facility_kw: Decimal | None = None
    energy_kwh: Decimal | None = None
    change_seq: int = 0
    of: BilledLine | None = None
    co2: Co2 | None = None

    @property
    def kind(self) -> str:
        """Return the kind of the line in the document: a credited amount is of kind `credit`, whatever line it is of."""
        return CREDIT_KIND if self.style in (ALLOWANCE, WITHDRAWAL) else self.key.kind

    def as_dict(self, position: int) -> dict[str, Any]:
        """Return the line of the canonical document: the fields of an invoice line, and the credited line."""
        key = self.key
        return {
            "position": position,
            "style": self.style,
            "kind": self.kind,
            "cluster": key.cluster or None,
            "namespace": key.namespace or None,
            "consumer": key.consumer or None,
            "accelerator": key.accelerator or None,
            "sku": key.sku,
            **token_class_fields(key.token_class),
            "quantity": None if self.quantity is None else quantity_text(self.quantity),
            "unit": key.unit,
            "unit_price": None if self.unit_price is None else price_text(self.unit_price),
            "amount": amount_text(self.amount),
            "price_version": key.price_version,
            "policy": key.policy or None,
            "reason": key.reason or None,
            "charge_period": key.charge_period,
            "charge_class": "Correction",
            "energy_kwh": energy_or_none(self.energy_kwh),
            **co2_fields(self.co2),
            "credits": None if self.of is None else {"document": self.of.document, "position": self.of.position},
        }


def co2_fields(co2: Co2 | None) -> dict[str, str]:
    """Return the fields of kilograms of CO2, as on invoices; none where they are unknown."""
    return {} if co2 is None else {name: energy_text(kg) for name, kg in zip(CO2_FIELDS, co2, strict=True)}


def co2_of(line: Mapping[str, Any]) -> Co2 | None:
    """Return the kilograms of CO2 that a line of a document states."""
    location, market = (line.get(name) for name in CO2_FIELDS)
    return None if location is None or market is None else (Decimal(location), Decimal(market))


def reversal(line: BilledLine) -> NoteEntry:
    """Reverse a whole line: the same quantity, price and amount with the other sign (F07).

    Zero stays zero: a line of amount 0 has no negative amount.
    """
    return NoteEntry(
        REVERSAL, line.key, line.close_seq, _negative(line.amount), quantity=_negative(line.quantity),
        unit_price=line.unit_price, usage_quantity=line.usage_quantity, facility_kw=line.facility_kw,
        energy_kwh=None if line.energy_kwh is None else _negative(line.energy_kwh), change_seq=line.change_seq, of=line,
        co2=None if line.co2 is None else (_negative(line.co2[0]), _negative(line.co2[1])),
    )  # fmt: skip


def _negative(value: Decimal) -> Decimal:
    return -value if value else abs(value)


def withdrawal(line: BilledLine, credited: Decimal) -> NoteEntry:
    """Cancel earlier credits of a line (`credited`, negative), because the line itself is reversed."""
    return NoteEntry(WITHDRAWAL, line.key, line.close_seq, -credited, change_seq=line.change_seq, of=line)


def allowance(
    line: BilledLine, amount: Decimal, *, quantity: Decimal | None = None, unit_price: Decimal | None = None
) -> NoteEntry:
    """Credit `amount` (positive) of a line; quantity and price may explain it (F18), usage stays unchanged."""
    return NoteEntry(
        ALLOWANCE, line.key, line.close_seq, -amount, quantity=None if quantity is None else -quantity,
        unit_price=unit_price, change_seq=line.change_seq, of=line,
    )  # fmt: skip


def rebill(charge: Charge, close_seq: int, change_seq: int) -> NoteEntry:
    """Build the correct charge for usage that close `close_seq` billed first.

    `change_seq`: the last change of closed time that its price and owner include.
    """
    energy, carbon = charge.energy_kwh if charge.key.what.takes_energy else None, charge.carbon
    return NoteEntry(
        REBILL, charge.key, close_seq, charge.amount, quantity=round_to(charge.quantity, QUANTITY_PLACES),
        unit_price=charge.unit_price, usage_quantity=charge.usage_quantity, facility_kw=charge.facility_kw,
        energy_kwh=None if energy is None else round_to(energy, ENERGY_PLACES), change_seq=change_seq,
        co2=None if carbon is None else _rounded(carbon.location_kg, carbon.market_kg),
    )  # fmt: skip


def _rounded(location_kg: Number, market_kg: Number) -> Co2:
    return round_to(location_kg, ENERGY_PLACES), round_to(market_kg, ENERGY_PLACES)


def rebilled_line(line: BilledLine, *, unit_price: Decimal | None, usage_quantity: Decimal | None) -> NoteEntry:
    """Build the line again at another price, or with other usage, as given by a person; CO2 follows the usage."""
    charge = Charge(
        line.key, line.usage_quantity if usage_quantity is None else usage_quantity,
        line.unit_price if unit_price is None else unit_price, line.facility_kw,
    )  # fmt: skip
    entry = rebill(charge, line.close_seq, line.change_seq)
    if line.co2 is None or not line.usage_quantity:
        return entry
    share = Fraction(charge.usage_quantity) / Fraction(line.usage_quantity)
    return replace(entry, co2=_rounded(*(share * Fraction(kg) for kg in line.co2)))


def credit_kept(credit: Decimal, charged: Sequence[Decimal]) -> list[Decimal]:
    """Split a credit (positive) over lines that are billed instead, in proportion and at most up to their amounts.

    >>> [str(part) for part in credit_kept(Decimal("90.00"), [Decimal("30.00"), Decimal("20.00")])]
    ['30.00', '20.00']
    """
    most = [max(amount, ZERO) for amount in charged]
    total = sum(most, ZERO)
    # never more than the new charge: the rest would be money that the team never paid
    return split_amount(min(credit, total), most) if total and credit else [ZERO for _ in charged]


STYLE_ORDER = {WITHDRAWAL: 0, REVERSAL: 1, REBILL: 2, ALLOWANCE: 3}


def ordered(entries: Sequence[NoteEntry]) -> list[NoteEntry]:
    """Sort entries in the order of the document: by month of usage, kind and name."""
    return sorted(
        entries,
        key=lambda entry: (entry.key.charge_period, line_kind(entry.kind).order, STYLE_ORDER[entry.style],
                           entry.key, entry.close_seq),
    )  # fmt: skip


def total_of_entries(entries: Sequence[NoteEntry]) -> Decimal:
    return sum((entry.amount for entry in entries), ZERO)


def note_draft(header: Mapping[str, Any], entries: Sequence[NoteEntry]) -> dict[str, Any]:
    """Return the content of a note without period, number and predecessor.

    `header`: the copied facts, so that the note never changes with them: kind, issuer, recipient, currency, reason, and the
    invoice that it corrects (number, sha256, month) or None.
    """
    lines = [entry.as_dict(position) for position, entry in enumerate(entries, start=1)]
    kinds = list(dict.fromkeys(line["kind"] for line in lines))
    energies = [entry.energy_kwh for entry in entries if entry.energy_kwh is not None]
    stated = [entry.co2 for entry in entries if entry.co2 is not None]
    co2 = (sum((kg for kg, _ in stated), Decimal(0)), sum((kg for _, kg in stated), Decimal(0))) if stated else None
    return {
        "schema": SCHEMA,
        **{name: header[name] for name in ("kind", "issuer", "recipient", "currency", "reason", "invoice")},
        "lines": lines,
        "subtotals": [
            {"kind": kind, "amount": amounts_text(entry.amount for entry in entries if entry.kind == kind)}
            for kind in kinds
        ],
        "total": amounts_text(entry.amount for entry in entries),
        "energy_kwh": energy_text(sum(energies, Decimal(0))) if energies else None,
        **co2_fields(co2),
    }


def note_document(
    draft: Mapping[str, Any], *, period: Mapping[str, str], number: str, previous_sha256: str
) -> dict[str, Any]:
    """Return the note: the draft with the period of its issue, its number and the hash of the previous note."""
    return {**draft, "period": dict(period), "number": number, "previous_sha256": previous_sha256 or None}
