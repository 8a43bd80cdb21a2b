"""PURE: price of a MIG slice, which is its own SKU and counted in slice-hours.

A slice pays for the larger of its shares of compute and of memory: nobody else can use the rest. Most cards have seven
slices of compute and eight of memory; A30 and RTX PRO 6000 have four of each, RTX PRO 5000 and 4500 two
(`metering.accelerators.mig_slices`).
"""

import re
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Final

from metering.accelerators import mig_slices
from pricing.money import EXACT, PRICE_PLACES, Number, fraction_of, round_price

PROFILE: Final = re.compile(r"([1-7])g\.([0-9]{1,4})gb(?:[.+][a-z.+]+)?\Z")
MEMORY_SLICES: Final = {7: 8, 4: 4, 2: 2}
"""Memory slices of a card, by its compute slices.  Source: NVIDIA MIG user guide, supported profiles."""
SMALLEST_STEP: Final = Decimal(1).scaleb(-PRICE_PLACES)


class MigProfileError(ValueError):
    """Text that is no MIG profile, or a profile that does not fit on its card."""


def slice_fraction(profile: str, card_memory_gb: int = 80, product: str = "") -> Fraction:
    """Return the fraction of the card = max(compute / 7, memory / 8), or max(compute / 4, memory / 4) with four slices.

    Profiles name memory in rounded GB (1g.18gb of 141 GB is one eighth), so it is rounded to whole slices. `product`: of
    the card, where the profile alone does not say how many slices it has.

    >>> slice_fraction("1g.20gb"), slice_fraction("3g.40gb"), slice_fraction("1g.18gb", 141), slice_fraction("1g.6gb", 24)
    (Fraction(1, 4), Fraction(1, 2), Fraction(1, 7), Fraction(1, 4))

    Raises MigProfileError.  Source: FE9; docs.nvidia.com MIG user guide; NCSA Delta charges the larger share as well.
    """
    match = PROFILE.match(profile)
    if match is None:
        raise MigProfileError(f"MIG profile {profile!r} must be written like 3g.40gb")
    compute_slices = mig_slices(f"{match.group(1)}g.{match.group(2)}gb", product)
    if compute_slices is None:
        raise MigProfileError(f"MIG profile {profile!r} does not fit on {product or 'a card that it names beyond doubt'}")
    memory_slices = MEMORY_SLICES[compute_slices]
    memory = (2 * memory_slices * int(match.group(2)) + card_memory_gb) // (2 * card_memory_gb)
    if not 1 <= memory <= memory_slices or int(match.group(1)) > compute_slices:
        raise MigProfileError(f"MIG profile {profile!r} does not fit on a card of {card_memory_gb} GB")
    return max(Fraction(int(match.group(1)), compute_slices), Fraction(memory, memory_slices))


def slice_list_price(full_price: Number, profile: str, card_memory_gb: int = 80, product: str = "") -> Decimal:
    """Return the list price of a slice-hour; slices that fill a card never cost less than the card.

    >>> slice_list_price(12, "1g.10gb"), slice_list_price(Decimal("10.0001"), "1g.10gb")
    (Decimal('1.7143'), Decimal('1.4286'))

    Source: FE9.
    """
    fraction = slice_fraction(profile, card_memory_gb, product)
    price = round_price(fraction_of(full_price) * fraction)
    # only slices of 1/n fill a card exactly: n of them, each rounded down, could cost less than the card
    fills = fraction.numerator == 1
    undercuts = fills and fraction_of(price) * fraction.denominator < fraction_of(full_price)
    return EXACT.add(price, SMALLEST_STEP) if undercuts else price


def share_of_price(slice_price: Number, old_card: Number, new_card: Number) -> Decimal:
    """Scale a slice price with the price of the card, rounded up to list places: slices never undercut the card.

    >>> share_of_price(Decimal("2.5000"), 10, 11), share_of_price(Decimal("3.3334"), 10, 11)
    (Decimal('2.7500'), Decimal('3.6668'))

    Source: FE9, shared slices.
    """
    exact = fraction_of(slice_price) / fraction_of(old_card) * fraction_of(new_card)
    return EXACT.scaleb(Decimal(ceil(exact * 10**PRICE_PLACES)), -PRICE_PLACES)
