"""Invoice documents: an issued (or draft) invoice as PDF, CSV and XLSX. Pure functions of a plain dict."""

from billing.invoicing.documents.content import DocumentError, UnbalancedDocumentError
from billing.invoicing.documents.delimited import render_csv
from billing.invoicing.documents.pdf import PdfRenderer, render_pdf
from billing.invoicing.documents.workbook import render_xlsx

__all__ = [
    "DocumentError",
    "PdfRenderer",
    "UnbalancedDocumentError",
    "render_csv",
    "render_pdf",
    "render_xlsx",
]
