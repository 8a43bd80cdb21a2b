"""Partitions of the ledger by key, and the removal of a month's partition as a whole (ADR 0039).

Rows that stay in the month are copied to a second table, ingest adds new rows to both, then the copy replaces the
partition. Every step may be interrupted and repeated.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from django.db import OperationalError, connection, transaction
from psycopg.errors import DeadlockDetected, LockNotAvailable

from billing.runtime.advisory_lock import advisory_lock
from billing.runtime.parallel_reads import rows_read
from metering.intervals import Interval

ALONE: Final = 0x50415254
"""Advisory lock of commands that move records of the ledger."""
LOCK_SECONDS, ATTEMPTS, PAUSE_SECONDS = 1, 60, 2.0
OLDER: Final = f"""SELECT l.virtualtransaction FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'virtualxid' AND l.granted AND a.datname = current_database() AND a.usesysid IS NOT NULL
          AND l.pid <> pg_backend_pid()
          AND NOT EXISTS (SELECT FROM pg_locks h WHERE h.pid = l.pid AND h.locktype = 'advisory' AND h.objid = {ALONE})"""
"""SQL of running transactions, except vacuum's, which read no record, and that of our own lock."""
OF_MONTH: Final = "time >= %(start)s AND time < %(end)s AND epoch < %(before)s"
Answer = TypeVar("Answer")


class PartsError(Exception):
    """Error of a ledger whose locks are not released, or of a part with unexpected rows."""


class MonthPart(NamedTuple):
    """Part of the ledger with keys from `low` to below `high`."""

    name: str
    low: bytes
    high: bytes

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.low <= key < self.high


def part_of(window: Interval) -> MonthPart | None:
    """Return the part with most keys of a month; None if it does not exist."""
    middle = (window.start + (window.end - window.start) / 2).astimezone(UTC)
    first = datetime(middle.year, middle.month, 1, tzinfo=UTC)
    name = f"token_entry_{first:%Y_%m}"
    following = (first + timedelta(days=32)).replace(day=1)
    return MonthPart(name, _first_key(first), _first_key(following)) if table_exists(name) else None


def _first_key(instant: datetime) -> bytes:
    """Return the first key of an instant, equal to the database function `token_first_key`."""
    return (int(instant.timestamp()) * 1000 << 80).to_bytes(16, "big")


def months_make() -> list[str]:
    """Create parts for last month and the next three, if the ledger is partitioned; return the months still without one."""
    ((months,),) = rows_read("SELECT token_months_make()", {})
    return list(months)


@contextmanager
def ledger_alone() -> Iterator[None]:
    """Hold the lock against other commands that move records of the ledger.  Raises PartsError."""
    with advisory_lock(ALONE, wait=False) as taken:
        if not taken:
            raise PartsError("another usage_drop, usage_restore or usage_partition is at work")
        yield


def rebuild_waits() -> bool:
    """Return True if `usage_partition` was begun and has not ended."""
    return table_exists("token_entry_new")


def locked(work: Callable[[Any], Answer]) -> Answer:
    """Return the result of `work` in a transaction with a short lock timeout, repeated for up to three minutes.

    A longer wait for a lock would make ingest queue behind it.  Raises PartsError.
    """
    for attempt in range(ATTEMPTS):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS}s"])
                return work(cursor)
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                raise
            if attempt == ATTEMPTS - 1:
                raise PartsError("a transaction reads the ledger and does not end; run this again when it has") from error
        time.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


def older_wait() -> None:
    """Wait until every transaction running now has ended.  Raises PartsError.

    Such a transaction could read the copy with a snapshot older than the copy, and miss rows.
    """
    older = set(rows_read(OLDER, {}))
    for attempt in range(ATTEMPTS):
        # transactions begun since the first look see the copy: they need not end
        older &= set(rows_read(OLDER, {}))
        if not older:
            return
        if attempt < ATTEMPTS - 1:
            time.sleep(PAUSE_SECONDS)
    raise PartsError(f"{len(older)} transactions do not end, of which one may read the ledger; run this again later")


def part_waits(window: Interval) -> bool:
    """Return True if the part of this month was exchanged and still exists under its other name."""
    part = part_of(window)
    return part is not None and table_exists(f"{part.name}_left")


def part_has(part: MonthPart, keys: Iterable[bytes]) -> int:
    """Return how many of these keys are in the part, or in its removed table that is not dropped yet."""
    table = f"{part.name}_left" if table_exists(f"{part.name}_left") else part.name
    ((number,),) = rows_read(
        f"SELECT count(*) FROM unnest(%(keys)s::uuid[]) AS k (key) JOIN {table} USING (key)",
        {"keys": [UUID(bytes=key) for key in keys if key in part]},
    )
    return int(number)


def part_goes(part: MonthPart, window: Interval, before: int, sealed: int) -> None:
    """Drop a month's records, all known before close `before`, with their part; their keys were stored before.

    sealed: their number (`part_has`). Raises PartsError, also if the part has another number of them.
    """
    month: dict[str, Any] = {"start": window.start, "end": window.end, "before": before}
    if not table_exists(f"{part.name}_left"):
        locked(lambda cursor: _begin(cursor, part))
        with connection.cursor() as cursor:
            stay = f"SELECT * FROM {part.name} WHERE NOT ({OF_MONTH})"
            cursor.execute(f"INSERT INTO {part.name}_stay {stay} ON CONFLICT DO NOTHING", month)
            cursor.execute(f"ALTER TABLE token_entry_unmade VALIDATE CONSTRAINT none_of_{part.name}")
        _require(part, month, sealed)
        older_wait()
        locked(lambda cursor: _exchange(cursor, part))
    _require_left(part, month, sealed)
    locked(lambda cursor: cursor.execute(f"DROP TABLE {part.name}_left"))


def part_stays(part: MonthPart) -> None:
    """Undo the steps of `part_goes` before its exchange.  Raises PartsError."""
    if table_exists(f"{part.name}_stay"):
        locked(lambda cursor: _forget(cursor, part))


def _forget(cursor: Any, part: MonthPart) -> None:
    cursor.execute(
        f"""DROP TRIGGER IF EXISTS rows_follow ON {part.name}; DROP TABLE IF EXISTS {part.name}_stay;
            ALTER TABLE token_entry_unmade DROP CONSTRAINT IF EXISTS none_of_{part.name}"""
    )


def _begin(cursor: Any, part: MonthPart) -> None:
    """Create an empty copy, and a trigger that also inserts new rows of the part there.

    The CHECK constraint lets the exchange skip its scan of the DEFAULT partition, which would run under its exclusive lock.
    """
    _forget(cursor, part)
    cursor.execute(
        f"""CREATE TABLE {part.name}_stay (LIKE {part.name} INCLUDING ALL);
            SELECT token_part_read('{part.name}_stay');
            CREATE TRIGGER rows_follow AFTER INSERT ON {part.name}
                FOR EACH ROW EXECUTE FUNCTION token_rows_follow('{part.name}_stay');
            ALTER TABLE token_entry_unmade ADD CONSTRAINT none_of_{part.name}
                CHECK (key < '{part.low.hex()}' OR key >= '{part.high.hex()}') NOT VALID"""
    )


def _require(part: MonthPart, month: dict[str, Any], sealed: int) -> None:
    """Raise PartsError unless, in one snapshot, the part has `sealed` records of the month, and the copy all others."""
    ((found, others, copied, same),) = rows_read(
        f"""SELECT a.found, a.others, b.copied, a.hash IS NOT DISTINCT FROM b.hash
            FROM (SELECT count(*) FILTER (WHERE {OF_MONTH}) AS found, count(*) FILTER (WHERE NOT ({OF_MONTH})) AS others,
                         sum(hash_record_extended(p, 0)) FILTER (WHERE NOT ({OF_MONTH})) AS hash FROM {part.name} p) a,
                 (SELECT count(*) AS copied, sum(hash_record_extended(s, 0)) AS hash FROM {part.name}_stay s) b""",
        month,
    )
    if found != sealed or others != copied or not same:
        raise PartsError(f"{part.name}: {found} records of the month, {sealed} sealed; {others} others, {copied} copied")


def _exchange(cursor: Any, part: MonthPart) -> None:
    """Replace the part by the copy; readers and writers of all months wait meanwhile."""
    name = part.name
    cursor.execute("LOCK TABLE ONLY token_entry_timed IN ACCESS EXCLUSIVE MODE")
    cursor.execute("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = %s::regclass", [name])
    bounds = cursor.fetchone()[0]
    cursor.execute(f"DROP TRIGGER rows_follow ON {name}; ALTER TABLE token_entry_timed DETACH PARTITION {name}")
    for old, new in ((name, f"{name}_left"), (f"{name}_stay", name)):
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")
        for index in ("pkey", "time_idx"):
            cursor.execute(f"ALTER INDEX {old}_{index} RENAME TO {new}_{index}")
    cursor.execute(
        f"""ALTER TABLE token_entry_timed ATTACH PARTITION {name} {bounds};
            ALTER TABLE token_entry_unmade DROP CONSTRAINT none_of_{name}"""
    )
    cursor.execute("SELECT token_part_guard(%s::regclass)", [name])


def _require_left(part: MonthPart, month: dict[str, Any], sealed: int) -> None:
    """Raise PartsError unless the removed table has `sealed` records, and all its others are in the ledger or archived."""
    ((found, lost),) = rows_read(
        f"""SELECT count(*) FILTER (WHERE {OF_MONTH}),
                   count(*) FILTER (WHERE NOT ({OF_MONTH}) AND NOT EXISTS (SELECT FROM token_entry e WHERE e.key = p.key)
                                    AND token_sealed_entry(p.key) IS NULL)
            FROM {part.name}_left p""",
        month,
    )
    if found != sealed or lost:
        raise PartsError(f"{part.name}_left: {found} records of the month, {sealed} sealed; {lost} others are nowhere else")


def table_exists(table: str) -> bool:
    """Return True if the database has a table of that name."""
    ((exists,),) = rows_read("SELECT to_regclass(%(table)s) IS NOT NULL", {"table": f"public.{table}"})
    return bool(exists)
