"""PURE: money and the only two roundings: price list (4 decimals) and invoice line (2), half up away from zero.

Binary floats are refused everywhere: 0.1 is not a tenth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Final

AMOUNT_PLACES: Final = 2
PRICE_PLACES: Final = 4

EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
"""Arithmetic that is exact or raises: the default 28 digits would round a large pool's month in silence."""

Number = Decimal | int | Fraction


class MoneyError(ValueError):
    """Amounts that cannot be combined, or weights that split nothing."""


def fraction_of(value: Number) -> Fraction:
    """`value` as an exact rational; a float is a TypeError."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | Fraction):
        raise TypeError(f"{value!r} is a {type(value).__name__}: money takes Decimal, int or Fraction")
    if isinstance(value, Decimal) and not value.is_finite():
        raise MoneyError(f"{value} is not a number")
    return Fraction(value)


def round_to(value: Number, places: int) -> Decimal:
    """`value` with `places` decimals, half up away from zero, so that a credit mirrors its charge.

    >>> round_to(Decimal("2.665"), 2), round_to(Decimal("-2.665"), 2), round_to(Fraction(20, 3), 4)
    (Decimal('2.67'), Decimal('-2.67'), Decimal('6.6667'))
    """
    exact = fraction_of(value)
    scaled = abs(exact) * 10**places
    units = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return EXACT.scaleb(Decimal(-units if exact < 0 else units), -places)


def round_amount(value: Number) -> Decimal:
    """An invoice line: 2 decimals."""
    return round_to(value, AMOUNT_PLACES)


def round_price(value: Number) -> Decimal:
    """A list price: 4 decimals."""
    return round_to(value, PRICE_PLACES)


def split_amount(total: Decimal, weights: Sequence[Number], places: int = AMOUNT_PLACES) -> list[Decimal]:
    """Split a rounded amount in proportion to `weights` by largest remainder; the shares add up to `total`.

    Ties go to the earlier share; a negative total gives the mirrored shares.

    >>> split_amount(Decimal("100.00"), [1, 1, 1])
    [Decimal('33.34'), Decimal('33.33'), Decimal('33.33')]
    """
    units = fraction_of(total) * 10**places
    if units.denominator != 1:
        raise MoneyError(f"total {total} has more than {places} decimals")
    parts = [fraction_of(weight) for weight in weights]
    whole = sum(parts, Fraction(0))
    if whole <= 0 or any(part < 0 for part in parts):
        raise MoneyError(f"weights {[str(weight) for weight in weights]} must not be negative and sum above zero")
    exact = [abs(units) * part / whole for part in parts]
    shares = [int(value) for value in exact]
    left = int(abs(units)) - sum(shares)
    by_remainder = sorted(range(len(exact)), key=lambda index: (shares[index] - exact[index], index))
    for index in by_remainder[:left]:
        shares[index] += 1
    sign = -1 if units < 0 else 1
    return [EXACT.scaleb(Decimal(sign * share), -places) for share in shares]


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency. Only amounts of one currency combine."""

    amount: Decimal
    currency: str

    def __post_init__(self) -> None:
        fraction_of(self.amount)

    def __add__(self, other: "Money") -> "Money":
        return Money(EXACT.add(self.amount, self._same(other).amount), self.currency)

    def __sub__(self, other: "Money") -> "Money":
        return Money(EXACT.subtract(self.amount, self._same(other).amount), self.currency)

    def __neg__(self) -> "Money":
        return Money(EXACT.minus(self.amount), self.currency)

    def split(self, weights: Sequence[Number]) -> "list[Money]":
        """Shares by largest remainder that add up to this amount."""
        return [Money(share, self.currency) for share in split_amount(self.amount, weights)]

    def _same(self, other: "Money") -> "Money":
        if other.currency != self.currency:
            raise MoneyError(f"{self.currency} and {other.currency} do not add up")
        return other
