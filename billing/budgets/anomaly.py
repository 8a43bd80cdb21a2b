"""PURE: anomaly score of a day's spending: robust z against comparable days, with the impact in money.

Comparable days are working days for a working day and weekend days for a weekend day.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from statistics import median
from typing import Final

Z_ALERT: Final = Fraction(6)
LEAST_IMPACT: Final = Fraction(500)
SHARE_OF_DAILY_BUDGET: Final = Fraction(1, 10)
COMPARABLE_DAYS: Final = 14
FEWEST_DAYS: Final = 10
SCALE: Final = Fraction(6745, 10000)
STEPS_AT_MOST: Final = 2


@dataclass(frozen=True, slots=True)
class Score:
    """Anomaly score: median and MAD of the comparable days, robust z, and the amount above the median.

    `z` is None if the comparable days show no spread at all and their median is zero: then nothing can scale it.
    """

    median: Fraction
    mad: Fraction
    z: Fraction | None
    impact: Fraction


def score(series: Sequence[Fraction], value: Fraction) -> Score:
    """Compute the robust z: 0.6745 x (value - median) / MAD; where the MAD is 0, 5 % of the median replaces it.

    >>> score([Fraction(x) for x in (99, 100, 100, 101, 102)], Fraction(130)).z
    Fraction(4047, 200)
    """
    middle = median(series)
    mad = median([abs(item - middle) for item in series])
    scale = mad or abs(middle) / 20
    z = SCALE * (value - middle) / scale if scale else None
    return Score(middle, mad, z, value - middle)


def comparable(history: Mapping[date, Fraction], day: date) -> list[Fraction]:
    """Return the last 14 days of the same kind before `day`, oldest first."""
    weekend = day.weekday() >= 5
    days = sorted(known for known in history if known < day and (known.weekday() >= 5) == weekend)
    return [history[known] for known in days[-COMPARABLE_DAYS:]]


def threshold_of(false_alarms: int, true_alarms: int) -> Fraction:
    """Return the z from which an alert is sent: half the default more per uncompensated false alarm, at most doubled.

    >>> threshold_of(0, 0), threshold_of(1, 0), threshold_of(9, 0), threshold_of(1, 1)
    (Fraction(6, 1), Fraction(9, 1), Fraction(12, 1), Fraction(6, 1))
    """
    steps = min(max(false_alarms - true_alarms, 0), STEPS_AT_MOST)
    return Z_ALERT * (1 + Fraction(steps, 2))


def least_impact(daily_budget: Fraction | None) -> Fraction:
    """Return the smallest excess worth a message: 500, or 10 % of the day's budget if that is more."""
    return LEAST_IMPACT if daily_budget is None else max(LEAST_IMPACT, SHARE_OF_DAILY_BUDGET * daily_budget)


def judged(
    own: Sequence[Fraction], peers: Callable[[], Sequence[Fraction]], value: Fraction
) -> tuple[Score, str] | None:
    """Score a value by the scope's own days, else by its peers' (fewer than ten days of its own); None if neither suffices.

    A scope that never spent before has no scale of its own: then, too, the peers decide.
    """
    for basis, series in (("own", lambda: own), ("peers", peers)):
        known = series()
        if len(known) >= FEWEST_DAYS:
            found = score(known, value)
            if found.z is not None:
                return found, basis
    return None


def is_anomaly(found: Score, *, threshold: Fraction, impact: Fraction) -> bool:
    """Return True if both the score and the money are large enough."""
    return found.z is not None and found.z >= threshold and found.impact >= impact
