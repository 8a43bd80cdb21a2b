"""Writing the charges and drafts of a close team by team, so that one whose facts are broken holds only itself.

All teams are written at once, which is fast. Only where the database or the arithmetic refuses that, each is written in a
savepoint of its own, and those that are refused are held: nothing of them is kept, the others are billed as ever.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, TypeVar

from django.db import DataError, Error, IntegrityError, transaction

from billing.invoices.models import Invoice
from billing.rating.assessment import RatingResult
from billing.rating.team_isolation import rating_problem
from pricing.rating import Charge

logger: Final = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TeamProblem:
    """A team that could not be billed; `amount`: what its charges come to, None where that cannot be told."""

    team: str
    problem: str
    amount: Decimal | None


@dataclass
class Written:
    """What a close wrote, and whom it had to hold."""

    invoices: list[Invoice] = field(default_factory=list)
    held: list[TeamProblem] = field(default_factory=list)


def write_teams(assessment: RatingResult, write: Callable[[RatingResult], list[Invoice]]) -> Written:
    """Have `write` store what teams are charged. Within a transaction."""
    try:
        with transaction.atomic():
            written = Written(write(assessment))
    except Exception as error:
        if _of_everybody(error):
            raise
        logger.exception("the teams cannot be billed at once: each is billed by itself")
        written = _one_by_one(assessment, write)
    written.held += [TeamProblem(team, problem, None) for team, problem in sorted(assessment.faults.items())]
    return written


def _of_everybody(error: Exception) -> bool:
    """Whether an error is no team's own: a lost connection or a deadlock ends the whole close, which is tried again."""
    return isinstance(error, Error) and not isinstance(error, DataError | IntegrityError)


def _one_by_one(assessment: RatingResult, write: Callable[[RatingResult], list[Invoice]]) -> Written:
    written, charges = Written(), _by_team(assessment.charges, lambda charge: charge.key.team)
    verdicts = _by_team(assessment.verdicts, lambda verdict: verdict.team)
    for team in sorted(charges.keys() | verdicts.keys()):
        mine = charges.get(team, [])
        try:
            with transaction.atomic():
                written.invoices += write(replace(assessment, charges=mine, verdicts=verdicts.get(team, [])))
        except Exception as error:
            if _of_everybody(error):
                raise
            logger.exception("cannot be billed: team %s", team)
            written.held.append(TeamProblem(team, rating_problem(error), _amount(mine)))
    return written


def _by_team(items: Iterable[Item], team: Callable[[Item], str]) -> Mapping[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        found[team(item)].append(item)
    return found


def _amount(charges: Iterable[Charge]) -> Decimal | None:
    try:
        return sum((charge.amount for charge in charges if not charge.key.platform), Decimal("0.00"))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def as_detail(held: Iterable[TeamProblem]) -> dict[str, Any]:
    """For the audit log."""
    return {item.team: item.problem for item in held}
