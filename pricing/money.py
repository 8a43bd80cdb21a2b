"""Money and its two roundings, half up away from zero: list price (4 decimals), invoice line (decimals of its currency).

PURE but for one fact: amounts have the decimals of the one currency that an installation bills in, set once by
`amounts_in` when the billing setup is read; 2 until then.

Binary floats are refused everywhere: 0.1 is not a tenth.
"""

import re
from collections.abc import Sequence
from decimal import ROUND_05UP, ROUND_HALF_UP, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from functools import cache
from math import lcm
from typing import Final

from pricing.currencies import decimals_of

PRICE_PLACES: Final = 4
COST_PLACES: Final = 12
CURRENCY: Final = re.compile(r"[A-Z]{3}\Z")

EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
"""Arithmetic that is exact or raises: the default 28 digits would round a large pool's month silently."""

Number = Decimal | int | Fraction


_decimals = {"amounts": 2}


def amounts_in(currency: str) -> None:
    """Set the currency of all amounts of this process: JPY has no decimals, CNY has 2.  Raises CurrencyError."""
    _decimals["amounts"] = decimals_of(currency)


def amount_places() -> int:
    """Return the decimals of an amount of money."""
    return _decimals["amounts"]


def smallest_amount() -> Decimal:
    """Return one cent, or one unit of a currency without decimals."""
    return last_place(amount_places())


class MoneyError(ValueError):
    """Amounts that cannot be combined, or weights that cannot split an amount."""


def fraction_of(value: Number) -> Fraction:
    """Convert `value` to an exact rational.  Raises TypeError for a float, MoneyError for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | Fraction):
        raise TypeError(f"{value!r} is a {type(value).__name__}: money takes Decimal, int or Fraction")
    if isinstance(value, Decimal) and not value.is_finite():
        raise MoneyError(f"{value} is not a number")
    return Fraction(value)


def exact_sum(one: Decimal | Fraction, other: Decimal | Fraction) -> Decimal | Fraction:
    """Add without loss; two decimals give a decimal, many times faster than fractions.

    >>> exact_sum(Decimal("0.1"), Decimal("0.2")), exact_sum(Decimal("0.5"), Fraction(1, 3))
    (Decimal('0.3'), Fraction(5, 6))
    """
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return EXACT.add(one, other)
    return Fraction(one) + Fraction(other)


def exact_product(one: Decimal | Fraction, other: Decimal | Fraction) -> Decimal | Fraction:
    """Multiply without loss; two decimals give a decimal."""
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return EXACT.multiply(one, other)
    return Fraction(one) * Fraction(other)


def round_to(value: Number, places: int) -> Decimal:
    """Round to `places` decimals, half up away from zero, so that a credit mirrors its charge.

    >>> round_to(Decimal("2.665"), 2), round_to(Decimal("-2.665"), 2), round_to(Fraction(20, 3), 4)
    (Decimal('2.67'), Decimal('-2.67'), Decimal('6.6667'))
    """
    exact = fraction_of(value)
    scaled = abs(exact) * 10**places
    units = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return EXACT.scaleb(Decimal(-units if exact < 0 else units), -places)


def round_part(value: Decimal, divisor: int | Decimal, places: int) -> Decimal:
    """Divide and round to `places` decimals as `round_to` does, several times as fast.

    >>> round_part(Decimal("9433"), 450, 2), round_part(Decimal("-5"), 1000, 2), round_part(Decimal("5"), 1000, 2)
    (Decimal('20.96'), Decimal('-0.01'), Decimal('0.01'))
    """
    if not value.is_finite():
        raise MoneyError(f"{value} is not a number")
    rounded = _HALF_UP.quantize(_CUT_OFF.divide(value, divisor), last_place(places))
    return rounded if rounded else rounded.copy_abs()  # zero has no sign


_CUT_OFF: Final = Context(prec=80, rounding=ROUND_05UP, traps=[InvalidOperation, DivisionByZero, Overflow])
_HALF_UP: Final = Context(prec=70, rounding=ROUND_HALF_UP, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Contexts of a division with one correct rounding: ROUND_05UP never lets cut-off digits end in 0 or 5, so that the second
rounding, to fewer digits, gives the exact result. Results of more than 70 digits raise InvalidOperation."""


@cache
def last_place(places: int) -> Decimal:
    """Return one unit of the last of so many decimals."""
    return EXACT.scaleb(Decimal(1), -places)


def round_amount(value: Number) -> Decimal:
    """Round an amount to the decimals of its currency.

    >>> round_amount(Fraction(9433, 450) * 10)
    Decimal('209.62')
    """
    return round_to(value, amount_places())


def round_price(value: Number) -> Decimal:
    """Round a list price to 4 decimals.

    >>> round_price(Fraction(20, 3))
    Decimal('6.6667')
    """
    return round_to(value, PRICE_PLACES)


def exact_decimal(value: Number, places: int = COST_PLACES) -> str:
    """Format a cost for display: fixed decimals, no exponent. Never an input of further arithmetic.

    >>> exact_decimal(Fraction(450, 73)), exact_decimal(0, 4)
    ('6.164383561644', '0.0000')
    """
    return format(round_to(value, places), "f")


def round_together(values: Sequence[Number], places: int) -> list[Decimal]:
    """Round parts so that they add up to the rounded sum of `values`; each is within one last digit of its value.

    Parts are not negative. Where rounding each part separately already adds up, that is the result.

    >>> round_together([Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)], 2)
    [Decimal('0.34'), Decimal('0.33'), Decimal('0.33')]
    """
    exact = [fraction_of(value) * 10**places for value in values]
    if any(value < 0 for value in exact):
        raise MoneyError(f"parts {[str(value) for value in values]} must not be negative")
    whole = round_to(sum(exact, Fraction(0)), 0)
    shares = _largest_remainder([divmod(value, 1) for value in exact], int(whole))
    return [EXACT.scaleb(Decimal(share), -places) for share in shares]


def _largest_remainder(divided: Sequence[tuple[int, Number]], whole: int) -> list[int]:
    """Return integers that add up to `whole`, each a floor or one more, by remainder; ties go to the earlier one."""
    shares = [floor for floor, _ in divided]
    by_remainder = sorted(range(len(divided)), key=lambda index: (-divided[index][1], index))
    for index in by_remainder[: whole - sum(shares)]:
        shares[index] += 1
    return shares


def split_amount(total: Number, weights: Sequence[Number], places: int | None = None) -> list[Decimal]:
    """Split a rounded amount in proportion to `weights` by largest remainder; the shares add up to `total`.

    `places`: decimals of the shares, those of amounts where it is None.
    Ties go to the earlier share; a negative total gives the mirrored shares.

    >>> split_amount(Decimal("100.00"), [1, 1, 1])
    [Decimal('33.34'), Decimal('33.33'), Decimal('33.33')]
    """
    places = amount_places() if places is None else places
    units = fraction_of(total) * 10**places
    if units.denominator != 1:
        raise MoneyError(f"total {total} has more than {places} decimals")
    parts = _as_integers(weights)
    whole = sum(parts)
    if whole <= 0 or min(parts) < 0:
        raise MoneyError(f"weights {[str(weight) for weight in weights]} must not be negative and sum above zero")
    sign = -1 if units < 0 else 1
    shares = split_units(abs(units.numerator), parts)
    return [EXACT.scaleb(Decimal(sign * share), -places) for share in shares]


def split_units(units: int, weights: Sequence[int]) -> list[int]:
    """Split whole units in proportion to whole weights by largest remainder; ties go to the earlier share.

    Neither units nor weights are negative, and not all weights are zero.

    >>> split_units(100, [1, 1, 1])
    [34, 33, 33]
    """
    whole = sum(weights)
    return _largest_remainder([divmod(units * weight, whole) for weight in weights], units)


def _as_integers(weights: Sequence[Number]) -> list[int]:
    """Scale weights to whole numbers in the same proportions: these split several times as fast as fractions."""
    ratios = []
    for weight in weights:
        # a finite Decimal has as_integer_ratio itself; `fraction_of` refuses floats, NaN and infinity
        exact = fraction_of(weight) if not isinstance(weight, Decimal) or not weight.is_finite() else weight
        ratios.append(exact.as_integer_ratio())
    common = lcm(*{denominator for _, denominator in ratios})
    return [numerator * (common // denominator) for numerator, denominator in ratios]
