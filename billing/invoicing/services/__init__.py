"""All writes of periods, invoices and operations."""

from billing.invoicing.services.closing import CloseRefusedError, period_close
from billing.invoicing.services.corrections import (
    correction_approve,
    correction_issue,
    correction_void,
    credit_note_draft,
)
from billing.invoicing.services.invoices import (
    invoice_rebuild,
    invoice_void,
    invoices_approve,
    invoices_issue,
    invoices_preview,
)
from billing.invoicing.services.modes import billing_mode_put
from billing.invoicing.services.operations import operation_request, operation_run, operations_pending
from billing.invoicing.services.periods import PeriodError, period_open
from billing.invoicing.services.proof import closed_periods_check, period_verify
from billing.invoicing.services.reopening import reopening_approve, reopening_reject, reopening_request
from billing.invoicing.services.settlement import document_settle
from billing.invoicing.services.waivers import exception_waive

__all__ = [
    "CloseRefusedError",
    "PeriodError",
    "billing_mode_put",
    "closed_periods_check",
    "correction_approve",
    "correction_issue",
    "correction_void",
    "credit_note_draft",
    "document_settle",
    "exception_waive",
    "invoice_rebuild",
    "invoice_void",
    "invoices_approve",
    "invoices_issue",
    "invoices_preview",
    "operation_request",
    "operation_run",
    "operations_pending",
    "period_close",
    "period_open",
    "period_verify",
    "reopening_approve",
    "reopening_reject",
    "reopening_request",
]
