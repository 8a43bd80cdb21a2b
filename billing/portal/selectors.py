"""Reads of the pages that are not statements: budgets, trends, invoices, prices, ownership, quarantine, operations.

Whatever belongs to a team is asked for through `teams_visible_to`, handed in as `teams`: there is no other way in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from django.db.models import F, QuerySet, Sum

from billing.budgets.selectors import MICROSECOND, monthly_amounts
from billing.invoices.models import BillingPeriod, Correction, Invoice, Note, Operation
from billing.invoices.selectors import corrections_all, notes_issued
from billing.portal.statements import MonthStatements, Statement
from billing.rates.models import EfficiencyPolicy
from billing.tenancy.models import ConsumerOwnership, NamespaceOwnership, Team
from billing.usage.models import QuarantinedRecord

TREND_MONTHS = 12
QUARANTINE_SHOWN = 200


@dataclass(frozen=True, slots=True)
class TeamRow:
    """One team of the overview."""

    team: Team
    gpu: Decimal
    tokens: Decimal
    adjustments: Decimal
    total: Decimal
    budget: Decimal | None
    invoice: Invoice | None
    shadow: bool = False

    @property
    def budget_used(self) -> Decimal | None:
        """Spent over planned, as a ratio; None without a budget."""
        return None if self.budget is None else self.total / self.budget


def team_rows(month: MonthStatements) -> list[TeamRow]:
    """A row for every team with lines or a budget, the largest first."""
    budgets = budgets_of(month.teams, month.period)
    rows = [_row(statement, budgets.get(statement.team.pk)) for statement in month.statements]
    seen = {statement.team.pk for statement in month.statements}
    rows += [
        _row(Statement(team, []), budgets[team.pk])
        for team in month.teams
        if team.pk in budgets and team.pk not in seen
    ]
    return sorted(rows, key=lambda row: (-row.total, row.team.code))


def _row(statement: Statement, budget: Decimal | None) -> TeamRow:
    return TeamRow(
        statement.team, statement.devices, statement.of_kind("tokens"), statement.adjustments,
        statement.total, budget, statement.invoice, statement.shadow,
    )  # fmt: skip


def budgets_of(teams: list[Team], period: BillingPeriod) -> dict[int, Decimal]:
    """What each team may spend in the month on everything, by team id."""
    return monthly_amounts(teams, period.month, period.end - MICROSECOND, period.zone)


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """What was invoiced for one month, or is known so far of one that is not closed; `noted` of it by notes issued in it.

    total: None of an open month that is not assessed. data_through: of a month that is not closed.
    """

    month: str
    total: Decimal | None
    preview: bool = False
    noted: Decimal = Decimal("0.00")
    data_through: datetime | None = None


def notes_by_month(teams: QuerySet[Team] | list[Team]) -> dict[str, Decimal]:
    """What credit notes took back and rebills charged again, in sum, by the open month that they were issued in."""
    notes = Note.objects.filter(number__isnull=False, team__in=teams, correction__period__isnull=False)
    return dict(notes.order_by().values_list("correction__period__month").annotate(Sum("total")))


def invoiced_trend(
    teams: QuerySet[Team] | list[Team], shown: TrendPoint, *, shadow: bool = False, still_open: Iterable[TrendPoint] = ()
) -> list[TrendPoint]:
    """Totals of invoices and notes of the months up to the one shown, oldest first; or of what was only shown.

    still_open: the estimates of months that have ended and are not closed.
    """
    noted = {} if shadow else notes_by_month(teams)
    estimates = {point.month: point for point in still_open if point.month < shown.month}
    points = {point.month: point for point in _invoiced(teams, shown, shadow, noted)} | estimates
    return [_with_notes(points[month], noted) for month in sorted(points)][-TREND_MONTHS:]


def _with_notes(point: TrendPoint, noted: dict[str, Decimal]) -> TrendPoint:
    amount = noted.get(point.month, Decimal("0.00"))
    return replace(point, total=None if point.total is None else point.total + amount, noted=amount)


def _invoiced(
    teams: QuerySet[Team] | list[Team], shown: TrendPoint, shadow: bool, noted: dict[str, Decimal]
) -> list[TrendPoint]:
    rows = (
        Invoice.objects.exclude(status=Invoice.Status.VOID)
        .filter(team__in=teams, period__month__lt=shown.month, shadow=shadow)
        .values(month=F("period__month"))
        .annotate(sum=Sum("total"))
        .order_by("-month")[: TREND_MONTHS - 1]
    )
    sums = {row["month"]: row["sum"] for row in rows}
    months = sorted({*sums, *(month for month in noted if month < shown.month)})
    return [*(TrendPoint(month, sums.get(month, Decimal("0.00"))) for month in months), shown]


def invoices_visible(teams: QuerySet[Team]) -> QuerySet[Invoice]:
    """Invoices and drafts of `teams`, the newest month first; without their documents, which are large."""
    invoices = Invoice.objects.filter(team__in=teams).select_related("team", "period")
    return invoices.defer("draft", "document").order_by("-period__month", "team__code")


def notes_visible(teams: QuerySet[Team]) -> QuerySet[Note]:
    """Issued credit notes and rebills of `teams`, the newest first; without their documents."""
    return notes_issued().filter(team__in=teams).defer("draft", "document")


def corrections_waiting() -> list[Correction]:
    """Corrections that somebody still has to approve or issue, the oldest first."""
    waiting = (Correction.Status.DRAFT, Correction.Status.APPROVED)
    return list(corrections_all().filter(status__in=waiting).prefetch_related("proposal__steps").order_by("id"))


def operations_of(month: str) -> list[Operation]:
    """The last operations on a month, the newest first."""
    return list(Operation.objects.filter(month=month).order_by("-id")[:5])


def policies() -> QuerySet[EfficiencyPolicy]:
    """Efficiency policies, the newest first."""
    return EfficiencyPolicy.objects.order_by("-valid_from")


def namespaces_owned(teams: QuerySet[Team]) -> QuerySet[NamespaceOwnership]:
    """Who owns which namespaces since when, of the teams somebody may see."""
    return NamespaceOwnership.objects.filter(team__in=teams).select_related("team").order_by(
        "cluster", "namespace", F("valid_from").asc(nulls_first=True)
    )


def consumers_owned(teams: QuerySet[Team]) -> QuerySet[ConsumerOwnership]:
    """Who pays for which consumers since when, of the teams somebody may see."""
    return ConsumerOwnership.objects.filter(team__in=teams).select_related("team").order_by(
        "source", "consumer", F("valid_from").asc(nulls_first=True)
    )


def quarantined(status: str, most: int | None = QUARANTINE_SHOWN) -> tuple[list[QuarantinedRecord], int]:
    """The newest quarantined records of a status, at `most` so many, and how many there are."""
    rows = QuarantinedRecord.objects.filter(status=status)
    return list(rows.order_by("-received_at", "-id")[:most]), rows.count()
