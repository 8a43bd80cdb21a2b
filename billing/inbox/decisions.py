"""Inbox items that need a decision: proposals, invoices, disputes, corrections."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Sum
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

import billing.budgets.services.changes
import billing.budgets.services.overrides
import billing.closing.services.reopening
import billing.corrections.services.correction_kind
import billing.corrections.services.retroactive
import billing.rates.services.drafts
import billing.rating.services.commitment_terms  # noqa: F401 - these make known what may be proposed
from billing.approvals.models import Proposal
from billing.approvals.selectors import waiting
from billing.budgets.models import CapOverride
from billing.corrections.models import Dispute
from billing.inbox.reader import Item, Reader
from billing.invoices.issued import unbuilt_words
from billing.invoices.models import BillingPeriod, Correction, Invoice
from billing.invoices.selectors import unbuilt_drafts
from billing.tenancy.access import Right

State = Invoice.Status
UNDECIDED: Final = (Dispute.Status.OPEN, Dispute.Status.TRIAGED)


@dataclass(frozen=True, slots=True)
class Stake:
    """Team and money of a proposal, and the page of the decision where that depends on the proposal."""

    team: str = ""
    amount: Decimal | None = None
    link: str = ""


def proposals(reader: Reader) -> Iterator[Item]:
    """Yield proposals of every kind that the reader may decide and did not make."""
    rows = waiting(reader.user, reader.now)
    stakes = _stakes(rows) if rows else {}
    for row in rows:
        stake, (words, link) = stakes.get(row.pk, Stake()), PROPOSALS[row.kind]
        title = f"{words}: {row.subject}" if row.subject else str(words)
        yield Item(title, stake.link or link(row), stake.team, stake.amount, row.submitted_at, words=row.reason)


def _stakes(rows: Iterable[Proposal]) -> dict[int, Stake]:
    """Return the money of corrections, changes of closed time and overrides; other proposals have no amount of their own."""
    found, teams = dict[int, Stake](), defaultdict[int, set[str]](set)
    numbers = [row.pk for row in rows]
    corrections = Correction.objects.filter(proposal__in=numbers)
    for pk, amount, team in corrections.values_list("proposal_id", "amount", "notes__team__code"):
        teams[pk].add(team or "")
        found[pk] = Stake(teams[pk].pop() if len(teams[pk]) == 1 else "", amount)
    overrides = CapOverride.objects.filter(proposal__in=numbers)
    for pk, amount, budget, team in overrides.values_list("proposal_id", "amount", "budget_id", "budget__team__code"):
        found[pk] = Stake(team, amount, reverse("portal:budget", args=[budget]))
    return found


def _page(name: str) -> Callable[[Any], str]:
    return lambda row: reverse(f"portal:{name}")


PROPOSALS: Final[Mapping[str, tuple[Any, Callable[[Any], str]]]] = {
    "price_list": (_("Price list"), lambda row: reverse("portal:price_draft", args=[row.pk])),
    "commitment": (_("Commitment"), _page("commitments")),
    "reopening": (_("Reopening of a month"), lambda row: f"{reverse('portal:close')}?month={row.subject}"),
    "retroactive_change": (_("Change of closed time"), _page("changes")),
    "correction": (_("Credit note"), _page("corrections")),
    "cap_override": (_("Budget cap to be raised"), _page("budgets")),
    "budget_change": (
        _("Budget to be changed"), lambda row: reverse("portal:budget", args=[row.payload["budget"]])
    ),
}
"""Label of each kind of proposal, and the page of its decision."""


UNISSUED: Final = Invoice.objects.filter(status__in=(State.DRAFT, State.PREVIEW, State.APPROVED), shadow=False)
"""Invoices that need approval or issue, without showback."""
VOIDED: Final = Invoice.objects.filter(status=State.VOID, shadow=False, period__close_seq__isnull=False).exclude(
    Exists(Invoice.objects.filter(period=OuterRef("period"), team=OuterRef("team"), shadow=False).exclude(status=State.VOID))
)
"""Voided drafts without another invoice of their team and month, also of a reopened close."""
DISPUTED: Final = Dispute.objects.filter(status__in=(*UNDECIDED, Dispute.Status.ESCALATED))
ASKED: Final = Dispute.objects.filter(status=Dispute.Status.EVIDENCE)
APPROVED: Final = Correction.objects.filter(status=Correction.Status.APPROVED)


def _drafts(states: Iterable[str]) -> QuerySet[Any, dict[str, Any]]:
    """Return sums by month of unissued invoices in some states."""
    rows = UNISSUED.filter(status__in=list(states)).values("period__month", "period__closed_by")
    return rows.annotate(number=Count("pk"), sum=Sum("total"), since=Min("period__closed_at")).order_by("period__month")


def invoices_to_approve(reader: Reader) -> Iterator[Item]:
    """Yield drafts by month, for approval by a person other than the one who closed the month."""
    if reader.setup.review != "none":
        rows = list(_drafts((State.DRAFT, State.PREVIEW)))
        own = reader.own(row["period__closed_by"] for row in rows)
        yield from (_of_month(row) for row in rows if row["period__closed_by"] not in own)


def invoices_to_issue(reader: Reader) -> Iterator[Item]:
    """Yield approved invoices that are not issued, by month; without a review step, drafts too."""
    alone = reader.setup.review == "none"
    for row in _drafts((State.APPROVED, State.DRAFT, State.PREVIEW) if alone else (State.APPROVED,)):
        yield _of_month(row)


def _of_month(row: Mapping[str, Any]) -> Item:
    month, number = row["period__month"], row["number"]
    words = ngettext("%(number)s invoice of %(month)s", "%(number)s invoices of %(month)s", number)
    link = f"{reverse('portal:close')}?month={month}"
    return Item(words % {"number": number, "month": month}, link, amount=row["sum"], since=row["since"])


def drafts_to_build(reader: Reader) -> Iterator[Item]:
    """Yield voided drafts not built again: their teams have no invoice, and no file of the month can be made."""
    for period in BillingPeriod.objects.filter(pk__in=VOIDED.values("period")).order_by("month"):
        for draft in unbuilt_drafts(period):
            if not draft.shadow:
                title, link = f"{period.month} {draft.team.code}", reverse("portal:invoice", args=[draft.pk])
                words = unbuilt_words(draft, period.month)
                yield Item(title, link, draft.team.code, draft.total, period.closed_at, words=words)


def disputes_to_decide(reader: Reader) -> Iterator[Item]:
    """Yield disputes that the reader may decide: escalated ones as an approver, never those the reader opened or decided."""
    mine = Q(status=Dispute.Status.ESCALATED) if reader.access.may(Right.APPROVE) else Q(pk__in=[])
    mine |= Q(status__in=UNDECIDED) if reader.access.may(Right.CLOSE) else Q(pk__in=[])
    rows = list(_disputes(DISPUTED.filter(mine)))
    own = reader.own(name for row in rows for name in (row["opened_by"], row["decided_by"]))
    yield from (_dispute(row) for row in rows if own.isdisjoint((row["opened_by"], row["decided_by"])))


def evidence_to_give(reader: Reader) -> Iterator[Item]:
    """Yield disputes of the reader's teams that need evidence; finance itself answers for its own teams only."""
    access = reader.access
    # finance has the right for every team: it would be asked for the evidence it requested
    own = [team for team, rights in access.by_team.items() if Right.DISPUTE in rights]
    asked = ASKED.filter(team__in=own if access.may(Right.CLOSE) else reader.teams(Right.DISPUTE))
    return (_dispute(row) for row in _disputes(asked))


def _disputes(which: QuerySet[Dispute]) -> QuerySet[Dispute, Any]:
    return which.values(
        "pk", "invoice__number", "note__number", "team__code", "amount", "opened_at", "opened_by", "decided_by", "statement"
    )


def _dispute(row: Mapping[str, Any]) -> Item:
    title = gettext("Dispute of %(document)s") % {"document": row["invoice__number"] or row["note__number"]}
    link = reverse("portal:dispute", args=[row["pk"]])
    return Item(title, link, row["team__code"], row["amount"], row["opened_at"], words=row["statement"])


def corrections_to_issue(reader: Reader) -> Iterator[Item]:
    """Yield approved corrections whose notes are not issued."""
    for row in APPROVED.select_related("proposal").prefetch_related("notes__team"):
        teams = {note.team.code for note in row.notes.all()}
        title = gettext("Correction %(number)s") % {"number": row.pk}
        team = teams.pop() if len(teams) == 1 else ""
        yield Item(title, reverse("portal:corrections"), team, row.amount, row.requested_at, words=row.reason)
