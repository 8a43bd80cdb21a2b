"""Disputes: opened by a team on lines, triaged by finance, decided by a person who did not open them.

The document is posted as invoiced in the meantime: a dispute blocks no close and no posting. An upheld dispute becomes a
correction, which is approved and issued like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from billing.approvals.limits import AuthorityError, require_right
from billing.corrections.credited_lines import billed_lines, document_numbered, left_of, split_over
from billing.corrections.disputed import UNDECIDED
from billing.corrections.models import Dispute, DisputeStep
from billing.corrections.note_lines import BilledLine, NoteError
from billing.corrections.services.corrections import LineCredit, Wanted, credit_note_draft
from billing.invoices.acceptance import (
    DECISION_DAYS,
    DISPUTE_WINDOW_DAYS,
    TRIAGE_DAYS,
    due_of,
    end_of_business_day,
)
from billing.invoices.models import DocumentEvent, Invoice, Note
from billing.tenancy.access import Right, same_person
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup, company_calendar
from metering.messages import Message, UserError
from pricing.business_days import BusinessCalendar
from pricing.money import amount_places, round_to, smallest_amount

Status = Dispute.Status
ZERO = Decimal("0.00")


class DisputeError(UserError, ValueError):
    """Dispute that cannot be opened or moved as requested."""

    code = "dispute"


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a team: lines of a document, the disputed amount (None: all), the reason, and evidence."""

    number: str
    positions: Sequence[int]
    reason_code: str
    statement: str
    evidence: str = ""
    amount: Decimal | None = None


def dispute_open(*, claim: Claim, actor: str, now: datetime, acting_for: Team | None = None) -> Dispute:
    """Open a dispute on lines of an issued invoice or rebill, within the window after its issue.

    `acting_for`: the team of an API token, which needs no account; documents of other teams are refused.

    Raises DisputeError, NoteError for a document that is not issued, AuthorityError.
    """
    if claim.reason_code not in Dispute.Reason.values:
        raise DisputeError(Message(
            "reason code %(code)s is none of %(names)s", code=repr(claim.reason_code), names=", ".join(Dispute.Reason.values)
        ))
    if not claim.statement.strip():
        raise DisputeError(Message("say what is wrong"))
    with transaction.atomic():
        document = document_numbered(claim.number)
        if acting_for is None:
            require_right(actor, Message(
                "dispute lines of %(code)s", code=document.team.code
            ), Right.DISPUTE, team=document.team)
        elif acting_for.pk != document.team_id:
            raise NoteError(Message(
                "document %(number)s: %(code)s has none of this number", number=claim.number, code=acting_for.code
            ))
        _require_window(document, now)
        amount = _claimed(document, claim)
        zone, calendar = _zone_and_calendar()
        dispute = document.disputes.create(
            team=document.team, positions=sorted(claim.positions), amount=amount, currency=document.currency,
            reason_code=claim.reason_code, statement=claim.statement, opened_by=actor, opened_at=now,
            triage_due=end_of_business_day(now, TRIAGE_DAYS, zone, calendar),
            decision_due=end_of_business_day(now, DECISION_DAYS, zone, calendar),
        )  # fmt: skip
        _step(dispute, "open", actor, now, claim.evidence)
        _event(dispute, DocumentEvent.Kind.DISPUTED, actor, now)
    return dispute


def _zone_and_calendar() -> tuple[str, BusinessCalendar]:
    """Return the zone and the business days of deadlines."""
    setup = billing_setup()
    return setup.zone, company_calendar(setup)


def _require_window(document: Invoice | Note, now: datetime) -> None:
    end = due_of(document, *_zone_and_calendar())
    if end is None:
        raise DisputeError(Message(
            "%(number)s credits: dispute the invoice or the rebill that charges", number=document.number
        ))
    if now >= end:
        raise DisputeError(Message(
            "%(number)s could be disputed until %(end)s: ask finance for a correction",
            number=document.number, end=end.isoformat(),
        ))


def _claimed(document: Invoice | Note, claim: Claim) -> Decimal:
    """Return the disputed amount, at most the uncredited rest of the lines.  Raises DisputeError."""
    lines = {line.position: line for line in billed_lines(document, claim.positions)}
    missing = [position for position in claim.positions if position not in lines]
    if not claim.positions:
        raise DisputeError(Message("name at least one line"))
    if missing:
        raise DisputeError(Message(
            "line %(line)s: %(number)s charges no such line", line=missing[0], number=document.number
        ))
    if len(set(claim.positions)) < len(claim.positions):
        raise DisputeError(Message("name each line once"))
    _refuse_again(document, claim)
    left = sum(left_of(list(lines.values())).values(), ZERO)
    amount = left if claim.amount is None else claim.amount
    if not ZERO < amount <= left or round_to(amount, amount_places()) != amount:
        raise DisputeError(Message(
            "amount %(amount)s is not between %(least)s and the %(left)s left of these lines",
            amount=amount, least=smallest_amount(), left=left,
        ))  # fmt: skip
    return amount


def _refuse_again(document: Invoice | Note, claim: Claim) -> None:
    """Refuse a second open dispute of a line, and a repetition after a rejection, which is escalated instead."""
    known = document.disputes.filter(positions__overlap=list(claim.positions))
    waiting = known.filter(status__in=UNDECIDED).first()
    if waiting is not None:
        raise DisputeError(Message("dispute %(n)s is about one of these lines and not decided yet", n=waiting.pk))
    rejected = known.filter(status=Status.REJECTED, reason_code=claim.reason_code).first()
    if rejected is not None:
        raise DisputeError(Message(
            "dispute %(n)s of one of these lines was rejected for that reason: escalate it", n=rejected.pk
        ))


def dispute_triage(*, dispute_id: int, actor: str, now: datetime, text: str = "") -> Dispute:
    """Mark a dispute as triaged by finance.  Raises DisputeError."""
    return _move(dispute_id, (Status.OPEN,), Status.TRIAGED, actor, now, text)


def dispute_ask_evidence(*, dispute_id: int, actor: str, now: datetime, text: str) -> Dispute:
    """Ask the team for evidence, as finance.  Raises DisputeError."""
    if not text.strip():
        raise DisputeError(Message("say which evidence is needed"))
    return _move(dispute_id, (Status.OPEN, Status.TRIAGED), Status.EVIDENCE, actor, now, text)


def dispute_add_evidence(*, dispute_id: int, actor: str, now: datetime, text: str) -> Dispute:
    """Add evidence as text, by the team or by finance, until the decision.  Raises DisputeError."""
    if not text.strip():
        raise DisputeError(Message("the evidence is empty"))
    with transaction.atomic():
        dispute = _locked(dispute_id, UNDECIDED)
        require_right(actor, Message("add evidence"), Right.DISPUTE, Right.CLOSE, team=dispute.team)
        if dispute.status == Status.EVIDENCE:
            # evidence answers the question, so finance is to act again
            dispute.status = Status.TRIAGED
            dispute.save(update_fields=["status"])
        _step(dispute, "evidence", actor, now, text)
    return dispute


def _move(
    dispute_id: int, allowed: Sequence[str], status: str, actor: str, now: datetime, text: str
) -> Dispute:
    with transaction.atomic():
        dispute = _locked(dispute_id, allowed)
        require_right(actor, Message("work on dispute %(number)s", number=dispute.pk), Right.CLOSE)
        dispute.status = status
        dispute.save(update_fields=["status"])
        _step(dispute, status, actor, now, text)
    return dispute


def dispute_uphold(*, dispute_id: int, actor: str, now: datetime, text: str) -> Dispute:
    """Uphold a dispute: draft a correction over the disputed amount, for others to approve.

    Raises DisputeError, NoteError, AuthorityError.
    """
    with transaction.atomic():
        dispute = _decide(dispute_id, Status.UPHELD, actor, now, text)
        lines = billed_lines(dispute.document, dispute.positions)
        # an approver without the rights of finance may decide an escalated dispute
        wanted = Wanted(dispute.reason_code, text, f"dispute {dispute.pk}", actor, now, (Right.CLOSE, Right.APPROVE))
        dispute.correction = credit_note_draft(
            number=str(dispute.document.number), credits=_credits(dispute, lines), wanted=wanted
        )
        dispute.save()
    return dispute


def _credits(dispute: Dispute, lines: Sequence[BilledLine]) -> list[LineCredit]:
    """Split the disputed amount over its lines in proportion to their rest; credit a line in full where it is all of it."""
    return [
        LineCredit(line.position) if share == line.amount else LineCredit(line.position, amount=share)
        for line, share in zip(lines, split_over(dispute.amount, lines), strict=True)
        if share
    ]


def dispute_reject(*, dispute_id: int, actor: str, now: datetime, text: str) -> Dispute:
    """Reject a dispute, with a reason that the team reads.  Raises DisputeError, AuthorityError."""
    with transaction.atomic():
        dispute = _decide(dispute_id, Status.REJECTED, actor, now, text)
        dispute.save()
    return dispute


def _decide(dispute_id: int, status: str, actor: str, now: datetime, text: str) -> Dispute:
    """Decide a dispute; an escalated one requires an approver who did not decide it before."""
    if not text.strip():
        raise DisputeError(Message("a decision needs its reason"))
    dispute = _locked(dispute_id, UNDECIDED)
    right = Right.APPROVE if dispute.status == Status.ESCALATED else Right.CLOSE
    require_right(actor, Message("decide dispute %(number)s", number=dispute.pk), right)
    if any(same_person(actor, name) for name in (dispute.opened_by, dispute.decided_by)):
        raise AuthorityError(Message(
            "%(actor)s opened dispute %(n)s or decided it before: somebody else must decide", actor=actor, n=dispute.pk
        ))
    _end(dispute, status, actor, now, text)
    return dispute


def _end(dispute: Dispute, status: str, actor: str, now: datetime, text: str) -> None:
    dispute.status, dispute.decided_by, dispute.decided_at, dispute.decision = status, actor, now, text
    _step(dispute, status, actor, now, text)
    _event(dispute, DocumentEvent.Kind.DECIDED, actor, now)


def dispute_escalate(*, dispute_id: int, actor: str, now: datetime, text: str) -> Dispute:
    """Escalate a rejected dispute, as the team: once, within the dispute window.  Raises DisputeError."""
    if not text.strip():
        raise DisputeError(Message("say why the decision is wrong"))
    with transaction.atomic():
        dispute = _locked(dispute_id, (Status.REJECTED,))
        require_right(actor, Message("escalate dispute %(number)s", number=dispute.pk), Right.DISPUTE, team=dispute.team)
        if dispute.escalated_at is not None:
            raise DisputeError(Message("dispute %(n)s was escalated already: its second decision is the last", n=dispute.pk))
        zone, calendar = _zone_and_calendar()
        decided = dispute.decided_at
        if decided is not None and now >= end_of_business_day(decided, DISPUTE_WINDOW_DAYS, zone, calendar):
            raise DisputeError(Message.counted(
                "dispute %(n)s was decided more than %(days)s business day ago",
                "dispute %(n)s was decided more than %(days)s business days ago", DISPUTE_WINDOW_DAYS,
                n=dispute.pk, days=DISPUTE_WINDOW_DAYS,
            ))
        dispute.status, dispute.escalated_at = Status.ESCALATED, now
        dispute.decision_due = end_of_business_day(now, DECISION_DAYS, zone, calendar)
        dispute.save()
        _step(dispute, "escalated", actor, now, text)
        _event(dispute, DocumentEvent.Kind.DISPUTED, actor, now)
    return dispute


def dispute_withdraw(*, dispute_id: int, actor: str, now: datetime, text: str) -> Dispute:
    """Withdraw a dispute, as the team.  Raises DisputeError."""
    with transaction.atomic():
        dispute = _locked(dispute_id, UNDECIDED)
        require_right(actor, Message("withdraw dispute %(number)s", number=dispute.pk), Right.DISPUTE, team=dispute.team)
        _end(dispute, Status.WITHDRAWN, actor, now, text)
        dispute.save()
    return dispute


def _locked(dispute_id: int, allowed: Sequence[str]) -> Dispute:
    dispute = Dispute.objects.select_for_update().filter(pk=dispute_id).first()
    if dispute is None:
        raise DisputeError(Message("dispute %(number)s: there is none of that id", number=dispute_id))
    if dispute.status not in allowed:
        raise DisputeError(Message(
            "dispute %(n)s is %(status)s: that can be done while it is %(allowed)s",
            n=dispute_id, status=dispute.status, allowed=", ".join(allowed),
        ))
    return dispute


def _step(dispute: Dispute, kind: str, actor: str, now: datetime, text: str) -> None:
    DisputeStep.objects.create(dispute=dispute, kind=kind, actor=actor, at=now, text=text)
    audit_record(
        actor=actor, action=f"dispute_{kind}", subject=f"dispute {dispute.pk} of {dispute.document.number}",
        detail={"text": text, "amount": str(dispute.amount), "lines": dispute.positions},
    )  # fmt: skip


def _event(dispute: Dispute, kind: str, actor: str, now: datetime) -> None:
    dispute.document.events.create(kind=kind, at=now, actor=actor, reference=f"dispute {dispute.pk}")
