"""Who may ask for which credit, and who may approve it: by amount, and never the same person.

Levels are groups of accounts (`manage.py` and the portal name the same people): billing-support, billing-lead,
finance-head. A superuser counts as finance head; a name without an account has no level.
"""

from dataclasses import dataclass
from decimal import Decimal

from django.contrib.auth.models import User

LEVELS = ("billing-support", "billing-lead", "finance-head")


class AuthorityError(ValueError):
    """Somebody acts beyond their level, or approves what they asked for."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Up to `limit` (None: any amount) `maker` may ask and `checker` approve."""

    limit: Decimal | None
    maker: str
    checker: str


CREDITS = (
    Authority(Decimal("1000.00"), "billing-support", "billing-lead"),
    Authority(Decimal("50000.00"), "billing-lead", "finance-head"),
    Authority(None, "finance-head", "finance-head"),
)
WRITE_OFFS = (Authority(None, "billing-support", "finance-head"),)
"""What has no level above it takes a second person of the highest one."""


def authority_for(amount: Decimal, table: tuple[Authority, ...] = CREDITS) -> Authority:
    """The row that an amount falls under.

    >>> authority_for(Decimal("1000.00")).checker, authority_for(Decimal("1000.01")).checker
    ('billing-lead', 'finance-head')
    """
    return next(row for row in table if row.limit is None or amount <= row.limit)


def level_of(actor: str) -> int:
    """The highest level of an account, from 0; -1 for none."""
    user = User.objects.filter(username=actor, is_active=True).first()
    if user is None:
        return -1
    if user.is_superuser:
        return len(LEVELS) - 1
    names = set(user.groups.values_list("name", flat=True))
    return max((index for index, name in enumerate(LEVELS) if name in names), default=-1)


def require_level(actor: str, level: str, what: str) -> None:
    """Raise AuthorityError unless `actor` has the level or a higher one."""
    if level_of(actor) < LEVELS.index(level):
        raise AuthorityError(f"{actor} may not {what}: that takes an account in the group {level} or above")


def require_second_person(actor: str, maker: str, what: str) -> None:
    """Raise AuthorityError where maker and checker are one."""
    if actor == maker:
        raise AuthorityError(f"{actor} asked for {what}: somebody else must approve")
