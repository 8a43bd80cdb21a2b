"""All writes of periods, invoices and operations."""

from billing.invoicing.services.closing import CloseRefusedError, PeriodError, period_close, period_open
from billing.invoicing.services.corrections import (
    correction_approve,
    correction_issue,
    correction_void,
    credit_note_draft,
)
from billing.invoicing.services.invoices import invoices_approve, invoices_issue
from billing.invoicing.services.operations import operation_request, operation_run, operations_pending
from billing.invoicing.services.proof import closed_periods_check, period_verify
from billing.invoicing.services.waivers import exception_waive

__all__ = [
    "CloseRefusedError",
    "PeriodError",
    "closed_periods_check",
    "correction_approve",
    "correction_issue",
    "correction_void",
    "credit_note_draft",
    "exception_waive",
    "invoices_approve",
    "invoices_issue",
    "operation_request",
    "operation_run",
    "operations_pending",
    "period_close",
    "period_open",
    "period_verify",
]
