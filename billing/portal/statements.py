"""What a team owes for a month: of a closed period from its invoice, of an open one rated now by the code of the close.

Both are lines of one shape, so that no page knows the difference and none computes an amount of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any

from django.db.models import QuerySet, Sum

from billing.invoicing.lines import KIND_ORDER, Line, invoice_lines
from billing.invoicing.models import BillingPeriod, Invoice, InvoiceLine
from billing.invoicing.services.closing import charges_by_invoice
from billing.rating.assessment import Assessment, assess
from billing.rating.books import Books, gpu_seconds
from billing.rating.efficiency import Verdict
from billing.rating.models import EfficiencyVerdict, IdleShare
from billing.tenancy.models import Team
from metering.intervals import Interval
from pricing.rating import LineKey

ZERO = Decimal("0.00")
AnyVerdict = Verdict | EfficiencyVerdict


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
class LineGroup:
    """The lines of one kind in one namespace or of one consumer."""

    cluster: str
    namespace: str
    consumer: str
    lines: list[StatementLine]

    @property
    def amount(self) -> Decimal:
        return sum_of(self.lines)


@dataclass(frozen=True, slots=True)
class Section:
    """All lines of one kind, by place."""

    kind: str
    groups: list[LineGroup]

    @property
    def amount(self) -> Decimal:
        return sum((group.amount for group in self.groups), ZERO)

    @property
    def quantities(self) -> list[tuple[str, Decimal]]:
        """Total quantity per unit. An adjustment counts no usage of its own."""
        if self.kind in ("efficiency", "interruption", "idle", "shared"):
            return []
        sums: dict[str, Decimal] = defaultdict(Decimal)
        for group in self.groups:
            for line in group.lines:
                sums[line.key.unit] += line.quantity
        return sorted(sums.items())


@dataclass(frozen=True, slots=True)
class Statement:
    """A team's month. `invoice` is None while the month is a preview; a `shadow` is shown and never charged."""

    team: Team
    lines: list[StatementLine]
    invoice: Invoice | None = None
    shadow: bool = False

    @property
    def total(self) -> Decimal:
        return sum_of(self.lines)

    def of_kind(self, kind: str) -> Decimal:
        """Sum of the lines of one kind."""
        return sum_of(line for line in self.lines if line.key.kind == kind)

    @property
    def adjustments(self) -> Decimal:
        """What is neither devices nor tokens: efficiency, interruptions."""
        return self.total - self.devices - self.of_kind("tokens")

    @property
    def devices(self) -> Decimal:
        """Devices on demand and under commitments, used or not."""
        return self.of_kind("gpu") + self.of_kind("commitment")

    @property
    def corrections(self) -> Decimal:
        """The part of the total that corrects earlier months."""
        return sum_of(line for line in self.lines if line.key.correction)

    @property
    def sections(self) -> list[Section]:
        """The lines by kind, then by place, in the order of the document."""
        ordered = sorted(self.lines, key=lambda line: (KIND_ORDER.get(line.key.kind, 9), line.place, line.position))
        return [
            Section(kind, [LineGroup(*place, list(group)) for place, group in groupby(lines, lambda x: x.place)])
            for kind, lines in groupby(ordered, lambda line: line.key.kind)
        ]

    def line(self, digest: str) -> StatementLine | None:
        """The line of that name, or None."""
        return next((line for line in self.lines if line.digest == digest), None)


@dataclass(frozen=True)
class MonthStatements:
    """The statements of the teams that somebody may see, by team code."""

    period: BillingPeriod
    statements: list[Statement]
    assessment: Assessment | None = None
    teams: list[Team] = field(default_factory=list)

    @property
    def preview(self) -> bool:
        """Whether the amounts can still change."""
        return self.assessment is not None

    @property
    def books(self) -> Books | None:
        """What a preview was rated by; an invoice was by what its close knew."""
        return None if self.assessment is None else self.assessment.books

    @property
    def charged(self) -> list[Statement]:
        """What teams owe: all but what they are only shown."""
        return [statement for statement in self.statements if not statement.shadow]

    @property
    def total(self) -> Decimal:
        return sum((statement.total for statement in self.charged), ZERO)

    @property
    def shadowed(self) -> Decimal:
        """What teams are shown and nobody is charged; in no total, as it is in no journal and no export."""
        return sum((statement.total for statement in self.statements if statement.shadow), ZERO)

    def of_kind(self, kind: str) -> Decimal:
        """Sum of one kind over the teams shown."""
        return sum((statement.of_kind(kind) for statement in self.charged), ZERO)

    def verdicts(self, team: Team) -> list[AnyVerdict]:
        """What the efficiency policies said about the team's jobs, with what they said it from."""
        if self.assessment is not None:
            return [verdict for verdict in self.assessment.verdicts if verdict.team == team.code]
        stored = EfficiencyVerdict.objects.filter(closing=self.period.ordinal, team=team.code)
        return list(stored.order_by("cluster", "namespace", "job"))


@dataclass(frozen=True, slots=True)
class IdleTime:
    """The idle device-microseconds of a pool, and the part that falls to a team."""

    cluster: str
    accelerator: str
    pool_idle_us: Decimal
    idle_us: Decimal

    @property
    def pool_seconds(self) -> Decimal:
        return gpu_seconds(self.pool_idle_us)

    @property
    def seconds(self) -> Decimal:
        return gpu_seconds(self.idle_us)


def idle_times(month: MonthStatements, team: Team) -> list[IdleTime]:
    """What nobody held of the pools that a team used, and its part of that, whether a policy bills it or not."""
    if month.assessment is not None:
        return [
            IdleTime(pool.cluster, pool.accelerator, pool.idle_us, pool.shares[team.code])
            for pool in month.assessment.pools
            if team.code in pool.shares
        ]
    rows = IdleShare.objects.filter(closing=month.period.ordinal, team=team.code)
    return [IdleTime(row.cluster, row.accelerator, row.pool_idle_us, row.idle_us) for row in rows]


def sum_of(lines: Iterable[StatementLine]) -> Decimal:
    """Sum of rounded lines, as the total of an invoice is."""
    return sum((line.amount for line in lines), ZERO)


def month_statements(period: BillingPeriod, teams: QuerySet[Team], *, summed: bool = False) -> MonthStatements:
    """Statements of `teams` (those that somebody may see) for one month.

    summed: where only sums are shown; of a closed month one line per kind, for a page of a thousand teams needs no more.
    """
    if period.status == BillingPeriod.Status.CLOSED:
        return _of_invoices(period, teams, summed=summed)
    assessment = assess(window=Interval(period.start, period.end), zone=period.zone, ordinal=period.ordinal)
    return _of_assessment(period, assessment, list(teams))


def _of_invoices(period: BillingPeriod, teams: QuerySet[Team], *, summed: bool) -> MonthStatements:
    live = period.invoices.filter(team__in=teams).exclude(status=Invoice.Status.VOID)
    invoices = list(live.select_related("team").defer("draft", "document").order_by("team__code", "shadow"))
    lines: dict[int, list[StatementLine]] = defaultdict(list)
    codes = {invoice.pk: invoice.team.code for invoice in invoices}
    rows = InvoiceLine.objects.filter(invoice__in=list(codes))
    if summed:
        for row in rows.values("invoice_id", "kind", "correction").annotate(amount=Sum("amount")).order_by("invoice_id"):
            lines[row["invoice_id"]].append(_sum_of_a_kind(row, codes[row["invoice_id"]], period.month))
    else:
        for stored in rows.order_by("invoice_id", "position").iterator():
            lines[stored.invoice_id].append(_stored(stored, codes[stored.invoice_id]))
    statements = [Statement(invoice.team, lines[invoice.pk], invoice, invoice.shadow) for invoice in invoices]
    return MonthStatements(period, statements, teams=list(teams))


def _sum_of_a_kind(row: Mapping[str, Any], team: str, month: str) -> StatementLine:
    key = LineKey(team=team, platform=False, correction=row["correction"], charge_period=month, kind=row["kind"])
    return StatementLine(key, 0, ZERO, ZERO, row["amount"], None)


def _of_assessment(period: BillingPeriod, assessment: Assessment, teams: Sequence[Team]) -> MonthStatements:
    by_code = {team.code: team for team in teams}
    statements = [
        Statement(by_code[code], [previewed(line) for line in invoice_lines(charges)], shadow=shadow)
        for (code, shadow), charges in sorted(charges_by_invoice(assessment.charges).items())
        if code in by_code
    ]
    return MonthStatements(period, statements, assessment, list(teams))


def previewed(line: Line) -> StatementLine:
    """A line of charges that no close has billed yet."""
    charge = line.charge
    return StatementLine(charge.key, line.position, line.quantity, charge.unit_price, line.amount, line.energy_kwh)


def _stored(row: InvoiceLine, team: str) -> StatementLine:
    key = LineKey(
        team=team, platform=False, correction=row.correction, charge_period=row.charge_period, kind=row.kind,
        cluster=row.cluster, namespace=row.namespace, consumer=row.consumer, accelerator=row.accelerator, sku=row.sku,
        token_class=row.token_class, unit=row.unit, price_version=row.price_version, policy=row.policy,
        reason=row.reason,
    )  # fmt: skip
    return StatementLine(key, row.position, row.quantity, row.unit_price, row.amount, row.energy_kwh)
