"""Months that have ended and are not closed: pages of several months show them as estimates instead of leaving them out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.http import HttpRequest

from billing.invoices.models import BillingPeriod
from billing.portal.fresh import page_freshness
from billing.portal.statements import MonthStatements, month_statements
from billing.tenancy.models import Team
from billing.usage.scope import UsageScope

ASSESSED = 3
"""So many of the newest are assessed for a page, as many as the scheduler keeps ready; of older ones it says that they are
open."""


@dataclass(frozen=True, slots=True)
class OpenMonth:
    """An ended month that is not closed; `statements` None where it is too old to be assessed for a page."""

    month: str
    statements: MonthStatements | None
    data_through: datetime | None = None


def open_months(
    request: HttpRequest, teams: QuerySet[Team], scope: UsageScope, ended: Iterable[BillingPeriod]
) -> Iterator[OpenMonth]:
    """What is known of months that have ended and are not closed, the newest first."""
    for number, period in enumerate(ended):
        if number >= ASSESSED:
            yield OpenMonth(period.month, None)
            continue
        statements = month_statements(period, teams, summed=True)
        fresh = page_freshness(request, period, scope, as_of=statements.as_of)
        yield OpenMonth(period.month, statements, fresh.data_through if fresh else None)
