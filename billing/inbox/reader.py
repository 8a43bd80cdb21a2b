"""For whom something waits, and what one thing that waits is."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from billing.inbox.models import MonthFindings
from billing.tenancy.access import Access, Right, access_of, same_person
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
    """A person at an instant."""

    user: User
    now: datetime
    setup: BillingSetup

    @property
    def access(self) -> Access:
        return access_of(self.user)

    def teams(self, right: Right) -> QuerySet[Team]:
        """The teams for which the person has the right."""
        return self.access.teams(right)

    def is_one_of(self, *names: str) -> bool:
        """Whether the person is one of these; nobody decides on what they made themselves."""
        mine = self.user.get_username()
        return any(same_person(mine, name) for name in names if name)

    @cached_property
    def months(self) -> list[MonthFindings]:
        """What the close check last found, by open month; read once."""
        return list(MonthFindings.objects.all())
