"""Kinds of exceptions of a period report: owner, page and solution of each, and if it may be waived."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from billing.tenancy.models import Membership

FINANCE, OPERATOR = Membership.Role.FINANCE, Membership.Role.ADMIN


@dataclass(frozen=True, slots=True)
class ExceptionKind:
    """Kind of exception. `label`: its name on pages. `owner`: the role that solves it. `page`: name of the portal page for
    that. `solution`: the action that settles it.
    """

    label: Any
    owner: Membership.Role
    page: str
    solution: Any
    waivable: bool = False

    def link(self, month: str) -> str:
        """Return the path of the page on which it is solved or shown."""
        return reverse(f"portal:{self.page}") + (f"?month={month}" if self.page in ("close", "overview", "sources") else "")


KINDS: Final[Mapping[str, ExceptionKind]] = {
    "period_not_ended": ExceptionKind(_("The month has not ended"), FINANCE, "close", _("Wait until the month has ended")),
    "unbilled_month": ExceptionKind(_("Month that was not closed"), FINANCE, "close", _("Close the earlier month")),
    "unowned_namespace": ExceptionKind(
        _("Namespace without owner"), OPERATOR, "ownership", _("Declare the owner of the namespace"),
    ),
    "unowned_consumer": ExceptionKind(
        _("Consumer without owner"), OPERATOR, "ownership", _("Declare the owner of the consumer"),
    ),
    "unpriced": ExceptionKind(_("No price"), FINANCE, "prices", _("Publish a price version that covers it")),
    "service_tier": ExceptionKind(
        _("Service tier without a price"), FINANCE, "close", _("Declare what the service tier is billed as"),
    ),
    "shared_cost_unknown": ExceptionKind(_("Shared cost not entered"), FINANCE, "close", _("Enter what the month cost")),
    "metering_gap": ExceptionKind(
        _("Metering gap"), OPERATOR, "sources", _("Backfill missing usage"), waivable=True,
    ),
    "sequence_gap": ExceptionKind(
        _("Numbered records that never arrived"), OPERATOR, "sources", _("Send the missing records again"), waivable=True,
    ),
    "silent_source": ExceptionKind(
        _("Source without usage lately"), OPERATOR, "sources", _("Look whether its reporter runs"), waivable=True,
    ),
    "silent_cluster": ExceptionKind(
        _("Owned cluster without any report"), OPERATOR, "sources", _("Start its agent, or import its usage"), waivable=True,
    ),
    "ends_early": ExceptionKind(
        _("Files that end before the month"), OPERATOR, "sources", _("Import the rest, or confirm that this is all"),
        waivable=True,
    ),
    "agent_problem": ExceptionKind(
        _("Not metered by its agent"), OPERATOR, "sources", _("Mend what the agent cannot meter"), waivable=True,
    ),
    "unknown_resource": ExceptionKind(
        _("Extended resource that nobody knows"), OPERATOR, "sources", _("Declare whether it is a device"), waivable=True,
    ),
    "unknown_share": ExceptionKind(
        _("Share of a device unknown"), OPERATOR, "sources", _("Declare how much of a device it is"), waivable=True,
    ),
    "quarantine": ExceptionKind(
        _("Quarantined records"), OPERATOR, "quarantine", _("Correct or dismiss the record"), waivable=True,
    ),
    "conflict": ExceptionKind(
        _("Conflicting records"), OPERATOR, "quarantine", _("Decide which of the two records holds"), waivable=True,
    ),
    "paid_by_call": ExceptionKind(
        _("Requests paid by the call"), OPERATOR, "quarantine", _("Charge them elsewhere, then dismiss them"), waivable=True,
    ),
    "overlap": ExceptionKind(
        _("Allocated twice"), OPERATOR, "close", _("Correct the double allocation at its source"), waivable=True
    ),
    "estimated_end": ExceptionKind(_("End estimated"), OPERATOR, "close", _("Report the end if it is known")),
    "engine_difference": ExceptionKind(
        _("Gateways and inference servers differ"), OPERATOR, "close", _("Find the side that lacks, correct it"),
        waivable=True,
    ),
    "engine_difference_day": ExceptionKind(
        _("Gateways and inference servers differ on a day"), OPERATOR, "close", _("Find the side that lacks, correct it"),
    ),
    "energy_difference": ExceptionKind(
        _("Meter and charges differ"), OPERATOR, "close", _("Find what the meter or the power misses"), waivable=True,
    ),
    "scan_difference": ExceptionKind(
        _("Scans differ from what was watched"), OPERATOR, "close", _("Find what the agent missed"), waivable=True,
    ),
    "team_held": ExceptionKind(
        _("Team that cannot be billed"), OPERATOR, "close", _("Repair what the message names, then close again"),
    ),
    "team_unrated": ExceptionKind(
        _("Team that cannot be rated"), OPERATOR, "close",
        _("Repair what the message names; this team is billed after that"),
    ),
    "other_legal_entity": ExceptionKind(
        _("Team of another legal entity"), FINANCE, "close", _("Have the ERP invoice it, or correct its legal entity"),
        waivable=True,
    ),
    "no_cost_center": ExceptionKind(
        _("Team without a cost centre"), FINANCE, "teams", _("Name the cost centre of the team"), waivable=True,
    ),
    "journal_unacknowledged": ExceptionKind(
        _("Journal that the ledger has not confirmed"), FINANCE, "close", _("Ask the ledger, then record its reference"),
    ),
    "upheld_uncredited": ExceptionKind(
        _("Upheld dispute without its credit"), FINANCE, "corrections", _("Approve and issue its correction"),
    ),
    "upheld_repeatedly": ExceptionKind(
        _("Reason upheld repeatedly"), OPERATOR, "disputes", _("Mend what makes it wrong again"),
    ),
    "idle_capacity_unknown": ExceptionKind(
        _("Idle time that a policy bills, of unknown capacity"), OPERATOR, "close",
        _("Report the capacity of the pool, or correct its name in the policy"), waivable=True,
    ),
    "carried_in_closed_time": ExceptionKind(
        _("Charged, though the platform carries it"), FINANCE, "corrections", _("Credit the team, or say why not"),
        waivable=True,
    ),
    "over_capacity": ExceptionKind(
        _("Above capacity"), OPERATOR, "close", _("Check reports of capacity and device fractions"), waivable=True,
    ),
}
ASKED: Final = ("ends_early", "carried_in_closed_time")
"""Kinds that do not block and wait for an answer all the same."""
WAIVABLE: Final = tuple(kind for kind, facts in KINDS.items() if facts.waivable)


def kind_of(name: str) -> ExceptionKind:
    """Return the facts of a kind.  Raises LookupError for an undeclared one."""
    if name not in KINDS:
        raise LookupError(f"exception {name!r}: say in `exception_kinds` whose it is and what solves it")
    return KINDS[name]
