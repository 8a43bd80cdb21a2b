"""Rating rules by number: a closed month is computed again by the rules with which it was closed (ADR 0040).

A change in what the same usage costs adds a number, once per release, and keeps the previous condition beside the new one:
documents follow again from their usage, and a correction of an old month changes only what it corrects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from billing.usage.models import Close
from metering.messages import Message, UserError


@dataclass(frozen=True, slots=True)
class RatingRules:
    """Rules of one number; `release`: the last release that closed months by them, empty for the current rules.

    `measured_once`: GPU time that two samples measured counts once. `gathered_by_class`: short jobs are judged
    together by class, not by the bands of the first. `pool_by_mode`: teams in showback have a revenue-neutral pool of their
    own. `carried_is_free`: time that the platform waives earns no reward, costs no penalty.
    `excess_is_whole`: a job with far more GPU time measured than allocated counts as measured throughout.
    `gathers_consumers`: the token lines of a team with many consumers are per model and class (ADR 0041).
    """

    release: str = ""
    measured_once: bool = True
    gathered_by_class: bool = True
    pool_by_mode: bool = True
    carried_is_free: bool = True
    excess_is_whole: bool = False
    gathers_consumers: bool = True


RULES: Final[Mapping[int, RatingRules]] = {
    1: RatingRules(
        "1.0.0", measured_once=False, gathered_by_class=False, pool_by_mode=False, carried_is_free=False,
        excess_is_whole=True, gathers_consumers=False,
    ),
    2: RatingRules(gathers_consumers=False),
    3: RatingRules(),
}
NOW: Final = max(RULES)
"""Number of the rules by which months are closed now."""


class RulesUnknownError(UserError):
    """Error: a later release closed the month by rules that this release does not know."""

    code = "rating_rules"


def rules_of(close_seq: int) -> RatingRules:
    """Return the rules of a close, or the current rules if it is not made yet.  Raises RulesUnknownError."""
    number = Close.objects.filter(close_seq=close_seq).values_list("rating_rules", flat=True).first()
    if number is None:
        return RULES[NOW]
    if number not in RULES:
        raise RulesUnknownError(Message(
            "close %(number)s was made by a later release, whose rules of rating this one does not know", number=close_seq
        ))
    return RULES[number]
