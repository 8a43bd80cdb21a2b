"""Files of invoices and notes: one document, or a whole month, each written atomically."""

import zipfile
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, Final, cast

from django.db.models import QuerySet

from billing.invoices.acceptance import printed_until
from billing.invoices.annex import annex_file, gathered_lines
from billing.invoices.documents import PdfRenderer, render_csv, render_xlsx
from billing.invoices.issued import NotIssuedError, issued_notes
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, invoices_of
from billing.runtime.atomic_file import whole_files
from billing.runtime.canonical_json import canonical_json
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.selectors import billing_setup
from metering.messages import Message, UserError

CONTENT_TYPES: dict[str, str] = {
    "json": "application/json", "pdf": "application/pdf", "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
"""Content type of each format of a document, by the suffix of its file."""
CONTENT_TYPES |= {f"consumers.{suffix}": CONTENT_TYPES[suffix] for suffix in ("json", "csv", "xlsx")}
EXPORTED: Final = ("pdf", "csv", "xlsx", "json")
ANNEX: Final = ("consumers.csv", "consumers.json")
"""Files of an invoice with lines of all consumers of its team (`billing.invoices.annex`)."""
LONGEST_PDF: Final = 5_000
"""Largest number of lines of a PDF in exports: a page has 25 to 40 of them, and more than 200 pages are not printed."""


def exported(document: Invoice | Note) -> list[str]:
    """Return the suffixes of a document's exported files: no PDF of more than 200 pages, and the annex if there is one."""
    number = len(document_of(document)["lines"])
    suffixes = [suffix for suffix in EXPORTED if suffix != "pdf" or number <= LONGEST_PDF]
    return [*suffixes, *(ANNEX if isinstance(document, Invoice) and gathered_lines(document).exists() else ())]


class NoteWithoutAnnexError(UserError):
    """Error of a request for the annex of a note."""

    code = "no_annex"


def document_file(
    stored: Invoice | Note, suffix: str, *, language: str = "zh-en", setup: BillingSetup | None = None,
    renderer: PdfRenderer | None = None,
) -> bytes:  # fmt: skip
    """Return an invoice or note in a format of CONTENT_TYPES; a draft is marked. `renderer`: an existing one to reuse."""
    if suffix.startswith("consumers."):
        if not isinstance(stored, Invoice):
            raise NoteWithoutAnnexError(Message("%(number)s is a note: its lines have no annex", number=stored.number))
        return annex_file(stored, suffix.removeprefix("consumers."))
    if suffix == "json":
        return (stored.document or canonical_json(stored.draft)).encode()
    document, sha256, issued_at = document_of(stored), stored.sha256 or None, stored.issued_at
    status = stored.status if isinstance(stored, Invoice) else Invoice.Status.ISSUED
    if suffix == "csv":
        return render_csv(document, sha256=sha256, issued_at=issued_at, status=status)
    render = render_xlsx if suffix == "xlsx" else (renderer or PdfRenderer()).render
    due = printed_until(stored, setup)
    return render(document, sha256=sha256, issued_at=issued_at, status=status, language=language, due=due)


def invoices_export(
    *, month: str, directory: Path, language: str = "zh-en", advance: Callable[[int], None] = lambda _: None
) -> list[Path]:
    """Write the files of each issued invoice and note; each appears whole, under its final name, or not at all."""
    documents = issued_so_far(month)
    names = {f"{document.number}.{suffix}" for document in documents for suffix in exported(document)}
    written: list[Path] = []
    setup, renderer = billing_setup(), PdfRenderer()
    with whole_files(directory, names) as write:
        for document in documents:
            for suffix in exported(document):
                body = document_file(document, suffix, language=language, setup=setup, renderer=renderer)
                written.append(write(directory / f"{document.number}.{suffix}", body))
            advance(1)
    return written


def issued_so_far(month: str) -> list[Invoice | Note]:
    """Return the issued invoices and notes of a month, even if it is not complete."""
    return [*invoices_of(month).filter(status=Invoice.Status.ISSUED), *issued_notes(month)]


class _Sent(RawIOBase):
    """Unseekable file with the bytes that an archive's writer has written and that were not taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Return True: the file is writable, but not seekable."""
        return True

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        return len(part)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def documents_archive(*, month: str, teams: QuerySet[Team], language: str = "zh-en") -> Iterator[bytes]:
    """Return the files of `invoices_export` for some teams as one ZIP archive, in parts of one document.

    A large month is never held in memory as a whole. Raises NotIssuedError at once if these teams have no document of the
    month.
    """
    seen: set[int] = set(teams.values_list("pk", flat=True))
    documents = [document for document in issued_so_far(month) if document.team_id in seen]
    if not documents:
        raise NotIssuedError(Message("no document of %(month)s is issued", month=month))
    return _zipped(documents, language)


def _zipped(documents: list[Invoice | Note], language: str) -> Iterator[bytes]:
    sent, setup, renderer = _Sent(), billing_setup(), PdfRenderer()
    with zipfile.ZipFile(cast(IO[bytes], sent), "w", zipfile.ZIP_DEFLATED) as archive:
        for document in documents:
            for suffix in exported(document):
                body = document_file(document, suffix, language=language, setup=setup, renderer=renderer)
                archive.writestr(_entry(f"{document.number}.{suffix}", document), body)
            yield sent.take()
    yield sent.take()


def _entry(name: str, document: Invoice | Note) -> zipfile.ZipInfo:
    """Return the entry of an archive's file, dated at its issue: the same archive has the same bytes."""
    issued: Any = document.issued_at
    entry = zipfile.ZipInfo(name, issued.timetuple()[:6])
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o640 << 16
    return entry
