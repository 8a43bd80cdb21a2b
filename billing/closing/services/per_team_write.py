"""Writes of a close's charges and drafts by team, so that a team with broken facts blocks only itself.

All teams are written at once, which is fast. Only if the database or the arithmetic refuses that, each is written in a
savepoint of its own: nothing is stored of those that are refused, the others are billed as usual.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Final

from django.db import DataError, Error, IntegrityError, transaction

from billing.closing.models import BlockedTeam
from billing.rating.assessment import RatingResult
from billing.rating.snapshots import by_team
from billing.rating.team_isolation import rating_problem
from pricing.rating import Charge

logger: Final = logging.getLogger(__name__)


def write_teams(assessment: RatingResult, write: Callable[[RatingResult], None]) -> list[BlockedTeam]:
    """Let `write` store the teams' charges, in a transaction; return the teams that could not be billed, not stored yet."""
    blocked = []
    if _refusal("the teams cannot be billed at once: each is billed by itself", assessment, write):
        for team, own in sorted(by_team(assessment).items()):
            alone = replace(assessment, charges=own.charges, verdicts=own.verdicts)
            if error := _refusal(f"cannot be billed: team {team}", alone, write):
                blocked.append(BlockedTeam(team=team, problem=rating_problem(error), amount=_amount(own.charges)))
    return blocked + [BlockedTeam(team=team, problem=problem) for team, problem in sorted(assessment.faults.items())]


def _refusal(words: str, assessment: RatingResult, write: Callable[[RatingResult], None]) -> Exception | None:
    """Return the error that a write in a savepoint of its own raises, which is logged; None if it is stored.

    A lost connection or a deadlock is no team's own: it is raised and ends the whole close, which is tried again.
    """
    try:
        with transaction.atomic():
            write(assessment)
    except Exception as error:
        if isinstance(error, Error) and not isinstance(error, DataError | IntegrityError):
            raise
        logger.exception(words)
        return error
    return None


def _amount(charges: Iterable[Charge]) -> Decimal | None:
    """Return the sum of charges; None if it cannot be computed."""
    try:
        return sum((charge.amount for charge in charges if not charge.key.platform), Decimal("0.00"))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
