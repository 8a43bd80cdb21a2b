"""Invoice documents: an issued (or draft) invoice as PDF, CSV and XLSX. Pure functions of a plain dict."""

from billing.invoices.documents.content import DocumentError, UnbalancedDocumentError
from billing.invoices.documents.delimited import render_csv
from billing.invoices.documents.pdf import PdfRenderer
from billing.invoices.documents.workbook import render_xlsx
