"""Prices of slices that follow their card: the cost of each slice when the price of the card changes.

A MIG slice pays for the larger of its shares of compute and of memory (`pricing.mig`); any other slice keeps its share of
the card's price, rounded up, so that neither undercuts the card. A slice without a known share stays as it is published,
with the reason.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from django.utils.translation import gettext

from metering.accelerators import MIG
from pricing.fields import Bound, exact_number
from pricing.mig import MigProfileError, share_of_price, slice_fraction, slice_list_price
from pricing.money import exact_decimal

SLICE_HOUR: Final = "price_per_slice_hour"
MEMORY_IN_NAME: Final = re.compile(r"(?:^|[-_ ])([0-9]{2,4})GB(?:$|[-_ ])", re.IGNORECASE)
MEMORY: Final = Bound("1", "9999", "GB of a whole card", whole=True)
USUAL_MEMORY: Final = 80
"""Default memory in GB, that of the cards most often cut into slices, if neither the page nor the name has it."""


@dataclass(frozen=True, slots=True)
class SlicePrice:
    """Slice of the newest list. `price` follows the card's; None keeps the published price, with the reason in `note`."""

    accelerator: str
    resource: str
    published: Decimal
    price: Decimal | None
    share: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """Card on the workbench: its new price, its published price (or None), and the memory of a whole card in GB."""

    accelerator: str
    price: Decimal
    published: Decimal | None
    memory_gb: int


def memory_of(accelerator: str, written: str) -> int:
    """Return the GB of a whole card: as typed, else as in its name, else the default.

    >>> memory_of("NVIDIA-A100-SXM4-40GB", ""), memory_of("NVIDIA-H200", "141"), memory_of("NVIDIA-H800", "")
    (40, 141, 80)
    """
    number = exact_number(written)
    if number is not None and MEMORY.holds(number):
        return int(number)
    named = MEMORY_IN_NAME.search(accelerator)
    return int(named.group(1)) if named else USUAL_MEMORY


def slice_prices(rows: Sequence[Mapping[str, str]], card: Card) -> list[SlicePrice]:
    """Return the slices of the card in the rows of a list, each with the price that follows from the card's.

    A slice that names no accelerator is the card's only if the list has no other card.
    """
    others = {row.get("accelerator") for row in rows if not row.get("resource")} - {card.accelerator, None}
    return [
        _follow(row, card, alone=not others)
        for row in rows
        if SLICE_HOUR in row and row.get("resource") and row.get("accelerator", "") in ("", card.accelerator)
    ]


def _follow(row: Mapping[str, str], card: Card, *, alone: bool) -> SlicePrice:
    accelerator, resource, published = row.get("accelerator", ""), row["resource"], Decimal(row[SLICE_HOUR])
    if not accelerator and not alone:
        note = gettext("stays: it names no accelerator, and the list has several")
        return SlicePrice(accelerator, resource, published, None, note=note)
    profile = MIG.search(resource)
    if profile is None:
        return _keeping_its_share(accelerator, resource, published, card)
    try:
        share = slice_fraction(profile.group(1), card.memory_gb, card.accelerator)
        price = slice_list_price(card.price, profile.group(1), card.memory_gb, card.accelerator)
    except MigProfileError:
        note = gettext("stays: it does not fit on a card of %(memory)d GB") % {"memory": card.memory_gb}
        return SlicePrice(accelerator, resource, published, None, note=note)
    return SlicePrice(accelerator, resource, published, price, f"{share.numerator}/{share.denominator}")


def _keeping_its_share(accelerator: str, resource: str, published: Decimal, card: Card) -> SlicePrice:
    if not card.published:
        note = gettext("stays: the card has no published price to compare with")
        return SlicePrice(accelerator, resource, published, None, note=note)
    price = share_of_price(published, card.published, card.price)
    percent = Fraction(published) / Fraction(card.published) * 100
    return SlicePrice(accelerator, resource, published, price, f"{exact_decimal(percent, 2)} %")


def with_slices(rows: Iterable[Mapping[str, str]], slices: Iterable[SlicePrice]) -> list[dict[str, str]]:
    """Return the rows of a list with the slices at the prices that follow from the card."""
    found = {(item.accelerator, item.resource): item.price for item in slices if item.price is not None}
    moved = []
    for row in rows:
        price = found.get((row.get("accelerator", ""), row.get("resource", "")))
        moved.append({**row, **({} if price is None else {SLICE_HOUR: format(price, "f")})})
    return moved
