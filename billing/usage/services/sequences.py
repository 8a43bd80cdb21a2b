"""Sequence numbers that arrived per source: a source that numbers its records can be asked for lost ones.

Numbers go up by one within a run, such as one process of a gateway. They are no part of a record's content, so a record sent
again under another number is still a duplicate, and both numbers have arrived.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction

from metering.records import TokenUsage

FOLD_LOCK = 0x53455155
JOIN = """
    WITH joined AS (SELECT * FROM token_sequence_island WHERE cardinality(pieces) > 1),
         gone AS (DELETE FROM token_sequence s USING joined j WHERE s.id = ANY(j.pieces) RETURNING 1),
         kept AS (INSERT INTO token_sequence (source, run, first, last, first_time, last_time)
                  SELECT source, run, first, last, first_time, last_time FROM joined RETURNING 1)
    SELECT count(*) FROM gone
"""


class SequenceRange(NamedTuple):
    """Consecutive numbers `first` to `last` of a run; the times are those of the records at both ends."""

    source: str
    run: str
    first: int
    last: int
    first_time: datetime
    last_time: datetime


def stretches(records: Iterable[TokenUsage]) -> Iterator[SequenceRange]:
    """Yield the consecutive ranges of these records' numbers, in any input order; records without a number are skipped."""
    numbered = sorted(
        (record.source, record.sequence_run or "", record.sequence, record.time)
        for record in records
        if record.sequence is not None
    )
    current: SequenceRange | None = None
    for source, run, number, time in numbered:
        if current is not None and (source, run) == current[:2] and number <= current.last + 1:
            current = current._replace(last=number, last_time=time)
            continue
        if current is not None:
            yield current
        current = SequenceRange(source, run, number, number, time, time)
    if current is not None:
        yield current


def sequences_note(cursor: Any, records: Iterable[TokenUsage]) -> None:
    """Store the arrived numbers of these records, in the transaction that writes the records."""
    rows = list(stretches(records))
    if rows:
        cursor.executemany(
            """INSERT INTO token_sequence (source, run, first, last, first_time, last_time)
               VALUES (%s, %s, %s, %s, %s, %s)""",
            rows,
        )


def sequences_fold() -> int:
    """Merge ranges that overlap or touch; return the number of rows deleted. Only one process folds at a time."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [FOLD_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(JOIN)
        return int(cursor.fetchone()[0])
