"""PURE: how fast the hours of a commitment are used up, and what of them will be left when the month ends."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from metering.intervals import Interval
from pricing.commitments import HOURS_PLACES
from pricing.money import round_to

WITHHELD_FOR: Final = timedelta(days=3)
"""As with forecasts: before that many days the past says too little."""
PACE_PLACES: Final = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """`burn`: used share over elapsed share of the time, 1 where all of it will just be used.

    `used` and `unused`: GPU-hours expected by the end; `beyond`: hours on demand, over what was bought.
    """

    burn: Decimal
    used: Decimal
    unused: Decimal
    beyond: Decimal


def pace_of(*, bought: Decimal, held: Decimal, part: Interval, now: datetime) -> Pace | None:
    """What a commitment comes to if the rest of its part of the month goes on as it did so far.

    expected [GPU-h] = held * part / elapsed.  `held`: GPU-hours that it paid for, and those beyond it. None before
    three days, or from the end of the part on, when nothing is left to expect.  Source: FINOPS_PRACTICE, F-1 and burn rate.

    >>> from datetime import UTC
    >>> month = Interval(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    >>> pace = pace_of(bought=Decimal(1000), held=Decimal(250), part=month, now=datetime(2026, 11, 11, tzinfo=UTC))
    >>> [str(value) for value in (pace.burn, pace.used, pace.unused, pace.beyond)]
    ['0.7500', '750.000000', '250.000000', '0.000000']
    """
    if not bought or not part.start + WITHHELD_FOR <= now < part.end:
        return None
    elapsed = Fraction(Interval(part.start, now).microseconds, part.microseconds)
    expected, whole = Fraction(held) / elapsed, Fraction(bought)
    return Pace(
        burn=round_to(Fraction(held) / whole / elapsed, PACE_PLACES), used=round_to(min(expected, whole), HOURS_PLACES),
        unused=round_to(max(whole - expected, Fraction(0)), HOURS_PLACES),
        beyond=round_to(max(expected - whole, Fraction(0)), HOURS_PLACES),
    )  # fmt: skip
