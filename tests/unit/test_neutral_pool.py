"""A revenue-neutral pool over lines of any size: what penalties leave is paid to the cent, and never more than promised."""

from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.neutral_pool import Payout, paid_out, payout_of
from pricing.rating import Charge, LineKey

HOUR = 3_600_000_000


def line(namespace: str, hours: str, unit_price: str) -> Charge:
    key = LineKey("nlp", False, False, "2026-10", "efficiency", "hq-1", namespace, unit="GPU-Hours", policy="p")
    return Charge(key, Decimal(hours) * HOUR, Decimal(unit_price))


def amounts(charges: list[Charge], payout: Payout | None) -> list[str]:
    assert payout is not None
    return [str(charge.amount) for charge in paid_out(charges, payout)]


def test_six_thousand_of_penalties_pay_six_thousand_of_nine() -> None:
    """D10: 9,000 GPU-hours at 10 are the base of 90,000; 1/15 of it is paid."""
    charges = [line("a", "3000", "2"), line("b", "9000", "-1")]
    payout = payout_of(charges)
    assert payout == Payout(Decimal("6000.00"), Fraction(2, 3))
    assert amounts(charges, payout) == ["6000.00", "-6000.00"]
    assert paid_out(charges, Payout(Decimal("6000.00"), Fraction(2, 3)))[1].unit_price == Decimal("-0.6666666666666667")


def test_the_last_cents_go_to_the_largest_remainders_in_a_tie_to_the_earlier_line() -> None:
    """0.50 over 1, 1 and 1 promised: 0.16 2/3 each, two cents are left; over 3, 2 and 2: 0.2142..., 0.1428..., 0.1428..."""
    even = [line("p", "1", "0.5"), line("c", "1", "-1"), line("a", "1", "-1"), line("b", "1", "-1")]
    assert amounts(even, payout_of(even)) == ["0.50", "-0.17", "-0.17", "-0.16"]
    uneven = [line("p", "1", "0.5"), line("a", "3", "-1"), line("b", "2", "-1"), line("c", "2", "-1")]
    assert amounts(uneven, payout_of(uneven)) == ["0.50", "-0.22", "-0.14", "-0.14"]


def test_penalties_are_counted_as_they_are_billed() -> None:
    """Two lines of 0.005 are billed 0.01 each: 0.02 is there to be paid, not 0.01."""
    charges = [line("a", "0.005", "1"), line("b", "0.005", "1"), line("c", "1", "-1")]
    assert amounts(charges, payout_of(charges)) == ["0.01", "0.01", "-0.02"]


@pytest.mark.parametrize("penalty", ["1", "1.01"])
def test_enough_penalties_pay_in_full_and_the_rest_stays_with_the_platform(penalty: str) -> None:
    assert payout_of([line("a", "1", penalty), line("b", "1", "-1")]) is None


def test_rewards_that_round_up_are_paid_from_what_is_there() -> None:
    """Promised are 2 x 0.005, billed 0.02; 0.01 is there: together it is paid, although it covers the exact promise."""
    charges = [line("a", "1", "0.01"), line("b", "0.005", "-1"), line("c", "0.005", "-1")]
    payout = payout_of(charges)
    assert payout == Payout(Decimal("0.01"), Fraction(1))
    assert amounts(charges, payout) == ["0.01", "-0.01", "0.00"]


def test_a_pool_without_rewards_keeps_its_penalties() -> None:
    assert payout_of([line("a", "1", "1")]) is None
    assert payout_of([]) is None
