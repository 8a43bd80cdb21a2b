"""Whatever the lines of a revenue-neutral pool are, what it pays is what it took, unless it took more than it promised."""

from decimal import Decimal
from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pricing.neutral_pool import paid_out, payout_of
from pricing.rating import Charge, LineKey

LINES = st.lists(
    st.tuples(st.integers(1, 10**16), st.decimals("-20", "20", places=8).filter(bool)), min_size=1, max_size=12
)


def charges_of(lines: list[tuple[int, Decimal]]) -> list[Charge]:
    return [
        Charge(LineKey("t", False, False, "2026-10", "efficiency", "c", f"n{number}", unit="GPU-Hours"), Decimal(us), price)
        for number, (us, price) in enumerate(lines)
    ]


@given(LINES)
def test_a_pool_pays_what_it_takes_to_the_cent_and_at_most_what_it_promised(lines: list[tuple[int, Decimal]]) -> None:
    charges = charges_of(lines)
    taken = sum((one.amount for one in charges if one.unit_price > 0), Decimal(0))
    promised = -sum((one.amount for one in charges if one.unit_price < 0), Decimal(0))
    payout = payout_of(charges)
    if payout is None:
        assert promised <= taken
        return
    paid = paid_out(charges, payout)
    assert sum((one.amount for one in paid), Decimal(0)) == 0
    assert {one.key for one in paid} == {one.key for one in charges}
    before = {one.key: one for one in charges}
    whole = sum((one.quantity * Fraction(one.unit_price) for one in charges if one.unit_price < 0), Fraction(0))
    for one in paid:
        old = before[one.key]
        if old.unit_price < 0:
            exact = old.quantity * Fraction(old.unit_price) / whole * Fraction(taken)
            assert abs(Fraction(-one.amount) - exact) < Fraction(1, 100)
            assert structs.replace(one, unit_price=old.unit_price) == old
        else:
            assert one == old


@given(LINES, st.randoms())
def test_the_order_of_the_lines_decides_nothing(lines: list[tuple[int, Decimal]], shuffle: Random) -> None:
    charges = charges_of(lines)
    payout = payout_of(charges)
    mixed = list(charges)
    shuffle.shuffle(mixed)
    assert payout_of(mixed) == payout
    if payout is not None:
        paid, again = (sorted(paid_out(one, payout), key=lambda charge: charge.key) for one in (charges, mixed))
        assert paid == again
