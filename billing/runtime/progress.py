"""Progress of a close or an issue: reported step by step to a listener, and stored with the operation for its page.

The work is one transaction, invisible to others before it ends. So the operation's row is written over a connection of
its own; a progress report that is lost or late changes nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext_noop

ProgressCallback = Callable[[str, int, int], None]
"""Callback with a step, the number of its finished parts, and of all parts (0 where unknown)."""
STEPS: Final = {
    "look": gettext_noop("looking at every reconciliation"),
    "cut_off": gettext_noop("setting the cut-off"),
    "rate": gettext_noop("rating the usage"),
    "write": gettext_noop("writing charges"),
    "draft": gettext_noop("drafting invoices"),
    "issue": gettext_noop("numbering and issuing invoices"),
    "assess": gettext_noop("assessing the month"),
    "focus": gettext_noop("making the rows of FOCUS"),
}
EVERY_S: Final = 0.5


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore progress."""


def report_to_all(*listeners: ProgressCallback) -> ProgressCallback:
    def report_progress(step: str, done: int, total: int) -> None:
        for listener in listeners:
            listener(step, done, total)

    return report_progress


def throttled(listener: ProgressCallback, *, clock: Callable[[], float] = time.monotonic) -> ProgressCallback:
    """Limit calls to the beginning and the end of each step, and between them one in half a second."""
    last: list[tuple[str, float]] = []

    def report_progress(step: str, done: int, total: int) -> None:
        if not last or last[-1][0] != step or done == total or clock() - last[-1][1] >= EVERY_S:
            last[:] = [(step, clock())]
            listener(step, done, total)

    return report_progress


@contextmanager
def saved_with_operation(operation_id: int) -> Iterator[ProgressCallback]:
    """Yield a listener that writes the progress into the operation's row."""
    # the caller's connection is inside the transaction of the work
    beside: BaseDatabaseWrapper = connection.copy()

    def report_progress(step: str, done: int, total: int) -> None:
        with suppress(DatabaseError), beside.cursor() as cursor:
            cursor.execute(
                "SET LOCAL synchronous_commit = off;"  # one implicit transaction with the next: no wait for the disk
                "UPDATE invoices_operation SET step = %s, done = %s, total = %s WHERE id = %s AND status = 'pending'",
                [step, done, total, operation_id],
            )

    try:
        yield throttled(report_progress)
    finally:
        beside.close()


def progress_text(step: str, done: int, total: int) -> str:
    """Format progress as one line for a terminal."""
    counted = f" {done:,} of {total:,}" if total else ""
    return f"{STEPS.get(step, step)}{counted}"
