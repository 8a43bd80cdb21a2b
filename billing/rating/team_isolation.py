"""Isolation of teams whose facts make rating raise, so that the other teams can be rated without them.

All teams are rated at once, which is fast. Only if that raises, each team is rated by itself, and those that raise are
left out of the next attempt. An error of the database is never attributed to a team; nor is an error that every one of
several teams raises: then the code is at fault, and nothing should go on.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from django.db import Error

logger: Final = logging.getLogger(__name__)
LONGEST: Final = 500
Item = TypeVar("Item")
Found = TypeVar("Found")


class TeamRatingError(Exception):
    """Errors that rating raised, by team (`problems`): the kind of the error and its message."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{team}: {problem}" for team, problem in sorted(problems.items())))
        self.problems = dict(problems)


def rating_problem(error: BaseException) -> str:
    """Return the kind of an error and the first two lines of its message: PostgreSQL's name the constraint and the row."""
    text = " ".join(str(error).split("\n")[:2])
    return f"{type(error).__name__}: {text}"[:LONGEST] if text else type(error).__name__


def rated_by_team(
    items: Collection[Item], team: Callable[[Item], str], rate: Callable[[Collection[Item]], Found]
) -> Found:
    """Return `rate(items)`.  Raises TeamRatingError if it raises for some teams alone, else the original error."""
    try:
        return rate(items)
    except Error:
        raise
    except Exception as error:
        problems = _problems(items, team, rate)
        if not problems:
            raise
        raise TeamRatingError(problems) from error


def of_teams(teams: Iterable[str], make: Callable[[], Found]) -> Found:
    """Return `make()`, computed from facts of only these teams.  Raises TeamRatingError for them if it raises."""
    try:
        return make()
    except Error:
        raise
    except Exception as error:
        logger.exception("cannot be rated: team %s", ", ".join(sorted(teams)))
        raise TeamRatingError(dict.fromkeys(teams, rating_problem(error))) from error


def _problems(
    items: Iterable[Item], team: Callable[[Item], str], rate: Callable[[Collection[Item]], Found]
) -> dict[str, str]:
    by_team: dict[str, list[Item]] = {}
    for item in items:
        by_team.setdefault(team(item), []).append(item)
    problems: dict[str, str] = {}
    for name, mine in sorted(by_team.items()):
        try:
            rate(mine)
        except Error:
            raise
        except Exception as error:
            logger.exception("cannot be rated: team %s", name)
            problems[name] = rating_problem(error)
    # every one of several teams: the code is at fault, not their facts
    return {} if 1 < len(by_team) == len(problems) else problems
