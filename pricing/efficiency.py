"""PURE: model and hardware FLOP utilisation, and the multiplier that a policy gives a job. Peaks: `metering.peaks`.

Bands (FM1): HFU strictly below the lower bound costs a penalty, MFU strictly above the upper one earns a reward;
equality is neutral, values are compared unrounded. Missing or contradictory telemetry never changes a price.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final, TypedDict, Unpack

import msgspec

from pricing.money import Number, exact_product, exact_sum, fraction_of, round_to

Exact = Decimal | Fraction

SECONDS_PER_GPU_HOUR: Final = 3600
MULTIPLIER_PLACES: Final = 12


class Form(StrEnum):
    """Form of the multiplier: steps at the bands, or linear growth outside of them."""

    BANDS = "bands"
    LINEAR = "linear"


class Metric(StrEnum):
    """Metric that the penalty is based on. HFU counts recomputed FLOP, a third more; MFU counts the model's own only."""

    HFU = "hfu"
    MFU = "mfu"


class Workload(msgspec.Struct, frozen=True, gc=False):
    """Facts that decide the class of a job: kind of its controller, queue, accelerator."""

    kind: str = ""
    queue: str = ""
    accelerator: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Class of workloads with its own bands, or exempt until `exempt_until` (an exemption ends: FM, gaming table).

    `kinds`, `queues` and `accelerators` are patterns (`*`, `?`); an empty one matches everything. A band that is None is
    that of the policy.
    """

    name: str
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    exempt_until: datetime | None = None
    hfu_below: Decimal | None = None
    penalty: Decimal | None = None
    mfu_above: Decimal | None = None
    reward: Decimal | None = None
    penalise_on: Metric | None = None

    def matches(self, workload: Workload) -> bool:
        """Return True if a job is of this class."""
        asked = ((self.kinds, workload.kind), (self.queues, workload.queue), (self.accelerators, workload.accelerator))
        return all(not patterns or any(fnmatchcase(text, one) for one in patterns) for patterns, text in asked)


@dataclass(frozen=True, slots=True)
class EfficiencyPolicy:
    """Efficiency bands in force from `valid_from`; all ratios from 0 to 1, `penalty` and `reward` as shares of the price.

    `width`: range over which the linear form grows (FM4). `shadow`: showback, judged and shown without moving money.
    `classes`: the first that matches a job gives its bands. `unrewarded`: teams whose rewards are suspended because their
    telemetry was switched off (FM3). `gather_short`: jobs too short to be judged are judged together, by team, namespace,
    class and day, so that splitting a job avoids no penalty. `neutral_pool`: rewards are paid from the penalties of the
    month (FM6). `penalise_on`: metric that `hfu_below` bounds; MFU where jobs recompute to escape it (FM, gaming table).
    """

    name: str
    valid_from: datetime
    hfu_below: Decimal
    penalty: Decimal
    mfu_above: Decimal
    reward: Decimal
    min_minutes: int = 30
    min_coverage: Decimal = Decimal("0.95")
    min_gpu_seconds: int = SECONDS_PER_GPU_HOUR
    form: Form = Form.BANDS
    width: Decimal = Decimal("0.10")
    shadow: bool = False
    classes: tuple[WorkloadClass, ...] = ()
    unrewarded: tuple[str, ...] = ()
    gather_short: bool = False
    neutral_pool: bool = False
    penalise_on: Metric = Metric.HFU

    def class_of(self, workload: Workload) -> WorkloadClass | None:
        """Return the class whose bands apply to a job; None: those of the policy."""
        return next((one for one in self.classes if one.matches(workload)), None)

    def bands_of(self, one: WorkloadClass | None) -> "EfficiencyPolicy":
        """Return the policy with the bands of a class in place of its own."""
        if one is None:
            return self
        own = {name: getattr(one, name) for name in BANDS if getattr(one, name) is not None}
        return replace(self, **own, penalise_on=one.penalise_on or self.penalise_on)


BANDS: Final = ("hfu_below", "penalty", "mfu_above", "reward")


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Multiplier of the GPU-hours of a job, and its reason."""

    multiplier: Decimal
    reason: str


NEUTRAL: Final = Decimal(1)


class Measured(TypedDict):
    """Measurements of one job in one billing month; None for a metric that is missing."""

    gpu_seconds: Decimal
    minutes: Decimal
    coverage: Decimal | None
    mfu: Decimal | None
    hfu: Decimal | None


def judge_workload(
    policy: EfficiencyPolicy, workload: Workload, *, at: datetime, team: str, **measured: Unpack[Measured]
) -> Verdict:
    """Judge one job of one billing month by the whole policy: class, exemption, form, suspension.

    `at`: beginning of the judged time; an exemption that has ended by then no longer applies.
    """
    one = policy.class_of(workload)
    if one is not None and one.exempt_until is not None and at < one.exempt_until:
        return Verdict(NEUTRAL, "neutral:exempt")
    verdict = judge(policy.bands_of(one), **measured)
    if verdict.reason == "reward" and team in policy.unrewarded:
        return Verdict(NEUTRAL, "neutral:suspended")
    return verdict


def judge(policy: EfficiencyPolicy, **measured: Unpack[Measured]) -> Verdict:
    """Judge one job of one billing month by the bands (FM1) after the eligibility check (FM3), in the form of the policy.

    >>> from datetime import UTC
    >>> bands = EfficiencyPolicy("bands", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.20"), Decimal("0.20"),
    ...                          Decimal("0.50"), Decimal("0.10"))
    >>> judge(bands, gpu_seconds=Decimal(7200), minutes=Decimal(60), coverage=Decimal(1), mfu=Decimal("0.15"),
    ...       hfu=Decimal("0.1999"))
    Verdict(multiplier=Decimal('1.20'), reason='penalty')
    """
    reason, mfu, hfu = _ineligible(policy, measured), measured["mfu"], measured["hfu"]
    if reason or mfu is None or hfu is None:
        return Verdict(NEUTRAL, reason)
    used = mfu if policy.penalise_on is Metric.MFU else hfu
    if policy.form is Form.LINEAR:
        return linear_verdict(policy, used=used, mfu=mfu)
    if used < policy.hfu_below:
        return Verdict(NEUTRAL + policy.penalty, "penalty")
    if mfu > policy.mfu_above:
        return Verdict(NEUTRAL - policy.reward, "reward")
    return Verdict(NEUTRAL, "neutral")


def linear_verdict(policy: EfficiencyPolicy, *, used: Decimal, mfu: Decimal) -> Verdict:
    """Judge without a cliff: penalty and reward grow over the policy's width outside of the bands.

    multiplier = 1 + penalty x clamp((hfu_below - used) / width) - reward x clamp((MFU - mfu_above) / width)

    `used`: the HFU, or the MFU where the policy penalises on it. An HFU of 0.1999 costs 1.0002 here and 1.20 with bands.
    Source: FM4, linear alternative.
    """
    waste = _clamped(Fraction(policy.hfu_below) - Fraction(used), policy.width) * Fraction(policy.penalty)
    merit = _clamped(Fraction(mfu) - Fraction(policy.mfu_above), policy.width) * Fraction(policy.reward)
    multiplier = round_to(1 + waste - merit, MULTIPLIER_PLACES).normalize()
    return Verdict(multiplier, "penalty" if waste else "reward" if merit else "neutral")


def _clamped(excess: Fraction, width: Decimal) -> Fraction:
    return min(max(excess / Fraction(width), Fraction(0)), Fraction(1))


def _ineligible(policy: EfficiencyPolicy, measured: Measured) -> str:
    """Return the reason for not judging a job, or "" (FM3).

    A missing metric is reported before all else: even the minutes are measured minutes. A short job needs no coverage.
    Values out of range and MFU above HFU are data errors, reported only where enough was measured.
    """
    coverage, mfu, hfu = measured["coverage"], measured["mfu"], measured["hfu"]
    if mfu is None or hfu is None:
        return "neutral:missing"
    if measured["minutes"] < policy.min_minutes or measured["gpu_seconds"] < policy.min_gpu_seconds:
        return "neutral:short"
    if coverage is None:
        return "neutral:missing"
    if coverage < policy.min_coverage:
        return "neutral:coverage"
    return "neutral:inconsistent" if mfu < 0 or hfu > 1 or mfu > hfu or coverage > 1 else ""


def neutral_pool_share(penalties: Number, rewards: Number) -> Fraction:
    """Return the share of promised rewards that penalties pay for: min(1, penalties / rewards); 1 if none are promised.

    >>> neutral_pool_share(6000, 9000)
    Fraction(2, 3)

    Source: FM6, revenue-neutral pool, for rewards of any height: one reward rate r becomes min(r, penalties / base).
    """
    promised = fraction_of(rewards)
    return min(Fraction(1), fraction_of(penalties) / promised) if promised > 0 else Fraction(1)


def pooled(verdict: Verdict, share: Fraction) -> Verdict:
    """Scale a reward to the share that the pool pays; return any other verdict unchanged. A reward of 0 becomes neutral.

    >>> pooled(Verdict(Decimal("0.90"), "reward"), Fraction(2, 3)), pooled(Verdict(Decimal("0.90"), "reward"), Fraction(0))
    (Verdict(multiplier=Decimal('0.933333333333'), reason='reward'), Verdict(multiplier=Decimal('1'), reason='neutral'))
    """
    if verdict.multiplier >= 1:
        return verdict
    multiplier = round_to(1 - (1 - fraction_of(verdict.multiplier)) * share, MULTIPLIER_PLACES).normalize()
    return Verdict(multiplier, "reward") if multiplier < 1 else Verdict(NEUTRAL, "neutral")


def mfu_of(*, tokens_per_second: Fraction, active_params: int, gpus: int, peak_flops: Fraction) -> Fraction:
    """Return model FLOP utilisation: MFU = 6 x N_active x tokens/s / (GPUs x dense peak FLOP/s).

    N is the active parameters, not the total of a mixture of experts; the peak is that of the precision the matrix
    products run in.  Source: FS9; PaLM, arXiv 2204.02311, appendix B.

    >>> mfu_of(tokens_per_second=Fraction(1_200_000), active_params=10**10, gpus=256,
    ...        peak_flops=Fraction(989_400_000_000_000))
    Fraction(1875, 6596)
    """
    return 6 * active_params * tokens_per_second / (gpus * peak_flops)


def hfu_with_full_recomputation(mfu: Fraction) -> Fraction:
    """Return HFU where the forward pass is repeated: 8 instead of 6 FLOP per parameter and token.

    >>> hfu_with_full_recomputation(Fraction("0.16"))
    Fraction(16, 75)

    Source: FS9; arXiv 2205.05198.
    """
    return mfu * Fraction(8, 6)


def weighted_mean(parts: Sequence[tuple[Exact, Exact, Exact]]) -> Exact | None:
    """Return the mean of (gpu_seconds, dense peak, value), weighted by GPU-seconds x peak; None without weight.

    value = sum of s x p x value / sum of s x p

    >>> weighted_mean([(Fraction(100), Fraction(1), Fraction("0.15")), (Decimal(900), Decimal(1), Decimal("0.25"))])
    Fraction(6, 25)

    Source: FM2, weighting by GPU-seconds and the dense peak of the phase's precision.
    """
    if len(parts) == 1:  # most jobs have one part, and its weight cancels out
        seconds, peak, value = parts[0]
        return value if seconds and peak else None
    total: Exact = Decimal(0)
    weight: Exact = Decimal(0)
    for seconds, peak, value in parts:
        weighs = exact_product(seconds, peak)
        total = exact_sum(total, exact_product(weighs, value))
        weight = exact_sum(weight, weighs)
    if not weight:
        return None
    top, bottom = total.as_integer_ratio(), weight.as_integer_ratio()
    return Fraction(top[0] * bottom[1], top[1] * bottom[0])
