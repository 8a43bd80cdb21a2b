"""Display names of reasons of quarantine and of ends of allocations."""

from typing import Final

from django.utils.translation import gettext_lazy as _

from billing.usage.models import QuarantinedRecord
from metering.allocation import EndReason

QUARANTINE_REASON: Final = {
    QuarantinedRecord.Reason.INVALID: _("Invalid record"),
    QuarantinedRecord.Reason.CONFLICT: _("Conflicting records"),
    QuarantinedRecord.Reason.FUTURE: _("Lies in the future"),
    QuarantinedRecord.Reason.PAID_BY_CALL: _("Paid by the call"),
}
END_REASON: Final = {
    EndReason.COMPLETED: _("Completed"),
    EndReason.FAILED: _("Failed"),
    EndReason.DELETED: _("Deleted"),
    EndReason.EVICTED: _("Evicted"),
    EndReason.PREEMPTED: _("Preempted"),
    EndReason.RECLAIMED: _("Reclaimed"),
    EndReason.NODE_LOST: _("Node lost"),
    EndReason.ADMISSION_FAILED: _("Not admitted by the node"),
    EndReason.UNKNOWN: _("Unknown"),
}
