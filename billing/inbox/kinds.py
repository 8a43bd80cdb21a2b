"""List of the kinds of inbox items: the rights to complete each, and the function that yields the items of a reader.

Each item comes from the package that owns it; this package has no rules of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from billing.approvals.selectors import SUBMITTED
from billing.inbox import decisions, deliveries, months, tokens
from billing.inbox.reader import Item, Reader
from billing.tenancy.access import Right


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of inbox item. `rights`: one of them is needed to complete it; empty: `items` checks each item itself.

    button: the action on its page.
    rows: the rows that `items` selects from, for everybody; `items` is not called where there are none.
    """

    name: str
    label: Any
    button: Any
    rights: tuple[Right, ...]
    items: Callable[[Reader], Iterable[Item]]
    rows: QuerySet[Any]

    def of(self, reader: Reader) -> list[Item]:
        """Return items of this kind that the reader can act on."""
        if self.rights and not any(reader.access.somewhere(right) for right in self.rights):
            return []
        return list(self.items(reader))


KINDS: Final = (
    Kind("approval", _("Approvals"), _("Decide"), (), decisions.proposals, SUBMITTED),
    Kind("invoice_review", _("Invoices to approve"), _("Approve"), (Right.APPROVE,),
         decisions.invoices_to_approve, decisions.UNISSUED),
    Kind("invoice_issue", _("Invoices to issue"), _("Issue"), (Right.CLOSE,),
         decisions.invoices_to_issue, decisions.UNISSUED),
    Kind("draft", _("Voided drafts to build again"), _("Look at the draft"), (Right.CLOSE,),
         decisions.drafts_to_build, decisions.VOIDED),
    Kind("dispute", _("Disputes"), _("Decide"), (Right.CLOSE, Right.APPROVE),
         decisions.disputes_to_decide, decisions.DISPUTED),
    Kind("evidence", _("Evidence asked of your team"), _("Answer"), (Right.DISPUTE,),
         decisions.evidence_to_give, decisions.ASKED),
    Kind("correction", _("Corrections to issue"), _("Issue"), (Right.CLOSE,),
         decisions.corrections_to_issue, decisions.APPROVED),
    Kind("credit", _("Credit notes to submit"), _("Check and submit"), (Right.CLOSE,),
         months.credits_to_submit, months.FOUND),
    Kind("close", _("Months to close"), pgettext_lazy("month", "Close"), (Right.CLOSE,),
         months.months_to_close, months.CLOSABLE),
    Kind("unowned", _("Usage without owner"), _("Declare the owner"), (Right.OPERATE,), months.unowned, months.FOUND),
    Kind("unpriced", _("Usage without price"), _("Publish a price"), (Right.CLOSE,), months.unpriced, months.FOUND),
    Kind("quarantine", _("Quarantine"), _("Correct or dismiss"), (Right.OPERATE,), months.quarantine, months.FOUND),
    Kind("silent", _("Silent sources"), _("Look at the source"), (Right.OPERATE,), months.silent, months.FOUND),
    Kind("token", _("API tokens that end"), _("Make the next one"), (), tokens.ending, tokens.EXPIRING),
    Kind("finding", _("Failed checks"), _("Solve or waive"), (Right.OPERATE, Right.CLOSE),
         months.others, months.FOUND),
    Kind("anomaly", _("Unusual days"), _("Answer"), (Right.BUDGET,), deliveries.anomalies, deliveries.UNANSWERED),
    Kind("mail", _("Mails that failed"), _("Send again"), (Right.CLOSE,), deliveries.mails, deliveries.REFUSED),
    Kind("alert", _("Alerts that were not delivered"), _("Check the channel"), (Right.BUDGET,),
         deliveries.alerts, deliveries.UNDELIVERED),
    Kind("report", _("Reports that were not delivered"), _("Check the channel"), (Right.READ,),
         deliveries.reports, deliveries.UNSENT),
    Kind("journal", _("Journals without an acknowledgement"), _("Acknowledge"), (Right.CLOSE,),
         deliveries.journals, deliveries.UNACKNOWLEDGED),
    Kind("operation", _("Operations that failed"), _("Start again"), (Right.CLOSE,),
         deliveries.operations, deliveries.FAILED),
)  # fmt: skip
