"""Independent work on many items: one that fails does not stop the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from metering.messages import UserError

Item = TypeVar("Item")
Done = TypeVar("Done")

log = logging.getLogger(__name__)


def each_apart(items: Iterable[Item], work: Callable[[Item], Done]) -> list[Done]:
    """Return the results of the work on each item; log failures, but raise errors of the database connection."""
    found = []
    for item in items:
        try:
            found.append(work(item))
        except (InterfaceError, OperationalError):
            raise
        except Exception:  # the edge of the loop: the next run may succeed
            log.exception("%.200s failed, the others go on", item)
    return found


def log_failure(to: logging.Logger, error: Exception, what: str, *facts: object) -> None:
    """Log a failure, with a traceback unless the error is one for users."""
    to.log(logging.WARNING, f"{what}: %s", *facts, failure_text(error), exc_info=None if _is_for_people(error) else error)


def failure_text(error: Exception) -> str:
    """Return the error as pages show it; of an error not for users only its class, since its text may have secrets."""
    return (str(error) if _is_for_people(error) else type(error).__name__)[:300]


def _is_for_people(error: Exception) -> bool:
    return isinstance(error, UserError)
