"""PURE: charges of one team -> the lines, subtotals and total of its invoice, and the canonical document.

Rounding happens once per line, inside `Charge.amount`; the total is the sum of the rounded lines.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from billing.runtime.canonical_json import canonical_json
from metering.intervals import Interval
from pricing.contexts import SEPARATOR, class_and_context, in_order
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import round_to
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

SCHEMA = "suanpan/invoice/1"


class Line(msgspec.Struct, frozen=True):
    """Line as stated by the document; `quantity` is shown with 6 decimals, `amount` is computed from the exact quantity."""

    position: int
    charge: Charge
    quantity: Decimal
    amount: Decimal
    energy_kwh: Decimal | None
    co2_location_kg: Decimal | None = None
    co2_market_kg: Decimal | None = None

    @property
    def key(self) -> LineKey:
        return self.charge.key

    def document_line(self) -> "DocumentLine":
        """Return the line in the form of the canonical document."""
        key = self.charge.key
        priced = key.token_class
        token_class, context = class_and_context(priced) if SEPARATOR in priced else (priced, "")
        location, market = self.co2_location_kg, self.co2_market_kg
        carbon = (UNSET, UNSET) if location is None or market is None else (energy_text(location), energy_text(market))
        return DocumentLine(  # positional: takes a third of the time of keywords
            self.position, key.kind, key.cluster or None, key.namespace or None, key.consumer or None,
            key.accelerator or None, key.sku, token_class or None, quantity_text(self.quantity), key.unit,
            price_text(self.charge.unit_price), amount_text(self.amount), key.price_version, key.policy or None,
            key.reason or None, key.charge_period, "Correction" if key.correction else None, energy_or_none(self.energy_kwh),
            context or UNSET, *carbon,
        )  # fmt: skip


class DocumentLine(msgspec.Struct, frozen=True, gc=False):
    """Line of a document: null if a field does not apply, UNSET if older documents lack the field.

    Numbers are texts of `pricing.number_text`.
    """

    position: int
    kind: str
    cluster: str | None
    namespace: str | None
    consumer: str | None
    accelerator: str | None
    sku: str
    token_class: str | None
    quantity: str
    unit: str
    unit_price: str
    amount: str
    price_version: str
    policy: str | None
    reason: str | None
    charge_period: str
    charge_class: str | None
    energy_kwh: str | None
    context: str | UnsetType = UNSET
    co2_location_kg: str | UnsetType | None = UNSET
    co2_market_kg: str | UnsetType | None = UNSET


def token_class_fields(priced: str) -> dict[str, str | None]:
    """Return the token class of a line, and `context`, its bucket of prompt lengths, if the price depends on it."""
    token_class, context = class_and_context(priced)
    return {"token_class": token_class or None, **({"context": context} if context else {})}


def energy_or_none(energy_kwh: Decimal | None) -> str | None:
    """Return the text of energy, None if unknown."""
    return None if energy_kwh is None else energy_text(energy_kwh)


def invoice_lines(charges: Iterable[Charge]) -> list[Line]:
    """Return lines in the order of the document: regular before corrections, then by kind and name."""
    return [
        Line(
            position=position,
            charge=charge,
            quantity=charge.rounded_quantity(QUANTITY_PLACES),
            amount=charge.amount,
            energy_kwh=_rounded(charge.energy_kwh) if charge.key.what.takes_energy else None,
            co2_location_kg=_rounded(charge.carbon.location_kg) if charge.carbon else None,
            co2_market_kg=_rounded(charge.carbon.market_kg) if charge.carbon else None,
        )
        for position, charge in enumerate(sorted(charges, key=_order), start=1)
    ]


def _order(charge: Charge) -> tuple[Any, ...]:
    key = charge.key
    # buckets of prompt lengths sort by length, not as text
    if SEPARATOR in key.token_class:
        key = key.changed(token_class=in_order(key.token_class))
    return (key.correction, key.charge_period if key.correction else "", key.what.order, key)


def _rounded(energy: Fraction | Decimal | None) -> Decimal | None:
    return None if energy is None else round_to(energy, ENERGY_PLACES)


def total_of(lines: Sequence[Line]) -> Decimal:
    return sum((line.amount for line in lines), Decimal("0.00"))


ISSUER_FACTS = ("legal_entity", "address", "tax_id", "contact")
RECIPIENT_FACTS = ("legal_entity", "attention", "cost_centers")


def non_empty(party: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return those facts of a party that are not empty: documents made before a fact existed keep their bytes."""
    return {name: party[name] for name in names if party.get(name)}


def issuer_facts(setup: Any) -> dict[str, str]:
    """Return the issuer's facts in the billing set-up, beside its name."""
    return non_empty({name: getattr(setup, name) for name in ISSUER_FACTS}, ISSUER_FACTS)


def recipient_facts(team: Any, legal_entity: str) -> dict[str, Any]:
    """Return the facts of a team beside its name and cost centres, with its legal entity at the time."""
    return non_empty({"legal_entity": legal_entity, "attention": team.recipient}, RECIPIENT_FACTS)


@dataclass(frozen=True, slots=True)
class InvoiceParties:
    """Facts that an invoice copies, so that it never changes when they do.

    `issuer_facts` (legal_entity, address, tax_id, contact) and `recipient_facts` (legal_entity, attention, and
    `cost_centers`: `value` and `valid_from` of each if the time of its usage has several, of which `cost_center` is the
    last): those that are set. A document has no field for a fact that is not set, so that older ones keep their bytes.
    """

    issuer: str
    team: str
    team_name: str
    cost_center: str
    currency: str
    month: str
    zone: str
    window: Interval
    shadow: bool = False
    issuer_facts: Mapping[str, str] = field(default_factory=dict)
    recipient_facts: Mapping[str, Any] = field(default_factory=dict)


def draft_document(parties: InvoiceParties, lines: Sequence[Line]) -> dict[str, Any]:
    """Return the document without its number and predecessor; each line as DocumentLine, for `canonical_json`."""
    by_kind: dict[str, Decimal] = {}
    for line in lines:
        by_kind[line.key.kind] = by_kind.get(line.key.kind, Decimal("0.00")) + line.amount
    energy, location, market = (
        _sum_of(getattr(line, name) for line in lines) for name in ("energy_kwh", "co2_location_kg", "co2_market_kg")
    )
    carbon = {} if location is None or market is None else {
        "co2_location_kg": energy_text(location), "co2_market_kg": energy_text(market)
    }  # fmt: skip
    return {
        **({"shadow": True} if parties.shadow else {}),
        "schema": SCHEMA,
        "issuer": {"name": parties.issuer, **parties.issuer_facts},
        "recipient": {
            "team": parties.team,
            "name": parties.team_name,
            "cost_center": parties.cost_center,
            **parties.recipient_facts,
        },
        "period": period_facts(parties.month, parties.zone, parties.window),
        "currency": parties.currency,
        "lines": [line.document_line() for line in lines],
        "subtotals": [{"kind": kind, "amount": amount_text(amount)} for kind, amount in by_kind.items()],
        "total": amounts_text(line.amount for line in lines),
        "energy_kwh": energy_or_none(energy),
        **carbon,  # absent if unknown: older documents keep their bytes
    }


def _sum_of(values: Iterable[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return sum(known, Decimal(0)) if known else None


def period_facts(month: str, zone: str, window: Interval) -> dict[str, str]:
    """Return the billing period as documents state it: local bounds with their offset, and in UTC."""
    local = window.in_zone(zone)
    return {
        "month": month,
        "zone": zone,
        "start": local[0].isoformat(),
        "end": local[1].isoformat(),
        "start_utc": window.start.isoformat().replace("+00:00", "Z"),
        "end_utc": window.end.isoformat().replace("+00:00", "Z"),
    }


def numbered_document(draft: dict[str, Any], *, number: str, previous_sha256: str) -> dict[str, Any]:
    """Return the invoice: the draft with its number and the hash of the previous document in the series."""
    return {**draft, "number": number, "previous_sha256": previous_sha256 or None}


def numbered_text(draft: str, *, number: str, previous_sha256: str) -> str:
    """Return the canonical text of the invoice from the text of its draft, whose values are copied unparsed.

    >>> numbered_text('{"lines":[1],"total":"1.00"}', number="A-1", previous_sha256="")
    '{"lines":[1],"number":"A-1","previous_sha256":null,"total":"1.00"}'
    """
    fields: dict[str, Any] = msgspec.json.decode(draft, type=dict[str, Raw])
    return canonical_json(numbered_document(fields, number=number, previous_sha256=previous_sha256))


def hours_shown(microseconds: Decimal | Fraction) -> Decimal:
    """Convert device-microseconds to GPU-hours with 6 decimals; the amount of a line never follows from it."""
    return round_to(Fraction(microseconds) / MICROSECONDS_PER_HOUR, QUANTITY_PLACES)
