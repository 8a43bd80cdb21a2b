"""The rows of a month's FOCUS data sets for readers who take them page by page.

The data sets are made once for the documents that are issued, by the same export and checks as the files, and kept as
unlinked files of this process until another month is asked for or a document is issued.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, overload

import pyarrow as pa
import pyarrow.parquet as pq

from billing.invoicing.focus.files import as_records
from billing.invoicing.issued import issued_documents
from billing.invoicing.services.focus import DATA_SETS, focus_export

Record = dict[str, Any]
Named = tuple[tuple[str, str], ...]


class FocusRows(Sequence[Record]):
    """Rows of one data set, read from its file when they are asked for."""

    def __init__(self, source: pa.MemoryMappedFile) -> None:
        self._file = pq.ParquetFile(source)

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    @overload
    def __getitem__(self, wanted: int) -> Record: ...

    @overload
    def __getitem__(self, wanted: slice) -> list[Record]: ...

    def __getitem__(self, wanted: int | slice) -> Record | list[Record]:
        if isinstance(wanted, int):
            return self[wanted : wanted + 1][0]
        start, stop, _ = wanted.indices(len(self))
        found: list[Record] = []
        place = 0
        for group in range(self._file.num_row_groups):
            end = place + self._file.metadata.row_group(group).num_rows
            if start < end and place < stop:
                first = max(start - place, 0)
                found += as_records(self._file.read_row_group(group).slice(first, min(stop, end) - place - first))
            place = end
        return found


@dataclass(frozen=True)
class _Kept:
    """The data sets of the documents named."""

    documents: Named
    sources: dict[str, pa.MemoryMappedFile]


_turn: Final = threading.Lock()
_kept: dict[str, _Kept] = {}


def focus_rows(*, month: str, data_set: str) -> FocusRows:
    """The rows of "cost-and-usage", "invoice-detail" or "billing-period" of a month whose documents are all issued.

    Raises NoPeriodError, NotIssuedError, UnexplainedError, ConformanceError as the export does.
    """
    documents = tuple((document.number or "", document.sha256 or "") for document in issued_documents(month)[1])
    with _turn:
        kept = _kept.get(month)
        if kept is None or kept.documents != documents:
            _kept.clear()
            kept = _kept[month] = _Kept(documents, _made(month))
    return FocusRows(kept.sources[data_set])


def _made(month: str) -> dict[str, pa.MemoryMappedFile]:
    with TemporaryDirectory() as name:  # a mapped file lives on without its name until nobody reads it any more
        focus_export(month=month, directory=Path(name))
        return {chosen: pa.memory_map(f"{name}/focus-{chosen}-{month}.parquet") for chosen in DATA_SETS}
