"""Terms of commitments, proposed by one person and approved by another, as price lists are.

A beginning or end in closed time would change issued bills: it is refused at the proposal and again at the approval, which
no close can overtake.
"""

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction

from billing.approvals.kinds import Action, Approval, Kind, Refused, Why, register
from billing.approvals.models import Step, instant_text
from billing.approvals.services import approve, propose, reject, withdraw
from billing.rates.models import Commitment, CommitmentDraft
from billing.rates.services.commitments import CommitmentTerms, commitment_end, commitment_put
from billing.rates.services.sheets import RateError
from billing.rating.accelerators import unknown_accelerator
from billing.rating.selectors import closed_until
from billing.tenancy.access import Right
from billing.usage.epochs import ingest_lock_shared
from metering.messages import Message
from metering.names import name_problem
from pricing.commitments import HOURS_PLACES
from pricing.money import PRICE_PLACES, round_to

MAX_NAME, MAX_REASON = 200, 2000
VERBS = {
    Action.APPROVED: Message("approved"), Action.REJECTED: Message("turned down"), Action.WITHDRAWN: Message("withdrawn"),
}  # fmt: skip


class CommitmentKind(Kind[CommitmentDraft]):
    """Proposal of the terms of a commitment, or of its earlier end: one approver decides."""

    name = "commitment"
    model = CommitmentDraft
    deciders = frozenset({Right.APPROVE})
    audit = {
        Action.SUBMITTED: "commitment_propose", Action.APPROVED: "commitment_approved",
        Action.REJECTED: "commitment_rejected", Action.WITHDRAWN: "commitment_withdrawn",
    }  # fmt: skip

    def missing(self, pk: int) -> RateError:
        return RateError(Message("proposed terms %(number)s: there are none of that id", number=pk))

    def refusal(self, row: CommitmentDraft, refused: Refused) -> RateError:
        actor, name, approves = refused.actor, row.name, refused.action == Action.APPROVED
        match refused.why:
            case Why.TAKEN:
                text = Message("terms of commitment %(name)s wait for approval already: decide or withdraw them", name=name)
            case Why.REASON:
                text = Message("say why the terms are turned down")
            case Why.MAKER if approves:
                text = Message("%(actor)s proposed commitment %(name)s: somebody else must approve", actor=actor, name=name)
            case Why.MAKER:
                text = Message("%(actor)s proposed commitment %(name)s: withdraw it instead", actor=actor, name=name)
            case _:
                text = Message(
                    "commitment %(name)s is %(state)s: only what waits can be %(verb)s",
                    name=name, state=row.word, verb=VERBS[Action(refused.action)],
                )  # fmt: skip
        return RateError(text)

    def approval(self, row: CommitmentDraft, actor: str, now: datetime) -> Approval:
        """Return the action that stores the commitment, or ends it."""
        if not row.ends:
            _refuse_closed(row.name, row.valid_from)
            _refuse_unknown(row.accelerator)
            return Approval(partial(commitment_put, terms=_terms(row), actor=actor))
        _refuse_closed(row.name, row.valid_until)
        known = Commitment.objects.get(name=row.name)
        return Approval(partial(commitment_end, commitment=known, at=row.valid_until, actor=actor))

    def detail(self, row: CommitmentDraft, step: Step) -> dict[str, Any]:
        """Return the terms; after a decision also the requester and the comment."""
        decided = {} if step.action == Action.SUBMITTED else {"requested_by": row.requested_by, "decision": step.comment}
        return {**row.payload, "reason": row.reason, **decided}


TERMS = CommitmentKind()
register(TERMS)


def terms_propose(*, terms: CommitmentTerms, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    """Propose a commitment that begins in open time.  Raises RateError."""
    _check_terms(terms)
    _refuse_closed(terms.name, terms.valid_from)
    return _propose(terms, actor, now, reason, ends=False)


def terms_propose_end(*, name: str, at: datetime, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    """Propose that a stored commitment ends earlier, in open time.  Raises RateError."""
    known = Commitment.objects.filter(name=name).select_related("team").first()
    if known is None:
        raise RateError(Message("commitment %(name)s: there is none of that name", name=repr(name)))
    _refuse_closed(name, at)
    if at < known.valid_from or (known.valid_until is not None and at >= known.valid_until):
        raise RateError(Message("commitment %(name)s: %(at)s does not lie within its time", name=name, at=at.isoformat()))
    terms = CommitmentTerms(name, known.team, known.accelerator, known.gpu_hours, known.price, known.valid_from, at)
    return _propose(terms, actor, now, reason, ends=True)


def terms_approve(*, draft_id: int, actor: str, now: datetime, reason: str = "") -> CommitmentDraft:
    """Store proposed terms, as a second person, while the time that they change is open.  Raises RateError."""
    with transaction.atomic():
        ingest_lock_shared()  # no period is cut off before this transaction ends
        return approve(TERMS, draft_id, actor=actor, now=now, comment=reason)


def terms_reject(*, draft_id: int, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    """Reject a proposal with a reason; its maker withdraws it instead.  Raises RateError."""
    return reject(TERMS, draft_id, actor=actor, now=now, comment=reason)


def terms_withdraw(*, draft_id: int, actor: str, now: datetime, reason: str = "") -> CommitmentDraft:
    """Withdraw a proposal; to change one, withdraw it and propose it anew.  Raises RateError."""
    return withdraw(TERMS, draft_id, actor=actor, now=now, comment=reason)


def _propose(terms: CommitmentTerms, actor: str, now: datetime, reason: str, *, ends: bool) -> CommitmentDraft:
    reason = reason.strip()
    if not reason or len(reason) > MAX_REASON:
        raise RateError(Message("say why, in at most %(n)s characters, for the approver", n=MAX_REASON))
    payload = {
        "ends": ends, "team": terms.team.code, "accelerator": terms.accelerator,
        "gpu_hours": str(round_to(terms.gpu_hours, HOURS_PLACES)), "price": str(round_to(terms.price, PRICE_PLACES)),
        "valid_from": instant_text(terms.valid_from), "valid_until": instant_text(terms.valid_until),
    }  # fmt: skip
    return propose(TERMS, subject=terms.name, payload=payload, reason=reason, actor=actor, now=now)


def _terms(row: CommitmentDraft) -> CommitmentTerms:
    return CommitmentTerms(row.name, row.team, row.accelerator, row.gpu_hours, row.price, row.valid_from, row.valid_until)


def _check_terms(terms: CommitmentTerms) -> None:
    name = terms.name
    if not name.strip() or name != name.strip() or len(name) > MAX_NAME or not name.isprintable() or "/" in name:
        raise RateError(Message(
            "name %(name)s: must be printable text of 1 to %(limit)s characters, no slash",
            name=repr(name[:80]), limit=MAX_NAME,
        ))
    if Commitment.objects.filter(name=name).exists():
        raise RateError(Message("commitment %(name)s is stored and never changes: give the new terms a new name", name=name))
    if name_problem(terms.accelerator):
        raise RateError(Message("accelerator: name the product, as the price list does"))
    _refuse_unknown(terms.accelerator)
    if terms.team.is_group:
        raise RateError(Message("team %(code)s is a group: it uses nothing itself", code=terms.team.code))
    _check_number("gpu_hours_per_month", terms.gpu_hours, HOURS_PLACES)
    _check_number("price_per_gpu_hour", terms.price, PRICE_PLACES)
    if terms.valid_until is not None and terms.valid_until <= terms.valid_from:
        raise RateError(Message("commitment %(name)s: valid_until must be after valid_from", name=name))


def _refuse_unknown(accelerator: str) -> None:
    if (unknown := unknown_accelerator(accelerator)) is not None:
        raise RateError(Message("accelerator %(why)s", why=unknown))


def _check_number(name: str, value: Decimal, places: int) -> None:
    if not value.is_finite() or not 0 < value <= Decimal("1e12") or round_to(value, places) != value:
        raise RateError(Message(
            "%(name)s %(value)s: must be above 0, with at most %(n)s decimals", name=name, value=value, n=places
        ))


def _refuse_closed(name: str, at: datetime) -> None:
    until = closed_until()
    if until is not None and at < until:
        raise RateError(Message(
            "commitment %(name)s: %(at)s lies in a closed month, whose bills are final; the first instant is %(first)s",
            name=name, at=at.isoformat(), first=until.isoformat(),
        ))
