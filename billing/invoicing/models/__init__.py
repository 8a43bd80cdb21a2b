"""Tables of invoicing: periods and invoices, estimates, corrections of them, disputes about them."""

from billing.invoicing.models.accruals import Accrual
from billing.invoicing.models.checked import CheckedClose
from billing.invoicing.models.corrections import (
    Correction,
    CorrectionApproval,
    DocumentEvent,
    Note,
    NoteLine,
)
from billing.invoicing.models.disputes import (
    Dispute,
    DisputeStep,
)
from billing.invoicing.models.energy import MeterReading
from billing.invoicing.models.focus_sets import FocusPart, FocusSet
from billing.invoicing.models.held import HeldTeam
from billing.invoicing.models.holds import DisputeHold
from billing.invoicing.models.invoices import (
    BillingMode,
    BillingPeriod,
    ExceptionWaiver,
    Invoice,
    InvoiceLine,
    InvoiceSums,
    NumberSeries,
    Operation,
)
from billing.invoicing.models.ledger import JournalExport
from billing.invoicing.models.mails import BillingContact, DocumentMail
from billing.invoicing.models.prepared import PreparedClose
from billing.invoicing.models.previews import MonthPreview, TeamPreview
from billing.invoicing.models.reopenings import PeriodReopening

__all__ = [
    "Accrual",
    "BillingContact",
    "BillingMode",
    "BillingPeriod",
    "CheckedClose",
    "Correction",
    "CorrectionApproval",
    "Dispute",
    "DisputeHold",
    "DisputeStep",
    "DocumentEvent",
    "DocumentMail",
    "ExceptionWaiver",
    "FocusPart",
    "FocusSet",
    "HeldTeam",
    "Invoice",
    "InvoiceLine",
    "InvoiceSums",
    "JournalExport",
    "MeterReading",
    "MonthPreview",
    "Note",
    "NoteLine",
    "NumberSeries",
    "Operation",
    "PeriodReopening",
    "PreparedClose",
    "TeamPreview",
]
