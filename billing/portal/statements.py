"""Statements of teams for a month: of a closed period from its invoices, of an open one rated now by the code of the close.

Both are lines of one shape, so that no page distinguishes them and none computes an amount of its own.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from itertools import groupby

from django.db.models import QuerySet, Sum
from django.utils import timezone

from billing.closing.services.snapshots import snapshot_make
from billing.closing.snapshots import KindSum, contents_of, rollups_of, snapshot_shown, sums_of
from billing.invoices.line_rollups import Charged, StatementLine, WastingJob, invoiced_rollups
from billing.invoices.line_rollups import statement_line as previewed
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine
from billing.invoices.selectors import known_before, unbuilt_drafts
from billing.invoices.services.drafts import charges_by_invoice
from billing.rating.assessment import RatingResult
from billing.rating.efficiency import Verdict
from billing.rating.freshness import Unbilled, unbilled_in
from billing.rating.models import EfficiencyVerdict, IdleShare, RatingSnapshot
from billing.rating.reference_data import ReferenceData, gpu_seconds
from billing.rating.selectors import reference_data_known
from billing.rating.snapshots import result_of
from billing.tenancy.models import Team
from pricing.meters import ALWAYS_SHOWN, SECTIONS, Role, line_kind
from pricing.number_text import price_text
from pricing.rating import LineKey

ZERO = Decimal("0.00")
AnyVerdict = Verdict | EfficiencyVerdict


@dataclass(frozen=True, slots=True)
class LineGroup:
    cluster: str
    namespace: str
    consumer: str
    lines: list[StatementLine]

    @property
    def amount(self) -> Decimal:
        return sum_of(self.lines)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one kind, by place."""

    kind: str
    groups: list[LineGroup]

    @property
    def amount(self) -> Decimal:
        return sum((group.amount for group in self.groups), ZERO)

    @property
    def quantities(self) -> list[tuple[str, Decimal]]:
        """Return the total quantity per unit; an adjustment has no usage of its own."""
        if line_kind(self.kind).role is not Role.USAGE:
            return []
        sums: dict[str, Decimal] = defaultdict(Decimal)
        for group in self.groups:
            for line in group.lines:
                sums[line.key.unit] += line.quantity
        return sorted(sums.items())


@dataclass(frozen=True)
class Statement:
    """Statement of a team for a month. `invoice` is None while the month is a preview; a `shadow` is never charged.

    budget: the team's budget for the month, if `team_rows` read it and there is one. other: the total of the team's other
    statement of the month (showback beside the charged one), which a budget counts too.
    charged_center: the cost centre that the invoice names, if it was read.
    """

    team: Team
    lines: list[StatementLine]
    invoice: Invoice | None = None
    shadow: bool = False
    budget: Decimal | None = None
    other: Decimal = ZERO
    charged_center: str | None = None

    @property
    def cost_center(self) -> str:
        """Return the cost centre that was charged, if it was read; else the current one."""
        return self.team.cost_center if self.charged_center is None else self.charged_center

    @property
    def total(self) -> Decimal:
        return sum_of(self.lines)

    def of_kind(self, kind: str) -> Decimal:
        return sum_of(line for line in self.lines if line.key.kind == kind)

    @property
    def gpu(self) -> Decimal:
        """Return the amount of devices on demand and under commitments, used or not."""
        return self.parts["gpu"]

    @property
    def tokens(self) -> Decimal:
        return self.parts["tokens"]

    @property
    def adjustments(self) -> Decimal:
        """Return the amount of efficiency and interruptions."""
        return self.parts["adjustments"]

    @cached_property
    def parts(self) -> dict[str, Decimal]:
        """Return the total by section (`SECTIONS`)."""
        return parts_of(self.lines)

    @property
    def budget_used(self) -> Decimal | None:
        """Return spending over budget, as a ratio; a budget counts charged and showback amounts. None without a budget."""
        return None if self.budget is None else (self.total + self.other) / self.budget

    @property
    def corrections(self) -> Decimal:
        """Return the part of the total that corrects earlier months."""
        return sum_of(line for line in self.lines if line.key.correction)

    @property
    def sections(self) -> list[Section]:
        """Return the lines by kind, then by place, in the order of the document."""
        ordered = sorted(self.lines, key=lambda line: (line.key.what.order, line.place, line.position))
        return [
            Section(kind, [
                LineGroup(cluster, namespace, consumer, list(group))
                for (cluster, namespace, consumer), group in groupby(lines, lambda line: line.place)
            ])
            for kind, lines in groupby(ordered, lambda line: line.key.kind)
        ]  # fmt: skip

    def line(self, digest: str) -> StatementLine | None:
        return next((line for line in self.lines if line.digest == digest), None)


@dataclass(frozen=True)
class Month:
    """Month of the teams that a user may see.

    assessment: the rating of a month that is not closed. as_of: the instant of a large month's last assessment; None
    if it was assessed for this very view, or is invoiced.
    """

    period: BillingPeriod
    teams: Collection[Team] | QuerySet[Team]
    assessment: RatingResult | None = field(default=None, kw_only=True)
    as_of: datetime | None = field(default=None, kw_only=True)

    @property
    def preview(self) -> bool:
        """Return True if the amounts can still change."""
        return self.assessment is not None

    @cached_property
    def unrated(self) -> dict[str, str]:
        """Return the problems of teams that cannot be rated: they are in no statement, though they may owe something."""
        faults = self.assessment.faults if self.assessment else {}
        codes = {team.code for team in self.teams} if faults else set()
        return {team: problem for team, problem in sorted(faults.items()) if team in codes}

    @property
    def entangled(self) -> bool:
        """Return True if the amounts of other teams depend on the teams that cannot be rated."""
        return self.assessment is not None and self.assessment.entangled

    @cached_property
    def unbuilt(self) -> list[str]:
        """Return the teams whose draft of a closed month was voided and is not built again: they are in no statement."""
        if self.preview or not self.period.invoices.filter(status=Invoice.Status.VOID).exists():
            return []
        codes = {team.code for team in self.teams}
        return [draft.team.code for draft in unbuilt_drafts(self.period) if not draft.shadow and draft.team.code in codes]

    @cached_property
    def unbilled(self) -> Sequence[Unbilled]:
        """Return the usage of any team that is in no statement."""
        return unbilled_in(self.assessment) if self.assessment else ()

    @property
    def reference_data(self) -> ReferenceData | None:
        """Return the reference data that a preview was rated by; None for invoices, which follow their close."""
        if self.assessment is None:
            return None
        return self.assessment.reference_data or reference_data_known(known_before(self.period))


@dataclass(frozen=True)
class MonthStatements(Month):
    statements: list[Statement]

    @property
    def charged(self) -> list[Statement]:
        """Return the statements that teams owe, without showback."""
        return [statement for statement in self.statements if not statement.shadow]

    @property
    def total(self) -> Decimal:
        return sum((statement.total for statement in self.charged), ZERO)

    @property
    def shadowed(self) -> Decimal:
        """Return the showback total: it is in no other total, in no journal and in no export."""
        return sum((statement.total for statement in self.statements if statement.shadow), ZERO)

    @property
    def is_shown(self) -> bool:
        """Return True if all usage of the month itself is showback."""
        shown = any(statement.shadow for statement in self.statements)
        return shown and all(line.key.correction for statement in self.charged for line in statement.lines)

    @property
    def sums(self) -> dict[str, Decimal]:
        """Return the charged amounts by section."""
        return parts_of(line for statement in self.charged for line in statement.lines)

    def verdicts(self, team: Team) -> list[AnyVerdict]:
        """Return the verdicts of efficiency policies on the team's jobs, with their evidence."""
        return self.verdicts_of([team.code])

    def verdicts_of(self, codes: Collection[str]) -> list[AnyVerdict]:
        """Return the verdicts on the jobs of some teams."""
        if self.assessment is not None:
            return [verdict for verdict in self.assessment.verdicts if verdict.team in codes]
        stored = EfficiencyVerdict.objects.filter(close_seq=self.period.close_number, team__in=codes)
        return list(stored.order_by("cluster", "namespace", "job"))


@dataclass(frozen=True)
class MonthFacets(Month):
    """Sums of a month that some teams are charged, and those that are showback.

    `wasting` and `whole`: the jobs and the lines behind the sums, if they were read with them.
    """

    charged: Sequence[Charged]
    shown_only: Sequence[Charged]
    wasting: Sequence[WastingJob] | None = None
    whole: MonthStatements | None = None

    @property
    def shadow(self) -> bool:
        """Return True if everything here is showback, except late usage of months that were charged."""
        return bool(self.shown_only) and all(line.key.correction for line in self.charged)

    @property
    def lines(self) -> Sequence[Charged]:
        """Return the lines that a page shows: charged ones, or showback if no usage of the month is charged."""
        return self.shown_only if self.shadow else self.charged


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle device-microseconds of a pool, and the part that falls to a team."""

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
    """Return the idle time of the pools that a team used, and the team's part of it, billed by a policy or not."""
    if month.assessment is not None:
        return [
            IdleTime(pool.cluster, pool.accelerator, pool.idle_us, pool.shares[team.code])
            for pool in month.assessment.pools
            if team.code in pool.shares
        ]
    rows = IdleShare.objects.filter(close_seq=month.period.close_number, team=team.code)
    return [IdleTime(row.cluster, row.accelerator, row.pool_idle_us, row.idle_us) for row in rows]


def parts_of(lines: Iterable[Charged]) -> dict[str, Decimal]:
    """Sum the amounts of lines by section (`SECTIONS`), zero for a section without lines."""
    sums = dict.fromkeys(SECTIONS, ZERO)
    for line in lines:
        sums[line.key.what.section] += line.amount
    return sums


def sections_shown(parts: Iterable[Mapping[str, Decimal]]) -> list[str]:
    """Return the sections that get a column on a page of these totals: those always shown, and others that are not zero."""
    listed = list(parts)
    return [name for name in SECTIONS if name in ALWAYS_SHOWN or any(one[name] for one in listed)]


def sum_of(lines: Iterable[StatementLine]) -> Decimal:
    """Sum rounded lines, as the total of an invoice does."""
    return sum((line.amount for line in lines), ZERO)


def month_statements(
    period: BillingPeriod, teams: QuerySet[Team], *, summed: bool = False
) -> MonthStatements:
    """Return statements of `teams` (those that a user may see) for one month; teams that cannot be rated are in `unrated`.

    summed: only sums are shown; a closed month then has one line per kind, all that a page of a thousand teams needs.
    """
    if period.status == BillingPeriod.Status.CLOSED:
        return _of_invoices(period, teams, summed=summed)
    if (preview := snapshot_shown(period)) is not None:
        return _of_preview(period, preview, list(teams), summed=summed)
    return assessed_now(period, teams)


def assessed_now(period: BillingPeriod, teams: QuerySet[Team]) -> MonthStatements:
    """Return statements of a month that is not closed, as of now; the rating of a large one is stored for the next view."""
    _, assessment = snapshot_make(period, now=timezone.now())
    by_code = {team.code: team for team in teams}
    statements = [
        Statement(by_code[code], [previewed(line) for line in invoice_lines(charges)], shadow=shadow)
        for (code, shadow), charges in sorted(charges_by_invoice(assessment.charges).items())
        if code in by_code
    ]
    return MonthStatements(period, list(by_code.values()), statements, assessment=assessment)


def month_facets(period: BillingPeriod, teams: QuerySet[Team]) -> MonthFacets:
    """Return the sums of `teams` (those that a user may see) for one month."""
    if period.status == BillingPeriod.Status.CLOSED:
        return MonthFacets(period, teams, *invoiced_rollups(period, teams))
    if (preview := snapshot_shown(period)) is not None:
        found = rollups_of(preview, teams.values_list("code", flat=True))
        return MonthFacets(
            period, teams, found.charged, found.shadow, found.wasting, assessment=result_of(preview), as_of=preview.as_of
        )
    whole = assessed_now(period, teams)
    charged = [line for item in whole.charged for line in item.lines]
    shown = [line for item in whole.statements if item.shadow for line in item.lines]
    return MonthFacets(period, teams, charged, shown, whole=whole, assessment=whole.assessment)


def _of_preview(period: BillingPeriod, preview: RatingSnapshot, teams: list[Team], *, summed: bool) -> MonthStatements:
    """Return statements of a large month's last assessment; `summed`: without verdicts, and one line per kind."""
    by_code = {team.code: team for team in teams}
    statements, verdicts = [], []
    if summed:
        for code, sums in sums_of(preview, by_code).items():
            for shadow, found in ((False, sums.charged), (True, sums.shadow)):
                lines = [_sum_of_a_kind(item, code, period.month) for item in found]
                statements += [Statement(by_code[code], lines, shadow=shadow)] if lines else []
    else:
        for code, content in contents_of(preview, by_code).items():
            verdicts += content.verdicts
            statements += [Statement(by_code[code], content.charged)] if content.charged else []
            statements += [Statement(by_code[code], content.shadow, shadow=True)] if content.shadow else []
    return MonthStatements(period, teams, statements, assessment=result_of(preview, verdicts), as_of=preview.as_of)


def _of_invoices(period: BillingPeriod, teams: QuerySet[Team], *, summed: bool) -> MonthStatements:
    # a voided draft has its successor's lines or none: it is no statement
    live = period.invoices.filter(team__in=teams).exclude(status=Invoice.Status.VOID)
    invoices = list(live.select_related("team").defer("draft", "document").order_by("team__code", "shadow"))
    lines: dict[int, list[StatementLine]] = defaultdict(list)
    codes = {invoice.pk: invoice.team.code for invoice in invoices}
    rows = InvoiceLine.objects.filter(invoice__in=list(codes))
    if summed:
        for row in rows.values("invoice_id", "kind", "correction").annotate(amount=Sum("amount")).order_by("invoice_id"):
            found = KindSum(row["kind"], row["correction"], row["amount"])
            lines[row["invoice_id"]].append(_sum_of_a_kind(found, codes[row["invoice_id"]], period.month))
    else:
        for stored in rows.order_by("invoice_id", "position").iterator():
            lines[stored.invoice_id].append(_stored(stored, codes[stored.invoice_id]))
    statements = [Statement(invoice.team, lines[invoice.pk], invoice, invoice.shadow) for invoice in invoices]
    return MonthStatements(period, list(teams), statements)


def lines_of(invoice: Invoice) -> list[StatementLine]:
    """Return the lines of one invoice or draft, as its month's statement has them."""
    return [_stored(row, invoice.team.code) for row in InvoiceLine.objects.filter(invoice=invoice).order_by("position")]


def _sum_of_a_kind(found: KindSum, team: str, month: str) -> StatementLine:
    key = LineKey(team=team, platform=False, correction=found.correction, charge_period=month, kind=found.kind)
    return StatementLine(key, 0, ZERO, ZERO, found.amount, None)


def _stored(row: InvoiceLine, team: str) -> StatementLine:
    key = LineKey.of(row, team=team, platform=False)
    price = Decimal(price_text(row.unit_price))  # with the digits that the document shows, before and after the close
    return StatementLine(key, row.position, row.quantity, price, row.amount, row.energy_kwh)
