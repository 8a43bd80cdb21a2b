"""Approval limits of credits: the persons who may request and approve one, by amount; never the same person for both.

Up to 1,000 a second person of finance is enough, up to 50,000 it takes an approver, above that two of them. The amount is
the larger of the credited and the billed-again amount, together with smaller earlier corrections of the same teams and
months; towards the 50,000 also with the requests of the same person in the same billing month, of any team. A write-off, a
change of closed time and a correction of usage of a past fiscal year take an approver whatever their amount.
An actor is the name of an account; a name without an account has no rights.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from django.contrib.auth.models import User

from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import Actor
from billing.tenancy.models import Team
from metering.messages import Message, UserError


class AuthorityError(UserError, ValueError):
    """Person who acts beyond their rights, or approves their own request."""

    code = "approval_right"


@dataclass(frozen=True, slots=True)
class Authority:
    """Row of the limits: up to `limit` (None: any amount) `persons` with one of the rights of `checker` have to approve.

    `all_asked`: all requests of one person in a billing month count together.
    """

    limit: Decimal | None
    checker: tuple[Right, ...]
    persons: int = 1
    all_asked: bool = False


CREDITS = (
    Authority(Decimal("1000.00"), (Right.CLOSE, Right.APPROVE)),
    Authority(Decimal("50000.00"), (Right.APPROVE,), all_asked=True),
    Authority(None, (Right.APPROVE,), persons=2),
)
BY_APPROVERS = CREDITS[1:]
"""Limits of write-offs, changes of closed time, and past years, whose reported figures stay: never finance alone."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier correction of the same teams and months: `amount`, of a decision on `whole`.

    `asked`: the amount requested by the same person in the same billing month, for any team and month.
    """

    amount: Decimal
    whole: Decimal
    asked: Decimal = Decimal("0.00")

    def counted(self, *, all_asked: bool) -> Decimal:
        """Return the amount counted against the approval limit."""
        return max(self.amount, self.asked) if all_asked else self.amount


def authority_for(
    amount: Decimal, table: tuple[Authority, ...] = CREDITS, earlier: Iterable[Earlier] = ()
) -> Authority:
    """Return the limit of an amount, added to `earlier` ones that were not above the limit themselves.

    Parts of a credit are thus approved as the whole would be.

    >>> [authority_for(Decimal(amount)).persons for amount in ("1000.01", "50000.00", "50000.01")]
    [1, 1, 2]
    >>> parts, large = Earlier(Decimal(500), Decimal(500)), Earlier(Decimal(2000), Decimal(2000))
    >>> [authority_for(Decimal(amount), earlier=[parts, large]).limit for amount in (500, 501)]
    [Decimal('1000.00'), Decimal('50000.00')]
    >>> elsewhere = Earlier(Decimal(0), Decimal(30000), asked=Decimal(30000))
    >>> [authority_for(Decimal(amount), earlier=[elsewhere]).persons for amount in (1000, 20000, 20001)]
    [1, 1, 2]
    """
    known = list(earlier)

    def holds(row: Authority, limit: Decimal) -> bool:
        return amount + sum(one.counted(all_asked=row.all_asked) for one in known if one.whole <= limit) <= limit

    return next(row for row in table if row.limit is None or holds(row, row.limit))


def has_right(actor: str, *rights: Right, team: Team | None = None) -> bool:
    """Return True if the account `actor` has one of the rights for the whole installation, or for `team`."""
    if isinstance(actor, Actor):
        return any(actor.may(right, team) for right in rights)
    user = User.objects.filter(username=actor).first()
    return user is not None and any(access_of(user).may(right, team) for right in rights)


def require_right(actor: str, what: str, *rights: Right, team: Team | None = None) -> None:
    """Raise AuthorityError unless the account `actor` has one of the rights for the whole installation, or for `team`."""
    if not has_right(actor, *rights, team=team):
        needed = " or ".join(right.value for right in rights)
        raise AuthorityError(Message(
            "%(actor)s may not %(what)s: that takes an account with the right %(right)s (`manage.py role grant`)",
            actor=actor, what=what, right=needed,
        ))


def same_person_error(actor: str, what: str) -> AuthorityError:
    """Return the error for a person who would approve their own request."""
    return AuthorityError(Message("%(actor)s asked for %(what)s: somebody else must approve", actor=actor, what=what))
