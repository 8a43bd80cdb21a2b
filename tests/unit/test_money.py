"""Money: two roundings, splits that add up, and no float anywhere."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing.money import (
    MoneyError,
    exact_decimal,
    round_amount,
    round_price,
    round_to,
    round_together,
    split_amount,
)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (Decimal("2.665"), "2.67"), (Decimal("-2.665"), "-2.67"), (Decimal("2.6649999999999999999999999999"), "2.66"),
        (Fraction(1, 3), "0.33"), (5, "5.00"), (Decimal("-0.004"), "0.00"), (Decimal("0.005"), "0.01"),
        (Decimal("-0.005"), "-0.01"), (Decimal("1E+3"), "1000.00"),
    ],
)  # fmt: skip
def test_a_line_is_rounded_half_up_away_from_zero(value: Any, rounded: str) -> None:
    assert str(round_amount(value)) == rounded


def test_large_amounts_are_not_rounded_to_28_digits() -> None:
    assert str(round_amount(Decimal("12345678901234567890123456789012345.675"))) == "12345678901234567890123456789012345.68"


@pytest.mark.parametrize("function", [round_amount, round_price, exact_decimal])
@pytest.mark.parametrize("value", [0.1, 1.0, float("nan"), True, "1", None])
def test_a_float_or_text_is_a_type_error(function: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        function(value)


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity"), Decimal("sNaN")])
def test_what_is_no_number_is_refused(value: Decimal) -> None:
    with pytest.raises(MoneyError, match="is not a number"):
        round_amount(value)


def test_a_cost_is_shown_with_twelve_decimals_and_no_exponent() -> None:
    assert exact_decimal(Fraction(450, 73)) == "6.164383561644"
    assert exact_decimal(Fraction(1, 10**13)) == "0.000000000000"
    assert exact_decimal(Decimal("1E+20"), 1) == "100000000000000000000.0"


def test_parts_rounded_together_add_up_to_the_rounded_sum() -> None:
    thirds = [Fraction(1, 3)] * 3
    assert [str(part) for part in round_together(thirds, 2)] == ["0.34", "0.33", "0.33"]
    assert round_together([], 2) == []
    assert round_together([Fraction(0), Fraction(2, 3)], 0) == [Decimal(0), Decimal(1)]
    with pytest.raises(MoneyError, match="must not be negative"):
        round_together([-1], 2)


def test_a_zero_weight_gets_nothing_even_of_the_rest() -> None:
    shares = split_amount(Decimal("0.02"), [0, 1, 1, 1])
    assert [str(share) for share in shares] == ["0.00", "0.01", "0.01", "0.00"]


def test_weights_of_any_exact_kind_split() -> None:
    assert split_amount(Decimal("1.00"), [Decimal("0.5"), Fraction(1, 2)]) == [Decimal("0.50"), Decimal("0.50")]


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [2, -1]])
def test_weights_that_split_nothing_are_refused(weights: list[int]) -> None:
    with pytest.raises(MoneyError, match="must not be negative"):
        split_amount(Decimal("1.00"), weights)


def test_only_a_rounded_amount_is_split() -> None:
    with pytest.raises(MoneyError, match=r"1\.005 has more than 2 decimals"):
        split_amount(Decimal("1.005"), [1])


def test_a_float_weight_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="float"):
        split_amount(Decimal("1.00"), [0.5, 0.5])  # type: ignore[list-item]


def test_rounding_to_no_decimals() -> None:
    assert round_to(Fraction(5, 2), 0) == Decimal(3)
