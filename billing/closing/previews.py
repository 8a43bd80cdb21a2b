"""The last assessment of a large month, read back as what it was made of.

Pages of a small month assess it anew with every view. One with many lines takes seconds, so its pages show what was last
assessed, and say as of when; the scheduler assesses it again as often as a twentieth of one core allows. Nothing that
decides (close, waiver, accrual, document) reads from here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

import msgspec
from django.conf import settings

from billing.closing.models import ProvisionalStatement
from billing.invoices.line_rollups import LineRollup, MonthRollups, WastingJob
from billing.invoices.models import BillingPeriod
from billing.rating.allocation import PoolIdle
from billing.rating.assessment import DeviceTime, RatingResult
from billing.rating.efficiency import Verdict
from billing.rating.freshness import Unbilled, unbilled_in
from pricing.rating import LineKey


def large(size: int) -> bool:
    """Whether a month of so many lines and verdicts is too large to be assessed with every view."""
    return size >= settings.CACHE_STATEMENTS_ABOVE_LINES


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One line as the document states it, or would. `digest` finds it again: it names everything but the amount."""

    key: LineKey
    position: int
    quantity: Decimal
    unit_price: Decimal
    amount: Decimal
    energy_kwh: Decimal | None

    @property
    def digest(self) -> str:
        return self.key.digest()

    @property
    def place(self) -> tuple[str, str, str]:
        """What its team recognises it by: cluster and namespace, or the consumer at the gateway."""
        return (self.key.cluster, self.key.namespace, self.key.consumer)


@dataclass(frozen=True, slots=True)
class KindSum:
    """Rounded lines of one kind, added up."""

    kind: str
    correction: bool
    amount: Decimal


@dataclass(frozen=True, slots=True)
class TeamContent:
    """What a team would be charged, what it would only be shown, and what was said of its jobs."""

    charged: list[StatementLine] = field(default_factory=list)
    shadow: list[StatementLine] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TeamSums:
    """The same lines by kind."""

    charged: list[KindSum] = field(default_factory=list)
    shadow: list[KindSum] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KeptSums:
    """All that is kept of a team's month in sums; whoever reads it decodes only what it shows."""

    charged: list[KindSum]
    shadow: list[KindSum]
    facets: MonthRollups


@dataclass(frozen=True, slots=True)
class _OnlyFacets:
    facets: MonthRollups = field(default_factory=MonthRollups)


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool: what became of its time, and its idle time with the part of each team."""

    cluster: str
    accelerator: str
    time: DeviceTime
    capacity_us: Decimal | None
    idle_us: Decimal | None
    shares: dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class HoursOf:
    """Use by hour of the week from Monday 0:00, local: `name` is cluster, accelerator and resource, or a model."""

    name: tuple[str, ...]
    hours: list[Decimal]


@dataclass(frozen=True, slots=True)
class WeekUse:
    """What the places and consumers of all lines used until `until`: device-microseconds, and tokens."""

    until: datetime
    devices: list[HoursOf]
    tokens: list[HoursOf]


@dataclass(frozen=True, slots=True)
class MonthFacts:
    """What is kept of a month beside its lines. `use` None where nobody has summed it.

    faults: why some teams cannot be rated, which are in no amount; entangled: whether others hang on them.
    compared_until: up to when the teams' `compared` tells of the month before; None where nobody compared them.
    unbilled: usage that is in no charge.
    """

    pools: list[PoolFacts]
    faults: dict[str, str] = field(default_factory=dict)
    entangled: bool = False
    use: WeekUse | None = None
    compared_until: datetime | None = None
    unbilled: list[Unbilled] = field(default_factory=list)


def preview_of(period: BillingPeriod) -> ProvisionalStatement | None:
    """The last assessment of a period that is not closed, where it is large enough to be kept; without its report."""
    found = (
        ProvisionalStatement.objects.filter(month=period.month, lines__gte=settings.CACHE_STATEMENTS_ABOVE_LINES)
        .defer("report")
        .first()
    )
    return found if found is not None and found.ordinal == period.ordinal else None


def month_facts(assessment: RatingResult) -> MonthFacts:
    """What an assessment says beside its lines and verdicts."""
    return MonthFacts(_pools_of(assessment), assessment.faults, assessment.entangled, unbilled=unbilled_in(assessment))


def _pools_of(assessment: RatingResult) -> list[PoolFacts]:
    idle = {(pool.cluster, pool.accelerator): pool for pool in assessment.pools}
    facts = []
    for name in sorted(idle.keys() | assessment.device_time.keys()):
        pool, time = idle.get(name), assessment.device_time.get(name, DeviceTime())
        shares = dict(pool.shares) if pool else {}
        facts.append(PoolFacts(*name, time, pool and pool.capacity_us, pool and pool.idle_us, shares))
    return facts


def facts_of(preview: ProvisionalStatement) -> MonthFacts:
    """What is kept beside the lines; an older release kept the pools alone."""
    found = msgspec.json.decode(preview.facts, type=MonthFacts | list[PoolFacts])
    return MonthFacts(found) if isinstance(found, list) else found


def assessment_of(preview: ProvisionalStatement, verdicts: Iterable[Verdict]) -> RatingResult:
    """An assessment as far as pages ask for it: pools, the time of devices, and some verdicts; its lines are apart."""
    facts = facts_of(preview)
    return RatingResult(
        verdicts=list(verdicts),
        device_time={(pool.cluster, pool.accelerator): pool.time for pool in facts.pools},
        pools=[
            PoolIdle(pool.cluster, pool.accelerator, pool.capacity_us, pool.idle_us, pool.shares)
            for pool in facts.pools if pool.capacity_us is not None and pool.idle_us is not None
        ],
        faults=facts.faults,
        entangled=facts.entangled,
    )  # fmt: skip


def contents_of(preview: ProvisionalStatement, teams: Iterable[str]) -> dict[str, TeamContent]:
    """Lines and verdicts by team."""
    rows = preview.teams.filter(team__in=list(teams)).order_by("team").values_list("team", "content")
    decoder = msgspec.json.Decoder(TeamContent)
    return {team: decoder.decode(content) for team, content in rows.iterator()}


def sums_of(preview: ProvisionalStatement, teams: Iterable[str]) -> dict[str, TeamSums]:
    """Sums by kind by team."""
    rows = preview.teams.filter(team__in=list(teams)).order_by("team").values_list("team", "sums")
    decoder = msgspec.json.Decoder(TeamSums)
    return {team: decoder.decode(sums) for team, sums in rows}


def facets_of(preview: ProvisionalStatement, teams: Iterable[str]) -> MonthRollups | None:
    """Sums by place and what was used, of all the teams together; None where an older release kept none."""
    rows = preview.teams.filter(team__in=list(teams)).order_by("team").values_list("sums", flat=True)
    decoder = msgspec.json.Decoder(_OnlyFacets)
    charged: list[LineRollup] = []
    shadow: list[LineRollup] = []
    wasting: list[WastingJob] = []
    for sums in rows:
        found = decoder.decode(sums).facets
        if found.charged is None:
            return None
        charged += found.charged
        shadow += found.shadow
        wasting += found.wasting
    return MonthRollups(charged, shadow, wasting)


def compared_of(preview: ProvisionalStatement, teams: Iterable[str]) -> list[LineRollup] | None:
    """Sums of as many days of the month before, of all the teams together; None where nobody kept them."""
    if facts_of(preview).compared_until is None:
        return None
    rows = preview.teams.filter(team__in=list(teams)).order_by("team").values_list("compared", flat=True)
    decoder = msgspec.json.Decoder(list[LineRollup])
    return [item for compared in rows for item in decoder.decode(compared)]


def kind_sums(lines: Iterable[StatementLine]) -> list[KindSum]:
    """The lines by kind, corrections apart."""
    sums: dict[tuple[str, bool], Decimal] = defaultdict(lambda: Decimal("0.00"))
    for line in lines:
        sums[line.key.kind, line.key.correction] += line.amount
    return [KindSum(*name, amount) for name, amount in sums.items()]


def by_team(items: Iterable[Verdict]) -> Mapping[str, list[Verdict]]:
    """Verdicts by team."""
    found: dict[str, list[Verdict]] = defaultdict(list)
    for item in items:
        found[item.team].append(item)
    return found


def due(as_of: datetime | None, took_ms: int | None, now: datetime) -> bool:
    """Whether something that took so long should be made again: at most a twentieth of one core goes into it."""
    return as_of is None or (now - as_of).total_seconds() * 1000 >= max(60_000, 20 * (took_ms or 0))
