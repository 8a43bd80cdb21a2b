"""Display names of states and kinds of periods, documents, corrections and operations."""

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.invoices.models import BillingPeriod, Correction, Invoice, Note, NoteLine, Operation
from billing.tenancy.models import BillingMode

PERIOD_STATUS: Final = {
    BillingPeriod.Status.OPEN: _("Not closed"),
    BillingPeriod.Status.CLOSING: _("Closing"),
    BillingPeriod.Status.CLOSED: _("Closed"),
}
INVOICE_STATUS: Final[dict[str, Promise]] = {
    Invoice.Status.DRAFT: _("Draft"),
    Invoice.Status.PREVIEW: _("Preview"),
    Invoice.Status.APPROVED: _("Approved"),
    Invoice.Status.ISSUED: _("Issued"),
    Invoice.Status.VOID: _("Void"),
}
DOCUMENT_STATE: Final = {**INVOICE_STATUS, "disputed": _("Disputed"), "settled": _("Settled"), "shadow": _("Showback")}
"""States of an invoice or a note, as in `billing.invoices.selectors.state_of` and the sums under lists."""
DOCUMENT_KIND: Final[dict[str, Promise]] = {
    "invoice": _("Invoice"), "shadow": _("Showback"), Note.Kind.CREDIT: _("Credit note"), Note.Kind.REBILL: _("Rebill"),
}  # fmt: skip
BILLING_MODE: Final[dict[str, Promise]] = {
    BillingMode.Mode.SHADOW: _("Only shown"), BillingMode.Mode.CHARGEBACK: _("Charged by invoice"),
}  # fmt: skip
NOTES: Final[dict[str, Promise]] = {Note.Kind.CREDIT: _("Credits"), Note.Kind.REBILL: _("Billed again")}
CORRECTION_STATUS: Final = {
    Correction.Status.DRAFT: _("Draft"),
    Correction.Status.APPROVED: _("Approved"),
    Correction.Status.ISSUED: _("Issued"),
    Correction.Status.VOID: _("Void"),
}
CORRECTION_REASON: Final = {
    Correction.Reason.PRICE: _("Wrong price"),
    Correction.Reason.QUANTITY: _("Wrong quantity"),
    Correction.Reason.OWNERSHIP: _("Wrong team"),
    Correction.Reason.MFU: _("Wrong efficiency data"),
    Correction.Reason.SLA: _("Fault of the platform"),
    Correction.Reason.DUPLICATE: _("Billed twice"),
    Correction.Reason.GOODWILL: _("Goodwill"),
    Correction.Reason.WRITE_OFF: _("Written off"),
}
NOTE_STYLE: Final = {
    NoteLine.Style.REVERSAL: _("Reversed"),
    NoteLine.Style.WITHDRAWAL: _("Credit taken back"),
    NoteLine.Style.ALLOWANCE: _("Credit"),
    NoteLine.Style.REBILL: _("Billed again"),
}
OPERATION_STATUS: Final = {
    Operation.Status.PENDING: _("In progress"),
    Operation.Status.DONE: _("Done"),
    Operation.Status.REFUSED: _("Refused"),
    Operation.Status.FAILED: _("Failed"),
}
