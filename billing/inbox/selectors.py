"""Query of the inbox: the items of a person, with the money at stake."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Min, Value

from billing.inbox.kinds import KINDS, Kind
from billing.inbox.models import MonthFindings
from billing.inbox.reader import Item, Reader
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import NoSetupError, billing_setup


@dataclass(frozen=True)
class Group:
    """Items of one kind, the most money first."""

    kind: Kind
    items: Sequence[Item]

    @cached_property
    def amount(self) -> Decimal | None:
        """Return the money at stake; None where it is not known for any item."""
        known = [item.amount for item in self.items if item.amount is not None]
        return sum(known, Decimal("0.00")) if known else None

    @property
    def partly(self) -> bool:
        """Return True if the money of some items is not known, so that the sum may be higher."""
        return any(item.amount is None for item in self.items)


@dataclass(frozen=True)
class Inbox:
    """Items of one person. `groups`: the most money first."""

    groups: Sequence[Group]

    @cached_property
    def number(self) -> int:
        return sum(len(group.items) for group in self.groups)


def inbox_of(user: User, now: datetime, setup: BillingSetup | None = None) -> Inbox:
    """Return all items of a person; none without billing settings, which are read unless given."""
    try:
        reader = Reader(user, now, setup or billing_setup())
    except NoSetupError:
        return Inbox(())
    stored = _kinds_stored()
    asked = (kind for kind in KINDS if kind.name in stored)
    groups = [Group(kind, sorted(items, key=_by_money)) for kind in asked if (items := kind.of(reader))]
    return Inbox(sorted(groups, key=lambda group: (group.amount is None, -(group.amount or Decimal(0)))))


def months_checked_at() -> datetime | None:
    """Return the time of the oldest check of open months; None before the first."""
    return MonthFindings.objects.aggregate(at=Min("as_of"))["at"]


def _kinds_stored() -> set[str]:
    """Return the kinds that have any rows, with one statement, so that an almost empty inbox needs few queries."""
    with connection.cursor() as cursor:
        cursor.execute(*_which_are_stored())
        return {name for (name,) in cursor.fetchall()}


@cache
def _which_are_stored() -> tuple[str, tuple[Any, ...]]:
    """Return that statement; it is the same for everybody, so its text is built once."""
    first, *others = (kind.rows.order_by().values_list(Value(kind.name))[:1] for kind in KINDS)
    text, arguments = first.union(*others, all=True).query.sql_with_params()
    return text, arguments


def _by_money(item: Item) -> tuple[bool, Decimal, str]:
    return item.amount is None, -abs(item.amount or Decimal(0)), item.title
