"""Writing the charges and drafts of a close team by team, so that one whose facts are broken holds only itself.

All teams are written at once, which is fast. Only where the database or the arithmetic refuses that, each is written in a
savepoint of its own, and those that are refused are held: nothing of them is kept, the others are billed as ever.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, TypeVar

from django.db import DataError, IntegrityError, transaction

from billing.invoicing.models import Invoice
from billing.rating.assessment import Assessment
from pricing.rating import Charge

BROKEN_FACTS: Final = (DataError, IntegrityError, ArithmeticError, LookupError, TypeError, ValueError)
"""What a team's own facts can bring about; a lost connection or a deadlock is nobody's fault and ends the whole close."""
LONGEST: Final = 500
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Held:
    """A team that could not be billed; `amount`: what its charges come to, None where that cannot be told."""

    team: str
    problem: str
    amount: Decimal | None


@dataclass
class Written:
    """What a close wrote, and whom it had to hold."""

    invoices: list[Invoice] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)


def write_teams(assessment: Assessment, write: Callable[[Assessment], list[Invoice]]) -> Written:
    """Have `write` store what teams are charged. Within a transaction."""
    try:
        with transaction.atomic():
            return Written(write(assessment))
    except BROKEN_FACTS:
        return _one_by_one(assessment, write)


def _one_by_one(assessment: Assessment, write: Callable[[Assessment], list[Invoice]]) -> Written:
    written, charges = Written(), _by_team(assessment.charges, lambda charge: charge.key.team)
    verdicts = _by_team(assessment.verdicts, lambda verdict: verdict.team)
    for team in sorted(charges.keys() | verdicts.keys()):
        mine = charges.get(team, [])
        try:
            with transaction.atomic():
                written.invoices += write(replace(assessment, charges=mine, verdicts=verdicts.get(team, [])))
        except BROKEN_FACTS as error:
            written.held.append(Held(team, _told(error), _amount(mine)))
    return written


def _by_team(items: Iterable[Item], team: Callable[[Item], str]) -> Mapping[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        found[team(item)].append(item)
    return found


def _told(error: BaseException) -> str:
    """The first line of what was refused: PostgreSQL names the rule in it, and the row in the next."""
    text = " ".join(str(error).split("\n")[:2]) or type(error).__name__
    return text[:LONGEST]


def _amount(charges: Iterable[Charge]) -> Decimal | None:
    try:
        return sum((charge.amount for charge in charges if not charge.key.platform), Decimal("0.00"))
    except BROKEN_FACTS:
        return None


def as_detail(held: Iterable[Held]) -> dict[str, Any]:
    """For the audit log."""
    return {item.team: item.problem for item in held}
