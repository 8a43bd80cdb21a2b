"""Epochs: usage learned before a close belongs to its documents, usage learned after it to the next close.

The epoch is the number of closes made so far, withdrawn ones included. Every ingest transaction holds the usage lock
shared and stamps its rows with the current epoch; a close takes the lock exclusively for the instant in which it advances
the epoch. So each row is either seen by the close or late, never both and never neither.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import connection, transaction

from billing.runtime.parallel_reads import parallel_reads
from billing.usage.models import Close
from billing.usage.selectors import last_close_seq

USAGE_LOCK = 0x5350414E
ENTER = f"""SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
            SELECT set_config('lock_timeout', '10s', true);
            SELECT pg_advisory_xact_lock_shared({USAGE_LOCK});
            SELECT coalesce(max(close_seq), 0) FROM usage_close"""


def ingest_lock_shared() -> int:
    """Return the current epoch, which cannot advance before the calling transaction ends.

    A report is durable when acknowledged, even if the database is set to commit asynchronously; and a sender that would wait
    more than 10 s for the lock gets an error to retry.
    """
    with connection.cursor() as cursor:
        cursor.execute(ENTER)  # one round trip, and yet each statement sees what was committed when it begins
        while cursor.nextset():
            pass
        return int(cursor.fetchone()[0])


def next_close_seq() -> int:
    """Return the number of the next close. `ingest_lock_exclusive` was called before."""
    return last_close_seq() + 1


def epoch_advance(*, close_seq: int, start: datetime, end: datetime, rating_rules: int) -> None:
    """Store the close of [start, end) under `close_seq`; usage that arrives afterwards is late."""
    Close.objects.create(close_seq=close_seq, start=start, end=end, rating_rules=rating_rules)


def epoch_withdraw(*, close_seq: int, now: datetime) -> None:
    """Mark close `close_seq` withdrawn; no later close may be in force. `ingest_lock_exclusive` was called before."""
    Close.objects.filter(close_seq=close_seq).update(withdrawn_at=now)


def ingest_lock_exclusive() -> None:
    """Block ingest until the calling transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [USAGE_LOCK])


@contextmanager
def one_snapshot(*, beside: bool = False) -> Iterator[None]:
    """Run every read inside on one snapshot, so that sums agree during ingest; in a transaction, on that one's snapshot.

    beside: some of the reads run on a connection of their own (`parallel_reads`).
    """
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if not beside:
            yield
            return
        cursor.execute("SELECT pg_export_snapshot()")
        with parallel_reads(snapshot=cursor.fetchone()[0]):
            yield
