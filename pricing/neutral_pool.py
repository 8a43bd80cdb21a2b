"""PURE: a revenue-neutral pool, in which the penalties of a month pay its rewards, to the cent.

The payout is split over the amounts of the reward lines by largest remainder; a unit price follows from each amount, never
the amount from a rounded multiplier.

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
"""Precision at which unit price times exact quantity, rounded to the cent, gives back the amount, for any month."""


@dataclass(frozen=True, slots=True)
class Payout:
    """Rewards that a pool pays where its penalties fall short: the amount `paid`, and its share of the promised rewards."""

    paid: Decimal
    share: Fraction


def payout_of(charges: Iterable[Charge]) -> Payout | None:
    """Return the payout for the lines of one policy with rewards as promised; None where rewards are paid in full."""
    penalties, rewards = _apart(charges)
    paid = sum((charge.amount for charge in penalties), Decimal("0.00"))
    if -sum((charge.amount for charge in rewards), Decimal("0.00")) <= paid:
        return None
    return Payout(paid, neutral_pool_share(paid, sum((_worth(charge) for charge in rewards), Fraction(0))))


def paid_out(charges: Sequence[Charge], payout: Payout) -> list[Charge]:
    """Return the lines of the policy with rewards reduced to the payout: with the penalties they add up to exactly zero.

    Cents left over by the split go to the largest remainder, in a tie to the earlier line.
    """
    penalties, rewards = _apart(charges)
    # the order decides who gets a left-over cent: a re-rated month must give the same lines
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
    """Return the reward of a line, exact and above zero."""
    return -reward.quantity * Fraction(reward.unit_price)


def _at(charge: Charge, amount: Decimal) -> Charge:
    return structs.replace(charge, unit_price=round_to(-Fraction(amount) / charge.quantity, UNIT_PRICE_PLACES).normalize())
