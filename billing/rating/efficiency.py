"""Efficiency judgements of a month: every job with samples is judged, and the judgements become charges.

A job is judged once per policy, cut where the policy or the owner changes. Samples count by GPU-seconds x dense peak
(FM2); missing figures are neutral, with the reason.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, partial, reduce
from hashlib import sha256
from itertools import chain

import msgspec
from msgspec import structs

from billing.rates.selectors import PolicyBook
from billing.rating.reference_data import ReferenceData, gpu_seconds
from billing.rating.rules import RatingRules, rules_of
from billing.rating.scores import Score, score_of
from billing.rating.team_isolation import of_teams, rated_by_team
from billing.rating.walk import Slice, carried_usage, device_usage
from billing.runtime.parallel_reads import deferred_query
from billing.usage.queries import GpuTime
from billing.usage.selectors import JobName, Sample, job_queues, scored
from metering.intervals import Interval, day_of, union
from pricing.commitments import UsageId, usage_id
from pricing.efficiency import MULTIPLIER_PLACES, EfficiencyPolicy, Workload, judge_workload, pooled
from pricing.efficiency import Verdict as Judgement
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import EXACT, amount_places, round_part, round_to
from pricing.neutral_pool import Payout, paid_out, payout_of
from pricing.rate_card import UnpricedError
from pricing.rating import Charge, GpuUsage, JudgedUsage, measured, rate_efficiency

LEAST_PLACES = 4
"""Minimum number of decimals of a multiplier in the text of a reason."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict of the efficiency policy on one job, with the figures behind it.

    `effect`: the change in amount, rounded for this job alone; under a policy in shadow, the change it would have made.
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
    """Charges of a month's verdicts (none under a policy in shadow), and every verdict."""

    charges: list[Charge] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


Pool = tuple[str, bool]
"""Policy name, and True for teams in showback: penalties that nobody pays must not fund rewards."""
JobUsage = tuple[GpuUsage, GpuTime]
"""Usage with its owner, and the row of its job."""


class _Job(msgspec.Struct, frozen=True):
    """One job under one policy for one team: allocated time, samples, score and judgement."""

    team: str
    cluster: str
    namespace: str
    name: str
    policy: EfficiencyPolicy
    workload: Workload
    held: Decimal
    covered: tuple[Interval, ...]
    samples: tuple[Sample, ...]
    usages: tuple[GpuUsage, ...]
    score: Score
    judgement: Judgement

    def judged(self, judgement: Judgement) -> "_Job":
        """Return the job under another judgement."""
        return structs.replace(self, judgement=_as_billed(self.policy, judgement))


def _as_billed(policy: EfficiencyPolicy, judgement: Judgement) -> Judgement:
    """Return the judgement with its multiplier rounded to the billed decimals."""
    return _rounded_judgement(policy.penalty, policy.reward, judgement.multiplier, judgement.reason)


@lru_cache(maxsize=4096)
def _rounded_judgement(penalty: Decimal, reward: Decimal, exact: Decimal, reason: str) -> Judgement:
    multiplier = round_to(exact, MULTIPLIER_PLACES)
    if reason not in ("penalty", "reward"):
        return Judgement(multiplier.normalize(), reason)
    if multiplier == 1:
        return Judgement(multiplier.normalize(), "neutral")
    own = {Decimal(1) + penalty: "penalty", Decimal(1) - reward: "reward"}
    if own.get(multiplier) != reason:
        reason = f"{reason}:{_multiplier_text(multiplier)}"  # a line has one price, so each multiplier needs its own reason
    return Judgement(multiplier.normalize(), reason)


def _multiplier_text(multiplier: Decimal) -> str:
    """Format a multiplier with at least four decimals, more if it has more."""
    exponent = multiplier.normalize().as_tuple().exponent
    places = max(LEAST_PLACES, -exponent if isinstance(exponent, int) else 0)
    return format(EXACT.quantize(multiplier, Decimal(1).scaleb(-places)), "f")


JobReads = Callable[[], tuple[list[Sample], list[JobUsage]]]
"""Function that returns the samples and the usage needed to judge jobs."""


def job_reads(reference_data: ReferenceData, part: Slice) -> JobReads | None:
    """Start the reads for judging jobs, as known before the slice's close; None if no policy is in force."""
    if not any(reference_data.policies.at(piece.start) for piece in part.devices):
        return None
    return deferred_query(_samples_and_usage, reference_data, part)


def _samples_and_usage(reference_data: ReferenceData, part: Slice) -> tuple[list[Sample], list[JobUsage]]:
    """Return the samples of the window, and the usage of the jobs that they measured.

    The usage is without waived time, which costs nothing that could be adjusted; the row keeps all of it.
    """
    read = scored(part.window, part.epochs.before, part.epochs.last_sample)
    carried: dict[tuple[UsageId, str], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    rules = rules_of(part.epochs.before)
    for item, row in carried_usage(part, reference_data, {"job"}) if rules.carried_is_free else ():
        # by usage and job, since a verdict adjusts the usage of one job
        sums = carried[usage_id(item.usage), row.job]
        sums[:] = EXACT.add(sums[0], row.device_us), EXACT.add(sums[1], row.unit_us)
    used = []
    for usage, row in device_usage(part, reference_data, {"job"}, jobs=read.jobs):
        if less := carried.get((usage_id(usage), row.job)):
            device_us, unit_us = EXACT.subtract(usage.device_us, less[0]), EXACT.subtract(usage.unit_us, less[1])
            usage = structs.replace(usage, device_us=device_us, unit_us=unit_us)
        used.append((usage, row))
    return read.samples, used


def judge_jobs(
    reference_data: ReferenceData, part: Slice, reads: JobReads | None, zone: str, without: Collection[str] = ()
) -> Judged:
    """Judge the jobs of the slice that were read.

    Jobs of the teams `without` are left out.  Raises TeamRatingError for the teams of a job that cannot be judged.
    """
    if reads is None:
        return Judged()
    rules = rules_of(part.epochs.before)
    jobs = _gather_short(list(_jobs(reference_data, part, reads, without, rules)), zone, rules)
    # older rules had one pool for charged teams and teams in showback
    apart = {job.team for job in jobs} if rules.pool_by_mode else ()
    shown = reference_data.modes.teams(apart, part.month, shadow=True)
    payouts = _payouts(jobs, shown, reference_data)
    jobs = [_paid(job, payouts.get((job.policy.name, job.team in shown))) for job in jobs]
    charges = _settled(_rated([job for job in jobs if not job.policy.shadow], reference_data), shown, payouts)
    return Judged(charges, [of_teams([job.team], partial(_verdict, job, reference_data)) for job in jobs])


def _rated(jobs: Iterable[_Job], reference_data: ReferenceData) -> list[Charge]:
    """Return the efficiency charges of judgements whose multiplier is not 1."""
    judged = [
        JudgedUsage(usage, job.policy.name, job.judgement.multiplier, job.judgement.reason)
        for job in jobs
        if job.judgement.multiplier != 1
        for usage in job.usages
    ]
    return rated_by_team(
        judged, lambda item: item.usage.team, lambda part: rate_efficiency(part, reference_data.card).charges
    )


def _payouts(jobs: Sequence[_Job], shown: Collection[str], reference_data: ReferenceData) -> dict[Pool, Payout]:
    """Return the payout of each revenue-neutral pool whose penalties do not cover its rewards (FM6)."""
    pools: dict[Pool, list[_Job]] = defaultdict(list)
    for job in jobs:
        if job.policy.neutral_pool:
            pools[job.policy.name, job.team in shown].append(job)
    found = {pool: payout_of(_rated(own, reference_data)) for pool, own in pools.items()}
    return {pool: payout for pool, payout in found.items() if payout is not None}


def _paid(job: _Job, payout: Payout | None) -> _Job:
    """Return the job with its reward reduced to what its pool pays."""
    if payout is None or job.judgement.multiplier >= 1:
        return job
    return job.judged(pooled(Judgement(job.judgement.multiplier, "reward"), payout.share))


def _settled(charges: Sequence[Charge], shown: Collection[str], payouts: Mapping[Pool, Payout]) -> list[Charge]:
    """Return the charges of every policy, with the rewards of a pool at the amounts that it pays."""
    pools: dict[Pool, list[Charge]] = defaultdict(list)
    for charge in charges:
        pools[charge.key.policy, charge.key.team in shown].append(charge)
    return list(chain.from_iterable(
        paid_out(own, payouts[pool]) if pool in payouts else own for pool, own in pools.items()
    ))


def pools_rewards(policies: PolicyBook, window: Interval) -> bool:
    """Return True if a policy of the window funds rewards from penalties: no reward is known before every team is rated."""
    found = (policies.at(piece.start) for piece in window.cut(policies.changes()))
    return any(policy is not None and policy.neutral_pool and not policy.shadow for policy in found)


def _jobs(
    reference_data: ReferenceData, part: Slice, reads: JobReads, without: Collection[str], rules: RatingRules
) -> Iterable[_Job]:
    policies = [(piece, reference_data.policies.at(piece.start)) for piece in part.devices]
    measured_by, used = reads()
    samples: dict[JobName, list[Sample]] = defaultdict(list)
    for sample in measured_by:
        samples[sample.cluster, sample.namespace, sample.job].append(sample)
    if not samples:
        return
    # queues cost a read of their own, and few policies name any
    asked = any(one.queues for _, policy in policies if policy is not None for one in policy.classes)
    queues = job_queues(part.window, part.epochs) if asked else {}
    grouped: dict[tuple[str, str, str, str], list[JobUsage]] = defaultdict(list)
    by_name = {policy.name: policy for _, policy in policies if policy is not None}
    covered = {name: _covered(policies, name) for name in by_name}
    for usage, row in used:
        policy = policies[row.piece][1]
        if policy is not None:
            grouped[row.cluster, row.namespace, row.job, policy.name].append((usage, row))
    for (cluster, namespace, name, policy_name), items in sorted(grouped.items()):
        job = (cluster, namespace, name)
        usages = _usages_by_team(items)
        if without and usages.keys() & without:
            continue
        held = [row for _, row in items]
        judge = partial(
            _job, usages, held, samples[job], covered[policy_name], by_name[policy_name], queues.get(job, ""), rules
        )
        yield from of_teams(usages, judge)


def _covered(policies: Sequence[tuple[Interval, EfficiencyPolicy | None]], name: str) -> tuple[Interval, ...]:
    """Return the time under a policy, not cut by other changes: most jobs then lie within a single interval."""
    return tuple(union(piece for piece, policy in policies if policy is not None and policy.name == name))


def _usages_by_team(items: Iterable[JobUsage]) -> dict[str, list[GpuUsage]]:
    """Return a job's usage by owning team; unowned usage and the platform's own are not judged."""
    by_team: dict[str, list[GpuUsage]] = defaultdict(list)
    for usage, _ in items:
        if usage.team and not usage.platform:
            by_team[usage.team].append(usage)
    return by_team


def _job(
    by_team: Mapping[str, list[GpuUsage]],
    items: Sequence[GpuTime],
    samples: Sequence[Sample],
    covered: tuple[Interval, ...],
    policy: EfficiencyPolicy,
    queue: str,
    rules: RatingRules,
) -> list[_Job]:
    """Return the job once per team that used part of it; its score covers the whole job."""
    first = items[0]
    if not by_team:
        return []
    held = gpu_seconds(first.device_us if len(items) == 1 else reduce(EXACT.add, (item.device_us for item in items)))
    score = score_of(samples, covered, held, once=rules.measured_once, capped=rules.excess_is_whole)
    workload = Workload(first.job.partition("/")[0], queue, first.accelerator)
    told, facts, found = tuple(samples), score.facts(held), []
    # nearly all jobs have one team: sorting them would only cost time
    for team, usages in sorted(by_team.items()) if len(by_team) > 1 else by_team.items():
        judgement = judge_workload(policy, workload, at=covered[0].start, team=team, **facts)
        job = _Job(
            team, first.cluster, first.namespace, first.job, policy, workload, held, covered, told, tuple(usages),
            score, _as_billed(policy, judgement),
        )  # fmt: skip
        found.append(job)
    return found


def _gather_short(jobs: list[_Job], zone: str, rules: RatingRules) -> list[_Job]:
    """Judge short jobs together, by team, namespace, class and local day: splitting a job must not avoid a penalty."""
    groups: dict[tuple[str, ...], list[_Job]] = defaultdict(list)
    for job in jobs:
        if job.policy.gather_short and job.judgement.reason == "neutral:short":
            # without samples a short job counts on the first day under its policy
            began = min((sample.start for sample in job.samples), default=job.covered[0].start)
            day = day_of(max(began, job.covered[0].start), zone).isoformat()
            workload_class = _class_name(job) if rules.gathered_by_class else ""
            groups[job.team, job.cluster, job.namespace, job.policy.name, workload_class, day].append(job)
    penalised: dict[int, _Job] = {}
    for (team, *_), group in groups.items():
        penalised |= of_teams([team], partial(_judged_together, group, rules))
    return [penalised.get(id(job), job) for job in jobs]


def _judged_together(group: Sequence[_Job], rules: RatingRules) -> dict[int, _Job]:
    held = reduce(EXACT.add, (job.held for job in group), Decimal(0))
    samples = list(chain.from_iterable(job.samples for job in group))
    first = group[0]
    score = score_of(samples, first.covered, held, once=rules.measured_once, capped=rules.excess_is_whole)
    judgement = judge_workload(first.policy, first.workload, at=first.covered[0].start, team=first.team, **score.facts(held))
    if judgement.reason != "penalty":  # no reward for the group: splitting a job must not pay
        return {}
    return {id(job): job.judged(judgement) for job in group}


def _class_name(job: _Job) -> str:
    """Return the name of the class whose bands judge a job; empty for the policy's own bands."""
    one = job.policy.class_of(job.workload)
    return one.name if one else ""


def _effect_us(job: _Job, reference_data: ReferenceData) -> Decimal:
    """Return the exact change for the team, in microseconds x price per hour: both units of devices are hours.

    Usage without a price changes nothing.
    """
    change, total = EXACT.subtract(job.judgement.multiplier, 1), Decimal(0)
    if not change:
        return total
    for usage in job.usages:
        try:
            _, price = reference_data.card.gpu_price(usage.accelerator, usage.resource, usage.at)
        except UnpricedError:
            continue
        total = EXACT.add(total, EXACT.multiply(measured(usage, price), price.price))
    return EXACT.multiply(total, change)


def _verdict(job: _Job, reference_data: ReferenceData) -> Verdict:
    return Verdict(
        job.team, job.cluster, job.namespace, job.name, job.policy.name, job.held, job.score.minutes, job.score.coverage,
        job.score.mfu, job.score.hfu, job.judgement.multiplier, job.judgement.reason, _class_name(job),
        job.policy.shadow, round_part(_effect_us(job, reference_data), MICROSECONDS_PER_HOUR, amount_places()),
    )  # fmt: skip
