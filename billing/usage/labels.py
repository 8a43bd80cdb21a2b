"""What pages call the reasons for which a record is in quarantine."""

from typing import Final

from django.utils.translation import gettext_lazy as _

from billing.usage.models import QuarantinedRecord

QUARANTINE_REASON: Final = {
    QuarantinedRecord.Reason.INVALID: _("Invalid record"),
    QuarantinedRecord.Reason.CONFLICT: _("Conflicting records"),
    QuarantinedRecord.Reason.FUTURE: _("Lies in the future"),
}
