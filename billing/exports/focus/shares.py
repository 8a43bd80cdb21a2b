"""PURE: split of an invoice line into parts by hour, job and site, which add up to the line to the last digit.

Amount, quantity and energy of the line are already rounded; each is split by largest remainder in proportion to the
exact usage, ties to the earlier part (F16). List cost is price x quantity of the part, not rounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from billing.rating.grains import Place
from metering.intervals import Interval
from pricing.meters import Role, line_kind
from pricing.money import EXACT, split_amount
from pricing.number_text import ENERGY_PLACES, QUANTITY_PLACES
from pricing.rate_card import MILLION_TOKENS

HOUR = timedelta(hours=1)
TOKENS_PER_UNIT = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of an efficiency line for one job."""

    mfu: Decimal | None
    hfu: Decimal | None
    coverage: Decimal


class Share(NamedTuple):
    """Part of a line; quantities are null on an adjustment, which has no price of its own."""

    start: datetime
    end: datetime
    place: Place
    amount: Decimal
    list_cost: Decimal
    quantity: Decimal | None
    consumed: Decimal | None
    energy_kwh: Decimal | None
    co2_kg: Decimal | None = None


def shares_of(line: Mapping[str, Any], places: Mapping[Place, Decimal], window: Interval) -> list[Share]:
    """Split a document's line into parts, in order of time; `places` are base units, `window` its month of usage.

    An hour that the month cuts, as in zones with half-hour offsets, ends with the month.
    """
    ordered = sorted(places)
    weights = [places[place] for place in ordered]
    amounts = split_amount(Decimal(line["amount"]), weights)
    nothing: list[Decimal | None] = [None] * len(ordered)
    priced = is_usage(line)
    quantities = [*split_amount(Decimal(line["quantity"]), weights, QUANTITY_PLACES)] if priced else nothing
    energies, emissions = (
        nothing if text is None else [*split_amount(Decimal(text), weights, ENERGY_PLACES)]
        for text in (line["energy_kwh"], line.get("co2_location_kg"))
    )
    price = Decimal(line["unit_price"]) if priced else None
    return [
        Share(
            max(start, window.start), min(place.until or start + HOUR, window.end), place, amount,
            _list_cost(price, quantity, amount), quantity, _consumed(line, quantity), kwh, co2_kg,
        )
        for place, amount, quantity, kwh, co2_kg in zip(ordered, amounts, quantities, energies, emissions, strict=True)
        for start in (place.start or window.start,)
    ]  # fmt: skip


def is_usage(line: Mapping[str, Any]) -> bool:
    """Return True if the line charges (or reverses) usage; a line that only changes an amount has no quantity of its own."""
    return line_kind(line["kind"]).role is Role.USAGE


def _list_cost(price: Decimal | None, quantity: Decimal | None, amount: Decimal) -> Decimal:
    """Return FOCUS list cost: price x quantity where there is a price, else the billed amount."""
    return amount if price is None or quantity is None else EXACT.multiply(price, quantity)


def _consumed(line: Mapping[str, Any], quantity: Decimal | None) -> Decimal | None:
    """Return the consumed quantity: tokens are priced by the million and consumed one by one; else as priced."""
    if quantity is None or line["unit"] != MILLION_TOKENS:
        return quantity
    return EXACT.multiply(quantity, TOKENS_PER_UNIT)
