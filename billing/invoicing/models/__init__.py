"""Tables of invoicing: periods and invoices, estimates, corrections of them, disputes about them."""

from billing.invoicing.models.accruals import Accrual
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
from billing.invoicing.models.invoices import (
    BillingMode,
    BillingPeriod,
    ExceptionWaiver,
    Invoice,
    InvoiceLine,
    NumberSeries,
    Operation,
)

__all__ = [
    "Accrual",
    "BillingMode",
    "BillingPeriod",
    "Correction",
    "CorrectionApproval",
    "Dispute",
    "DisputeStep",
    "DocumentEvent",
    "ExceptionWaiver",
    "Invoice",
    "InvoiceLine",
    "Note",
    "NoteLine",
    "NumberSeries",
    "Operation",
]
