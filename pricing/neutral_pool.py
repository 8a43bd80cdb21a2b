"""PURE: a revenue-neutral pool, in which the penalties of a month pay its rewards, to the cent.

What is to be paid is split over the amounts of the reward lines by largest remainder; a unit price follows from each
amount, never the amount from a rounded multiplier.

Source: FM6, revenue-neutral pool: rate = min(cap, penalties / base), for rewards of any height.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from msgspec import structs

from pricing.efficiency import neutral_pool_share
from pricing.money import round_to, split_amount
from pricing.rating import Charge

UNIT_PRICE_PLACES: Final = 16
"""Enough that a price times its exact quantity, rounded to the cent, is the amount that it was made from, for any month."""


@dataclass(frozen=True, slots=True)
class Payout:
    """What a pool pays where its penalties fall short: all of `paid`, which is the share of what was promised."""

    paid: Decimal
    share: Fraction


def payout_of(charges: Iterable[Charge]) -> Payout | None:
    """What penalties leave to pay, from the lines of one policy with its rewards as promised; None: paid in full."""
    penalties, rewards = _apart(charges)
    paid = sum((charge.amount for charge in penalties), Decimal("0.00"))
    if -sum((charge.amount for charge in rewards), Decimal("0.00")) <= paid:
        return None
    return Payout(paid, neutral_pool_share(paid, sum((_worth(charge) for charge in rewards), Fraction(0))))


def paid_out(charges: Sequence[Charge], payout: Payout) -> list[Charge]:
    """The lines of the policy, of which the rewards are paid: with its penalties they add up to exactly zero.

    A cent that the split leaves goes to the largest remainder, in a tie to the earlier line.
    """
    penalties, rewards = _apart(charges)
    rewards.sort(key=lambda charge: charge.key)
    amounts = split_amount(payout.paid, [_worth(charge) for charge in rewards]) if rewards else []
    return penalties + [_at(charge, amount) for charge, amount in zip(rewards, amounts, strict=True)]


def _apart(charges: Iterable[Charge]) -> tuple[list[Charge], list[Charge]]:
    penalties: list[Charge] = []
    rewards: list[Charge] = []
    for charge in charges:
        (rewards if charge.unit_price < 0 else penalties).append(charge)
    return penalties, rewards


def _worth(reward: Charge) -> Fraction:
    """What a reward line pays, exact and above zero."""
    return -reward.quantity * Fraction(reward.unit_price)


def _at(charge: Charge, amount: Decimal) -> Charge:
    return structs.replace(charge, unit_price=round_to(-Fraction(amount) / charge.quantity, UNIT_PRICE_PLACES).normalize())
