"""Assessment of a period: every unit of its usage is charged, the platform's own, unowned or unpriced.

`rate_period` reads usage, owners and prices and hands them to `pricing.rating`; it writes nothing, so a preview, the report
before a close, the close itself and the proof after it are one computation.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import attrgetter
from typing import Final

from billing.rates.selectors import allocation_policy_at
from billing.rating.allocation import Pool, PoolIdle, allocated, capacity_of, idle_of, split_by_charges
from billing.rating.efficiency import Verdict, job_reads, judge_jobs, pools_rewards
from billing.rating.gathering import gathered, layouts_of
from billing.rating.reference_data import ReferenceData, gpu_seconds
from billing.rating.retroactive import CorrectedRateCard
from billing.rating.selectors import reference_data_known
from billing.rating.team_isolation import TeamRatingError, rated_by_team
from billing.rating.walk import Slice, carried_usage, covered_usage, device_usage, token_usage
from billing.runtime.parallel_reads import deferred_query
from billing.usage.scope import EpochFilter
from billing.usage.selectors import close_before, last_close_seq, late_epochs, late_windows
from billing.usage.store.sums import TokenSums
from metering.intervals import Interval, month_of
from pricing.commitments import CommitmentBook, Cover, rate_commitments
from pricing.contexts import class_and_context
from pricing.money import EXACT
from pricing.rate_card import RateCard
from pricing.rating import (
    Charge,
    GpuUsage,
    InterruptedUsage,
    Rated,
    TokenSum,
    Unpriced,
    rate_gpu,
    rate_interruptions,
    rate_tokens,
)

_team: Final = attrgetter("team")


@dataclass(frozen=True, slots=True)
class Unowned:
    """Usage that no team owns; `amount`: its worth at list price, None if a part of it has no price.

    `late`: usage of a closed month.
    """

    kind: str
    subject: str
    quantity: Decimal
    unit: str
    amount: Decimal | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Device-microseconds of one cluster and accelerator by outcome, without late usage."""

    charged: Decimal = Decimal(0)
    platform: Decimal = Decimal(0)
    unowned: Decimal = Decimal(0)
    unpriced: Decimal = Decimal(0)


@dataclass
class RatingResult:
    """Everything that a close of the period bills or must leave out, and why.

    `tokens`: the period's own by class, `tokens_left`: those in no charge. The platform's own use is billed to
    nobody: without a price it is noted (`platform_unpriced`) but blocks no close. `team_time`: `device_time` that
    teams are charged, `pools`: idle time by pool. `late_time`: late device-microseconds by paying team, the
    platform's under an empty code; a stored result has none. `reference_data`: owners, prices and policies behind all of it.

    `layouts`: True for teams whose token lines are gathered (`billing.rating.gathering`).

    `faults`: what rating raised, by team; the result contains only the time of such a team in the accounts and its tokens
    (`tokens_held`). `entangled`: charges of other teams depend on a team with faults, so that nobody can be billed.
    """

    charges: list[Charge] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    unowned: list[Unowned] = field(default_factory=list)
    unpriced: list[Unpriced] = field(default_factory=list)
    platform_unpriced: list[Unpriced] = field(default_factory=list)
    device_time: dict[tuple[str, str], DeviceTime] = field(default_factory=dict)
    team_time: dict[Pool, dict[str, Decimal]] = field(default_factory=dict)
    pools: list[PoolIdle] = field(default_factory=list)
    late_time: dict[str, Decimal] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    tokens_left: int = 0
    reference_data: ReferenceData | None = None
    layouts: dict[str, bool] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    tokens_held: int = 0
    entangled: bool = False


def rate_period(
    *, window: Interval, zone: str, close_seq: int | None, card: RateCard | None = None
) -> RatingResult:
    """Assess [start, end) as close `close_seq` saw it, or (None) as a close now would see it.

    Late usage of windows closed before comes in as corrections, at the owner and the price of its own time. With `card`
    the window's own usage is priced from that card instead of the published prices, and late usage is left out. Teams whose
    rating raises are left out and named (`team_isolation`).
    """
    as_of = close_seq if close_seq is not None else last_close_seq() + 1
    reference_data = reference_data_known(as_of)
    if card is not None:
        reference_data = replace(reference_data, card=CorrectedRateCard(card.versions, ()))

    def attempt(faults: dict[str, str]) -> RatingResult:
        assessment = RatingResult(reference_data=reference_data, faults=dict(faults))
        _rate_window(assessment, reference_data, window, EpochFilter(before=as_of), zone, correction=False)
        _allocate(assessment, window, month_of(window.start, zone), close_seq)
        # other prices are tried on the window alone: late usage keeps the price of its own time
        for late in late_windows(as_of) if card is None else ():
            closed = Interval(late.start, late.end)
            _rate_window(assessment, reference_data, closed, late_epochs(as_of), zone, correction=True)
        return _without(faults, assessment, reference_data, window)

    return _rated(attempt)


def _rated(attempt: Callable[[dict[str, str]], RatingResult]) -> RatingResult:
    """Retry `attempt` without the teams that made it raise, until it returns a result."""
    faults: dict[str, str] = {}
    while True:
        try:
            return attempt(faults)
        except TeamRatingError as error:
            # no new team: another attempt would fail alike, without end
            if error.problems.keys() <= faults.keys():
                raise
            faults |= error.problems


def _without(
    faults: Collection[str], assessment: RatingResult, reference_data: ReferenceData, window: Interval
) -> RatingResult:
    """Sort the charges and drop those of teams that raised after they were charged."""
    assessment.charges = [charge for charge in assessment.charges if charge.key.team not in faults]
    assessment.charges.sort(key=attrgetter("key"))
    assessment.entangled = bool(faults) and (
        split_by_charges(window.start) or pools_rewards(reference_data.policies, window)
    )
    return assessment


def rate_slice(
    *, window: Interval, zone: str, reference_data: ReferenceData, close_seq: int, correction: bool,
    until: datetime | None = None,
) -> RatingResult:  # fmt: skip
    """Assess what close `close_seq` billed of a window (`correction`: of a window closed before).

    until: only usage before it counts, for a close that is not made yet: no capacity is stored for it, so the current one
    counts. Commitments count the hours of the whole window.
    """
    first = close_before(close_seq) if correction else 0
    epochs = EpochFilter(before=close_seq, first=first, last_sample=reference_data.last_sample(window))

    def attempt(faults: dict[str, str]) -> RatingResult:
        assessment = RatingResult(faults=dict(faults))
        _rate_window(assessment, reference_data, window, epochs, zone, correction=correction, until=until)
        if not correction:
            offered = Interval(window.start, until or window.end)
            _allocate(assessment, offered, month_of(window.start, zone), None if until else close_seq)
        return _without(faults, assessment, reference_data, window)

    return _rated(attempt)


def _allocate(assessment: RatingResult, window: Interval, month: str, close_seq: int | None) -> None:
    """Compute idle time by team and what a policy bills of it; late usage of an earlier month does not change it."""
    held = {
        pool: reduce(EXACT.add, (time.charged, time.platform, time.unowned, time.unpriced))
        for pool, time in assessment.device_time.items()
    }
    policy = allocation_policy_at(window.start)
    assessment.pools = idle_of(capacity_of(window, close_seq), held, assessment.team_time, policy)
    assessment.charges += allocated(policy, month, assessment.pools, assessment.team_time, assessment.charges)


def _rate_window(
    assessment: RatingResult, reference_data: ReferenceData, window: Interval, epochs: EpochFilter, zone: str, *,
    correction: bool, until: datetime | None = None,
) -> None:  # fmt: skip
    part = Slice.of(reference_data, window, month_of(window.start, zone), epochs, correction=correction, until=until)
    # both reads run in parallel with the rating of devices below
    tokens_read = deferred_query(lambda: list(token_usage(part, reference_data)))
    jobs = None if correction else job_reads(reference_data, part)
    owned = _own_devices(assessment, reference_data, [usage for usage, _ in device_usage(part, reference_data)])
    interrupted = [item for item, _ in carried_usage(part, reference_data)]
    found, committed = _covered(assessment, reference_data, part, owned, interrupted)
    for platform in (False, True):
        usages = [usage for usage in found.rest if usage.platform == platform]
        rated = rated_by_team(usages, _team, lambda part: rate_gpu(part, reference_data.card, reference_data.carbon.at))
        assessment.charges += rated.charges
        (assessment.platform_unpriced if platform else assessment.unpriced).extend(_missing(rated, late=correction))
    assessment.charges += committed
    # teams with faults get no charges, but their time stays in the accounts below
    carried = [item for item in interrupted if item.usage.team not in assessment.faults]
    rated = rated_by_team(carried, attrgetter("usage.team"), lambda part: rate_interruptions(part, reference_data.card))
    assessment.charges += rated.charges
    found_tokens = tokens_read()
    layouts = layouts_of(window, epochs.before, found_tokens, correction=correction)
    if not correction:
        assessment.layouts = dict(layouts)
    if teams := {team for team, gathers in layouts.items() if gathers}:
        found_tokens = gathered(found_tokens, teams)
    tokens = _own_tokens(assessment, reference_data, found_tokens)
    rated = rated_by_team(tokens, _team, lambda part: rate_tokens(part, reference_data.card))
    assessment.charges += rated.charges
    assessment.unpriced += _missing(rated, late=correction)
    if correction:
        _account_late(assessment, reference_data, owned, interrupted)
    else:
        _account_devices(assessment, reference_data, owned)
        _account_carried(assessment, reference_data, interrupted)
        assessment.tokens_left += sum(int(item.quantity) for item in rated.unpriced)
        judged = judge_jobs(reference_data, part, jobs, zone, assessment.faults)
        assessment.charges += judged.charges
        assessment.verdicts += judged.verdicts


def _covered(
    assessment: RatingResult,
    reference_data: ReferenceData,
    part: Slice,
    owned: Sequence[GpuUsage],
    interrupted: Sequence[InterruptedUsage],
) -> tuple[Cover, list[Charge]]:
    """Return what commitments pay for, with its charges, and the remaining usage, for teams that can be rated."""
    everybody = {usage.team for usage in owned} | {one.team for one in reference_data.commitments.commitments}

    def rate(teams: Collection[str]) -> tuple[Cover, list[Charge]]:
        bought, usages = reference_data.commitments, owned
        if len(teams) < len(everybody):
            bought = CommitmentBook(one for one in bought.commitments if one.team in teams)
            usages = [usage for usage in owned if usage.team in teams]
        found = covered_usage(replace(reference_data, commitments=bought), part, usages, interrupted)
        return found, rate_commitments(found, reference_data.card, reference_data.carbon.at).charges

    return rated_by_team(everybody - assessment.faults.keys(), str, rate)


def _own_devices(assessment: RatingResult, reference_data: ReferenceData, found: Iterable[GpuUsage]) -> list[GpuUsage]:
    """Return the owned usage; record the rest as unowned, by namespace."""
    owned: list[GpuUsage] = []
    unowned: dict[str, list[GpuUsage]] = defaultdict(list)
    for usage in found:
        if usage.team:
            owned.append(usage)
            continue
        unowned[f"{usage.cluster}/{usage.namespace}"].append(usage)
        if not usage.correction:
            _add_time(assessment, usage.cluster, usage.accelerator, "unowned", usage.device_us)
    for subject, usages in unowned.items():
        held = reduce(EXACT.add, (usage.device_us for usage in usages))
        worth = _worth(rate_gpu(usages, reference_data.card))
        late = usages[0].correction
        assessment.unowned.append(Unowned("unowned_namespace", subject, gpu_seconds(held), "gpu_seconds", worth, late))
    return owned


def _missing(rated: Rated, *, late: bool) -> list[Unpriced]:
    return [replace(item, late=late) for item in rated.unpriced]


def _worth(rated: Rated) -> Decimal | None:
    """Return the amount usage would be billed; None if a price is missing, since unknown is not zero."""
    if rated.unpriced:
        return None
    return sum((charge.amount for charge in rated.charges), Decimal("0.00"))


def _own_tokens(
    assessment: RatingResult, reference_data: ReferenceData, found: Iterable[tuple[TokenSum, TokenSums]]
) -> list[TokenSum]:
    """Return the tokens of teams that can be rated; count all tokens, and record unowned ones by consumer."""
    owned: list[TokenSum] = []
    unowned: dict[str, list[TokenSum]] = defaultdict(list)
    for usage, row in found:
        # 0 or 1: late tokens are not in the counts of this period
        own = not usage.correction
        for priced, count in usage.tokens.items():
            token_class, _ = class_and_context(priced)
            assessment.tokens[token_class] = assessment.tokens.get(token_class, 0) + own * count
        if not usage.team:
            unowned[f"{row.source}/{row.consumer}"].append(usage)
        elif usage.team in assessment.faults:
            assessment.tokens_held += own * sum(usage.tokens.values())
        else:
            owned.append(usage)
    for subject, items in unowned.items():
        count = sum(sum(item.tokens.values()) for item in items)
        assessment.tokens_left += 0 if items[0].correction else count
        worth = _worth(rate_tokens(items, reference_data.card))
        assessment.unowned.append(Unowned("unowned_consumer", subject, Decimal(count), "tokens", worth, items[0].correction))
    return owned


def _account_devices(assessment: RatingResult, reference_data: ReferenceData, owned: Iterable[GpuUsage]) -> None:
    sums: dict[tuple[str, str, str], Decimal] = {}
    for usage in owned:
        bucket = "platform" if usage.platform else "charged" if _priced(reference_data.card, usage) else "unpriced"
        place = (usage.cluster, usage.accelerator, bucket)
        sums[place] = EXACT.add(sums.get(place, Decimal(0)), usage.device_us)
        if bucket == "charged":
            _add_team_time(assessment, usage, usage.device_us)
    for (cluster, accelerator, bucket), held in sums.items():
        _add_time(assessment, cluster, accelerator, bucket, held)


def _account_carried(
    assessment: RatingResult, reference_data: ReferenceData, interrupted: Iterable[InterruptedUsage]
) -> None:
    """Move time waived by interruption policies from charged to platform time."""
    for item in interrupted:
        if _priced(reference_data.card, item.usage):
            # unpriced time was never counted as charged
            cluster, accelerator, less = item.usage.cluster, item.usage.accelerator, EXACT.minus(item.usage.device_us)
            _add_time(assessment, cluster, accelerator, "charged", less)
            _add_time(assessment, cluster, accelerator, "platform", item.usage.device_us)
            _add_team_time(assessment, item.usage, less)


def _account_late(
    assessment: RatingResult,
    reference_data: ReferenceData,
    owned: Iterable[GpuUsage],
    interrupted: Iterable[InterruptedUsage],
) -> None:
    """Add late usage to the payer's account; waived time is the platform's."""
    def add(payer: str, quantity: Decimal) -> None:
        assessment.late_time[payer] = EXACT.add(assessment.late_time.get(payer, Decimal(0)), quantity)

    for usage in owned:
        if usage.platform or _priced(reference_data.card, usage):
            add("" if usage.platform else usage.team, usage.device_us)
    for item in interrupted:
        if _priced(reference_data.card, item.usage):
            add(item.usage.team, EXACT.minus(item.usage.device_us))
            add("", item.usage.device_us)


def _add_team_time(assessment: RatingResult, usage: GpuUsage, quantity: Decimal) -> None:
    teams = assessment.team_time.setdefault((usage.cluster, usage.accelerator), {})
    teams[usage.team] = EXACT.add(teams.get(usage.team, Decimal(0)), quantity)


def _priced(card: RateCard, usage: GpuUsage) -> bool:
    try:
        card.gpu_price(usage.accelerator, usage.resource, usage.at)
    except LookupError:
        return False
    return True


def _add_time(assessment: RatingResult, cluster: str, accelerator: str, bucket: str, quantity: Decimal) -> None:
    known = assessment.device_time.get((cluster, accelerator), DeviceTime())
    changed = EXACT.add(getattr(known, bucket), quantity)
    assessment.device_time[cluster, accelerator] = replace(known, **{bucket: changed})
