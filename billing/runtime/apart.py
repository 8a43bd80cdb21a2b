"""Work on many things, of which one that fails holds up no other."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from metering.messages import UserError

Item = TypeVar("Item")
Done = TypeVar("Done")

log = logging.getLogger(__name__)


def each_apart(items: Iterable[Item], work: Callable[[Item], Done]) -> list[Done]:
    """What the work makes of each item; what fails is logged. Without a database nothing would work: that is raised."""
    found = []
    for item in items:
        try:
            found.append(work(item))
        except (InterfaceError, OperationalError):
            raise
        except Exception:  # the edge of the loop: what fails now may work the next time
            log.exception("%.200s failed, the others go on", item)
    return found


def log_failure(to: logging.Logger, error: Exception, what: str, *facts: object) -> None:
    """Say what waits and why, and where in the code unless it is an error for people."""
    to.log(logging.WARNING, f"{what}: %s", *facts, failure_text(error), exc_info=None if _is_for_people(error) else error)


def failure_text(error: Exception) -> str:
    """Why something waits, as pages say it; of an error that is not for people only its kind, since it may tell secrets."""
    return (str(error) if _is_for_people(error) else type(error).__name__)[:300]


def _is_for_people(error: Exception) -> bool:
    return isinstance(error, UserError)
