"""Request id: in every line of the log, in the audit log, and in the tasks that a request starts."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from secrets import token_hex
from typing import Final

HEADER: Final = "X-Request-ID"
WELL_FORMED: Final = re.compile(r"[A-Za-z0-9._-]{8,64}")
_current: Final[ContextVar[str]] = ContextVar("request_id", default="")
_process: Final = token_hex(10)
_numbers: Final = count(1)


def request_id() -> str:
    """Return the id of the current request or task; "" outside of both."""
    return _current.get()


def request_id_begin(given: str) -> str:
    """Set the id from a proxy, or a new one where that is not well-formed, for this context; return it."""
    # a random prefix per process: numbers of several workers would collide
    chosen = given if WELL_FORMED.fullmatch(given) else f"{_process}{next(_numbers):012x}"
    _current.set(chosen)
    return chosen


@contextmanager
def request_id_of(identifier: str) -> Iterator[None]:
    """Set the request id for the block; "" for none."""
    token = _current.set(identifier)
    try:
        yield
    finally:
        _current.reset(token)
