"""Work on many things, of which one that fails holds up no other."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

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
            log.exception("%s failed, the others go on", item)
    return found
