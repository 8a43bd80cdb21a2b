"""Queries of pages beyond statements: budgets, trends, invoices, prices, ownership, quarantine, operations.

Data of a team is read only through `teams`, the result of `teams_visible_to`: there is no other way in.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, F, Max, Min, Q, QuerySet, Sum
from django.http import HttpRequest

from billing.budgets.selectors import monthly_amounts
from billing.invoices.models import BillingPeriod, Correction, Invoice, Note, Operation
from billing.invoices.selectors import corrections_all, notes_issued
from billing.portal.fresh import page_freshness
from billing.portal.statements import MonthStatements, Statement, month_statements
from billing.rates.models import EfficiencyPolicy
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import ConsumerOwnership, NamespaceOwnership, Team
from billing.usage.models import QuarantinedRecord
from billing.usage.scope import UsageScope
from metering.intervals import MICROSECOND

ZERO = Decimal("0.00")
TREND_MONTHS = 12
ASSESSED = 3
"""Number of the newest open months that are assessed for a page, as many as the scheduler keeps ready; older ones are
only listed as open."""
QUARANTINE_SHOWN = 200


def team_names(request: HttpRequest) -> dict[str, str]:
    """Return the names of the teams that the reader of a page may see, by code; a team without a name is left out."""
    return dict(teams_visible_to(request.user).exclude(name="").values_list("code", "name"))


def team_rows(month: MonthStatements) -> list[Statement]:
    """Return the statements with their budgets, and an empty one for every other team with a budget; largest first."""
    budgets = budgets_of(list(month.teams), month.period)
    seen = {statement.team.pk for statement in month.statements}
    empty = [Statement(team, []) for team in month.teams if team.pk in budgets and team.pk not in seen]
    totals: dict[int, Decimal] = defaultdict(lambda: ZERO)
    for statement in month.statements:
        totals[statement.team.pk] += statement.total
    rows = [
        replace(row, budget=budgets.get(row.team.pk), other=totals[row.team.pk] - row.total)
        for row in [*month.statements, *empty]
    ]
    return sorted(rows, key=lambda row: (-row.total, row.team.code))


def budgets_of(teams: list[Team], period: BillingPeriod) -> dict[int, Decimal]:
    """Return the amount that each team may spend in the month on everything, by team id."""
    return monthly_amounts(teams, period.month, period.end - MICROSECOND, period.zone)


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """Invoiced total of one month, or the known total of one that is not closed; `noted`: the part of notes issued in it.

    total: None for an open month that is not assessed. data_through: for a month that is not closed.
    """

    month: str
    total: Decimal | None
    preview: bool = False
    noted: Decimal = ZERO
    data_through: datetime | None = None


@dataclass(frozen=True, slots=True)
class OpenMonth:
    """Ended month that is not closed; `statements` is None if it is too old to be assessed for a page."""

    month: str
    statements: MonthStatements | None
    data_through: datetime | None = None

    def point(self, *, shadow: bool = False) -> TrendPoint:
        """Return the month as a point of a trend; with `shadow` its showback total."""
        month = self.statements
        total = None if month is None else month.shadowed if shadow else month.total
        return TrendPoint(self.month, total, preview=True, data_through=self.data_through)


def open_months(
    request: HttpRequest, teams: QuerySet[Team], scope: UsageScope, ended: Iterable[BillingPeriod]
) -> Iterator[OpenMonth]:
    """Yield the months that have ended and are not closed, newest first; only the newest ones have statements."""
    for number, period in enumerate(ended):
        if number >= ASSESSED:
            yield OpenMonth(period.month, None)
            continue
        statements = month_statements(period, teams, summed=True)
        fresh = page_freshness(request, period, scope, as_of=statements.as_of)
        yield OpenMonth(period.month, statements, fresh.data_through if fresh else None)


def notes_by_month(teams: QuerySet[Team] | list[Team]) -> dict[str, Decimal]:
    """Return the sum of credit notes and rebills by the open month that they were issued in."""
    notes = Note.objects.filter(number__isnull=False, team__in=teams, correction__period__isnull=False)
    return dict(notes.order_by().values_list("correction__period__month").annotate(Sum("total")))


def invoiced_trend(
    teams: QuerySet[Team] | list[Team], shown: TrendPoint, *, shadow: bool = False, still_open: Iterable[TrendPoint] = ()
) -> list[TrendPoint]:
    """Return totals of invoices and notes of the months up to the one shown, oldest first; or of showback invoices.

    still_open: the estimates of months that have ended and are not closed.
    """
    invoices = Invoice.objects.exclude(status=Invoice.Status.VOID).filter(
        team__in=teams, period__month__lt=shown.month, shadow=shadow
    )
    sums = dict(invoices.order_by().values_list("period__month").annotate(Sum("total")))
    noted = {} if shadow else notes_by_month(teams)
    points = {month: TrendPoint(month, sums.get(month, ZERO)) for month in {*sums, *noted}}
    points |= {point.month: point for point in (*still_open, shown)}
    months = sorted(month for month in points if month <= shown.month)[-TREND_MONTHS:]
    return [_with_notes(points[month], noted.get(month, ZERO)) for month in months]


def _with_notes(point: TrendPoint, noted: Decimal) -> TrendPoint:
    return replace(point, total=None if point.total is None else point.total + noted, noted=noted)


def invoices_visible(teams: QuerySet[Team]) -> QuerySet[Invoice]:
    """Return invoices and drafts of `teams`, newest month first, without their documents, which are large."""
    invoices = Invoice.objects.filter(team__in=teams).select_related("team", "period")
    return invoices.defer("draft", "document").order_by("-period__month", "team__code")


def notes_visible(teams: QuerySet[Team]) -> QuerySet[Note]:
    """Return issued credit notes and rebills of `teams`, newest first, without their documents."""
    return notes_issued().filter(team__in=teams).defer("draft", "document")


def corrections_waiting() -> list[Correction]:
    """Return corrections that wait for approval or issue, oldest first."""
    waiting = (Correction.Status.DRAFT, Correction.Status.APPROVED)
    return list(corrections_all().filter(status__in=waiting).prefetch_related("proposal__steps").order_by("id"))


def operations_of(month: str) -> list[Operation]:
    """Return the last operations on a month, newest first."""
    return list(Operation.objects.filter(month=month).order_by("-id")[:5])


def policies() -> QuerySet[EfficiencyPolicy]:
    return EfficiencyPolicy.objects.order_by("-valid_from")


def teams_shown(user: Any) -> QuerySet[Team]:
    """Return the teams that the user may see; a reader of all teams sees the groups too."""
    seen = Team.objects.all() if access_of(user).may(Right.READ) else teams_visible_to(user)
    return seen.select_related("parent").order_by("code")


def namespaces_owned(teams: QuerySet[Team]) -> QuerySet[NamespaceOwnership]:
    """Return the owners of namespaces with their start, for teams that the user may see."""
    return NamespaceOwnership.objects.filter(team__in=teams).select_related("team").order_by(
        "cluster", "namespace", F("valid_from").asc(nulls_first=True)
    )


def consumers_owned(teams: QuerySet[Team]) -> QuerySet[ConsumerOwnership]:
    """Return the payers of consumers with their start, for teams that the user may see."""
    return ConsumerOwnership.objects.filter(team__in=teams).select_related("team").order_by(
        "source", "consumer", F("valid_from").asc(nulls_first=True)
    )


def quarantine_causes() -> Iterable[Any]:
    """Return open records by cause (`reason`, `reporter`, `door`), the most `records` first, `earliest`, `latest`."""
    cause = ("reason", "reporter", "door")
    found = QuarantinedRecord.objects.filter(status=QuarantinedRecord.Status.OPEN).values(*cause)
    counted = found.annotate(records=Count("id"), earliest=Min("at"), latest=Max("at")).order_by("-records", *cause)
    return counted.values_list(*cause, "records", "earliest", "latest", named=True)


def quarantined(status: str, most: int | None = QUARANTINE_SHOWN) -> tuple[list[QuarantinedRecord], int]:
    """Return quarantined records of a status, at most `most`, and the number of all.

    Newest first, but requests that were paid by the call last: they are decided on together.
    """
    rows = QuarantinedRecord.objects.filter(status=status)
    by_call = ExpressionWrapper(Q(reason=QuarantinedRecord.Reason.PAID_BY_CALL), BooleanField())
    return list(rows.order_by(by_call, "-received_at", "-id")[:most]), rows.count()
