"""Writing as steps, which whoever writes goes through: a thread that waits for each, or an event loop that never waits.

A step is something to say over a connection (`PgRequest`), or, where that is rare, anything else that may wait: a function
that uses Django's connection. Each is answered with what came of it, or with the error.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from django.db import connection

from billing.usage.services.token_wire import PgRequest, at_once

T = TypeVar("T")
Waiting = Callable[[], Any]
Step = PgRequest[Any] | Waiting
Writing = Generator[Step, Any, T]


def afresh() -> None:
    """The step that leaves the connection, which is dead: the next is a new one."""
    connection.close()


def here(writing: Writing[T]) -> T:
    """Go through all steps in this thread, over Django's connection; returns what they come to.  Raises what they do."""
    answer, error = None, None
    while True:
        try:
            step = writing.send(answer) if error is None else writing.throw(error)
        except StopIteration as end:
            return end.value
        answer, error = None, None
        try:
            answer = done(step)
        except Exception as raised:  # noqa: BLE001 - whoever wrote the step decides
            error = raised


def done(step: Step) -> Any:
    """What comes of one step in this thread.  Raises what Django does."""
    with connection.wrap_database_errors:
        if not isinstance(step, PgRequest):
            return step()
        connection.ensure_connection()
        return at_once(connection.connection, step)
