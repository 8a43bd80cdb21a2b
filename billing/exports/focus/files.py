"""Writing of a data set as CSV and Parquet, batch by batch, so that a large month does not have to fit in memory.

CSV: UTF-8, comma, header, one row per line; text in quotes, null as nothing at all, decimals with all their digits and
never an exponent, instants as 2026-10-01T00:00:00Z. Parquet keeps types and texts unchanged.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from billing.invoices.documents.delimited import FORMULA_STARTS
from billing.runtime.atomic_file import atomic_file
from pricing.money import amount_places

FORMULA = rf"^\s*[{''.join(map(re.escape, FORMULA_STARTS))}]"


@contextmanager
def data_set_files(
    directory: Path, name: str, schema: pa.Schema, *, with_csv: bool = True
) -> Iterator[tuple[Callable[[pa.Table], None], list[Path]]]:
    """Yield a function that appends rows to `name`.csv and `name`.parquet; the files appear if the block succeeds."""
    with ExitStack() as stack:
        csv, paths = None, [directory / f"{name}.parquet"]
        if with_csv:
            paths.insert(0, directory / f"{name}.csv")
            texts = pa.schema([(field.name, pa.string()) for field in schema])
            # both files are drafts until the block ends: a refused month leaves neither
            csv = stack.enter_context(pc_csv.CSVWriter(stack.enter_context(atomic_file(paths[0])), texts))
        draft = stack.enter_context(atomic_file(paths[-1]))
        parquet = stack.enter_context(pq.ParquetWriter(draft, schema, compression="zstd"))

        def write(rows: pa.Table) -> None:
            parquet.write_table(rows)
            if csv is not None:
                csv.write_table(as_text(rows))

        yield write, paths


def as_text(rows: pa.Table) -> pa.Table:
    columns = [_text(rows.column(field.name), field.type) for field in rows.schema]
    return pa.Table.from_arrays(columns, names=rows.schema.names)


def as_records(rows: pa.Table) -> list[dict[str, Any]]:
    """Convert rows to records for JSON: decimals and instants as the text of the CSV, other values as in Parquet."""
    columns = {
        field.name: (column if pa.types.is_string(field.type) else _text(column, field.type)).to_pylist()
        for field, column in zip(rows.schema, rows.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_timestamp(kind):
        return _by_value(column, _instants)
    if pa.types.is_decimal(kind):
        return _by_value(column, _trimmed if kind.scale > amount_places() else _plain)
    return _harmless(column) if pa.types.is_string(kind) else column


def _by_value(column: pa.ChunkedArray, text: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Format each distinct value once: most columns repeat a value in hundreds of rows."""
    encoded = column.combine_chunks().dictionary_encode()
    return text(encoded.dictionary).take(encoded.indices)


def _instants(values: pa.Array) -> pa.Array:
    return pc.strftime(values.cast(pa.timestamp("s", tz="UTC")), format="%Y-%m-%dT%H:%M:%SZ")


def _harmless(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe; Parquet has it unchanged."""
    if not pc.any(pc.match_substring_regex(pc.unique(column), FORMULA)).as_py():
        return column
    formulas = pc.match_substring_regex(column, FORMULA)
    return pc.if_else(formulas, pc.binary_join_element_wise("'", column, ""), column)


def _trimmed(values: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(pc.utf8_rtrim(_plain(values), "0"), ".")


def _plain(values: pa.Array) -> pa.Array:
    """Format decimals: Arrow writes small ones with an exponent, which FOCUS forbids, so Python formats these."""
    text = pc.cast(values, pa.string())
    # few values have an exponent, so only those are formatted by Python
    small = pc.match_substring(text, "E")
    written = [format(value, "f") for value in values.filter(small).to_pylist()]
    return pc.replace_with_mask(text, small, pa.array(written, type=pa.string())) if written else text
