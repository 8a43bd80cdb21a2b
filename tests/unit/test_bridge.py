"""Why a month is more than the last: the effects by hand, and that they always add up."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.portal.bridge import Effect, bridge_of
from billing.portal.statements import StatementLine
from pricing.rating import LineKey


def line(sku: str, quantity: str, amount: str, kind: str = "gpu", *, late: bool = False) -> StatementLine:
    key = LineKey("nlp", False, late, "2026-10", kind, sku=sku, unit="GPU-Hours")
    return StatementLine(key, 1, Decimal(quantity), Decimal(0), Decimal(amount), None)


def test_each_cause_gets_its_part() -> None:
    """A800: 120 hours at 11 instead of 100 at 10: 120 x 1 by price, the other 200 by use."""
    before = [line("A800", "60", "600.00"), line("A800", "40", "400.00"), line("llama", "10", "20.00", "tokens"),
              line("A800", "5", "-5.00", "efficiency")]  # fmt: skip
    after = [line("A800", "120", "1320.00"), line("H800", "5", "50.00"), line("A800", "5", "12.00", "efficiency"),
             line("A800", "1", "7.00", late=True)]  # fmt: skip

    bridge = bridge_of(before, after)

    assert (bridge.before, bridge.after, bridge.change) == (Decimal("1015.00"), Decimal("1389.00"), Decimal("374.00"))
    assert bridge.effects == [
        Effect("price", Decimal("120.00")), Effect("usage", Decimal("200.00")), Effect("begun", Decimal("50.00")),
        Effect("ended", Decimal("-20.00")), Effect("efficiency", Decimal("17.00")), Effect("late", Decimal("7.00")),
    ]  # fmt: skip
    assert [(item.sku, item.price, item.usage) for item in bridge.items] == [
        ("A800", Decimal("120.00"), Decimal("200.00")), ("H800", Decimal("0.00"), Decimal("50.00")),
        ("llama", Decimal("0.00"), Decimal("-20.00")),
    ]  # fmt: skip


CENTS = st.integers(1, 10**9).map(lambda cents: f"{Decimal(cents) / 100:.2f}")
LINES = st.lists(
    st.builds(line, st.sampled_from(["A", "B"]), CENTS, CENTS,
              st.sampled_from(["gpu", "tokens", "efficiency", "interruption"]), late=st.booleans()), max_size=8,
)  # fmt: skip


@given(LINES, LINES)
def test_the_effects_are_the_whole_change(before: list[StatementLine], after: list[StatementLine]) -> None:
    bridge = bridge_of(before, after)

    assert sum((effect.amount for effect in bridge.effects), Decimal(0)) == bridge.change
