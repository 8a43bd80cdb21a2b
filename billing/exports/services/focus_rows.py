"""Rows of a month's FOCUS data sets for readers that fetch them page by page.

The data sets are built once for the issued documents, by the same export and checks as the files, and stored until another
document is issued. The first request builds those of a small month; a worker builds those of a larger one, which takes
minutes. A data set is stored completely or not at all.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from io import BytesIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from django.db import connection, transaction

from billing.exports.focus.contract_commitments import CONTRACT_COMMITMENT
from billing.exports.focus.files import as_records, data_set_files
from billing.exports.models import FocusPart, FocusSet
from billing.exports.services.focus import DATA_SETS, UnexplainedError, commitments_of, focus_export
from billing.invoices.issued import issued_documents
from billing.invoices.models import InvoiceLine, NoteLine, Operation
from billing.runtime.progress import ProgressCallback, no_progress
from metering import __version__
from metering.messages import Message, UserError

AT_ONCE: Final = 1_000
"""Lines of a month up to which a request may build its data sets: each has up to 744 rows, 20,000 rows take a second."""
ROWS_OF_PART: Final = 5_000
STORE_LOCK: Final = 0x464F4355
MONTHS_KEPT: Final = 3
ASKED_AGAIN: Final = timedelta(minutes=10)
"""Delay before a failed build is requested again, since the cause may have been repaired."""
KIND: Final = "focus"
Record = dict[str, Any]
Request = Callable[[str], None]
"""Callback that has a worker build the data sets of the documents with this hash."""


class FocusNotReadyError(UserError):
    """Data sets of a month that are being built; the message has the progress."""

    code = "focus_not_ready"


class FocusRows:
    """Rows of one data set for a paginator, which reads slices from the database."""

    def __init__(self, kept: FocusSet) -> None:
        self._kept = kept

    def __len__(self) -> int:
        return self._kept.rows

    def __getitem__(self, wanted: slice) -> list[Record]:
        start, stop, _ = wanted.indices(len(self))
        found: list[Record] = []
        # a part that begins before `start` may reach into the slice
        parts = self._kept.parts.filter(first__lt=stop, first__gt=start - ROWS_OF_PART).order_by("first")
        for first, content in parts.values_list("first", "content"):
            rows = pq.read_table(BytesIO(content))
            at = max(start - first, 0)
            found += as_records(rows.slice(at, stop - first - at))
        return found


def focus_rows(*, month: str, data_set: str, now: datetime, request: Request) -> FocusRows:
    """Return the rows of "cost-and-usage", "invoice-detail" or "billing-period" of a month whose documents are all issued.

    Raises NoPeriodError, NotIssuedError, UnexplainedError, ConformanceError as the export does; FocusNotReadyError while a
    worker builds them, which `request` starts.
    """
    return FocusRows(next(kept for kept in _kept(month, now, request) if kept.data_set == data_set))


def focus_files(*, month: str, directory: Path, now: datetime, request: Request) -> list[Path]:
    """Write the files of `focus_export` from the stored data sets, as CSV and Parquet.  Raises as `focus_rows` does."""
    written = []
    for kept in _kept(month, now, request):
        parts = kept.parts.order_by("first").values_list("content", flat=True)
        tables = (pq.read_table(BytesIO(content)) for content in parts.iterator(chunk_size=1))
        written += _write(directory, f"focus-{kept.data_set}-{month}", DATA_SETS[kept.data_set], tables)
    commitments = commitments_of(month)
    if commitments is not None:
        written += _write(directory, f"focus-contract-commitment-{month}", CONTRACT_COMMITMENT, [commitments])
    return written


def _write(directory: Path, name: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> list[Path]:
    with data_set_files(directory, name, schema) as (write, paths):
        for table in tables:
            write(table)
    return paths


def _kept(month: str, now: datetime, request: Request) -> list[FocusSet]:
    """Return every data set of the issued documents; build those of a small month first."""
    documents = _hash_of(_issued(month))
    sets = FocusSet.objects.filter(month=month, documents=documents).order_by("data_set")
    if not sets.exists() and _small(month):
        focus_make(month=month, now=now)
    kept = list(sets)
    if not kept:
        raise _waiting(month, documents, now, request)
    return kept


def focus_make(*, month: str, now: datetime, report_progress: ProgressCallback = no_progress) -> int:
    """Build and store the data sets of a month, replacing the stored ones; return the number of rows.

    Raises NoPeriodError, NotIssuedError, UnexplainedError, ConformanceError.
    """
    issued = _issued(month)
    documents, done = _hash_of(issued), count(1)

    def advance(_: int) -> None:
        report_progress(KIND, next(done), len(issued))

    with TemporaryDirectory() as name:
        focus_export(month=month, directory=Path(name), with_csv=False, advance=advance)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [STORE_LOCK])  # two requests may build the same month at once
            FocusSet.objects.filter(month=month).delete()
            files = {data_set: Path(name, f"focus-{data_set}-{month}.parquet") for data_set in DATA_SETS}
            rows = sum(_store(month, data_set, documents, path, now) for data_set, path in files.items())
            # rows of a month are large: only the months built last are stored
            latest = FocusSet.objects.order_by("-made_at").values_list("month", flat=True)
            FocusSet.objects.exclude(month__in=list(dict.fromkeys(latest))[:MONTHS_KEPT]).delete()
    return rows


def _issued(month: str) -> list[str]:
    """Return number and hash of each document: equal ones give equal data sets."""
    return [f"{document.number} {document.sha256}" for document in issued_documents(month, texts=False)[1]]


def _hash_of(issued: list[str]) -> str:
    """Return the hash of the documents and of the release with its columns, which decides how rows are built."""
    columns = (f"{field.name} {field.type}" for schema in DATA_SETS.values() for field in schema)
    return sha256("\n".join([*issued, __version__, *columns]).encode()).hexdigest()


def _small(month: str) -> bool:
    lines = InvoiceLine.objects.filter(invoice__period__month=month)[: AT_ONCE + 1].count()
    return lines + NoteLine.objects.filter(note__correction__period__month=month).count() <= AT_ONCE


def _store(month: str, data_set: str, documents: str, path: Path, now: datetime) -> int:
    with pq.ParquetFile(path) as file:
        rows, first = int(file.metadata.num_rows), 0
        kept = FocusSet.objects.create(month=month, data_set=data_set, documents=documents, rows=rows, made_at=now)
        for batch in file.iter_batches(ROWS_OF_PART):
            content = BytesIO()
            pq.write_table(pa.Table.from_batches([batch]), content, compression="zstd")
            FocusPart.objects.create(focus_set=kept, first=first, content=content.getvalue())
            first += batch.num_rows
    return rows


def _waiting(month: str, documents: str, now: datetime, request: Request) -> Exception:
    """Return the error for data sets that are not built; request them unless that is already done."""
    asked = Operation.objects.filter(kind=KIND, month=month, parameters__documents=documents).order_by("-id").first()
    failed = asked is not None and asked.status == Operation.Status.FAILED
    if asked is not None and failed and asked.finished_at and now - asked.finished_at < ASKED_AGAIN:
        return UnexplainedError(asked.outcome)
    if asked is None or asked.status != Operation.Status.PENDING:
        request(documents)
    if asked is not None and asked.total:
        return FocusNotReadyError(Message(
            "the rows of %(month)s are being made by a worker, %(done)s of %(total)s documents so far: ask again later",
            month=month, done=f"{asked.done:,}", total=f"{asked.total:,}",
        ))
    return FocusNotReadyError(Message("the rows of %(month)s are being made by a worker: ask again later", month=month))
