"""For whom something waits, and what one thing that waits is."""

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
    """One thing that waits. `link`: the page with the button that ends it. `team`: its code, empty where it is of none.

    amount: the money at stake in the currency of the installation, None where nobody can know it.
    words: what solves it, or what went wrong.
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
        """Those of the names that are the person; nobody decides on what they made themselves."""
        return same_persons(self.user.get_username(), names)

    @cached_property
    def months(self) -> list[tuple[MonthFindings, list[Finding]]]:
        """What the close check last found, by open month; read once."""
        return [(row, findings_in(row)) for row in MonthFindings.objects.all()]
