"""Labels of the reasons, states and steps of disputes."""

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.corrections.models import Dispute
from billing.invoices.labels import CORRECTION_REASON
from billing.invoices.models import Correction

DISPUTE_REASON: Final = {reason: CORRECTION_REASON[Correction.Reason(reason.value)] for reason in Dispute.Reason}
DISPUTE_STATUS: Final[dict[str, Promise]] = {
    Dispute.Status.OPEN: _("Open"),
    Dispute.Status.TRIAGED: _("At work"),
    Dispute.Status.EVIDENCE: _("Evidence asked for"),
    Dispute.Status.ESCALATED: _("Escalated"),
    Dispute.Status.UPHELD: _("Upheld"),
    Dispute.Status.REJECTED: _("Rejected"),
    Dispute.Status.WITHDRAWN: _("Withdrawn"),
}
DISPUTE_STEP: Final = {**DISPUTE_STATUS, "hold": _("Kept off the ledger"), "let_go": _("Let go to the ledger")}
