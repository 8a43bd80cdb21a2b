"""Months whose records left the ledger for an archive, with an entry per record by which repeats are still refused.

A month is in `token_archive` from before its first record leaves until after its last one is back, so that readers of its
records read the archive (`billing.usage.archive.reading`) and skip the ledger's rows of it (IN_LEDGER).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from billing.runtime.parallel_reads import rows_read
from billing.usage.scope import EpochFilter
from billing.usage.store.parts import MonthPart
from metering.intervals import Interval

KEY_BYTES: Final = 16
TIME_BYTES: Final = 8
ENTRY_BYTES: Final = 32
IN_LEDGER: Final = """NOT EXISTS (SELECT 1 FROM token_archive a
    WHERE t.time >= a.start AND t.time < a."end" AND t.epoch < a.before)"""
"""SQL condition on `token_event t`: the record's month is not archived."""
MONTHS: Final = 'SELECT month, start, "end", before, records, folder FROM token_archive ORDER BY start'
SOME: Final = """SELECT coalesce(max(close_seq), 0), EXISTS (SELECT 1 FROM token_sealed) FROM usage_close"""
AMONG: Final = """SELECT substr(s.entries, position(uuid_send(k.key) IN s.entries), 32)
    FROM unnest(%s::uuid[]) AS k (key) JOIN token_sealed s ON s.bucket = token_bucket(k.key)
    WHERE position(uuid_send(k.key) IN s.entries) > 0"""
LEAVE: Final = """INSERT INTO token_sealed (bucket, entries)
    SELECT token_bucket(e.key), string_agg(
               uuid_send(e.key) || timestamptz_send(e.time) || substr(s.content, 1, 8), ''::bytea ORDER BY e.key)
    FROM unnest(%(keys)s::uuid[], %(contents)s::bytea[], %(epochs)s::int[]) AS s (key, content, epoch)
    JOIN token_event e ON e.key = s.key AND e.epoch = s.epoch JOIN token_dimension d ON d.id = e.dimension
    WHERE {content} = s.content AND token_sealed_entry(e.key) IS NULL GROUP BY 1
    ON CONFLICT (bucket) DO UPDATE SET entries = token_sealed.entries || excluded.entries"""
RETURN: Final = f"""UPDATE token_sealed s SET entries = coalesce((
        SELECT string_agg(substr(s.entries, {ENTRY_BYTES} * n + 1, {ENTRY_BYTES}), ''::bytea ORDER BY n)
        FROM generate_series(0, length(s.entries) / {ENTRY_BYTES} - 1) AS n
        WHERE substr(s.entries, {ENTRY_BYTES} * n + 1, {KEY_BYTES}) <> ALL (%(octets)s::bytea[])), '')
    WHERE bucket IN (SELECT token_bucket(key) FROM unnest(%(keys)s::uuid[]) AS key)"""
SAME: Final = """SELECT count(*)
    FROM unnest(%(keys)s::uuid[], %(contents)s::bytea[], %(epochs)s::int[]) AS s (key, content, epoch)
    JOIN token_event e ON e.key = s.key AND e.epoch = s.epoch JOIN token_dimension d ON d.id = e.dimension
    WHERE {content} = s.content"""


class ArchivedMonth(NamedTuple):
    """Month with `records` records, of epochs below `before`, in a folder of an archive."""

    month: str
    window: Interval
    before: int
    records: int
    folder: str

    def known(self, epochs: EpochFilter) -> EpochFilter:
        """Return the archived epochs of the month that are among `epochs`."""
        return EpochFilter(before=min(epochs.before, self.before), first=epochs.first)


class SealedRecord(NamedTuple):
    """Entry of a record that left: its time in microseconds since 2000, and the first half of its content hash."""

    time: int
    digest: bytes


def archived_months() -> list[ArchivedMonth]:
    """Return all archived months, in order."""
    return [ArchivedMonth(month, Interval(start, end), *more) for month, start, end, *more in rows_read(MONTHS, {})]


def archived_among(windows: Iterable[Interval], epochs: EpochFilter) -> list[ArchivedMonth]:
    """Return archived months that may have records of these windows and epochs."""
    wanted = list(windows)
    return [
        item for item in (archived_months() if wanted else [])
        if epochs.first < min(item.before, epochs.before) and any(item.window.overlap(window) for window in wanted)
    ]  # fmt: skip


def sealed_among(keys: Iterable[Any]) -> tuple[int, dict[bytes, SealedRecord]]:
    """Return the current epoch, and the entries of those keys (16 bytes each) whose records left."""
    with connection.cursor() as cursor:
        cursor.execute(SOME)
        epoch, some = cursor.fetchone()
        if not some:
            return int(epoch), {}
        cursor.execute(AMONG, [f"{{{','.join(bytes(key).hex() for key in keys)}}}"])
        entries = cursor.fetchall()
    found = {}
    for entry in (bytes(row[0]) for row in entries):
        time = int.from_bytes(entry[KEY_BYTES : KEY_BYTES + TIME_BYTES], "big", signed=True)
        found[entry[:KEY_BYTES]] = SealedRecord(time, entry[KEY_BYTES + TIME_BYTES :])
    return int(epoch), found


class Leaving(NamedTuple):
    """Records as in their archive: keys, content hashes, epochs."""

    keys: Sequence[bytes]
    contents: Sequence[bytes]
    epochs: Sequence[int]

    def asked(self) -> dict[str, Any]:
        return {"keys": [UUID(bytes=key) for key in self.keys], "octets": list(self.keys),
                "contents": list(self.contents), "epochs": list(self.epochs)}  # fmt: skip


@contextmanager
def _one_by_one() -> Iterator[Any]:
    """Yield a cursor that looks each key up in its own part of the ledger: with joins the planner would read all parts."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off")
        yield cursor


def records_leave(leaving: Leaving, content: str, part: MonthPart | None) -> int:
    """Store entries of records that equal the archive in key, epoch and content, and delete the records.

    Records in the part of their month are not deleted: the part is dropped as a whole (`part_goes`). `content`: the hash in
    SQL. Returns the number of entries; a record that differs has none, and the caller then rolls back.
    """
    with _one_by_one() as cursor:
        cursor.execute(LEAVE.format(content=content), leaving.asked())
        kept = sealed_among(leaving.keys)[1]
        gone = [
            key for key, whole in zip(leaving.keys, leaving.contents, strict=True)
            if key in kept and kept[key].digest == whole[: ENTRY_BYTES - KEY_BYTES - TIME_BYTES]
        ]  # fmt: skip
        elsewhere = [UUID(bytes=key) for key in gone if part is None or key not in part]
        cursor.execute("DELETE FROM token_entry e USING unnest(%s::uuid[]) AS k (key) WHERE e.key = k.key", [elsewhere])
    return len(gone)


def keys_return(leaving: Leaving) -> None:
    """Delete the entries of these records, which are in the ledger again."""
    with connection.cursor() as cursor:
        cursor.execute(RETURN, leaving.asked())


def records_same(leaving: Leaving, content: str) -> int:
    """Return the number of these records that the ledger has with the archive's key, epoch and content."""
    with _one_by_one() as cursor:
        cursor.execute(SAME.format(content=content), leaving.asked())
        return int(cursor.fetchone()[0])


def month_note(item: ArchivedMonth) -> None:
    """Mark a month as archived: from now on its records are read from the archive."""
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO token_archive (month, start, "end", before, records, folder) VALUES (%s, %s, %s, %s, %s, %s)',
            [item.month, item.window.start, item.window.end, item.before, item.records, item.folder],
        )


def month_forget(item: ArchivedMonth) -> None:
    """Remove the mark of an archived month, once all its records are in the ledger again."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM token_archive WHERE month = %s", [item.month])
        cursor.execute("DELETE FROM token_sealed WHERE entries = ''")
