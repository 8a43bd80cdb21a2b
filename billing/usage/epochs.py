"""Epochs: what was learned before a close belongs to its documents, what is learned after it to the next close.

The epoch is the number of closes made so far, those that were taken back included. Every ingest transaction holds the
usage lock shared and stamps its rows with the current epoch; a close takes the lock alone for the instant in which it
advances the epoch. So each row is either seen by the close or late, never both and never neither.
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
    """The current epoch, which cannot advance before the calling transaction ends.

    What is reported is durable when it is acknowledged, also where the database was set not to wait for its disk; and
    a sender gets an answer to try again instead of waiting for a lock without end.
    """
    with connection.cursor() as cursor:
        cursor.execute(ENTER)  # one round trip, and yet each statement sees what was committed when it begins
        while cursor.nextset():
            pass
        return int(cursor.fetchone()[0])


def next_close_seq() -> int:
    """The number that a close takes now. `ingest_lock_exclusive` was called before."""
    return last_close_seq() + 1


def epoch_advance(*, close_seq: int, start: datetime, end: datetime, rating_rules: int) -> None:
    """Close [start, end) to regular usage, with the next number, which its period has by now."""
    Close.objects.create(close_seq=close_seq, start=start, end=end, rating_rules=rating_rules)


def epoch_withdraw(*, close_seq: int, now: datetime) -> None:
    """Take close `close_seq` back; no later one may stand. `ingest_lock_exclusive` was called before."""
    Close.objects.filter(close_seq=close_seq).update(withdrawn_at=now)


def ingest_lock_exclusive() -> None:
    """Let no usage in until the calling transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [USAGE_LOCK])


@contextmanager
def one_snapshot(*, beside: bool = False) -> Iterator[None]:
    """Let every read inside see one instant, so that sums agree while usage comes in; within a transaction, that one's.

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
