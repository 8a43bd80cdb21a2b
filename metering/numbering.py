"""Sequence numbers of the records that a reporter puts into its spool; a gap shows the platform a lost record.

A number is taken in the transaction that puts its record into the spool: after a crash both are there or neither is, so
no number is lost. Each source has its own run, which lasts as long as the state file: a new file, after a replica was added
or a disk was lost, begins another run, and numbers of the old run raise no gap.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from metering.records import TokenUsage

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS numbering (source TEXT PRIMARY KEY, run TEXT NOT NULL, following INTEGER NOT NULL);
"""
TAKE: Final = """
INSERT INTO numbering (source, run, following) VALUES (?, ?, ?)
ON CONFLICT (source) DO UPDATE SET following = following + excluded.following RETURNING run, following
"""
Other = TypeVar("Other")


class Numbering:
    """Sequence numbers of one state file, from 0 in each source; the caller commits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(SCHEMA)  # executescript would end the transaction that may be open

    def number(self, records: Sequence[TokenUsage | Other]) -> list[TokenUsage | Other]:
        """Return the records, with the next numbers in those that have none.

        Items that are no record pass unchanged: the platform quarantines them, without a number.
        """
        numbered = list(records)
        places: dict[str, list[int]] = defaultdict(list)
        for place, record in enumerate(records):
            if isinstance(record, TokenUsage) and record.sequence is None:
                places[record.source].append(place)
        for source, mine in places.items():
            run, first = self._take(source, len(mine))
            for number, place in enumerate(mine, first):
                record = numbered[place]
                assert isinstance(record, TokenUsage)  # noqa: S101  (only such places were collected)
                numbered[place] = replace(record, sequence=number, sequence_run=run)
        return numbered

    def skip(self, source: str, count: int) -> None:
        """Skip `count` numbers, for records that are known to be lost."""
        self._take(source, count)

    def _take(self, source: str, count: int) -> tuple[str, int]:
        """Reserve `count` numbers; return the run and the first of them."""
        run, following = self._connection.execute(TAKE, (source, uuid4().hex, count)).fetchone()
        return run, following - count
