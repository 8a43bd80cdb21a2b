"""The documents of invoices and notes as files: one of them, or a whole month, complete or not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from billing.invoices.acceptance import printed_until
from billing.invoices.documents import PdfRenderer, render_csv, render_pdf, render_xlsx
from billing.invoices.issued import issued_notes
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, invoices_of
from billing.runtime.atomic_file import whole_files
from billing.runtime.canonical_json import canonical_json
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup

CONTENT_TYPES: Final = {
    "json": "application/json", "pdf": "application/pdf", "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
"""Every format of a document, by the suffix of its file."""
EXPORTED: Final = ("pdf", "csv", "xlsx")


def document_file(
    stored: Invoice | Note, suffix: str, *, language: str = "zh-en", setup: BillingSetup | None = None,
    pdf: Callable[..., bytes] = render_pdf,
) -> bytes:  # fmt: skip
    """An invoice or note in a format of CONTENT_TYPES; a draft is marked as one. `pdf`: a renderer that is open already."""
    if suffix == "json":
        return (stored.document or canonical_json(stored.draft)).encode()
    document, sha256, issued_at = document_of(stored), stored.sha256 or None, stored.issued_at
    status = stored.status if isinstance(stored, Invoice) else Invoice.Status.ISSUED
    if suffix == "csv":
        return render_csv(document, sha256=sha256, issued_at=issued_at, status=status)
    render, due = {"pdf": pdf, "xlsx": render_xlsx}[suffix], printed_until(stored, setup)
    return render(document, sha256=sha256, issued_at=issued_at, status=status, language=language, due=due)


def invoices_export(
    *, month: str, directory: Path, language: str = "zh-en", advance: Callable[[int], None] = lambda _: None
) -> list[Path]:
    """PDF, CSV and XLSX of each issued invoice and note; a file appears whole, under its final name, or not at all."""
    documents: list[Invoice | Note] = [*invoices_of(month).filter(status=Invoice.Status.ISSUED), *issued_notes(month)]
    names = {f"{document.number}.{suffix}" for document in documents for suffix in EXPORTED}
    written: list[Path] = []
    setup = billing_setup()
    with PdfRenderer() as renderer, whole_files(directory, names) as write:
        for document in documents:
            for suffix in EXPORTED:
                body = document_file(document, suffix, language=language, setup=setup, pdf=renderer.render)
                written.append(write(directory / f"{document.number}.{suffix}", body))
            advance(1)
    return written
