"""What the efficiency policy makes of a month: every job with samples is judged, and what follows becomes charges.

A job is judged once per policy, cut where the policy or the owner changes. Samples count by GPU-seconds x dense peak
(FM2); what is missing is neutral, with the reason.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import reduce
from hashlib import sha256
from itertools import chain
from zoneinfo import ZoneInfo

from billing.rating.books import Books, gpu_seconds
from billing.usage.selectors import EpochFilter, GpuSum, Sample, efficiency_samples, job_queues, scored_job_sums
from metering.intervals import Interval, union
from metering.peaks import dense_peak_tflops
from pricing.efficiency import EfficiencyPolicy, Workload, judge_workload, neutral_pool_share
from pricing.efficiency import Verdict as Judgement
from pricing.money import EXACT, round_amount
from pricing.rate_card import UnpricedError
from pricing.rating import DIVISOR, Charge, GpuUsage, JudgedUsage, measured, rate_efficiency

MICRO = 1_000_000
MULTIPLIER = Decimal("0.0001")
"""Multipliers are billed with 4 decimals: a price of 4 and a change of 4 make a unit price of 8, exactly."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the efficiency policy says about one job, with what it was said from.

    `effect`: what it changes, rounded for this job alone; of a policy in shadow what it would have changed.
    """

    team: str
    cluster: str
    namespace: str
    job: str
    policy: str
    gpu_seconds: Decimal
    minutes: Decimal
    coverage: Decimal
    mfu: Decimal | None
    hfu: Decimal | None
    multiplier: Decimal
    reason: str
    workload_class: str = ""
    shadow: bool = False
    effect: Decimal = Decimal("0.00")

    @property
    def job_key(self) -> str:
        return sha256(self.job.encode()).hexdigest()


@dataclass
class Judged:
    """Charges of a month's verdicts (none of a policy in shadow), and every verdict."""

    charges: list[Charge] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    """One job under one policy: what a team held of it, what was measured, and what follows."""

    team: str
    cluster: str
    namespace: str
    name: str
    policy: EfficiencyPolicy
    workload: Workload
    began: datetime
    held: Decimal
    covered: tuple[Interval, ...]
    samples: tuple[Sample, ...]
    usages: tuple[GpuUsage, ...]
    score: "_Score"
    judgement: Judgement

    def judged(self, judgement: Judgement) -> "_Job":
        """The same job under another judgement, with the 4 decimals that are billed."""
        own = {Decimal(1) + self.policy.penalty: "penalty", Decimal(1) - self.policy.reward: "reward"}
        multiplier = judgement.multiplier.quantize(MULTIPLIER, ROUND_HALF_UP)
        reason = judgement.reason
        if multiplier == 1 and reason in ("penalty", "reward"):
            reason = "neutral"
        if reason in ("penalty", "reward") and own.get(multiplier) != reason:
            reason = f"{reason}:{format(multiplier, 'f')}"  # lines of one reason have one price
        return replace(self, judgement=Judgement(multiplier.normalize(), reason))


def judge_jobs(books: Books, pieces: Sequence[Interval], epochs: EpochFilter, month: str, zone: str) -> Judged:
    """Judge the jobs of the window that `pieces` make up, as known before the close that `epochs` names."""
    policies = [(piece, books.policies.at(piece.start)) for piece in pieces]
    if not any(policy for _, policy in policies):
        return Judged()
    jobs = list(_jobs(books, policies, epochs, month))
    jobs = _gather_short(jobs, zone)
    jobs = _share_pool(jobs, books)
    moving = [job for job in jobs if not job.policy.shadow]
    judged = [
        JudgedUsage(usage, job.policy.name, job.judgement.multiplier, job.judgement.reason)
        for job in moving
        for usage in job.usages
    ]
    return Judged(rate_efficiency(judged, books.card).charges, [_verdict(job, books) for job in jobs])


def _jobs(
    books: Books, policies: Sequence[tuple[Interval, EfficiencyPolicy | None]], epochs: EpochFilter, month: str
) -> Iterable[_Job]:
    pieces = [piece for piece, _ in policies]
    window = Interval(pieces[0].start, pieces[-1].end)
    samples: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for sample in efficiency_samples(window, epochs.before, epochs.last_sample):
        samples[sample.cluster, sample.namespace, sample.job].append(sample)
    if not samples:
        return
    asked = any(one.queues for _, policy in policies if policy is not None for one in policy.classes)
    queues = job_queues(window, epochs) if asked else {}
    grouped: dict[tuple[str, str, str, str], list[GpuSum]] = defaultdict(list)
    by_name: dict[str, EfficiencyPolicy] = {}
    for item in scored_job_sums(pieces, epochs):
        policy = policies[item.piece][1]
        if policy is not None:
            by_name[policy.name] = policy
            grouped[item.cluster, item.namespace, item.job, policy.name].append(item)
    for (cluster, namespace, name, policy_name), items in sorted(grouped.items()):
        covered = tuple(piece for piece, policy in policies if policy is not None and policy.name == policy_name)
        job = (cluster, namespace, name)
        yield from _job(books, pieces, items, samples[job], covered, by_name[policy_name], queues.get(job, ""), month)


def _job(  # one job's facts, gathered once
    books: Books,
    pieces: Sequence[Interval],
    items: Sequence[GpuSum],
    samples: Sequence[Sample],
    covered: tuple[Interval, ...],
    policy: EfficiencyPolicy,
    queue: str,
    month: str,
) -> Iterable[_Job]:
    """The job, once per team that held part of it; it is judged as a whole."""
    first = items[0]
    held = gpu_seconds(reduce(EXACT.add, (item.device_us for item in items), Decimal(0)))
    score = score_of(samples, covered, held)
    workload = Workload(first.job.partition("/")[0], queue, first.accelerator)
    by_team: dict[str, list[GpuUsage]] = defaultdict(list)
    for item in items:
        at = pieces[item.piece].start
        owner = books.namespaces.owner(item.cluster, item.namespace, at)
        if owner is not None and not owner.platform:
            by_team[owner.team].append(
                GpuUsage(
                    owner.team, False, item.cluster, item.namespace, item.accelerator, item.resource, at, item.device_us,
                    item.unit_us, month,
                )
            )  # fmt: skip
    began = min((sample.start for sample in samples), default=covered[0].start)
    for team, usages in sorted(by_team.items()):
        judgement = judge_workload(policy, workload, at=covered[0].start, team=team, **score.facts(held))
        job = _Job(
            team, first.cluster, first.namespace, first.job, policy, workload, began, held, covered, tuple(samples),
            tuple(usages), score, judgement,
        )  # fmt: skip
        yield job.judged(judgement)


def _gather_short(jobs: list[_Job], zone: str) -> list[_Job]:
    """Judge what is too short together, by team, namespace and local day: splitting a job avoids no penalty."""
    groups: dict[tuple[str, ...], list[_Job]] = defaultdict(list)
    for job in jobs:
        if job.policy.gather_short and job.judgement.reason == "neutral:short":
            day = max(job.began, job.covered[0].start).astimezone(ZoneInfo(zone)).date().isoformat()
            groups[job.team, job.cluster, job.namespace, job.policy.name, day].append(job)
    penalised: dict[int, _Job] = {}
    for group in groups.values():
        held = reduce(EXACT.add, (job.held for job in group), Decimal(0))
        samples = list(chain.from_iterable(job.samples for job in group))
        first = group[0]
        score = score_of(samples, first.covered, held)
        judgement = judge_workload(
            first.policy, first.workload, at=first.covered[0].start, team=first.team, **score.facts(held)
        )
        if judgement.reason == "penalty":  # together they earn no reward: nobody is to be paid for splitting either
            penalised |= {id(job): job.judged(judgement) for job in group}
    return [penalised.get(id(job), job) for job in jobs]


def _share_pool(jobs: list[_Job], books: Books) -> list[_Job]:
    """Pay rewards of a revenue-neutral policy from its penalties (FM6)."""
    pools: dict[str, list[_Job]] = defaultdict(list)
    for job in jobs:
        if job.policy.neutral_pool and job.judgement.multiplier != 1:
            pools[job.policy.name].append(job)
    replaced: dict[int, _Job] = {}
    for pool in pools.values():
        effects = {id(job): _effect(job, books) for job in pool}
        penalties = sum((value for value in effects.values() if value > 0), Fraction(0))
        rewards = -sum((value for value in effects.values() if value < 0), Fraction(0))
        share = neutral_pool_share(penalties, rewards)
        for job in pool:
            if job.judgement.multiplier < 1:
                reward = Fraction(1 - job.judgement.multiplier) * share
                rounded = (Decimal(reward.numerator) / Decimal(reward.denominator)).quantize(MULTIPLIER, ROUND_DOWN)
                replaced[id(job)] = job.judged(Judgement(1 - rounded, "reward"))
    return [replaced.get(id(job), job) for job in jobs]


def _effect(job: _Job, books: Books) -> Fraction:
    """What the verdict changes for its team, exact; what has no price changes nothing."""
    total = Fraction(0)
    for usage in job.usages:
        try:
            _, price = books.card.gpu_price(usage.accelerator, usage.resource, usage.at)
        except UnpricedError:
            continue
        quantity = Fraction(measured(usage, price)) / DIVISOR[price.unit]
        total += quantity * Fraction(price.price) * Fraction(job.judgement.multiplier - 1)
    return total


def _verdict(job: _Job, books: Books) -> Verdict:
    one = job.policy.class_of(job.workload)
    return Verdict(
        job.team, job.cluster, job.namespace, job.name, job.policy.name, job.held, job.score.minutes, job.score.coverage,
        job.score.mfu, job.score.hfu, job.judgement.multiplier, job.judgement.reason, one.name if one else "",
        job.policy.shadow, round_amount(_effect(job, books)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Score:
    """Measured minutes, share of the held GPU-seconds that was measured, and the weighted means."""

    minutes: Decimal
    coverage: Decimal
    mfu: Decimal | None
    hfu: Decimal | None

    def facts(self, held: Decimal) -> "dict[str, Decimal]":
        """What a policy judges by."""
        facts = {"minutes": self.minutes, "coverage": self.coverage, "mfu": self.mfu, "hfu": self.hfu}
        return {"gpu_seconds": held, **facts}  # type: ignore[dict-item]


def score_of(samples: Sequence[Sample], covered: Sequence[Interval], held_seconds: Decimal) -> _Score:
    """Weigh samples by GPU-seconds x dense peak; coverage is measured GPU-seconds over all that were held.

    A sample without both values covers nothing: one hour that could not be measured costs coverage, not the score.
    """
    overlapping = [(sample, share) for sample in samples if (share := _share(sample, covered))]
    parts = [(sample, share) for sample, share in overlapping if sample.mfu is not None and sample.hfu is not None]
    parts = parts or overlapping
    measured_s = sum((Fraction(s.gpu_seconds) * Fraction(s.coverage) * share for s, share in parts), Fraction(0))
    coverage = min(measured_s / Fraction(held_seconds), Fraction(1)) if held_seconds else Fraction(0)
    busy = union(
        [cut for sample, _ in parts for piece in covered if (cut := Interval(sample.start, sample.end).overlap(piece))]
    )
    minutes = Fraction(sum(piece.microseconds for piece in busy), 60 * MICRO)
    return _Score(_decimal(minutes, 6), _decimal(coverage, 12), _weighted(parts, "mfu"), _weighted(parts, "hfu"))


def _share(sample: Sample, covered: Sequence[Interval]) -> Fraction:
    """The part of a sample's time that lies in the pieces under the policy."""
    whole = Interval(sample.start, sample.end)
    if not whole.microseconds:
        return Fraction(0)
    inside = sum(cut.microseconds for piece in covered if (cut := whole.overlap(piece)))
    return Fraction(inside, whole.microseconds)


def _weighted(parts: Sequence[tuple[Sample, Fraction]], metric: str) -> Decimal | None:
    """Mean weighted by GPU-seconds x dense peak of the sample's precision; None where a weight or value is missing."""
    values = [(sample, share, getattr(sample, metric)) for sample, share in parts if sample.gpu_seconds]
    if not values or any(value is None for _, _, value in values):
        return None
    if len(values) == 1:
        return _decimal(Fraction(values[0][2]), 20)  # its weight cancels out
    peaks = {(s.accelerator, s.dtype): dense_peak_tflops(s.accelerator, s.dtype) for s, _, _ in values}
    if len(peaks) > 1 and any(peak is None for peak in peaks.values()):
        return None
    total = weight = Fraction(0)
    for sample, share, value in values:
        part = Fraction(sample.gpu_seconds) * share * Fraction(peaks[sample.accelerator, sample.dtype] or 1)
        total += part * Fraction(value)
        weight += part
    return _decimal(total / weight, 20) if weight else None


def _decimal(value: Fraction, places: int) -> Decimal:
    scale = 10**places
    return (Decimal(round(value * scale)) / scale).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
