"""What a close would bill: every unit of usage of a period is charged, the platform's own, unowned or unpriced.

`assess` reads usage, owners and prices and hands them to `pricing.rating`; it writes nothing, so a preview, the report
before a close, the close itself and the proof after it are one computation.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import reduce
from hashlib import sha256

from billing.rates.selectors import PolicyBook, rate_card
from billing.tenancy.ownership import OwnershipBook
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.selectors import (
    ClosedSpan,
    EpochFilter,
    GpuSum,
    Sample,
    TokenSums,
    efficiency_samples,
    gpu_sums,
    last_ordinal,
    late_windows,
    scored_job_sums,
    token_sums,
)
from metering.intervals import Interval, month_of, union
from metering.peaks import dense_peak_tflops
from pricing.efficiency import EfficiencyPolicy, judge
from pricing.money import EXACT
from pricing.rate_card import RateCard
from pricing.rating import (
    Charge,
    GpuUsage,
    JudgedUsage,
    TokenSum,
    Unpriced,
    rate_efficiency,
    rate_gpu,
    rate_tokens,
)

MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Unowned:
    """Usage that no team owns."""

    kind: str
    subject: str
    quantity: Decimal
    unit: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the efficiency policy says about one job, with what it was said from."""

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

    @property
    def job_key(self) -> str:
        return sha256(self.job.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Device-microseconds of one cluster and accelerator by what became of them; late usage is not in here."""

    charged: Decimal = Decimal(0)
    platform: Decimal = Decimal(0)
    unowned: Decimal = Decimal(0)
    unpriced: Decimal = Decimal(0)


@dataclass
class Assessment:
    """Everything that a close of the period bills or must leave out, and why.

    `tokens` are the period's own by class, `tokens_left` those of them that are in no charge. The platform's own use is
    billed to nobody: without a price it is worth a note (`platform_unpriced`), but holds nothing.
    """

    charges: list[Charge] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    unowned: list[Unowned] = field(default_factory=list)
    unpriced: list[Unpriced] = field(default_factory=list)
    platform_unpriced: list[Unpriced] = field(default_factory=list)
    device_time: dict[tuple[str, str], DeviceTime] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    tokens_left: int = 0


def gpu_seconds(device_us: Decimal) -> Decimal:
    """Device-microseconds as device-seconds, exact."""
    return EXACT.scaleb(device_us, -6)


def assess(*, window: Interval, zone: str, ordinal: int | None) -> Assessment:
    """Assess [start, end) as the `ordinal`-th close saw it, or, where None, as a close now would see it.

    Late usage of windows closed before comes in as corrections, at the owner and the price of its own time.
    """
    this = ordinal if ordinal is not None else last_ordinal() + 1
    books = _Books(namespace_book(), consumer_book(), rate_card(), PolicyBook())
    assessment = Assessment()
    _assess_window(assessment, books, window, EpochFilter(before=this), zone, correction=False)
    for late in late_windows(this):
        _assess_late(assessment, books, late, this, zone)
    assessment.charges.sort(key=lambda charge: charge.key)
    return assessment


def _assess_late(assessment: Assessment, books: "_Books", late: ClosedSpan, this: int, zone: str) -> None:
    epochs = EpochFilter(before=this, first=this - 1)
    _assess_window(assessment, books, Interval(late.start, late.end), epochs, zone, correction=True)


@dataclass(frozen=True)
class _Books:
    namespaces: OwnershipBook
    consumers: OwnershipBook
    card: RateCard
    policies: PolicyBook



def _assess_window(
    assessment: Assessment, books: _Books, window: Interval, epochs: EpochFilter, zone: str, *, correction: bool
) -> None:
    month = month_of(window.start, zone)
    pieces = window.cut(books.card.changes() | books.namespaces.changes() | books.policies.changes())
    owned = _own_devices(assessment, books, pieces, gpu_sums(pieces, epochs), month, correction)
    for platform in (False, True):
        rated = rate_gpu([usage for usage in owned if usage.platform == platform], books.card)
        assessment.charges += rated.charges
        (assessment.platform_unpriced if platform else assessment.unpriced).extend(rated.unpriced)
    if not correction:
        _account_devices(assessment, books, owned)
        _assess_efficiency(assessment, books, pieces, epochs, month)
    pieces = window.cut(books.card.changes() | books.consumers.changes())
    rated = rate_tokens(
        _own_tokens(assessment, books, pieces, token_sums(pieces, epochs), month, correction), books.card
    )
    assessment.charges += rated.charges
    assessment.unpriced += rated.unpriced
    if not correction:
        assessment.tokens_left += sum(int(item.quantity) for item in rated.unpriced)


def _own_devices(
    assessment: Assessment,
    books: _Books,
    pieces: Sequence[Interval],
    sums: Iterable[GpuSum],
    month: str,
    correction: bool,
) -> list[GpuUsage]:
    owned: list[GpuUsage] = []
    unowned: dict[str, Decimal] = defaultdict(Decimal)
    for item in sums:
        at = pieces[item.piece].start
        owner = books.namespaces.owner(item.cluster, item.namespace, at)
        if owner is None:
            subject = f"{item.cluster}/{item.namespace}"
            unowned[subject] = EXACT.add(unowned[subject], item.device_us)
            if not correction:
                _add_time(assessment, item.cluster, item.accelerator, "unowned", item.device_us)
            continue
        owned.append(
            GpuUsage(
                owner.team, owner.platform, item.cluster, item.namespace, item.accelerator, item.resource, at,
                item.device_us, item.unit_us, month, correction,
            )
        )  # fmt: skip
    assessment.unowned += [
        Unowned("unowned_namespace", subject, gpu_seconds(quantity), "gpu_seconds")
        for subject, quantity in unowned.items()
    ]
    return owned


def _own_tokens(
    assessment: Assessment,
    books: _Books,
    pieces: Sequence[Interval],
    sums: Iterable[TokenSums],
    month: str,
    correction: bool,
) -> list[TokenSum]:
    owned: list[TokenSum] = []
    unowned: dict[str, int] = defaultdict(int)
    for item in sums:
        at = pieces[item.piece].start
        for token_class, count in item.by_class.items():
            assessment.tokens[token_class] = assessment.tokens.get(token_class, 0) + (0 if correction else count)
        owner = books.consumers.owner(item.source, item.consumer, at)
        if owner is None:
            unowned[f"{item.source}/{item.consumer}"] += sum(item.by_class.values())
            continue
        owned.append(TokenSum(owner.team, item.consumer, item.model, at, item.by_class, month, correction))
    if not correction:
        assessment.tokens_left += sum(unowned.values())
    assessment.unowned += [
        Unowned("unowned_consumer", subject, Decimal(count), "tokens") for subject, count in unowned.items()
    ]
    return owned


def _account_devices(assessment: Assessment, books: _Books, owned: Iterable[GpuUsage]) -> None:
    for usage in owned:
        bucket = "platform" if usage.platform else "charged" if _priced(books.card, usage) else "unpriced"
        _add_time(assessment, usage.cluster, usage.accelerator, bucket, usage.device_us)


def _priced(card: RateCard, usage: GpuUsage) -> bool:
    try:
        card.gpu_price(usage.accelerator, usage.resource, usage.at)
    except LookupError:
        return False
    return True


def _add_time(assessment: Assessment, cluster: str, accelerator: str, bucket: str, quantity: Decimal) -> None:
    known = assessment.device_time.get((cluster, accelerator), DeviceTime())
    values = {name: getattr(known, name) for name in ("charged", "platform", "unowned", "unpriced")}
    values[bucket] = EXACT.add(values[bucket], quantity)
    assessment.device_time[cluster, accelerator] = DeviceTime(**values)


def _assess_efficiency(
    assessment: Assessment, books: _Books, pieces: Sequence[Interval], epochs: EpochFilter, month: str
) -> None:
    """Judge every job with samples by the policy in force, cut where the policy or the owner changes."""
    policies = [(piece, books.policies.at(piece.start)) for piece in pieces]
    if not any(policy for _, policy in policies):
        return
    sums = [item for item in scored_job_sums(pieces, epochs) if policies[item.piece][1] is not None]
    window = Interval(pieces[0].start, pieces[-1].end)
    samples: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for sample in efficiency_samples(window, epochs.before):
        samples[sample.cluster, sample.namespace, sample.job].append(sample)
    jobs: dict[tuple[str, str, str, str], list[GpuSum]] = defaultdict(list)
    for item in sums:
        policy = policies[item.piece][1]
        if policy is not None:
            jobs[item.cluster, item.namespace, item.job, policy.name].append(item)
    judged: list[JudgedUsage] = []
    for (cluster, namespace, job, policy_name), items in sorted(jobs.items()):
        covered = [piece for piece, policy in policies if policy is not None and policy.name == policy_name]
        policy = next(policy for _, policy in policies if policy is not None and policy.name == policy_name)
        judged += _judge_job(assessment, books, pieces, items, samples[cluster, namespace, job], covered, policy, month)
    assessment.charges += rate_efficiency(judged, books.card).charges


def _judge_job(  # one job's facts, gathered once
    assessment: Assessment,
    books: _Books,
    pieces: Sequence[Interval],
    items: Sequence[GpuSum],
    samples: Sequence[Sample],
    covered: Sequence[Interval],
    policy: EfficiencyPolicy,
    month: str,
) -> list[JudgedUsage]:
    held = gpu_seconds(reduce(EXACT.add, (item.device_us for item in items), Decimal(0)))
    score = _score(samples, covered, held)
    verdict = judge(
        policy, gpu_seconds=held, minutes=score.minutes, coverage=score.coverage, mfu=score.mfu, hfu=score.hfu
    )
    judged: list[JudgedUsage] = []
    teams: set[str] = set()
    for item in items:
        at = pieces[item.piece].start
        owner = books.namespaces.owner(item.cluster, item.namespace, at)
        if owner is None or owner.platform:
            continue
        teams.add(owner.team)
        usage = GpuUsage(
            owner.team, False, item.cluster, item.namespace, item.accelerator, item.resource, at, item.device_us,
            item.unit_us, month,
        )  # fmt: skip
        judged.append(JudgedUsage(usage, policy.name, verdict.multiplier, verdict.reason))
    first = items[0]
    assessment.verdicts += [
        Verdict(
            team, first.cluster, first.namespace, first.job, policy.name, held, score.minutes, score.coverage,
            score.mfu, score.hfu, verdict.multiplier, verdict.reason,
        )
        for team in sorted(teams)
    ]  # fmt: skip
    return judged


@dataclass(frozen=True, slots=True)
class _Score:
    minutes: Decimal
    coverage: Decimal
    mfu: Decimal | None
    hfu: Decimal | None


def _score(samples: Sequence[Sample], covered: Sequence[Interval], held_seconds: Decimal) -> _Score:
    """Weigh samples by GPU-seconds x dense peak; coverage is measured GPU-seconds over all that were held."""
    parts = [(sample, share) for sample in samples if (share := _share(sample, covered))]
    measured = sum((Fraction(s.gpu_seconds) * Fraction(s.coverage) * share for s, share in parts), Fraction(0))
    coverage = min(measured / Fraction(held_seconds), Fraction(1)) if held_seconds else Fraction(0)
    busy = union(
        [cut for sample, _ in parts for piece in covered if (cut := Interval(sample.start, sample.end).overlap(piece))]
    )
    minutes = Fraction(sum(piece.microseconds for piece in busy), 60 * MICRO)
    return _Score(
        _decimal(minutes, 6), _decimal(coverage, 12), _weighted(parts, "mfu"), _weighted(parts, "hfu")
    )


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
