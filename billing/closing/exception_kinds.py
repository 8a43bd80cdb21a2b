"""Every kind of exception of a period report: whose it is, where it is solved, and by what; whether it may be waived."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from billing.tenancy.models import Membership

FINANCE, OPERATOR = Membership.Role.FINANCE, Membership.Role.ADMIN


@dataclass(frozen=True, slots=True)
class ExceptionKind:
    """`owner`: the role that solves it. `page`: name of the portal page where. `solution`: what settles it."""

    owner: Membership.Role
    page: str
    solution: Any
    waivable: bool = False

    def link(self, month: str) -> str:
        """The path of the page that it is solved on or seen on."""
        return reverse(f"portal:{self.page}") + (f"?month={month}" if self.page in ("close", "overview", "sources") else "")


KINDS: Final[Mapping[str, ExceptionKind]] = {
    "period_not_ended": ExceptionKind(FINANCE, "close", _("Wait until the month has ended")),
    "unbilled_month": ExceptionKind(FINANCE, "close", _("Close the earlier month")),
    "unowned_namespace": ExceptionKind(OPERATOR, "ownership", _("Declare the owner of the namespace")),
    "unowned_consumer": ExceptionKind(OPERATOR, "ownership", _("Declare the owner of the consumer")),
    "unpriced": ExceptionKind(FINANCE, "prices", _("Publish a price version that covers it")),
    "shared_cost_unknown": ExceptionKind(FINANCE, "close", _("Enter what the month cost")),
    "metering_gap": ExceptionKind(OPERATOR, "sources", _("Report or fill in what nobody watched"), waivable=True),
    "sequence_gap": ExceptionKind(OPERATOR, "sources", _("Send the missing records again"), waivable=True),
    "silent_source": ExceptionKind(OPERATOR, "sources", _("Look whether its reporter runs"), waivable=True),
    "silent_cluster": ExceptionKind(OPERATOR, "sources", _("Start its agent, or import its usage"), waivable=True),
    "agent_problem": ExceptionKind(OPERATOR, "sources", _("Mend what the agent cannot meter"), waivable=True),
    "unknown_resource": ExceptionKind(OPERATOR, "sources", _("Declare whether it is a device"), waivable=True),
    "unknown_share": ExceptionKind(OPERATOR, "sources", _("Declare how much of a device it is"), waivable=True),
    "quarantine": ExceptionKind(OPERATOR, "quarantine", _("Correct or dismiss the record"), waivable=True),
    "conflict": ExceptionKind(OPERATOR, "quarantine", _("Decide which of the two records holds"), waivable=True),
    "overlap": ExceptionKind(OPERATOR, "close", _("Correct the double hold at its source"), waivable=True),
    "estimated_end": ExceptionKind(OPERATOR, "close", _("Report the end if it is known")),
    "engine_difference": ExceptionKind(OPERATOR, "close", _("Find the side that lacks, correct it"), waivable=True),
    "engine_difference_day": ExceptionKind(OPERATOR, "close", _("Find the side that lacks, correct it")),
    "energy_difference": ExceptionKind(OPERATOR, "close", _("Find what the meter or the power misses"), waivable=True),
    "scan_difference": ExceptionKind(OPERATOR, "close", _("Find what the agent missed"), waivable=True),
    "team_held": ExceptionKind(OPERATOR, "close", _("Repair what the message names, then close again")),
    "team_unrated": ExceptionKind(OPERATOR, "close", _("Repair what the message names; the close holds this team")),
    "other_legal_entity": ExceptionKind(
        FINANCE, "close", _("Have the ERP invoice it, or correct its legal entity"), waivable=True
    ),
    "journal_unacknowledged": ExceptionKind(FINANCE, "close", _("Ask the ledger, then record its reference")),
    "upheld_uncredited": ExceptionKind(FINANCE, "corrections", _("Approve and issue its correction")),
    "upheld_repeatedly": ExceptionKind(OPERATOR, "disputes", _("Mend what makes it wrong again")),
    "over_capacity": ExceptionKind(OPERATOR, "close", _("Check reports of capacity and device fractions"), waivable=True),
}
WAIVABLE: Final = tuple(kind for kind, facts in KINDS.items() if facts.waivable)


def kind_of(name: str) -> ExceptionKind:
    """The facts of a kind.  Raises LookupError for one that nobody has declared here."""
    if name not in KINDS:
        raise LookupError(f"exception {name!r}: say in `exception_kinds` whose it is and what solves it")
    return KINDS[name]
