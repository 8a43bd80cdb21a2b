"""Reader of an inbox, and the item type."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from billing.inbox.findings import Finding, findings_in
from billing.inbox.models import MonthFindings
from billing.tenancy.access import Access, Right, access_of, same_persons
from billing.tenancy.models import BillingSetup, Team


@dataclass(frozen=True, slots=True)
class Item:
    """Inbox item. `link`: the page with the button that completes it. `team`: its code, "" where it has none.

    amount: the money at stake in the billing currency, None where it cannot be known.
    words: the solution, or the error.
    """

    title: Any
    link: str
    team: str = ""
    amount: Decimal | None = None
    since: datetime | None = None
    quantity: Decimal | None = None
    unit: str = ""
    words: Any = ""


@dataclass(frozen=True)
class Reader:
    user: User
    now: datetime
    setup: BillingSetup

    @property
    def access(self) -> Access:
        return access_of(self.user)

    def teams(self, right: Right) -> QuerySet[Team]:
        return self.access.teams(right)

    def own(self, names: Iterable[str]) -> set[str]:
        """Return those of the names that are the reader; nobody decides on their own request."""
        return same_persons(self.user.get_username(), names)

    @cached_property
    def months(self) -> list[tuple[MonthFindings, list[Finding]]]:
        """Return the stored findings by open month; read once."""
        return [(row, findings_in(row)) for row in MonthFindings.objects.all()]
