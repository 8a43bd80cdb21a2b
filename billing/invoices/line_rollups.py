"""The lines of a team's month summed as pages of the whole installation need them: by place and what was used, not by price.

A month of a thousand teams has fifty thousand lines and half as many sums; reading them takes a tenth of the time. They
are kept beside the last assessment of a large month and beside each invoice of a closed one, so both say the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final, Protocol, Self

import msgspec
from django.db.models import F, Q, QuerySet, Sum

from billing.invoices.lines import Line
from billing.invoices.models import BillingPeriod, Invoice, InvoiceSums
from billing.rating.efficiency import Verdict
from billing.rating.models import EfficiencyVerdict
from billing.tenancy.models import Team
from pricing.meters import OfKind
from pricing.rating import LineKey

WASTING_SHOWN: Final = 10
LOW_HFU: Final = Decimal("0.30")
"""Below it a job is listed as wasting even where no policy judged it so."""


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


def statement_line(line: Line) -> StatementLine:
    """A line of charges that no close has billed yet."""
    charge = line.charge
    return StatementLine(charge.key, line.position, line.quantity, charge.unit_price, line.amount, line.energy_kwh)


class Charged(Protocol):
    """A line, or lines that differ only in their price version, policy, reason or month, as one sum."""

    @property
    def key(self) -> "LineKey | LineRollup": ...
    @property
    def quantity(self) -> Decimal: ...
    @property
    def amount(self) -> Decimal: ...


class LineRollup(OfKind, msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Rounded lines of one team, added up; `quantity` in `unit`."""

    team: str
    kind: str
    correction: bool
    cluster: str
    namespace: str
    consumer: str
    accelerator: str
    sku: str
    token_class: str
    unit: str
    quantity: Decimal
    amount: Decimal

    @property
    def key(self) -> Self:
        """Itself, where a line has a key."""
        return self


class WastingJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A judged job with a penalty or a low HFU."""

    team: str
    cluster: str
    namespace: str
    job: str
    policy: str
    mfu: Decimal | None
    hfu: Decimal
    gpu_seconds: Decimal
    reason: str
    effect: Decimal

    @property
    def wasted(self) -> Decimal:
        """GPU-seconds that computed nothing."""
        return self.gpu_seconds * (1 - self.hfu)


_named: Final = attrgetter(*LineRollup.__struct_fields__[:-2])


@dataclass(frozen=True, slots=True)
class MonthRollups:
    """What some teams are charged, what they are only shown, and the most wasteful jobs of each namespace."""

    charged: list[LineRollup] = field(default_factory=list)
    shadow: list[LineRollup] = field(default_factory=list)
    wasting: list[WastingJob] = field(default_factory=list)


def line_rollups(lines: Iterable[Charged]) -> list[LineRollup]:
    """Lines by all that a page asks of them but their price."""
    sums: dict[tuple[Any, ...], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal("0.00")])
    for line in lines:
        total = sums[_named(line.key)]
        total[0] += line.quantity
        total[1] += line.amount
    return [LineRollup(*name, *total) for name, total in sums.items()]


def wasting_jobs(verdicts: Iterable[Verdict | EfficiencyVerdict]) -> list[WastingJob]:
    """The jobs that a page may list as wasting: of each namespace the most wasteful, so that every filter finds its own."""
    places: dict[tuple[str, str, str], list[WastingJob]] = defaultdict(list)
    for item in verdicts:
        if item.hfu is not None and (item.reason.startswith("penalty") or item.hfu < LOW_HFU):
            job = WastingJob(
                item.team, item.cluster, item.namespace, item.job, item.policy, item.mfu, item.hfu, item.gpu_seconds,
                item.reason, item.effect,
            )  # fmt: skip
            places[job.team, job.cluster, job.namespace].append(job)
    return [job for jobs in places.values() for job in most_wasteful(jobs)]


def most_wasteful(jobs: Iterable[WastingJob]) -> list[WastingJob]:
    """As many as a page shows, the most wasteful first."""
    return sorted(jobs, key=lambda job: (-job.wasted, job.job))[:WASTING_SHOWN]


def invoiced_rollups(period: BillingPeriod, teams: QuerySet[Team]) -> tuple[list[LineRollup], list[LineRollup]]:
    """The invoice lines of a closed month as sums: of what is charged, and of what is only shown."""
    kept = InvoiceSums.objects.filter(invoice__period=period, invoice__team__in=teams)
    rows = kept.exclude(invoice__status=Invoice.Status.VOID).order_by("invoice__team__code")
    decoder = msgspec.json.Decoder(list[LineRollup])
    charged: list[LineRollup] = []
    shadow: list[LineRollup] = []
    for is_shadow, facets in rows.values_list("invoice__shadow", "facets"):
        (shadow if is_shadow else charged).extend(decoder.decode(facets))
    return charged, shadow


def invoiced_total(period: BillingPeriod, teams: QuerySet[Team], *, shadow: bool) -> Decimal:
    """The total of a closed month."""
    live = period.invoices.filter(team__in=teams, shadow=shadow).exclude(status=Invoice.Status.VOID)
    return live.aggregate(sum=Sum("total"))["sum"] or Decimal("0.00")


def judged_wasting(close_seq: int, teams: Sequence[str], asked: Q) -> list[WastingJob]:
    """The most wasteful jobs that a close judged, of `teams` and as `asked`."""
    low = Q(reason__startswith="penalty") | Q(hfu__lt=LOW_HFU)
    found = EfficiencyVerdict.objects.filter(asked & low, close_seq=close_seq, team__in=teams, hfu__isnull=False)
    wasted = F("gpu_seconds") * (1 - F("hfu"))
    return wasting_jobs(found.annotate(wasted=wasted).order_by("-wasted", "job")[:WASTING_SHOWN])
