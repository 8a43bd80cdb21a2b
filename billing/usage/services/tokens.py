"""Token records: deduplicated, written, and rolled up by hour, in one transaction.

No ORM and no serializer on this path. A few records are written by one function call (`token_take`). More are sorted by
key, so that two writers never deadlock on replays, and looked up; new ones are inserted with COPY into the keyed table. If
another writer inserted one of the keys meanwhile, the transaction is repeated.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import psycopg
from django.db import (
    DatabaseError,
    IntegrityError,
    OperationalError,
    close_old_connections,
    connection,
    connections,
    transaction,
)

from billing.usage.epochs import ingest_lock_shared
from billing.usage.services.outcome import IngestOutcome, Refusal, Reporter
from billing.usage.services.quarantine import quarantine_add
from billing.usage.services.sequences import sequences_note
from billing.usage.services.tags import batch_tags_filter, source_tag_rules
from billing.usage.services.token_batch import TokenBatch, key_taken, token_batch
from billing.usage.services.token_group import GroupCommit, LoopGroupCommit, Result, write_group
from billing.usage.store.archived import SealedRecord, sealed_among
from billing.usage.store.columns import (
    DimensionNumbers,
    Flags,
    ReportedColumns,
    Rows,
    TokenColumns,
    reported_columns,
    token_columns,
)
from billing.usage.store.details import StoredDetails, details_stored
from billing.usage.store.dimensions import dimensions_forget, dimensions_learn, dimensions_put, remembered_dimensions
from billing.usage.store.records import Known, batches_seen, rows_copy, rows_known, takes_few
from billing.usage.store.rows import content_of_row, is_narrow, narrow_columns
from billing.usage.store.sharded import beside_close
from billing.usage.store.wire import token_take, token_take_async
from metering.records import Rejected, TokenUsage, details_agree, states_details, tags_agree

ATTEMPTS = 20
ANOTHER_CAME_FIRST = (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected)
LOCK_NOT_GIVEN = psycopg.errors.LockNotAvailable
NUMBERS_DO_NOT_HOLD = psycopg.errors.SerializationFailure
CONNECTION_STATES = ("08", "57P")
GROUPED_RECORDS = 5_000
SMALL = 60

Indexed = tuple[int, TokenUsage, bytes]

_dimension = attrgetter("dimension")
_tags = attrgetter("tags")


def tokens_ingest(
    *, records: Sequence[Indexed], rejected: Sequence[Rejected] = (), reporter: Reporter, now: datetime
) -> IngestOutcome:
    """Store a batch of (index, record, raw bytes); returns once all of it is durable."""
    raws = {index: raw for index, _, raw in records}
    return batch_ingest(
        token_batch(
            records=[record for _, record, _ in records], places=[index for index, _, _ in records], rejected=rejected,
            raw_at=raws.__getitem__, reporter=reporter, now=now,
        )
    )  # fmt: skip


def batch_ingest(batch: TokenBatch) -> IngestOutcome:
    """Store a batch, in one transaction with others that arrive at the same time; returns once it is durable."""
    return _groups.submit(batch)


def _write_batches(batches: Sequence[TokenBatch]) -> list[IngestOutcome]:
    """Write all batches in one transaction, and repeat it if another writer came first.

    It is also repeated if the connection was dead, as after a restart of the database. Writing again is safe even if the
    transaction had been committed: its keys are known then. And it is repeated with reloaded numbers of dimensions if a
    promoted server may lack some of those that this process caches.
    """
    for attempt in range(ATTEMPTS):
        group = _Group(batches)
        try:
            with connection.wrap_database_errors:
                _write(group)
            return group.outcomes
        except (IntegrityError, OperationalError) as error:
            lost, do_not_hold = attempt == 0 and _is_lost(error), isinstance(error.__cause__, NUMBERS_DO_NOT_HOLD)
            if attempt == ATTEMPTS - 1 or not (lost or do_not_hold or isinstance(error.__cause__, ANOTHER_CAME_FIRST)):
                raise
            if lost:
                connection.close()
            if do_not_hold:
                _forget_numbers(batches)
    raise AssertionError("unreachable")


def _forget_numbers(batches: Sequence[TokenBatch]) -> None:
    """Forget cached numbers of dimensions, and the columns of these batches that contain them."""
    dimensions_forget()
    for batch in batches:
        batch.columns = None


def _is_lost(error: Exception) -> bool:
    """Return True if the connection was dead, and no outer transaction of a caller with it."""
    cause = error.__cause__
    state = cause.sqlstate if isinstance(cause, psycopg.OperationalError) else "-"
    return not connection.in_atomic_block and (state is None or state.startswith(CONNECTION_STATES))


_groups = GroupCommit(_write_batches, most=GROUPED_RECORDS)


def _write(group: "_Group") -> None:
    if _is_few(group):
        _take(_Few(group))
    else:
        _copy(group)


def _is_few(group: "_Group") -> bool:
    return (
        len(group.records) <= SMALL
        and is_narrow(group.records)
        and not group.is_numbered
        and not any(map(states_details, group.records))
        and takes_few()
    )


class _Group:
    """Records of several batches in a row, with the outcome of each batch."""

    def __init__(self, batches: Sequence[TokenBatch]) -> None:
        self.batches = batches
        self.outcomes = [IngestOutcome(refusals=list(batch.refusals)) for batch in batches]
        self.records = [record for batch in batches for record in batch.records]
        self.is_numbered = any(record.sequence is not None for record in self.records)
        self._ends = list(accumulate(len(batch.records) for batch in batches))
        self._refused: set[int] = set()
        self.tag_limits: dict[tuple[str, str], int] = {}

    def filter_tags(self) -> None:
        """Remove tags that the allow-list of the source does not name; most groups have no tags."""
        if any(map(_tags, self.records)):
            rules = source_tag_rules()
            self.tag_limits = {(rule.source, rule.key): rule.values_a_day for own in rules.values() for rule in own}
            for batch in self.batches:
                batch_tags_filter(batch, rules)
            self.records = [record for batch in self.batches for record in batch.records]

    def columns(self) -> TokenColumns:
        """Return the columns of all records, at least one; adjacent small batches become one part."""
        parts, loose = list[ReportedColumns](), list[TokenUsage]()
        for batch in self.batches:
            if batch.columns is None:
                loose += batch.records
                continue
            if loose:
                parts.append(reported_columns(loose, remembered_dimensions()))
                loose = []
            parts.append(batch.columns)
        return token_columns([*parts, reported_columns(loose, remembered_dimensions())] if loose else parts)

    def repeat(self, number: int, *, same: bool) -> None:
        """Count record `number` as a duplicate (`same`) or a conflict."""
        owner = bisect_right(self._ends, number)
        outcome, batch = self.outcomes[owner], self.batches[owner]
        if same:
            outcome.duplicates += 1
            return
        outcome.conflicts += 1
        self._refused.add(number)
        record, place = self.records[number], batch.places[number - self._ends[owner] + len(batch.records)]
        key = f"{record.source}/{record.id}"
        outcome.refusals.append(Refusal(place, key, key_taken(record), "conflict", batch.raw_at(place)))

    def repeat_same(self, numbers: Rows) -> None:
        """Count these records as duplicates."""
        owners = np.searchsorted(self._ends, numbers, side="right")
        for owner, repeats in zip(*(part.tolist() for part in np.unique(owners, return_counts=True)), strict=True):
            self.outcomes[owner].duplicates += repeats

    def taken(self) -> Iterator[TokenUsage]:
        """Yield the records that the ledger now has, new or known."""
        return (record for number, record in enumerate(self.records) if number not in self._refused)

    def accept(self) -> None:
        """Count as accepted all records that are no repeats."""
        for batch, outcome in zip(self.batches, self.outcomes, strict=True):
            outcome.accepted = len(batch.records) - outcome.duplicates - outcome.conflicts

    def has_refused(self) -> bool:
        """Return True if a record of the group goes into quarantine."""
        return any(outcome.refusals for outcome in self.outcomes)

    def keep_refused(self) -> None:
        for batch, outcome in zip(self.batches, self.outcomes, strict=True):
            quarantine_add(reporter=batch.reporter, refusals=outcome.refusals)


class _Few:
    """Group written with one call of `token_take`: each key once, with the number of its record."""

    def __init__(self, group: _Group) -> None:
        self.group, self.numbers, records = group, dict[bytes, int](), group.records
        for number, record in enumerate(records):
            first = self.numbers.setdefault(record.key, number)
            if first != number:
                group.repeat(number, same=records[first].content == record.content)
        is_all = len(self.numbers) == len(records)
        self._records = records if is_all else [records[number] for number in self.numbers.values()]
        self.dimensions = list(map(_dimension, self._records))

    def arguments(self, known: DimensionNumbers) -> list[bytes]:
        """Return the arguments of `token_take`. `known`: has the numbers of all dimensions."""
        return narrow_columns(self.numbers, self._records, [known.ids[name] for name in self.dimensions], known.timeline)

    def count(self, known: str) -> None:
        """Count these keys (hex, comma-separated) as known, all others as written.

        Refused records are stored in the next transaction: both precede the response.
        """
        if known:
            _count_taken(self.group, known, self.numbers)
        self.group.accept()
        if self.group.has_refused():
            _write_with_others(self.group)


def _take(few: _Few) -> None:
    """Write a few records in one statement, which is its own transaction."""
    few.count(token_take(few.arguments(dimensions_put(few.dimensions))) if few.numbers else "")


def _copy(group: _Group) -> None:
    """Insert new records with COPY. Rows never change, so a key found before the transaction stays found."""
    # before the columns: tags decide which rows have details
    group.filter_tags()
    columns = group.columns() if group.records else None
    new = _new_rows(group, columns) if columns else None
    group.accept()
    if group.is_numbered or (new and len(new.rows)) or group.has_refused():
        _write_with_others(group, new)


def _write_with_others(group: _Group, new: "_New | None" = None) -> None:
    """Write new rows, if any, with the group's sequence numbers and refused records, in one transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        epoch = ingest_lock_shared()
        if new and len(new.rows):
            # a close since the lookup may have sealed records: look the keys up again
            if epoch != new.epoch:
                raise psycopg.errors.UniqueViolation(f"close {epoch} came between")
            rows_copy(new.columns, new.rows, epoch, new.seen, group.tag_limits)
        if group.is_numbered:
            sequences_note(cursor, group.taken())
        group.keep_refused()


class _New(NamedTuple):
    """Rows with new keys, as looked up in an epoch and after the `seen` batches of their store.

    Only after a later close can a key have been stored and moved to an archive meanwhile.
    """

    columns: TokenColumns
    rows: Rows
    epoch: int
    seen: Mapping[int, int]


def _new_rows(group: _Group, columns: TokenColumns) -> _New:
    """Return the rows with new keys; count all others.

    Archived keys are looked up after those of the ledger, so that a key that moves meanwhile is found.
    """
    for number, first in columns.repeated():
        group.repeat(number, same=group.records[first].same_report(group.records[number]))
    rows, seen = columns.first_rows(), batches_seen()
    at = None
    if known := rows_known(columns.hex_keys(rows)):
        at = columns.rows_by_key(rows)
        taken = np.fromiter((at[key] for key, *_ in known), np.intp, len(known))
        same = _same_as_stored(columns, taken, known)
        group.repeat_same(columns.place[taken[same]])
        others = [row for row, alike in zip(known, same.tolist(), strict=True) if not alike]
        if others:
            _count_known(group, others, {key: int(columns.place[at[key]]) for key, *_ in others})
        rows = np.setdiff1d(rows, taken, assume_unique=True)
    if not len(rows):
        return _New(columns, rows, 0, seen)
    epoch, sealed = sealed_among(columns.keys[rows])
    if sealed:
        at = at or columns.rows_by_key(rows)
        _count_sealed(group, sealed, {key: int(columns.place[at[key]]) for key in sealed})
        rows = np.setdiff1d(rows, np.fromiter((at[key] for key in sealed), np.intp, len(sealed)), assume_unique=True)
    return _New(columns, rows, epoch, seen)


def _same_as_stored(columns: TokenColumns, rows: Rows, stored: Sequence[Known]) -> Flags:
    """Return flags of rows identical to the stored record of their key; the others need a full comparison."""
    _, dimensions, times, rests, *counts = zip(*stored, strict=True)
    same: Flags = columns.are_as_stored(rows, np.frombuffer(b"".join(times), ">i8"), np.array(counts, np.int64).T)
    same &= columns.bare[rows] & ~columns.detailed[rows] & (columns.dimensions[rows] == np.array(dimensions, np.int32))
    return same & ~np.fromiter(map(bool, rests), np.bool_, len(rests))


def _count_known(group: _Group, known: Sequence[Known], numbers: Mapping[bytes, int]) -> None:
    """Count each of these records, found by their keys, as duplicate or conflict."""
    numbered = [(numbers[key], dimension, row) for key, dimension, *row in known]
    remembered = remembered_dimensions().ids
    own = {group.records[number].dimension for number, *_ in numbered} & remembered.keys()
    names = {remembered[name]: name for name in own}
    others = {dimension for _, dimension, _ in numbered} - names.keys()
    if others:
        names |= dimensions_learn(others)
    details = _details_known(group, (numbers[key] for key, *_ in known))
    for number, dimension, row in numbered:
        content = group.records[number].content
        same = content == content_of_row(row, names[dimension], dated=content[0] is not None)
        group.repeat(number, same=same and _details_agree(group.records[number], details))


def _details_known(group: _Group, numbers: Iterable[int]) -> Mapping[bytes, StoredDetails]:
    """Return stored details for those records that state details themselves: only these can differ."""
    stating = [record.key for number in numbers if states_details(record := group.records[number])]
    return details_stored(stating) if stating else {}


def _details_agree(record: TokenUsage, stored: Mapping[bytes, StoredDetails]) -> bool:
    known = stored.get(record.key)
    return known is None or (details_agree(known.details, record.details) and tags_agree(known.tags, record.tags))


def _count_taken(group: _Group, known: str, numbers: Mapping[bytes, int]) -> None:
    """Count each of these records, whose keys (hex, comma-separated) are in the ledger or an archive.

    A record that moves between them meanwhile is found in the next round.
    """
    while known:
        stored = rows_known(known)
        _count_known(group, stored, numbers)
        here = {key for key, *_ in stored}
        others = [key for key in map(bytes.fromhex, known.split(",")) if key not in here]
        sealed = sealed_among(others)[1] if others else {}
        _count_sealed(group, sealed, numbers)
        known = ",".join(key.hex() for key in others if key not in sealed)


def _count_sealed(group: _Group, sealed: Mapping[bytes, SealedRecord], numbers: Mapping[bytes, int]) -> None:
    """Count each of these records, whose keys are archived, as duplicate or conflict."""
    from billing.usage.archive.rows import record_contents  # it imports pyarrow, which other reports do not need

    kept = [(numbers[key], item) for key, item in sealed.items()]
    records = [group.records[number] for number, _ in kept]
    contents = record_contents([
        (record, record.content[0] if record.content[0] is not None else item.time)
        for record, (_, item) in zip(records, kept, strict=True)
    ])
    details = _details_known(group, (number for number, _ in kept))
    for (number, item), content in zip(kept, contents, strict=True):
        agree = _details_agree(group.records[number], details)
        group.repeat(number, same=agree and content.startswith(item.digest))


class LoopWriter:
    """Writer of an event loop's groups: a few records in the loop's thread, slower groups in a second thread.

    Both use the connection of the second thread, one at a time.
    """

    def __init__(self) -> None:
        self.commits = LoopGroupCommit(self._write, most=GROUPED_RECORDS)
        self._thread = ThreadPoolExecutor(1, "token-writer")
        self._wire: psycopg.pq.abc.PGconn | None = None

    async def stop(self) -> None:
        """End the thread and its connections, once nothing is being written."""
        await self.commits.stop()
        self._thread.submit(_close)
        await asyncio.to_thread(self._thread.shutdown)

    async def _write(self, batches: Sequence[TokenBatch]) -> list[Result]:
        """Return the outcome of each batch of a group."""
        group, known, rest = _Group(batches), remembered_dimensions(), partial(write_group, _write_batches, batches)
        if self._wire is not None and group.records and _is_few(group):
            few = _Few(group)
            if all(map(known.ids.__contains__, few.dimensions)):
                try:
                    repeats = await token_take_async(self._wire, few.arguments(known))
                except LOCK_NOT_GIVEN as error:  # the thread would wait for the lock as long again
                    return [OperationalError(str(error))] * len(batches)
                except psycopg.Error:
                    pass  # the thread writes the group again, and raises the error
                else:
                    if not repeats and not group.has_refused():
                        few.count(repeats)
                        return list(group.outcomes)
                    rest = partial(_counted, few, repeats)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write_apart, rest)

    def _write_apart(self, write: Callable[[], list[Result]]) -> list[Result]:
        """Write in the second thread, which opens the connection, again after a loss."""
        self._wire = None
        results = write()
        if any(isinstance(result, DatabaseError) for result in results):
            close_old_connections()
        if connection.connection is not None:
            self._wire = connection.connection.pgconn
        return results


def _counted(few: _Few, known: str) -> list[Result]:
    """Return the outcomes of written batches, given their known keys; if counting fails, write the batches again."""
    try:
        with connection.wrap_database_errors:
            few.count(known)
        return list(few.group.outcomes)
    except DatabaseError as error:
        if isinstance(error.__cause__, LOCK_NOT_GIVEN):
            return [error] * len(few.group.batches)
    return write_group(_write_batches, few.group.batches)


def _close() -> None:
    connections.close_all()
    beside_close()


def token_files_note(records: Iterable[TokenUsage]) -> None:
    """Note that these records came in a file: its source is complete as far as its files go."""
    latest: dict[str, datetime] = {}
    for record in records:
        latest[record.source] = max(record.time, latest.get(record.source, record.time))
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO usage_tokenfile (source, until) SELECT * FROM unnest(%s::text[], %s::timestamptz[])
               ON CONFLICT (source) DO UPDATE SET until = greatest(usage_tokenfile.until, excluded.until)""",
            [sorted(latest), [latest[source] for source in sorted(latest)]],
        )
