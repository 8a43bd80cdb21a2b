"""Epochs: what was learned before a close belongs to its documents, what is learned after it to the next close.

The epoch is the number of closes made so far. Every ingest transaction holds the usage lock shared and stamps its rows
with the current epoch; a close takes the lock alone for the instant in which it advances the epoch. So each row is
either seen by the close or late, never both and never neither.
"""

from datetime import datetime

from django.db import connection

from billing.usage.models import ClosedWindow

USAGE_LOCK = 0x5350414E


def epoch_enter() -> int:
    """The current epoch, which cannot advance before the calling transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [USAGE_LOCK])
        return _current(cursor)


def epoch_advance(*, start: datetime, end: datetime) -> int:
    """Close [start, end) to regular usage; returns the ordinal of this close. `usage_freeze` was called before."""
    with connection.cursor() as cursor:
        ordinal = _current(cursor) + 1
    ClosedWindow.objects.create(ordinal=ordinal, start=start, end=end)
    return ordinal


def usage_freeze() -> None:
    """Let no usage in until the calling transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [USAGE_LOCK])


def _current(cursor) -> int:
    cursor.execute("SELECT coalesce(max(ordinal), 0) FROM usage_closedwindow")
    return int(cursor.fetchone()[0])
