"""Late usage: lines of a month for usage of months that were closed before it was reported."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import QuerySet

from billing.invoices.line_rollups import StatementLine
from billing.invoices.models import BillingPeriod
from billing.portal.statements import MonthStatements, Statement, month_statements
from billing.tenancy.models import Team


@dataclass(frozen=True, slots=True)
class LateLine:
    """Line of a team that is charged in one month for usage of an earlier one."""

    team: Team
    line: StatementLine

    @property
    def place(self) -> str:
        """Return the consumer of tokens, else cluster and namespace."""
        key = self.line.key
        return key.consumer or " / ".join(part for part in (key.cluster, key.namespace) if part)


def late_lines(period: BillingPeriod, teams: QuerySet[Team]) -> tuple[list[LateLine], datetime | None]:
    """Return a month's lines for usage of earlier months, the largest amounts first; and `as_of` of the month.

    teams: those that the reader may see. Sums show which of them have such lines, so only their lines are read.
    """
    month = month_statements(period, teams, summed=True)
    late = [statement for statement in month.charged if _lines(statement)]
    if late and not _is_whole(month):
        month = month_statements(period, teams.filter(code__in=[statement.team.code for statement in late]))
        late = month.charged
    found = [LateLine(statement.team, line) for statement in late for line in _lines(statement)]
    return sorted(found, key=lambda item: (-abs(item.line.amount), item.team.code, item.line.digest)), month.as_of


def late_amount(statements: Iterable[Statement]) -> Decimal | None:
    """Return the amount charged for usage of earlier months; None if nothing came late."""
    found = [statement.corrections for statement in statements if _lines(statement)]
    return sum(found, Decimal("0.00")) if found else None


def _lines(statement: Statement) -> list[StatementLine]:
    return [line for line in statement.lines if line.key.correction]


def _is_whole(month: MonthStatements) -> bool:
    """Return True if all lines are there although sums were requested: a small month is assessed for the view."""
    return month.preview and month.as_of is None
