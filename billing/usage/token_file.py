"""Sums of token records straight from a Parquet file: an engine that shares neither statement nor roll-up with the ledger.

What is read are the columns of the contract. A file is summed by Arrow in batches of its row groups, in 64-bit integers: a
million records of at most 10^9 tokens stay far below their end, and batches are added up by Python's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from billing.usage.files import UsageFileError
from billing.usage.token_sums import Bounds, TokenSums
from metering.intervals import Interval
from pricing.contexts import contexts_of

NAMES: Final = ("source", "consumer", "model")
COUNTS: Final = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens", "reasoning_output_tokens",
)  # fmt: skip
BATCH: Final = 1_000_000
KEYS: Final = ("piece", *NAMES, "bucket")


def file_token_sums(path: Path, pieces: Sequence[Interval], bounds: Sequence[Bounds]) -> list[TokenSums]:
    """Tokens per piece, source, consumer, model and bucket of prompt lengths, as `token_sums` gives them of the ledger.

    `pieces` follow each other without gap; records before or after them are left out. `bounds`: of each piece, where the
    buckets of its models end.  Raises UsageFileError.
    """
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * (1 + len(COUNTS)))
    try:
        _check(pq.read_schema(path), path)
        with pq.ParquetFile(path, read_dictionary=list(NAMES)) as file:
            for groups in _bunches(file):
                table = file.read_row_groups(groups, columns=["time", *NAMES, *COUNTS]).unify_dictionaries()
                for key, counts in _summed(table, pieces, bounds, path):
                    found[key] = [known + more for known, more in zip(found[key], counts, strict=True)]
    except OSError as error:
        raise UsageFileError(f"{path}: {error.strerror or error}") from error
    except pa.ArrowException as error:
        raise UsageFileError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
    return [
        TokenSums(piece, source, consumer, model, *counts, _context(bounds[piece], model, bucket))
        for (piece, source, consumer, model, bucket), counts in sorted(found.items())
    ]


def _bunches(file: pq.ParquetFile) -> Iterator[list[int]]:
    """Row groups of the file, so many at a time that they have a batch of records: smaller ones take longer in sum."""
    groups, records = [], 0
    for number in range(file.num_row_groups):
        groups.append(number)
        records += file.metadata.row_group(number).num_rows
        if records >= BATCH or number == file.num_row_groups - 1:
            yield groups
            groups, records = [], 0


def _context(bounds: Bounds, model: str, bucket: int) -> str:
    return str(contexts_of(bounds[model])[bucket]) if model in bounds else ""


def _check(schema: pa.Schema, path: Path) -> None:
    for name in ("time", *NAMES, *COUNTS):
        if name not in schema.names:
            raise UsageFileError(f"{path}: column {name!r} is missing")
    kind = schema.field("time").type
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise UsageFileError(f"{path}: time is {kind}; give timestamps with a zone")
    for name in NAMES:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise UsageFileError(f"{path}: {name} is {kind}; give text")
    for name in COUNTS:
        if not pa.types.is_integer(schema.field(name).type):
            raise UsageFileError(f"{path}: {name} is {schema.field(name).type}; give whole numbers")


def _summed(
    table: pa.Table, pieces: Sequence[Interval], bounds: Sequence[Bounds], path: Path
) -> list[tuple[tuple[Any, ...], list[int]]]:
    for name in ("time", *NAMES, *COUNTS):
        if table[name].null_count:
            raise UsageFileError(f"{path}: {name} is empty in {table[name].null_count} records")
    table = _within(table, Interval(pieces[0].start, pieces[-1].end))
    piece = _piece(table["time"], pieces)
    table = table.append_column("piece", piece).append_column("bucket", _bucket(table, piece, bounds))
    sums = table.group_by(list(KEYS)).aggregate([([], "count_all"), *((name, "sum") for name in COUNTS)])
    columns = [sums[name].to_pylist() for name in (*KEYS, "count_all", *(f"{name}_sum" for name in COUNTS))]
    return [(row[: len(KEYS)], list(row[len(KEYS) :])) for row in zip(*columns, strict=True)]


def _within(table: pa.Table, window: Interval) -> pa.Table:
    first, last = pc.min_max(table["time"]).as_py().values()
    if first is None or (window.start <= first and last < window.end):
        return table
    inside = pc.and_(_since(table["time"], window.start), pc.invert(_since(table["time"], window.end)))
    return table.filter(inside)


def _since(times: pa.ChunkedArray, instant: object) -> pa.ChunkedArray:
    return pc.greater_equal(times, pa.scalar(instant, pa.timestamp("us", "UTC")))


def _piece(times: pa.ChunkedArray, pieces: Sequence[Interval]) -> pa.ChunkedArray:
    """The number of the piece that each record lies in: how many of the later ones have begun."""
    number = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int32()), len(times))])
    for piece in pieces[1:]:
        number = pc.add(number, pc.cast(_since(times, piece.start), pa.int32()))
    return number


def _bucket(table: pa.Table, piece: pa.ChunkedArray, bounds: Sequence[Bounds]) -> pa.ChunkedArray:
    """The number of the bucket that a record's prompt falls into, where its model has buckets in its piece."""
    number = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int32()), len(piece))])
    for index, named in enumerate(bounds):
        for model, ends in _in_order(named):
            here = pc.and_(pc.equal(piece, index), pc.equal(pc.cast(table["model"], pa.string()), model))
            for end in ends:
                beyond = pc.and_(here, pc.greater(table["input_tokens"], end))
                number = pc.add(number, pc.cast(beyond, pa.int32()))
    return number


def _in_order(named: Mapping[str, tuple[int, ...]]) -> list[tuple[str, tuple[int, ...]]]:
    return sorted(named.items())
