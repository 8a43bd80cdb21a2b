"""Kind of proposal for corrections: the amount determines who decides, and how many."""

from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings

from billing.approvals.kinds import Action, Approval, Kind, Refused, Why, register
from billing.approvals.limits import (
    BY_APPROVERS,
    CREDITS,
    authority_for,
    require_right,
    same_person_error,
)
from billing.approvals.models import Step
from billing.corrections.corrected_before import Needed, corrected_before, moved_by
from billing.corrections.note_lines import NoteError
from billing.invoices.models import Correction, CorrectionProposal, NoteLine
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.access import Right
from billing.tenancy.selectors import billing_setup
from metering.intervals import fiscal_quarter_of, month_of
from metering.messages import Message


class CorrectionKind(Kind[CorrectionProposal]):
    """Kind of corrections of issued documents: finance proposes; the amount determines who decides, and how many."""

    name = "correction"
    model = CorrectionProposal
    deciders = frozenset({Right.APPROVE, Right.CLOSE})
    makers_reject = True
    audit = {
        Action.SUBMITTED: "correction_draft", Action.APPROVED: "correction_approve", Action.REJECTED: "correction_void",
        Action.WITHDRAWN: "correction_void",
    }  # fmt: skip

    def missing(self, pk: int) -> NoteError:
        return NoteError(Message("correction %(number)s: there is none of that id", number=pk))

    def refusal(self, row: CorrectionProposal, refused: Refused) -> Exception:
        correction = row.corrections.get()
        if refused.why == Why.MAKER:
            return same_person_error(refused.actor, correction_words(correction))
        if refused.why == Why.CHANGED:
            return NoteError(Message("correction %(n)s is not what was asked for", n=correction.pk))
        return not_a_draft(correction)

    def approval(self, row: CorrectionProposal, actor: str, now: datetime) -> Approval:
        """Return the approval, whose effect is that the notes can be issued."""
        correction = row.corrections.get()
        needed = needed_of(correction, now)
        what = Message("approve %(what)s", what=correction_words(correction))
        if needed.earlier:
            what = with_earlier(what, needed)
        require_right(actor, what, *needed.authority.checker)
        approved = partial(correction_decided, correction, Correction.Status.APPROVED, actor, now)
        return Approval(approved, needed.authority.persons)

    def rights(self, row: CorrectionProposal, now: datetime) -> tuple[Right, ...]:
        """Return the rights that the amount requires."""
        return needed_of(row.corrections.get(), now).authority.checker

    def fingerprint(self, row: CorrectionProposal) -> str:
        """Return the hash of the correction and the totals of its notes, as stored."""
        return document_hash(canonical_json(row.corrections.get().terms))

    def audit_subject(self, row: CorrectionProposal) -> str:
        """Return the number of the correction."""
        return f"correction {row.corrections.get().pk}"

    def detail(self, row: CorrectionProposal, step: Step) -> dict[str, Any]:
        """Return the requested correction; of a dropped one, the reason."""
        if step.action == Action.SUBMITTED:
            return {name: row.payload[name] for name in ("reason_code", "reason", "evidence", "notes")}
        return {} if step.action == Action.APPROVED else {"reason": step.comment}


CORRECTION = CorrectionKind()
register(CORRECTION)


def correction_words(correction: Correction) -> Message:
    return Message(
        "correction %(number)s of %(amount)s %(currency)s",
        number=correction.pk, amount=correction.amount, currency=correction.currency,
    )  # fmt: skip


def with_earlier(what: Message, needed: Needed) -> Message:
    """Describe the request together with the earlier amounts that count with it."""
    if needed.authority.persons > 1:
        return Message(
            "%(what)s, with %(earlier)s asked for or corrected before of the same team and month, or by the same person",
            what=what, earlier=needed.earlier,
        )  # fmt: skip
    return Message(
        "%(what)s, with %(earlier)s asked for or corrected before of the same team and month",
        what=what, earlier=needed.earlier,
    )  # fmt: skip


def not_a_draft(correction: Correction) -> NoteError:
    return NoteError(Message(
        "correction %(n)s is %(status)s: only a draft can be %(what)s",
        n=correction.pk, status=correction.status, what=Message("approved"),
    ))  # fmt: skip


def correction_decided(correction: Correction, status: str, actor: str, now: datetime, decision: str = "") -> None:
    """Store the state of a correction, with the actor and the reason of the decision."""
    correction.status, correction.decided_by, correction.decided_at = status, actor, now
    correction.decision = decision
    correction.save(update_fields=["status", "decided_by", "decided_at", "decision"])


def needed_of(correction: Correction, now: datetime) -> Needed:
    """Return the approval that a correction requires at `now`: by its credits or its rebills, whichever is more.

    Earlier corrections of the same teams and months of usage count as well, and requests of the same person.
    """
    moved = moved_by(NoteLine.objects.filter(note__correction=correction))[correction.pk]
    approvers = prior_year(correction, now) or correction.reason_code == Correction.Reason.WRITE_OFF
    earlier = corrected_before(moved.months, correction, billing_setup().zone)
    return Needed.of(authority_for(moved.amount, BY_APPROVERS if approvers else CREDITS, earlier), earlier)


def prior_year(correction: Correction, now: datetime) -> bool:
    """Return True if a correction is of usage before the running fiscal year, in which it is posted."""
    running = fiscal_quarter_of(month_of(now, billing_setup().zone), settings.FISCAL_YEAR_START)
    return NoteLine.objects.filter(note__correction=correction, charge_period__lt=running.first_of_year).exists()
