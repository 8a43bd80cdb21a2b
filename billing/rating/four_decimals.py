"""How closes before ADR 0010 billed efficiency: multipliers of four decimals, and the pool's cut down to them.

Nothing is rated so any more; a close that was is rated again so, to the bytes of its documents.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from typing import Protocol, TypeVar

from billing.rating.models import RatingRule
from pricing.efficiency import EfficiencyPolicy, Verdict, neutral_pool_share

MULTIPLIER_PLACES = 4
LAST_PLACE = Decimal("0.0001")


class Job(Protocol):
    """What the cut looks at."""

    @property
    def policy(self) -> EfficiencyPolicy: ...
    @property
    def judgement(self) -> Verdict: ...
    def judged(self, judgement: Verdict) -> "Job": ...


J = TypeVar("J", bound=Job)


def rated_with_four_decimals(closing: int) -> bool:
    """Whether the `closing`-th close was made before efficiency was billed to the cent."""
    return RatingRule.objects.filter(name=RatingRule.Name.EFFICIENCY_TO_THE_CENT, from_closing__gt=closing).exists()


def share_pool(jobs: Sequence[J], effect: Callable[[J], Fraction]) -> list[J]:
    """Rewards of a neutral pool, each multiplier cut to four decimals: up to that much less than the penalties."""
    pools: dict[str, list[J]] = defaultdict(list)
    for job in jobs:
        if job.policy.neutral_pool and job.judgement.multiplier != 1:
            pools[job.policy.name].append(job)
    replaced: dict[int, J] = {}
    for pool in pools.values():
        effects = [effect(job) for job in pool]
        rewards = -sum((value for value in effects if value < 0), Fraction(0))
        share = neutral_pool_share(sum((value for value in effects if value > 0), Fraction(0)), rewards)
        replaced |= {id(job): _cut(job, share) for job in pool if job.judgement.multiplier < 1}
    return [replaced.get(id(job), job) for job in jobs]


def _cut(job: J, share: Fraction) -> J:
    reward = Fraction(1 - job.judgement.multiplier) * share
    rounded = (Decimal(reward.numerator) / Decimal(reward.denominator)).quantize(LAST_PLACE, ROUND_DOWN)
    return job.judged(Verdict(1 - rounded, "reward"))
