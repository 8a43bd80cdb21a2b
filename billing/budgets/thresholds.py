"""PURE: thresholds of a budget that are reached, its burn rate, and the actions that its ladder asks for now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

HOUR: Final = timedelta(hours=1)
LEAST_IMPACT: Final = Fraction(1, 100)


def reached(value: Fraction | Decimal, amount: Fraction | Decimal, percents: Iterable[int]) -> list[int]:
    """Return the percents of `amount` that `value` has reached, ascending; reaching is >=.

    >>> reached(Decimal("800.00"), Decimal("1000.00"), [50, 80, 100])
    [50, 80]
    """
    return sorted(percent for percent in percents if Fraction(value) * 100 >= Fraction(amount) * percent)


@dataclass(frozen=True, slots=True)
class BurnRule:
    """Rule for spending at `factor` times the planned pace over `window`, confirmed by the last `confirm` of it."""

    name: str
    factor: int
    window: timedelta
    confirm: timedelta
    urgent: bool


BURN_RULES: Final = (
    BurnRule("6h", 6, 6 * HOUR, HOUR / 2, urgent=True),
    BurnRule("3d", 2, 72 * HOUR, 6 * HOUR, urgent=False),
)


def burn_rate(spent: Fraction, window: timedelta, amount: Fraction, period: timedelta) -> Fraction:
    """Return how many times faster than planned the window spent: (spent / window) / (amount / period).

    >>> burn_rate(Fraction(600), 6 * HOUR, Fraction(72000), 720 * HOUR)
    Fraction(1, 1)
    """
    return spent * share_of(period, window) / amount


def share_of(part: timedelta, whole: timedelta) -> Fraction:
    """Return the part as a multiple of the whole."""
    return Fraction(part // timedelta.resolution, whole // timedelta.resolution)


def burning(rule: BurnRule, spent: Fraction, confirmed: Fraction, amount: Fraction, period: timedelta) -> bool:
    """Return True if both windows burn at the rule's factor and the long one spent at least 1 % of the budget."""
    return (
        spent >= LEAST_IMPACT * amount
        and burn_rate(spent, rule.window, amount, period) >= rule.factor
        and burn_rate(confirmed, rule.confirm, amount, period) >= rule.factor
    )


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: from `percent` of the budget on, do `action`; the tokens per minute are for rate limits."""

    percent: int
    action: str
    tokens_per_minute: int | None = None
    floor_tokens_per_minute: int | None = None


ACTIONS: Final = ("notify", "require_approver", "lower_priority", "rate_limit", "cap")
"""Actions from the mildest to the hardest. None of them ends running work."""
DEFAULT_LADDER: Final = (Rung(100, "cap"),)
"""Ladder of a budget without one: a gateway that asks is refused at the whole amount."""


def cap_percent(ladder: Sequence[Rung]) -> int | None:
    """Return the percent of the amount from which requests are refused; None if the ladder has no cap, so nothing blocks."""
    return next((rung.percent for rung in ladder or DEFAULT_LADDER if rung.action == "cap"), None)


def actions_asked(spent: Fraction | Decimal, amount: Fraction | Decimal, ladder: Sequence[Rung]) -> list[Rung]:
    """Return the rungs that `spent` has reached, the mildest first, each with its current tokens per minute.

    A rate limit falls in a line from its tokens per minute at its percent to its floor at the whole budget, never below.

    >>> ladder = [Rung(80, "rate_limit", 100_000, 20_000)]
    >>> [actions_asked(Decimal(x), Decimal(100), ladder)[0].tokens_per_minute for x in (80, 90, 100, 200)]
    [100000, 60000, 20000, 20000]
    """
    in_order = sorted(ladder, key=lambda rung: (ACTIONS.index(rung.action), rung.percent))
    return [
        replace(rung, tokens_per_minute=_limit(spent, amount, rung))
        for rung in in_order if reached(spent, amount, [rung.percent])
    ]  # fmt: skip


def _limit(spent: Fraction | Decimal, amount: Fraction | Decimal, rung: Rung) -> int | None:
    if rung.tokens_per_minute is None:
        return None
    floor = rung.floor_tokens_per_minute or 0
    used = Fraction(spent) * 100 / Fraction(amount)
    left = max(Fraction(0), 100 - used) / (100 - rung.percent) if rung.percent < 100 else Fraction(0)
    return floor + int((rung.tokens_per_minute - floor) * left)
