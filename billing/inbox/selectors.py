"""The one read of the inbox: what waits for somebody, with the money at stake."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from django.contrib.auth.models import User

from billing.inbox.kinds import KINDS, Kind
from billing.inbox.reader import Item, Reader
from billing.tenancy.selectors import NoSetupError, billing_setup


@dataclass(frozen=True)
class Group:
    """What waits of one kind, the most money first."""

    kind: Kind
    items: Sequence[Item]

    @cached_property
    def amount(self) -> Decimal | None:
        """The money at stake; None where it is known of no item."""
        known = [item.amount for item in self.items if item.amount is not None]
        return sum(known, Decimal("0.00")) if known else None


@dataclass(frozen=True)
class Inbox:
    """What waits for one person. `groups`: the most money first. `as_of`: the oldest look at the open months."""

    groups: Sequence[Group]
    as_of: datetime | None = None

    @cached_property
    def number(self) -> int:
        return sum(len(group.items) for group in self.groups)


def inbox_of(user: User, now: datetime) -> Inbox:
    """Everything that waits for the person; nothing before there is a set-up."""
    try:
        setup = billing_setup()
    except NoSetupError:
        return Inbox(())
    reader = Reader(user, now, setup)
    groups = [Group(kind, sorted(items, key=_by_money)) for kind in KINDS if (items := kind.of(reader))]
    ordered = sorted(groups, key=lambda group: (group.amount is None, -(group.amount or Decimal(0))))
    return Inbox(ordered, min((row.as_of for row in reader.months), default=None))


def _by_money(item: Item) -> tuple[bool, Decimal, str]:
    return item.amount is None, -abs(item.amount or Decimal(0)), item.title
