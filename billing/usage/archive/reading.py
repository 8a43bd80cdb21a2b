"""Records of months that left the ledger, read from their archive; a file that differs from its manifest is not read.

An archive in an object store is copied for each read. Readers: lines whose price or owner changed within an hour, prices
by the length of prompts, and the requests behind a line.
"""

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from billing.usage.archive.places import ArchiveError, UnreadableArchiveError
from billing.usage.archive.sealed import Seal, sealed_files, seals
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.scope import EpochFilter
from billing.usage.store.archived import ArchivedMonth, archived_among
from billing.usage.store.sums import NO_BUCKET
from billing.usage.token_file import engine_connected, files_text, quoted
from metering.intervals import MICROSECOND, Interval, from_us, to_us
from metering.messages import Message
from metering.records import Dimension

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NAMES: Final = ("source", "consumer", "model", "site", "provider", "status")


def seal_of(item: ArchivedMonth) -> Seal:
    """Return the seal whose folder has the records of a month.  Raises ArchiveError."""
    for seal in seals(item.month):
        if seal.folder == item.folder:
            return seal
    raise ArchiveError(f"{item.folder}: the audit log has no such seal")


@contextmanager
def archived_records(item: ArchivedMonth) -> "Iterator[tuple[DuckDBPyConnection, str]]":
    """Yield a DuckDB connection and the SQL of a table of a month's records.  Raises UnreadableArchiveError."""
    with tempfile.TemporaryDirectory() as scratch, engine_connected() as engine:
        try:
            files = sealed_files(seal_of(item), "tokens", Path(scratch), lambda _: None)
        except ArchiveError as error:
            raise UnreadableArchiveError(Message(
                "the usage records of %(month)s are in the archive only, and it cannot be read: %(problem)s. Put a whole "
                "copy of it in its place; `usage_seal --verify` says what else is wrong",
                month=item.month, problem=str(error),
            )) from error
        yield engine, files_text(files)


def archived_sums(
    ranges: Sequence[tuple[int, datetime, datetime]], epochs: EpochFilter, bounds: Sequence[Mapping[str, tuple[int, ...]]],
    dimensions: Collection[Dimension] | None,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return sums of archived records: piece, source, consumer, model, site, hour in seconds, bucket, requests and counts.

    The bucket of a model without buckets in its piece is NO_BUCKET. `ranges`: (piece, start, end). `dimensions`: only
    records of these; None for all.
    """
    found: list[tuple[Any, ...]] = []
    for item in archived_among([Interval(start, end) for _, start, end in ranges], epochs):
        known = item.known(epochs)
        places = ", ".join(f"({piece}, {to_us(start)}, {to_us(end)})" for piece, start, end in ranges)
        statement = """SELECT r.piece, {names}, epoch_us(t.time) // 3600000000 * 3600 AS hour, {bucket} AS bucket,
                count(*), {sums}
            FROM {table} t JOIN (VALUES {places}) AS r (piece, lo, hi)
                ON epoch_us(t.time) >= r.lo AND epoch_us(t.time) < r.hi
            WHERE t.epoch >= {first} AND t.epoch < {before} GROUP BY ALL ORDER BY ALL"""
        with archived_records(item) as (engine, table):
            rows = engine.execute(statement.format(
                names=", ".join(f"t.{name}" for name in NAMES), bucket=_bucket(bounds), table=table, places=places,
                sums=", ".join(f"sum(t.{name})" for name in TOKEN_COUNTS), first=known.first, before=known.before,
            )).fetchall()  # fmt: skip
        for piece, source, consumer, model, site, provider, status, *more in rows:
            if dimensions is None or (source, consumer, model, site, provider, status) in dimensions:
                found.append((piece, source, consumer, model, site or "", *more[:2], *map(int, more[2:])))
    return found


def _bucket(bounds: Sequence[Mapping[str, tuple[int, ...]]]) -> str:
    cases = "".join(
        f" WHEN r.piece = {piece} AND t.model = {quoted(model)} THEN "
        + " + ".join(f"CAST(t.input_tokens > {end} AS INT)" for end in ends)
        for piece, named in enumerate(bounds) for model, ends in sorted(named.items())
    )  # fmt: skip
    return f"CASE{cases} ELSE {NO_BUCKET} END" if cases else str(NO_BUCKET)


def archived_requests(
    ranges: Sequence[tuple[str, Interval]], dimensions: Collection[Dimension], epochs: EpochFilter, usage: str,
    prompts: tuple[int, int | None], most: int,
) -> list[list[dict[str, Any]]]:  # fmt: skip
    """Return the first requests of a line, one list per archived month, in the form of `store.records.requests_of`.

    `usage`: SQL of the quantity. `prompts`: least and most input tokens. `most`: requests per month.
    """
    found: list[list[dict[str, Any]]] = []
    used = sorted({dimension[:3] for dimension in dimensions})
    for item in archived_among([window for _, window in ranges], epochs) if used else []:
        known = item.known(epochs)
        places = ", ".join(f"({quoted(source)}, {to_us(at.start)}, {to_us(at.end)})" for source, at in ranges)
        named = ", ".join(f"({', '.join(map(quoted, names))})" for names in used)
        longest = "" if prompts[1] is None else f" AND t.input_tokens <= {prompts[1]}"
        with archived_records(item) as (engine, table):
            rows = engine.execute(f"""SELECT epoch_us(t.time), t.id, t.source, t.status, {usage}, sum({usage}) OVER (),
                    count(*) OVER ()
                FROM {table} t JOIN (VALUES {places}) AS r (source, lo, hi)
                    ON t.source = r.source AND epoch_us(t.time) >= r.lo AND epoch_us(t.time) < r.hi
                WHERE (t.source, t.consumer, t.model) IN ({named}) AND t.epoch >= {known.first}
                    AND t.epoch < {known.before} AND {usage} > 0 AND t.input_tokens >= {prompts[0]}{longest}
                ORDER BY 1, 3, 2 LIMIT {most}""").fetchall()
        found.append([
            {"time": from_us(at), "id": name, "source": source, "status": status, "usage": Decimal(used_now),
             "usage_of_all": Decimal(of_all), "number": number}
            for at, name, source, status, used_now, of_all, number in rows
        ])  # fmt: skip
    return found


def archived_record(key: bytes, at: datetime) -> dict[str, Any] | None:
    """Return the archived record of a key, by field names; None if no archive has the key. `at`: time of the record."""
    for item in archived_among([Interval(at, at + MICROSECOND)], EpochFilter()):
        with archived_records(item) as (engine, table):
            columns = ("id", "source", "epoch_us(time)", "consumer", "model", *TOKEN_COUNTS, *NAMES[3:], "attributes")
            asked = f"SELECT {', '.join(columns)} FROM {table} WHERE lower(hex(key)) = '{key.hex()}'"
            for row in engine.execute(asked).fetchall():
                values = dict(zip(columns, row, strict=True))
                return values | {"time": from_us(values.pop("epoch_us(time)"))}
    return None
