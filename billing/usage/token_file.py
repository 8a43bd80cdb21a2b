"""Sums of token records straight from Parquet files: an engine that shares neither statement nor roll-up with the ledger.

The columns of the contract are read. A record that is in the files more than once counts once, as in the ledger.
DuckDB decodes and sums them, row group by row group, in 128-bit integers, which no file of 64-bit counts can exceed.
Values that it cannot sum exactly are refused before.
"""

import glob
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.files import UsageFileError
from billing.usage.store.sums import Bounds, TokenSums
from metering.intervals import Interval
from pricing.contexts import contexts_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NAMES: Final = ("source", "consumer", "model")
ENGINE: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "memory_limit": "1GB",
}  # fmt: skip
"""DuckDB settings: no extension is downloaded, and memory is limited."""


def file_token_sums(
    files: Path | Sequence[Path], pieces: Sequence[Interval], bounds: Sequence[Bounds], *, before: int | None = None
) -> list[TokenSums]:
    """Return tokens per piece, source, consumer, model and bucket of prompt lengths, in the form of `token_sums`.

    `pieces` follow each other without gap; records before or after them are left out. `bounds`: by piece, the upper bounds
    of the buckets of its models. `before`: only records of lower epochs; sealed files have a column of them. Raises
    UsageFileError.
    """
    import duckdb  # 60 MB that no other part of the process needs

    paths = [files] if isinstance(files, Path) else list(files)
    if not paths:
        return []
    path = paths[0] if len(paths) == 1 else paths[0].parent
    try:
        schemas = [pq.read_schema(file) for file in paths]
        for schema, file in zip(schemas, paths, strict=True):
            _check(schema, file, ("epoch",) if before is not None else ())
        cut = Cut(pieces, bounds, "_NS" if schemas[0].field("time").type.unit == "ns" else "")
        with engine_connected() as engine:
            records = files_text(paths)
            records = records if before is None else f"(SELECT * FROM {records} WHERE epoch < {before})"
            _check_values(engine, records, path)
            rows = _asked(engine, _without_repeats(engine, records, path), *cut.statement())
    except OSError as error:
        raise UsageFileError(f"{path}: {error.strerror or error}") from error
    except (pa.ArrowException, duckdb.Error) as error:
        raise UsageFileError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
    return [
        TokenSums(
            piece, source, consumer, model, requests, prompt, cache_read, cache_creation, output, reasoning,
            bucket_context(bounds[piece], model, bucket),
        )
        for piece, source, consumer, model, bucket, requests, prompt, cache_read, cache_creation, output, reasoning in rows
    ]


@contextmanager
def engine_connected() -> "Iterator[DuckDBPyConnection]":
    """Yield a separate DuckDB connection, which spills to a temporary folder and downloads nothing."""
    import duckdb

    with tempfile.TemporaryDirectory() as spill, duckdb.connect(config={**ENGINE, "temp_directory": spill}) as engine:
        yield engine


def bucket_context(bounds: Bounds, model: str, bucket: int) -> str:
    """Return the name of a bucket of prompt lengths; "" if the model has none."""
    return str(contexts_of(bounds[model])[bucket]) if model in bounds else ""


def _check(schema: pa.Schema, path: Path, more: tuple[str, ...]) -> None:
    for name in ("id", "time", *NAMES, *TOKEN_COUNTS, *more):
        if name not in schema.names:
            raise UsageFileError(f"{path}: column {name!r} is missing")
    kind = schema.field("time").type
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise UsageFileError(f"{path}: time is {kind}; give timestamps with a zone")
    for name in ("id", *NAMES):
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise UsageFileError(f"{path}: {name} is {kind}; give text")
    for name in (*TOKEN_COUNTS, *more):
        if not pa.types.is_integer(schema.field(name).type):
            raise UsageFileError(f"{path}: {name} is {schema.field(name).type}; give whole numbers")


def _check_values(engine: "DuckDBPyConnection", records: str, path: Path) -> None:
    """Raise UsageFileError for missing values and negative counts; by column, since row group statistics answer most."""
    for name in ("id", "time", *NAMES, *TOKEN_COUNTS):
        ((empty,),) = _asked(engine, records, "count(*)", f"{name} IS NULL")
        if empty:
            raise UsageFileError(f"{path}: {name} is empty in {empty} records")
    for name in TOKEN_COUNTS:
        ((negative,),) = _asked(engine, records, "count(*)", f"{name} < 0")
        if negative:
            raise UsageFileError(f"{path}: {name} is below 0 in {negative} records")


def files_text(paths: Sequence[Path]) -> str:
    """Return the DuckDB table expression of the rows of files."""
    return f"read_parquet([{', '.join(quoted(glob.escape(str(path))) for path in paths)}])"


def _without_repeats(engine: "DuckDBPyConnection", file: str, path: Path) -> str:
    """Return the table expression of the records without repeats.  Raises UsageFileError if one id has two contents.

    Few files have repeats, so digests of the keys are compared first, in one pass that spills, and whole records only if two
    digests are equal.
    """
    fields = ", ".join(("time", *NAMES, *TOKEN_COUNTS))
    digests = f"SELECT hash(source, id) AS digest FROM {file} GROUP BY 1 HAVING count(*) > 1"
    engine.execute(f"CREATE TABLE repeated AS {digests}")
    if not _asked(engine, "repeated", "1", "true LIMIT 1"):
        return file
    among = "hash(source, id) {} (SELECT digest FROM repeated)"
    engine.execute(f"CREATE TABLE once AS SELECT DISTINCT id, {fields} FROM {file} WHERE {among.format('IN')}")
    if other := _asked(engine, "once", "source, id", "true GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1, 2 LIMIT 1"):
        source, key = other[0]
        raise UsageFileError(f"{path}: {source} has id {key!r} with different contents; keep the one that was billed")
    return f"(SELECT {fields} FROM {file} WHERE {among.format('NOT IN')} UNION ALL SELECT {fields} FROM once)"


def _asked(engine: "DuckDBPyConnection", source: str, wanted: str, condition: str) -> list[tuple]:
    return engine.execute(f"SELECT {wanted} FROM {source} WHERE {condition}").fetchall()


@dataclass(frozen=True)
class Cut:
    """Statement that cuts records into pieces and buckets. `precision`: "_NS" for files in nanoseconds."""

    pieces: Sequence[Interval]
    bounds: Sequence[Bounds]
    precision: str

    def statement(self) -> tuple[str, str]:
        """Return the SELECT list, and the condition with grouping."""
        # number of a record's piece = number of later pieces that have begun
        later = "".join(f" + CAST(time >= {self.instant(piece.start)} AS INT)" for piece in self.pieces[1:])
        keys = f"0{later} AS piece, {', '.join(NAMES)}, {self.bucket()} AS bucket"
        sums = ", ".join(f"sum({name})" for name in TOKEN_COUNTS)
        within = self.within(Interval(self.pieces[0].start, self.pieces[-1].end))
        return f"{keys}, count(*), {sums}", f"{within} GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"

    def bucket(self) -> str:
        """Return SQL of the bucket number of a record's prompt, 0 if its model has no buckets in its piece."""
        cases = "".join(
            f" WHEN {self.within(piece)} AND model = {self.text(model)} THEN {_beyond(ends)}"
            for piece, named in zip(self.pieces, self.bounds, strict=True) for model, ends in sorted(named.items())
        )  # fmt: skip
        return f"CASE{cases} ELSE 0 END" if cases else "0"

    def within(self, piece: Interval) -> str:
        return f"time >= {self.instant(piece.start)} AND time < {self.instant(piece.end)}"

    def instant(self, at: datetime) -> str:
        return f"TIMESTAMPTZ '{at.astimezone(UTC).isoformat(sep=' ')}'::TIMESTAMPTZ{self.precision}"

    def text(self, value: str) -> str:
        return quoted(value)


def _beyond(ends: Sequence[int]) -> str:
    return " + ".join(f"CAST(input_tokens > {end} AS INT)" for end in ends)


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
