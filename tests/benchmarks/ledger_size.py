"""What an event costs on disk with its index, and in the log just after a checkpoint, for three kinds of ids."""

import os
import time
from collections.abc import Callable, Collection
from random import Random
from typing import Any

import msgspec
import psycopg
from django.utils import timezone

from billing.usage.services import Reporter, batch_ingest, rollups_fold, token_batch
from metering.records import TokenUsage
from tests.benchmarks import load

BATCH = 10_000
FOLD_EVERY = 100
EVENT_US = 1000
KINDS: dict[str, Callable[[Random, int], str]] = {
    "UUIDv7 ids": load.ordered_uuid, "UUIDv4 ids": load.random_uuid, "other ids": load.other_text,
}  # fmt: skip


SIZE = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('token_entry')"


def measure(events: int, kinds: Collection[str] = tuple(KINDS)) -> list[tuple[str, ...]]:
    """Rows of the table, each from an empty ledger of its own."""
    rows = []
    for name in kinds:
        identity = KINDS[name]
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # what is reported stays, for all others
            connection.execute("TRUNCATE token_entry, token_hour, token_day, token_hour_delta")
            later = 2 * (events // 10) * EVENT_US
            now = time.time_ns() // 1000 - later
            _fill(events, identity, seed=1, until_us=now)
            connection.execute("VACUUM ANALYZE token_entry")
            size = _number(connection, SIZE) / events
            logged = {}
            for number, share in enumerate((100, 10)):
                connection.execute("CHECKPOINT")
                before = _number(connection, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")
                now += events // share * EVENT_US
                _fill(events // share, identity, seed=2 + number, until_us=now)
                after = _number(connection, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")
                logged[share] = (after - before) / (events // share)
        rows.append(
            (f"B11 {name}: disk per event after {events:,}, with index", f"{size:.0f} bytes", "", "", "<= 120")
        )
        rows.append(
            (f"B11 {name}: log per event after a checkpoint, of the next {events // 10:,}", f"{logged[10]:.0f} bytes",
             f"of the next {events // 100:,}: {logged[100]:.0f} bytes", "", "<= 500")
        )  # fmt: skip
    return rows


def _fill(events: int, identity: Callable[[Random, int], str], *, seed: int, until_us: int) -> None:
    """Through the same code as over HTTP, batch after batch; 1,000 requests end in a second, the last at `until_us`."""
    reporter = Reporter("bench", "usage/tokens")
    for number, first in enumerate(range(0, events, BATCH)):
        count = min(BATCH, events - first)
        ended = until_us - (events - first - count) * EVENT_US
        raws = list(
            load.records(
                count, seed=seed * 1_000_000 + number, identity=identity, until_us=ended, span_us=count * EVENT_US
            )
        )
        records = [msgspec.json.decode(raw, type=TokenUsage) for raw in raws]
        outcome = batch_ingest(
            token_batch(records=records, raw_at=raws.__getitem__, reporter=reporter, now=timezone.now())
        )
        assert outcome.accepted == count
        if number % FOLD_EVERY == 0:
            rollups_fold()
    rollups_fold()


def _number(connection: psycopg.Connection[Any], statement: str) -> float:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return float(row[0])
