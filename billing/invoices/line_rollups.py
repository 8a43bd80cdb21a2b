"""Roll-ups of a team's lines for pages of the whole installation: by place and product, not by price.

A month of a thousand teams has fifty thousand lines and half as many sums; reading them takes a tenth of the time. They
are stored with the last assessment of a large month and with each invoice of a closed one, so both show the same.
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
"""HFU below which a job is listed as wasting even without a policy's penalty."""


@dataclass(frozen=True, slots=True)
class StatementLine:
    """Line as stated, or to be stated, by its document. `digest` identifies it: a hash of everything but the amount."""

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
        """Return cluster, namespace and consumer at the gateway, by which the team recognises the line."""
        return (self.key.cluster, self.key.namespace, self.key.consumer)


def statement_line(line: Line) -> StatementLine:
    """Return a line of charges that no close has billed yet."""
    charge = line.charge
    return StatementLine(charge.key, line.position, line.quantity, charge.unit_price, line.amount, line.energy_kwh)


class Charged(Protocol):
    """Line, or sum of lines that differ only in their price version, policy, reason or month."""

    @property
    def key(self) -> "LineKey | LineRollup": ...
    @property
    def quantity(self) -> Decimal: ...
    @property
    def amount(self) -> Decimal: ...


class LineRollup(OfKind, msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Sum of rounded lines of one team; `quantity` in `unit`."""

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
        """Return the roll-up itself, which has the fields of a line's key."""
        return self


class WastingJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Judged job with a penalty or a low HFU."""

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
        """Return the GPU-seconds without useful computation."""
        return self.gpu_seconds * (1 - self.hfu)


# every field but quantity and amount
_named: Final = attrgetter(*LineRollup.__struct_fields__[:-2])


@dataclass(frozen=True, slots=True)
class MonthRollups:
    """Roll-ups of charged lines and of shadow lines, and the most wasteful jobs of each namespace."""

    charged: list[LineRollup] = field(default_factory=list)
    shadow: list[LineRollup] = field(default_factory=list)
    wasting: list[WastingJob] = field(default_factory=list)


def line_rollups(lines: Iterable[Charged]) -> list[LineRollup]:
    """Return sums of lines by all fields that pages filter on, except the price."""
    sums: dict[tuple[Any, ...], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal("0.00")])
    for line in lines:
        total = sums[_named(line.key)]
        total[0] += line.quantity
        total[1] += line.amount
    return [LineRollup(*name, *total) for name, total in sums.items()]


def wasting_jobs(verdicts: Iterable[Verdict | EfficiencyVerdict]) -> list[WastingJob]:
    """Return the jobs that a page may list as wasting: the most wasteful of each namespace, so that any filter has some."""
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
    """Return as many jobs as a page shows, the most wasteful first."""
    return sorted(jobs, key=lambda job: (-job.wasted, job.job))[:WASTING_SHOWN]


def invoiced_rollups(period: BillingPeriod, teams: QuerySet[Team]) -> tuple[list[LineRollup], list[LineRollup]]:
    """Return the invoice lines of a closed month as sums: charged ones and shadow ones."""
    kept = InvoiceSums.objects.filter(invoice__period=period, invoice__team__in=teams)
    rows = kept.exclude(invoice__status=Invoice.Status.VOID).order_by("invoice__team__code")
    decoder = msgspec.json.Decoder(list[LineRollup])
    charged: list[LineRollup] = []
    shadow: list[LineRollup] = []
    for is_shadow, facets in rows.values_list("invoice__shadow", "facets"):
        (shadow if is_shadow else charged).extend(decoder.decode(facets))
    return charged, shadow


def invoiced_total(period: BillingPeriod, teams: QuerySet[Team], *, shadow: bool) -> Decimal:
    """Return the total of a closed month."""
    live = period.invoices.filter(team__in=teams, shadow=shadow).exclude(status=Invoice.Status.VOID)
    return live.aggregate(sum=Sum("total"))["sum"] or Decimal("0.00")


def judged_wasting(close_seq: int, teams: Sequence[str], asked: Q) -> list[WastingJob]:
    """Return the most wasteful jobs that a close judged, of `teams` and filtered by `asked`."""
    low = Q(reason__startswith="penalty") | Q(hfu__lt=LOW_HFU)
    found = EfficiencyVerdict.objects.filter(asked & low, close_seq=close_seq, team__in=teams, hfu__isnull=False)
    wasted = F("gpu_seconds") * (1 - F("hfu"))
    return wasting_jobs(found.annotate(wasted=wasted).order_by("-wasted", "job")[:WASTING_SHOWN])
