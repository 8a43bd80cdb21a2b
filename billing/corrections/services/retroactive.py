"""Changes of closed time: a change takes effect together with the notes that it requires, in one transaction."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction

from billing.approvals.kinds import Action, Approval, Kind, Refused, Why, register
from billing.approvals.limits import BY_APPROVERS, authority_for, require_right, same_person_error
from billing.approvals.models import Step
from billing.approvals.services import approve, locked, proposal_create, proposal_note, proposal_submit, reject
from billing.corrections.corrected_before import Moved, Needed, corrected_before, net
from billing.corrections.effect import Effect, current_lines, effect_of
from billing.corrections.note_lines import NoteEntry, rebill, reversal, withdrawal
from billing.corrections.services.correction_kind import correction_decided
from billing.corrections.services.corrections import (
    NotePlan,
    Wanted,
    carried_over,
    correction_issue,
    correction_store,
    credit_plans,
    rebill_plan,
    split_credit,
)
from billing.corrections.services.proof import closed_periods_check
from billing.invoices.models import BillingPeriod, Correction
from billing.rating.models import ChangeProposal, RetroactiveChange
from billing.rating.services.changes import ChangeError, change_checked, change_known
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.services import consumer_ownership_put, namespace_ownership_put
from billing.usage.epochs import ingest_lock_exclusive, ingest_lock_shared
from metering.messages import Message
from pricing.rating import Charge

Kinds = RetroactiveChange.Kind
ASKED_OR_APPROVED = (Action.SUBMITTED, Action.APPROVED)
NOTHING = Decimal("0.00")
REASONS = {
    Kinds.PRICE: Correction.Reason.PRICE,
    Kinds.NAMESPACE: Correction.Reason.OWNERSHIP,
    Kinds.CONSUMER: Correction.Reason.OWNERSHIP,
    Kinds.EFFICIENCY: Correction.Reason.MFU,
}


class ChangeKind(Kind[ChangeProposal]):
    """Kind of changes of closed time: finance proposes, and approvers decide, as many as the changed amount requires."""

    name = "retroactive_change"
    model = ChangeProposal
    deciders = frozenset({Right.APPROVE})
    makers_reject = True
    audit = {
        Action.SUBMITTED: "change_propose", Action.NOTED: "change_acknowledge", Action.APPROVED: "change_approve",
        Action.REJECTED: "change_reject", Action.WITHDRAWN: "change_reject",
    }  # fmt: skip

    def missing(self, pk: int) -> ChangeError:
        return ChangeError(Message("change %(number)s: there is none of that id", number=pk))

    def refusal(self, row: ChangeProposal, refused: Refused) -> Exception:
        match refused.why, refused.action:
            case Why.MAKER, Action.NOTED:
                text = Message(
                    "%(actor)s asked for %(name)s: somebody else must take note of it for %(team)s",
                    actor=refused.actor, name=row.subject, team=refused.about,
                )  # fmt: skip
            case Why.MAKER, _:
                return same_person_error(refused.actor, Message("change %(name)s", name=row.subject))
            case Why.REASON, _:
                text = Message("say why the change is rejected")
            case Why.CHANGED, _:
                text = Message("change %(name)s is not what was proposed", name=row.subject)
            case _:
                text = Message("change %(name)s is %(status)s already", name=row.subject, status=row.word)
        return ChangeError(text)

    def authorise(self, row: ChangeProposal, actor: str, action: str) -> None:
        """Raise AuthorityError unless an approver approves, or an approver or finance rejects."""
        if action == Action.APPROVED:
            require_right(actor, Message("approve change %(name)s", name=row.subject), Right.APPROVE)
        else:
            require_right(actor, Message("reject a change of closed time"), Right.CLOSE, Right.APPROVE)

    def approval(self, row: ChangeProposal, actor: str, now: datetime) -> Approval:
        """Return the approval: it applies the change and issues the credit notes and rebills, all in one transaction."""
        change = row.change
        effect = effect_of(change)
        _require_rated(change, effect)
        _require_note_taken(change, effect)
        return Approval(partial(_bring_about, change, effect, actor, now), change_needs(effect).authority.persons)

    def fingerprint(self, row: ChangeProposal) -> str:
        """Return the hash of the change's terms as rating reads them."""
        return document_hash(canonical_json({"name": row.change.name, **row.change.terms}))

    def detail(self, row: ChangeProposal, step: Step) -> dict[str, Any]:
        """Return the payload; of an acknowledgement the team, of a rejection the reason."""
        if step.action == Action.NOTED:
            return {"team": step.comment}
        return {**row.payload, "reason": row.reason} if step.action in ASKED_OR_APPROVED else {"reason": step.comment}


CHANGE = ChangeKind()
register(CHANGE)


def change_needs(effect: Effect) -> Needed:
    """Return the approval that a change requires: by its credits or its charges, whichever is more.

    Earlier corrections of the same teams and months of usage count as well.
    """
    moved = Moved({(row.team, row.month): net(row.difference) for row in effect.by_team_and_month()})
    earlier = corrected_before(moved.months)
    return Needed.of(authority_for(moved.amount, BY_APPROVERS, earlier), earlier)


def retroactive_propose(*, reason: str, actor: str, now: datetime, **asked: Any) -> RetroactiveChange:
    """Propose a change of closed time with the arguments of `billing.rating.services.changes.change_checked`, as finance.

    No charge changes yet.  Raises ChangeError, AuthorityError.
    """
    require_right(actor, Message("propose a change of closed time"), Right.CLOSE)
    if not reason.strip():
        raise ChangeError(Message("a change of closed time needs a reason"))
    change = change_checked(**asked)
    with transaction.atomic():
        row = proposal_create(CHANGE, subject=change.name, payload=change.terms, reason=reason, actor=actor, now=now)
        change.proposal = row
        change.save()
        proposal_submit(CHANGE, row, actor=actor, now=now, reason=reason)
    return change


def retroactive_reject(*, change_id: int, actor: str, reason: str, now: datetime) -> RetroactiveChange:
    """Reject a proposed change, as finance or an approver.  Raises ChangeError, AuthorityError."""
    reject(CHANGE, _proposal_of(change_id), actor=actor, now=now, comment=reason)
    return RetroactiveChange.objects.get(pk=change_id)


def retroactive_approve(*, change_id: int, actor: str, now: datetime) -> RetroactiveChange:
    """Approve a change of closed time; with the last approval that it needs, its notes are issued.

    One transaction: no close can happen between the change and its notes. Every team concerned must acknowledge a change of
    ownership first.  Raises ChangeError, NoteError, AuthorityError; then nothing has changed.
    """
    with transaction.atomic():
        # serialise approvals: each effect is relative to the previous one
        list(RetroactiveChange.objects.select_for_update().order_by("pk"))
        if RetroactiveChange.objects.filter(pk=change_id, kind=Kinds.EFFICIENCY).exists():
            ingest_lock_exclusive()  # late samples must not arrive while their effect is computed
        else:
            ingest_lock_shared()
        _refuse_while_closing()
        approve(CHANGE, _proposal_of(change_id), actor=actor, now=now)
    return RetroactiveChange.objects.get(pk=change_id)


def _proposal_of(change_id: int) -> int:
    found = RetroactiveChange.objects.filter(pk=change_id).first()
    if found is None:
        raise CHANGE.missing(change_id)
    return found.proposal_id


def _refuse_while_closing() -> None:
    closing = BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSING).first()
    if closing is not None:
        raise ChangeError(Message(
            "period %(month)s is being closed: finish `manage.py period_close %(month)s` first, or have two persons "
            "open it again",
            month=closing.month,
        ))


def _require_rated(change: RetroactiveChange, effect: Effect) -> None:
    """Raise ChangeError where a team cannot be rated: its part of the change is unknown, and notes would be incomplete."""
    if effect.unrated:
        problems = "; ".join(f"{team}: {problem}" for team, problem in sorted(effect.unrated.items()))
        raise ChangeError(Message(
            "change %(name)s: what it moves is unknown of teams that cannot be rated: %(problems)s",
            name=change.name, problems=problems
        ))


def _require_note_taken(change: RetroactiveChange, effect: Effect) -> None:
    if change.kind not in (Kinds.NAMESPACE, Kinds.CONSUMER):
        return
    missing = [team for team in effect.teams if team not in change.acknowledged]
    if missing:
        raise ChangeError(Message(
            "change %(name)s moves charges of %(teams)s: %(missing)s has not taken note yet",
            name=change.name, teams=", ".join(effect.teams), missing=", ".join(missing),
        ))


def retroactive_acknowledge(*, change_id: int, team: str, actor: str, now: datetime) -> RetroactiveChange:
    """Acknowledge a change, as a lead of the team or finance for it.  Raises ChangeError, AuthorityError."""
    found = Team.objects.filter(code=team, is_group=False).first()
    if found is None:
        raise ChangeError(Message("team %(code)s: there is no such team", code=repr(team)))
    require_right(actor, Message("take note of a change for %(team)s", team=team), Right.DISPUTE, team=found)
    with locked(CHANGE, _proposal_of(change_id), Action.NOTED, actor, about=team) as row:
        proposal_note(CHANGE, row, actor=actor, now=now, comment=team)
    return RetroactiveChange.objects.get(pk=change_id)


def _bring_about(change: RetroactiveChange, effect: Effect, actor: str, now: datetime) -> None:
    # first: it numbers the change, and the rebilled lines carry that number
    change_known(change)
    plans = _plans(effect, change)
    if plans:
        wanted = Wanted(REASONS[Kinds(change.kind)], change.reason, change.evidence, change.requested_by, now)
        correction = correction_store(plans=plans, wanted=wanted, change=change)
        correction_decided(correction, Correction.Status.APPROVED, actor, now)
        audit_record(
            actor=actor, action="correction_approve", subject=f"correction {correction.pk}",
            detail={"change": change.name},
        )  # fmt: skip
        correction_issue(correction_id=correction.pk, actor=actor, now=now)
    if change.fact.get("onwards"):
        _move_onwards(change, actor)
        closed_periods_check()


def _plans(effect: Effect, change: RetroactiveChange) -> list[NotePlan]:
    """Plan credit notes of the wrong lines and a rebill of the right ones, per close and team."""
    teams = Team.objects.in_bulk(field_name="code")
    plans: list[NotePlan] = []
    for item in effect.moved:
        before, after = _by_team(item.before), _by_team(item.after)
        for code in sorted(before.keys() | after.keys()):
            plans += _team_plans(item.close_seq, teams[code], before.get(code, []), after.get(code, []), change)
    return plans


def _by_team(charges: Sequence[Charge]) -> dict[str, list[Charge]]:
    grouped: dict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
        grouped[charge.key.team].append(charge)
    return grouped


def _team_plans(
    close_seq: int, team: Team, before: list[Charge], after: list[Charge], change: RetroactiveChange
) -> list[NotePlan]:
    standing = current_lines(close_seq, team.code)
    credits: list[NoteEntry] = []
    granted = NOTHING
    for charge in before:
        line = standing.line(charge)
        credited = standing.credit(line)
        credits += [*([withdrawal(line, credited)] if credited else []), reversal(line)]
        granted -= credited
    plans = credit_plans(team, standing.invoice, credits)
    if after:
        entries = [rebill(charge, close_seq, change.change_seq or 0) for charge in after]
        plans.append(rebill_plan(team, standing.invoice, carried_over(split_credit(granted, entries))))
    return plans


def _move_onwards(change: RetroactiveChange, actor: str) -> None:
    """Apply the new owner also from the end of closed time on."""
    fact, start = change.fact, change.valid_until
    team = Team.objects.get(code=fact["team"])
    if change.kind == Kinds.NAMESPACE:
        namespace_ownership_put(
            cluster=fact["scope"], namespace=fact["name"], team=team, platform=False, valid_from=start,
            valid_until=None, actor=actor,
        )  # fmt: skip
    elif change.kind == Kinds.CONSUMER:
        consumer_ownership_put(
            source=fact["scope"], consumer=fact["name"], team=team, valid_from=start, valid_until=None, actor=actor
        )

