"""Teams whose facts make rating raise: found one by one, so that the others can be rated without them.

Everything is rated at once, which is fast. Only where that raises, each team is rated by itself, and those that raise are
left out of the next attempt. An error of the database concerns everybody and is never one team's; nor is what raises for
every one of several teams: then the code is at fault, and nothing should go on.
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
    """`problems`: what rating raised, by team: the kind of the error and its message."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{team}: {problem}" for team, problem in sorted(problems.items())))
        self.problems = dict(problems)


def rating_problem(error: BaseException) -> str:
    """The kind of an error and the first lines of its message: PostgreSQL names the rule in one, the row in the next."""
    text = " ".join(str(error).split("\n")[:2])
    return f"{type(error).__name__}: {text}"[:LONGEST] if text else type(error).__name__


def rated_by_team(
    items: Collection[Item], team: Callable[[Item], str], rate: Callable[[Collection[Item]], Found]
) -> Found:
    """What `rate` makes of all items.  Raises TeamRatingError where it raises for some teams alone, else what it raised."""
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
    """What `make` makes of facts that only these teams share.  Raises TeamRatingError for them where it raises."""
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
    return {} if 1 < len(by_team) == len(problems) else problems
