"""Moves of a sealed month's token records from the ledger to their archive, and back.

Each record is compared with the archive before it leaves: key, epoch, and the content hash, which DuckDB recomputed from
the columns of the file. `store.archived` keeps the keys. Both moves go in steps that may be interrupted and run again;
readers use the archive from before the first step until after the last step back.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
from django.db import transaction

from billing.tenancy.audit import audit_record
from billing.usage.archive.places import ArchiveError
from billing.usage.archive.reading import seal_of
from billing.usage.archive.rows import KINDS, rows_in_ledger
from billing.usage.archive.sealed import Seal, file_facts, seal_faults, sealed_files
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.epochs import ingest_lock_exclusive
from billing.usage.grid import this_hour
from billing.usage.services.sealing import ClosedMonth, SealError, ledger_sums, sums_of_manifest
from billing.usage.store.archived import (
    ArchivedMonth,
    Leaving,
    archived_months,
    keys_return,
    month_forget,
    month_note,
    records_leave,
    records_same,
    sealed_among,
)
from billing.usage.store.clickhouse import token_servers
from billing.usage.store.columns import reported_columns, token_columns
from billing.usage.store.dimensions import NOTHING
from billing.usage.store.parts import (
    PartsError,
    ledger_alone,
    part_goes,
    part_has,
    part_of,
    part_stays,
    part_waits,
    rebuild_waits,
)
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.records import entries_copy, records_here
from billing.usage.store.sharded_reads import sharded_number
from billing.usage.token_file import engine_connected, files_text
from metering.intervals import Interval, from_us
from metering.records import TokenUsage

STEP: Final = 20_000
"""Records moved in one transaction, during which ingest is blocked."""
TOKENS: Final = KINDS["tokens"]
NAMES: Final = ("id", "source", "consumer", "model", "site", "provider", "status", *TOKEN_COUNTS)


class _Archived(msgspec.Struct, frozen=True):
    """Record as stored in its file."""

    key: bytes
    content: bytes
    epoch: int
    time: int
    attributes: str | None
    fields: tuple[Any, ...]

    def record(self) -> TokenUsage:
        values = dict(zip(NAMES, self.fields, strict=True))
        attributes = msgspec.json.decode(self.attributes) if self.attributes else None
        return TokenUsage(time=from_us(self.time), attributes=attributes, **values)


def records_archive(
    *, closed: ClosedMonth, seal: Seal, actor: str, advance: Callable[[int], None] = lambda _: None, step: int = STEP
) -> int:
    """Remove the records of a sealed month from the ledger; return their number.  Raises ArchiveError, SealError.

    It must run as the owner of the database: the application's role may delete no record.
    """
    item = ArchivedMonth(seal.month, closed.window, seal.before, seal.manifest["rows"]["tokens"], seal.folder)
    if seal.close_seq != closed.close_seq:
        raise SealError(f"{seal.month}: was sealed for close {seal.close_seq}, and is billed by {closed.close_seq}")
    if (servers := token_servers()) and sharded_number(servers, item.window, item.before):
        raise SealError(f"{seal.month}: ClickHouse has records of it, and keeps them")
    # any fault stops here: no record leaves for an archive that is not whole
    for fault in seal_faults(seal, lambda _: None):
        raise ArchiveError(fault)
    with _alone(item.month), tempfile.TemporaryDirectory() as scratch:
        files = _files_proven(seal, closed.window, Path(scratch))
        begun = [other for other in archived_months() if other.month == item.month]
        if begun and begun != [item]:
            raise SealError(f"{item.month}: is in {begun[0].folder} already")
        if not begun:
            _begin(item, seal, files, actor, step)
        part, gone, in_part = part_of(item.window), 0, 0
        for rows in _steps(files, item.before, step):
            with transaction.atomic():
                ingest_lock_exclusive()
                if records_leave(_leaving(rows), TOKENS.content(), part) != len(rows):
                    raise _differs(item)
            gone += len(rows)
            in_part += part_has(part, [row.key for row in rows]) if part else 0
            advance(len(rows))
        if part and in_part:
            part_goes(part, item.window, item.before, in_part)
    return gone


@contextmanager
def _alone(month: str) -> Iterator[None]:
    """Hold the lock against other moves of ledger records.  Raises SealError."""
    try:
        if rebuild_waits():
            raise PartsError("usage_partition was begun and has not ended; run it again first")
        with ledger_alone():
            yield
    except PartsError as error:
        raise SealError(f"{month}: {error}") from error


def _differs(item: ArchivedMonth) -> SealError:
    return SealError(f"{item.month}: the ledger has a record that is not as in {item.folder}")


def _begin(item: ArchivedMonth, seal: Seal, files: list[Path], actor: str, step: int) -> None:
    """Note that the month is in its archive, if the ledger has exactly its records and its roll-ups agree with them."""
    for rows in _steps(files, item.before, step):
        if records_same(_leaving(rows), TOKENS.content()) != len(rows):
            raise _differs(item)
    # roll-ups by hour replace the records, so the month must not cut an hour
    if any(this_hour(at) != at for at in (item.window.start, item.window.end)):
        raise SealError(f"{item.month}: begins or ends within an hour of UTC, and hours are what stays")
    with transaction.atomic():
        ingest_lock_exclusive()
        number = rows_in_ledger("tokens", item.window, item.before)
        if number != item.records:
            raise SealError(f"{item.month}: {number} records in the ledger, {item.records} in {item.folder}")
        audit_record(actor=actor, action="usage_drop", subject=item.month, detail=_proven(item, seal))
        month_note(item)


def _proven(item: ArchivedMonth, seal: Seal) -> dict[str, Any]:
    """Return the audit detail of a month that is archived or restored.

    Raises SealError if roll-ups and records differ: both are in the ledger at that moment.
    """
    if differing := {name: count for name, count in rollup_difference(item.window).items() if count}:
        raise SealError(f"{item.month}: roll-ups and records differ: {differing}")
    return {"folder": item.folder, "manifest_sha256": seal.manifest_sha256, "before": item.before, "rows": item.records}


def records_restore(
    *, month: str, actor: str, advance: Callable[[int], None] = lambda _: None, step: int = STEP
) -> int:
    """Restore the records of a month to the ledger; return their number.  Raises ArchiveError, SealError."""
    item = next((item for item in archived_months() if item.month == month), None)
    if item is None:
        raise SealError(f"{month}: its records are in the ledger")
    seal = seal_of(item)
    with _alone(month), tempfile.TemporaryDirectory() as scratch:
        files = _files_proven(seal, item.window, Path(scratch))
        if part_waits(item.window):
            raise SealError(f"{month}: usage_drop has not ended; run it again first")
        if part := part_of(item.window):
            part_stays(part)
        for rows in _steps(files, item.before, step):
            with transaction.atomic():
                ingest_lock_exclusive()
                _put_back(item, rows)
            advance(len(rows))
    with transaction.atomic():
        ingest_lock_exclusive()
        back = rows_in_ledger("tokens", item.window, item.before)
        if back != item.records:
            raise SealError(f"{month}: {back} of {item.records} records are back")
        month_forget(item)
        audit_record(actor=actor, action="usage_restore", subject=month, detail=_proven(item, seal))
    return back


def _put_back(item: ArchivedMonth, rows: list[_Archived]) -> None:
    leaving = _leaving(rows)
    away = sealed_among(leaving.keys)[1].keys() - records_here(leaving.keys)
    by_epoch = sorted((row for row in rows if row.key in away), key=attrgetter("epoch"))
    for epoch, those in groupby(by_epoch, key=attrgetter("epoch")):
        entries_copy(token_columns([reported_columns([row.record() for row in those], NOTHING)]), epoch)
    if records_same(leaving, TOKENS.content()) != len(rows):
        raise SealError(f"{item.month}: a record would not come back as it left")
    keys_return(leaving)


def archive_faults(month: str) -> Iterator[str]:
    """Yield faults of an archived month: changed files, and roll-ups that differ from the sums of the manifest."""
    for item in archived_months():
        if item.month == month:
            try:
                seal = seal_of(item)
                yield from seal_faults(seal, lambda _: None)
                if ledger_sums(item.window, item.before)["tokens"] != sums_of_manifest(seal.manifest):
                    yield f"{item.folder}: roll-ups of {item.month} are not the sums of its manifest"
            except ArchiveError as error:
                yield str(error)


def _files_proven(seal: Seal, window: Interval, scratch: Path) -> list[Path]:
    """Return the token files, each verified against the manifest, and each row against its content hash."""
    files = sealed_files(seal, "tokens", scratch, lambda _: None)
    for file in files:
        if damaged := file_facts("tokens", file, window).damaged:
            raise ArchiveError(f"{file.name}: {damaged} rows are not as they were sealed")
    return files


def _steps(files: list[Path], before: int, step: int) -> Iterator[list[_Archived]]:
    """Yield rows in the order in which keys are stored, so that each row of `token_sealed` is written at most twice."""
    if not files:
        return
    columns = f"key, content, epoch, epoch_us(time), attributes, {', '.join(NAMES)}"
    with engine_connected() as engine:
        found = engine.execute(
            f"SELECT {columns} FROM {files_text(files)} WHERE epoch < {before} ORDER BY left(sha256(key), 6), key"
        )
        while rows := found.fetchmany(step):
            yield [
                _Archived(bytes(key), bytes(content), epoch, time, attributes, tuple(fields))
                for key, content, epoch, time, attributes, *fields in rows
            ]


def _leaving(rows: Iterable[_Archived]) -> Leaving:
    kept = list(rows)
    return Leaving([row.key for row in kept], [row.content for row in kept], [row.epoch for row in kept])
