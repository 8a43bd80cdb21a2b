"""The id of the request that is being answered: in every line of the log, in the audit log, and in the tasks it starts."""

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
    """The id of the request or task at hand; empty outside of both."""
    return _current.get()


def request_id_begin(given: str) -> str:
    """Take the id that a proxy gave, or make one where it gave none that is well-formed; it holds for this context."""
    chosen = given if WELL_FORMED.fullmatch(given) else f"{_process}{next(_numbers):012x}"
    _current.set(chosen)
    return chosen


@contextmanager
def request_id_of(identifier: str) -> Iterator[None]:
    """Within the block what happens belongs to this request; an empty id to none."""
    token = _current.set(identifier)
    try:
        yield
    finally:
        _current.reset(token)
