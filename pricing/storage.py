"""PURE: storage by tier and requests by class. TB are decimal; a month's share is the mean of the bytes over its time."""

from fractions import Fraction
from typing import Final

from pricing.money import Number, fraction_of

BYTES_PER_TB: Final = 10**12
REQUESTS_PER_PRICE: Final = 1000


def tb_months(byte_seconds: int, month_seconds: int) -> Fraction:
    """Mean stored TB over the elapsed month.

    >>> tb_months(3 * 10**12 * 1_339_200, 2_678_400)
    Fraction(3, 2)
    """
    return Fraction(byte_seconds, month_seconds * BYTES_PER_TB)


def storage_fee(amount_tb_months: Number, price_per_tb_month: Number) -> Fraction:
    """Fee = TB-months x price of the tier, exact; the line rounds it once.

    >>> storage_fee(1350, 23)
    Fraction(31050, 1)

    Source: FS11.
    """
    return fraction_of(amount_tb_months) * fraction_of(price_per_tb_month)


def request_fee(requests: int, price_per_1000: Number) -> Fraction:
    """Fee = requests x price of 1000 of their class: writes cost more than ten times what reads do.

    >>> request_fee(2_500_000_000, 4), request_fee(0, 4)
    (Fraction(10000000, 1), Fraction(0, 1))

    Source: FS11.
    """
    return Fraction(requests, REQUESTS_PER_PRICE) * fraction_of(price_per_1000)
