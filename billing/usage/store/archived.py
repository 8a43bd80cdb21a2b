"""Months whose records left the ledger for an archive, and what is kept of each record: it goes on refusing repeats.

A month is in `token_archive` from before its first record leaves until after its last one is back, so that a reader who asks
for records of it asks the archive (`billing.usage.archive.reading`) and leaves out what the ledger has of it (IN_LEDGER).
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
"""A condition on `token_event t`."""
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
    """A month of which so many records, of epochs below `before`, are in a folder of an archive."""

    month: str
    window: Interval
    before: int
    records: int
    folder: str

    def known(self, epochs: EpochFilter) -> EpochFilter:
        """Which of its epochs somebody asks for."""
        return EpochFilter(before=min(epochs.before, self.before), first=epochs.first)


class SealedRecord(NamedTuple):
    """What is kept of a record that left: microseconds since 2000, and the first half of the hash of its content."""

    time: int
    digest: bytes


def archived_months() -> list[ArchivedMonth]:
    """All of them, in order."""
    return [ArchivedMonth(month, Interval(start, end), *more) for month, start, end, *more in rows_read(MONTHS, {})]


def archived_among(windows: Iterable[Interval], epochs: EpochFilter) -> list[ArchivedMonth]:
    """Those that may have records of these windows and epochs."""
    wanted = list(windows)
    return [
        item for item in (archived_months() if wanted else [])
        if epochs.first < min(item.before, epochs.before) and any(item.window.overlap(window) for window in wanted)
    ]  # fmt: skip


def sealed_among(keys: Iterable[Any]) -> tuple[int, dict[bytes, SealedRecord]]:
    """The present epoch, and what is kept of those of these keys whose records left; a key is 16 bytes."""
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
    """Some records as their archive has them: keys, hashes of contents, epochs."""

    keys: Sequence[bytes]
    contents: Sequence[bytes]
    epochs: Sequence[int]

    def asked(self) -> dict[str, Any]:
        return {"keys": [UUID(bytes=key) for key in self.keys], "octets": list(self.keys),
                "contents": list(self.contents), "epochs": list(self.epochs)}  # fmt: skip


@contextmanager
def _one_by_one() -> Iterator[Any]:
    """A cursor that looks each key up in its own part of the ledger: as the database plans, it would read all parts."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off")
        yield cursor


def records_leave(leaving: Leaving, content: str, part: MonthPart | None) -> int:
    """Keep the keys of records of which key, epoch and content are those of the archive, and remove the records, except from
    the part of their month, which goes as a whole (`part_goes`); gives how many keys are kept.

    `content`: the hash in SQL. Whatever differs stays: then fewer are kept than were asked for, and the caller rolls back.
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
    """Forget what was kept of these records, which are in the ledger again."""
    with connection.cursor() as cursor:
        cursor.execute(RETURN, leaving.asked())


def records_same(leaving: Leaving, content: str) -> int:
    """How many of these records the ledger has, with key, epoch and content as the archive has them."""
    with _one_by_one() as cursor:
        cursor.execute(SAME.format(content=content), leaving.asked())
        return int(cursor.fetchone()[0])


def month_note(item: ArchivedMonth) -> None:
    """From now on records of this month are looked for in the archive."""
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO token_archive (month, start, "end", before, records, folder) VALUES (%s, %s, %s, %s, %s, %s)',
            [item.month, item.window.start, item.window.end, item.before, item.records, item.folder],
        )


def month_forget(item: ArchivedMonth) -> None:
    """All records of this month are in the ledger again."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM token_archive WHERE month = %s", [item.month])
        cursor.execute("DELETE FROM token_sealed WHERE entries = ''")
