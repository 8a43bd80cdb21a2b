"""The fast rounding of a quotient is the plain one."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import MoneyError, round_part, round_to


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=12),
    st.sampled_from([1, 3, 1_000_000, 3_600_000_000]),
    st.sampled_from([2, 4, 6]),
)
def test_a_part_is_rounded_as_its_fraction(value: Decimal, divisor: int, places: int) -> None:
    assert str(round_part(value, divisor, places)) == str(round_to(Fraction(value) / divisor, places))


@given(st.integers(-(10**9), 10**9))
def test_halves_go_away_from_zero(count: int) -> None:
    half = Decimal(2 * count + 1) / 2  # so many and a half hundredths
    expected = Decimal(count + 1 if count >= 0 else count) / 100
    assert round_part(half, 100, 2) == expected


@pytest.mark.parametrize("text", ["NaN", "Infinity"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(MoneyError, match="is not a number"):
        round_part(Decimal(text), 1, 2)


EXACT_PLACES = st.sampled_from([2, 4, 6])
ANY = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**50), max_value=10**50, places=12)


@given(ANY, ANY.filter(bool), EXACT_PLACES)
def test_a_ratio_is_rounded_as_its_fraction(value: Decimal, divisor: Decimal, places: int) -> None:
    assert str(round_part(value, divisor, places)) == str(round_to(Fraction(value) / Fraction(divisor), places))


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9), st.sampled_from([-1, 0, 1]))
def test_a_ratio_next_to_a_half_is_rounded_to_its_own_side(count: int, divisor: int, beside: int) -> None:
    """As near to a half as a ratio of such a divisor can be, and 10**60 times as near."""
    for scale in (1, 10**60):
        value = (2 * count + 1) * divisor * scale + beside  # over 200 x divisor x scale: so many and a half hundredths
        ratio = round_part(Decimal(value), Decimal(200 * divisor * scale), 2)
        assert ratio == round_to(Fraction(value, 200 * divisor * scale), 2)
