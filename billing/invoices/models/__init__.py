"""Tables of invoices: periods, documents and their lines, numbers, mails, journals, operations."""

from billing.invoices.models.invoices import BillingPeriod, Invoice, InvoiceLine, InvoiceSums, NumberSeries
from billing.invoices.models.journals import JournalExport
from billing.invoices.models.mails import BillingContact, DocumentMail
from billing.invoices.models.notes import Correction, CorrectionProposal, DocumentEvent, Note, NoteLine
from billing.invoices.models.operations import Operation
