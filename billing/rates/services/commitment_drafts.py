"""Terms of commitments proposed by one person and approved by another: as with prices, nobody changes them alone.

`closed_until` says up to when time is closed: this room does not know. What begins or ends before it would change bills
that stand, and is refused when it is proposed and again when it is approved.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction

from billing.rates.models import Commitment, CommitmentDraft
from billing.rates.services.commitments import CommitmentTerms, commitment_end, commitment_put
from billing.rates.services.sheets import RateError
from billing.tenancy.access import same_person
from billing.tenancy.audit import audit_record
from metering.messages import Message
from metering.names import name_problem
from pricing.money import PRICE_PLACES, round_to

State = CommitmentDraft.State
MAX_NAME, MAX_REASON = 200, 2000
HOURS_PLACES = 6


@dataclass(frozen=True, slots=True)
class Proposal:
    """Who proposes what kind of change, when and why."""

    actor: str
    now: datetime
    reason: str
    closed_until: datetime | None


def commitment_propose(*, terms: CommitmentTerms, by: Proposal) -> CommitmentDraft:
    """Propose a commitment; the one before it of that team and accelerator will end where it begins.  Raises RateError."""
    _check_terms(terms)
    _refuse_closed(terms.name, terms.valid_from, by.closed_until)
    facts = {
        "name": terms.name, "team": terms.team, "accelerator": terms.accelerator, "gpu_hours": terms.gpu_hours,
        "price": terms.price, "valid_from": terms.valid_from, "valid_until": terms.valid_until,
    }  # fmt: skip
    return _propose(facts, by)


def commitment_propose_end(*, name: str, at: datetime, by: Proposal) -> CommitmentDraft:
    """Propose that a stored commitment ends earlier than it would.  Raises RateError."""
    known = Commitment.objects.filter(name=name).select_related("team").first()
    if known is None:
        raise RateError(Message("commitment %(name)s: there is none of that name", name=repr(name)))
    _refuse_closed(name, at, by.closed_until)
    if at < known.valid_from or (known.valid_until is not None and at >= known.valid_until):
        raise RateError(Message("commitment %(name)s: %(at)s does not lie within its time", name=name, at=at.isoformat()))
    facts = {
        "ends": known, "name": name, "team": known.team, "accelerator": known.accelerator, "gpu_hours": known.gpu_hours,
        "price": known.price, "valid_from": known.valid_from, "valid_until": at,
    }  # fmt: skip
    return _propose(facts, by)


def commitment_draft_approve(
    *, draft_id: int, actor: str, now: datetime, closed_until: datetime | None, reason: str = ""
) -> CommitmentDraft:
    """Store what was proposed: another person than who proposed it.  Raises RateError; then nothing has changed."""
    with transaction.atomic():
        draft = _waiting(draft_id, Message("approved"))
        if same_person(actor, draft.requested_by):
            raise RateError(Message(
                "%(actor)s proposed commitment %(name)s: somebody else must approve", actor=actor, name=draft.name
            ))
        starts = draft.valid_until if draft.ends is not None else draft.valid_from
        _refuse_closed(draft.name, starts or draft.valid_from, closed_until)
        if draft.ends is not None and draft.valid_until is not None:
            commitment_end(commitment=draft.ends, at=draft.valid_until, actor=actor)
        else:
            commitment_put(terms=_terms(draft), actor=actor)
        return _decide(draft, State.APPROVED, actor, now, reason)


def commitment_draft_reject(*, draft_id: int, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    """Turn a proposal down, with a reason; not by who made it, who withdraws it.  Raises RateError."""
    if not reason.strip():
        raise RateError(Message("say why the terms are turned down"))
    with transaction.atomic():
        draft = _waiting(draft_id, Message("turned down"))
        if same_person(actor, draft.requested_by):
            raise RateError(Message(
                "%(actor)s proposed commitment %(name)s: withdraw it instead", actor=actor, name=draft.name
            ))
        return _decide(draft, State.REJECTED, actor, now, reason)


def commitment_draft_withdraw(*, draft_id: int, actor: str, now: datetime, reason: str = "") -> CommitmentDraft:
    """Give a proposal up; to change one, withdraw it and propose it anew.  Raises RateError."""
    with transaction.atomic():
        return _decide(_waiting(draft_id, Message("withdrawn")), State.WITHDRAWN, actor, now, reason)


def _propose(facts: dict[str, Any], by: Proposal) -> CommitmentDraft:
    reason = by.reason.strip()
    if not reason or len(reason) > MAX_REASON:
        raise RateError(Message("say why, in at most %(n)s characters, for whoever approves", n=MAX_REASON))
    try:
        with transaction.atomic():
            draft = CommitmentDraft.objects.create(**facts, reason=reason, requested_by=by.actor, requested_at=by.now)
            audit_record(actor=by.actor, action="commitment_propose", subject=draft.name, detail=_told(draft))
    except IntegrityError as error:
        raise RateError(Message(
            "terms of commitment %(name)s wait for approval already: decide or withdraw them", name=facts["name"]
        )) from error
    return draft


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
    if terms.team.is_group:
        raise RateError(Message("team %(code)s is a group: it uses nothing itself", code=terms.team.code))
    _check_number("gpu_hours_per_month", terms.gpu_hours, HOURS_PLACES)
    _check_number("price_per_gpu_hour", terms.price, PRICE_PLACES)
    if terms.valid_until is not None and terms.valid_until <= terms.valid_from:
        raise RateError(Message("commitment %(name)s: valid_until must be after valid_from", name=name))


def _check_number(name: str, value: Decimal, places: int) -> None:
    if not value.is_finite() or not 0 < value <= Decimal("1e12") or round_to(value, places) != value:
        raise RateError(Message(
            "%(name)s %(value)s: must be above 0, with at most %(n)s decimals", name=name, value=value, n=places
        ))


def _refuse_closed(name: str, at: datetime, closed_until: datetime | None) -> None:
    if closed_until is not None and at < closed_until:
        raise RateError(Message(
            "commitment %(name)s: %(at)s lies in a closed month, whose bills stand; the first instant is %(first)s",
            name=name, at=at.isoformat(), first=closed_until.isoformat(),
        ))


def _waiting(draft_id: int, verb: Message) -> CommitmentDraft:
    rows = CommitmentDraft.objects.select_for_update(of=("self",)).select_related("team", "ends")
    draft = rows.filter(pk=draft_id).first()
    if draft is None:
        raise RateError(Message("proposed terms %(number)s: there are none of that id", number=draft_id))
    if draft.state != State.PROPOSED:
        raise RateError(Message(
            "commitment %(name)s is %(state)s: only what waits can be %(verb)s",
            name=draft.name, state=draft.state, verb=verb,
        ))
    return draft


def _decide(draft: CommitmentDraft, state: str, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    draft.state, draft.decided_by, draft.decided_at, draft.decision = state, actor, now, reason.strip()[:MAX_REASON]
    draft.save(update_fields=["state", "decided_by", "decided_at", "decision"])
    detail = {**_told(draft), "requested_by": draft.requested_by, "decision": draft.decision}
    audit_record(actor=actor, action=f"commitment_{state}", subject=draft.name, detail=detail)
    return draft


def _terms(draft: CommitmentDraft) -> CommitmentTerms:
    return CommitmentTerms(
        draft.name, draft.team, draft.accelerator, draft.gpu_hours, draft.price, draft.valid_from, draft.valid_until
    )


def _told(draft: CommitmentDraft) -> dict[str, Any]:
    return {
        "ends": draft.ends_id is not None, "team": draft.team.code, "accelerator": draft.accelerator,
        "gpu_hours": str(draft.gpu_hours), "price": str(draft.price), "valid_from": draft.valid_from.isoformat(),
        "valid_until": draft.valid_until.isoformat() if draft.valid_until else None, "reason": draft.reason,
    }  # fmt: skip
