"""Writing the documents of a month to files: complete, or not there."""

from collections.abc import Callable
from pathlib import Path

from billing.invoices.acceptance import printed_until
from billing.invoices.documents import PdfRenderer, render_csv, render_xlsx
from billing.invoices.issued import issued_notes
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, invoices_of
from billing.runtime.atomic_file import whole_files
from billing.tenancy.selectors import billing_setup

SUFFIXES = ("pdf", "csv", "xlsx")


def invoices_export(
    *, month: str, directory: Path, language: str = "zh-en", advance: Callable[[int], None] = lambda _: None
) -> list[Path]:
    """PDF, CSV and XLSX of each issued invoice and note; a file appears whole, under its final name, or not at all."""
    documents: list[Invoice | Note] = [*invoices_of(month).filter(status=Invoice.Status.ISSUED), *issued_notes(month)]
    names = {f"{document.number}.{suffix}" for document in documents for suffix in SUFFIXES}
    written: list[Path] = []
    setup = billing_setup()
    with PdfRenderer() as renderer, whole_files(directory, names) as write:
        for invoice in documents:
            document, due = document_of(invoice), printed_until(invoice, setup)
            sha256, issued_at = invoice.sha256, invoice.issued_at
            for suffix, body in (
                ("pdf", renderer.render(document, language=language, due=due, sha256=sha256, issued_at=issued_at)),
                ("csv", render_csv(document, sha256=sha256, issued_at=issued_at)),
                ("xlsx", render_xlsx(document, language=language, due=due, sha256=sha256, issued_at=issued_at)),
            ):
                written.append(write(directory / f"{invoice.number}.{suffix}", body))
            advance(1)
    return written
