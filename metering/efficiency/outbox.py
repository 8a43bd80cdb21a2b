"""Samples on their way to the platform, and how far they were read, in one state file."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from metering.intervals import Interval
from metering.records import EfficiencySample
from metering.spool import Spool, open_state

DOOR: Final = "usage/efficiency"
SCHEMA: Final = "CREATE TABLE IF NOT EXISTS efficiency_read (cluster TEXT PRIMARY KEY, until TEXT NOT NULL)"
RECORDS_PER_BODY: Final = 500


class Outbox:
    """The state file of the efficiency agent of one cluster."""

    def __init__(self, path: Path, cluster: str, *, max_bytes: int = 1 << 28) -> None:
        self._connection: sqlite3.Connection = open_state(path)
        self._connection.execute(SCHEMA)
        self._cluster = cluster
        self.spool = Spool(self._connection, max_bytes=max_bytes)

    @property
    def read_until(self) -> datetime | None:
        """End of the last hour that was read."""
        row = self._connection.execute("SELECT until FROM efficiency_read WHERE cluster = ?", (self._cluster,)).fetchone()
        return datetime.fromisoformat(row[0]) if row else None

    def put(self, window: Interval, samples: Sequence[EfficiencySample]) -> None:
        """Keep the samples of a window and that it was read: both or neither.  Raises SpoolFullError."""
        with self._connection:
            for first in range(0, len(samples), RECORDS_PER_BODY):
                self.spool.put(DOOR, msgspec.json.encode(samples[first : first + RECORDS_PER_BODY]))
            self._connection.execute(
                "INSERT INTO efficiency_read VALUES (?, ?) ON CONFLICT (cluster) DO UPDATE SET until = excluded.until",
                (self._cluster, window.end.astimezone(UTC).isoformat()),
            )

    def close(self) -> None:
        """Close the file; what waits stays in it."""
        self._connection.close()
