"""PURE: text of numbers in documents, journals and exports: one text per value.

The text follows from the value and the scale of its field alone, never from the digits that the decimal carries: 0, -0,
0.00 and 0E-12 are one number and one text. A document written again from the same values has the same bytes, however the
values were stored in between.
"""

from collections.abc import Iterable
from decimal import Decimal, Inexact
from functools import lru_cache
from typing import Final

from pricing.money import EXACT, PRICE_PLACES, MoneyError, Number, amount_places, last_place, round_to

QUANTITY_PLACES: Final = 6
ENERGY_PLACES: Final = 3


def fixed_text(value: Decimal, places: int) -> str:
    """Format `value` with exactly `places` decimals, never an exponent, zero without a sign; it is not rounded.

    Raises MoneyError where it has more decimals than the field.

    >>> fixed_text(Decimal("-0.0"), 2), fixed_text(Decimal("0E-12"), 6), fixed_text(Decimal("1E+2"), 3)
    ('0.00', '0.000000', '100.000')
    """
    try:
        exact = EXACT.quantize(value, last_place(places))
    except Inexact:
        raise MoneyError(f"{value} has more than {places} decimals") from None
    # -0 would print as -0.00
    return format(exact if exact else exact.copy_abs(), "f")


def amount_text(value: Decimal) -> str:
    """Format an amount with the decimals of its currency."""
    return fixed_text(value, amount_places())


def grouped_amount(value: Decimal) -> str:
    """Format an amount for people, thousands separated."""
    return f"{Decimal(amount_text(value)):,}"


def quantity_text(value: Decimal) -> str:
    """Format a quantity in its pricing unit: 6 decimals."""
    return fixed_text(value, QUANTITY_PLACES)


def energy_text(value: Decimal) -> str:
    """Format energy in kWh, or kilograms of CO2: 3 decimals."""
    return fixed_text(value, ENERGY_PLACES)


def amounts_text(values: Iterable[Decimal]) -> str:
    """Format the sum of amounts; 0 for none."""
    return amount_text(sum(values, Decimal(0)))


@lru_cache(maxsize=4096)
def price_text(price: Decimal) -> str:
    """Format a price with the four decimals of the price list, or more where an adjustment needs them.

    >>> price_text(Decimal("10")), price_text(Decimal("0.12345600")), price_text(Decimal("-0"))
    ('10.0000', '0.123456', '0.0000')
    """
    exponent = EXACT.normalize(price).as_tuple().exponent
    return fixed_text(price, max(PRICE_PLACES, -exponent if isinstance(exponent, int) else 0))


def plain_text(value: Decimal) -> str:
    """Format a number without a fixed scale, such as hours of a contract: as many decimals as needed, never an exponent.

    >>> plain_text(Decimal("7.50")), plain_text(Decimal("1E+3")), plain_text(Decimal("-0.00"))
    ('7.5', '1000', '0')
    """
    return format(EXACT.normalize(value) if value else Decimal(0), "f")


def short_text(value: Number, places: int) -> str:
    """Round a number to `places` and format it without trailing zeros, for sentences and tables.

    >>> short_text(Decimal("0.125"), 2), short_text(100, 4)
    ('0.13', '100')
    """
    return plain_text(round_to(value, places))
