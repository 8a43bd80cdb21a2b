"""Steps of every proposal: created, submitted, then decided by another person. Rules of a kind are in its `Kind`.

Each step is stored with the payload at that time, and is an entry of the audit log.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from django.db import IntegrityError, transaction
from psycopg.errors import UniqueViolation

from billing.approvals.kinds import Kind, Refused, Why
from billing.approvals.models import Proposal, Step
from billing.tenancy.access import same_person
from billing.tenancy.audit import audit_record

P = TypeVar("P", bound=Proposal)
Action, State = Step.Action, Proposal.State
MAX_COMMENT: Final = 2000
UNDECIDED: Final = (State.DRAFT, State.SUBMITTED, State.REJECTED)


def proposal_create(
    kind: Kind[P], *, subject: str, payload: Mapping[str, Any], reason: str, actor: str, now: datetime
) -> P:
    """Store a proposal as a draft."""
    with transaction.atomic():
        row = _inserted(kind, subject, payload, reason, actor, now)
        _keep(kind, row, Action.CREATED, actor, now, row.reason)
    return row


def propose(kind: Kind[P], *, subject: str, payload: Mapping[str, Any], reason: str, actor: str, now: datetime) -> P:
    """Store a proposal and submit it at once."""
    with transaction.atomic():
        row = _inserted(kind, subject, payload, reason, actor, now)
        return proposal_submit(kind, row, actor=actor, now=now, reason=reason)


def proposal_revise(
    kind: Kind[P], row: P, *, subject: str, payload: Mapping[str, Any], reason: str, actor: str, now: datetime
) -> P:
    """Change a proposal from `locked`; a submitted proposal becomes a draft again, so that no pending decision changes."""
    row.subject, row.payload, row.reason, row.revision = subject, dict(payload), reason, row.revision + 1
    row.state, row.sha256, row.makers = State.DRAFT, "", _with(row.makers, actor)
    _save(kind, row, Action.EDITED, actor)
    _keep(kind, row, Action.EDITED, actor, now, row.reason)
    return row


def proposal_submit(kind: Kind[P], row: P, *, actor: str, now: datetime, reason: str) -> P:
    """Submit a proposal from `locked` for a decision by another person."""
    row.reason, row.makers, row.state = reason, _with(row.makers, actor), State.SUBMITTED
    row.sha256 = kind.fingerprint(row)
    _save(kind, row, Action.SUBMITTED, actor)
    _keep(kind, row, Action.SUBMITTED, actor, now, row.reason)
    return row


def proposal_note(kind: Kind[P], row: P, *, actor: str, now: datetime, comment: str) -> P:
    """Record that a person took note of a proposal from `locked`, before the decision."""
    _keep(kind, row, Action.NOTED, actor, now, comment)
    return row


def approve(
    kind: Kind[P], pk: int, *, actor: str, now: datetime, comment: str = "", revision: int | None = None
) -> P:
    """Approve a proposal of another person; the last required approval takes effect in the same transaction.

    `revision` is the revision that the approver saw; a different current one is refused.
    """
    with locked(kind, pk, Action.APPROVED, actor, revision) as row:
        kind.authorise(row, actor, Action.APPROVED)
        approval = kind.approval(row, actor, now)
        # the approved content must be the submitted one byte for byte, even if rows that it refers to have changed
        if kind.fingerprint(row) != row.sha256:
            raise kind.refusal(row, Refused(Why.CHANGED, Action.APPROVED, actor))
        step = _step(row, Action.APPROVED, actor, now, comment)
        # a second approval by one person does not count twice
        if not any(same_person(actor, one) for one in row.approvers):
            _add(row, step)
        if len(row.approvers) >= approval.persons:
            row.state, row.outcome = State.APPROVED, dict(approval.outcome)
            row.save(update_fields=["state", "outcome"])
            approval.effect()
        _audit(kind, row, step)
        return row


def reject(
    kind: Kind[P], pk: int, *, actor: str, now: datetime, comment: str, revision: int | None = None
) -> P:
    """Reject a proposal, with a reason; a maker thereby withdraws it where the kind allows that."""
    with locked(kind, pk, Action.REJECTED, actor, revision) as row:
        kind.authorise(row, actor, Action.REJECTED)
        if not comment.strip():
            raise kind.refusal(row, Refused(Why.REASON, Action.REJECTED, actor))
        return _ended(kind, row, Action.WITHDRAWN if row.made_by(actor) else Action.REJECTED, actor, now, comment)


def withdraw(
    kind: Kind[P], pk: int, *, actor: str, now: datetime, comment: str = "", revision: int | None = None
) -> P:
    """Withdraw a proposal; it stays in the history."""
    with locked(kind, pk, Action.WITHDRAWN, actor, revision) as row:
        return _ended(kind, row, Action.WITHDRAWN, actor, now, comment)


@contextmanager
def locked(
    kind: Kind[P], pk: int, action: str, actor: str, revision: int | None = None, about: str = ""
) -> Iterator[P]:
    """Lock and yield a proposal whose state allows a step of that person, inside a transaction of its own."""

    def refused(row: P, why: Why) -> Exception:
        return kind.refusal(row, Refused(why, action, actor, revision, about))

    with transaction.atomic():
        found = kind.model._default_manager.select_for_update().filter(pk=pk).first()
        if found is None:
            raise kind.missing(pk)
        row = cast(P, found)
        if revision is not None and revision != row.revision:
            raise refused(row, Why.STALE)
        if row.state not in _allowed(kind, action):
            raise refused(row, Why.STATE)
        if action in _of_others(kind) and row.made_by(actor):
            raise refused(row, Why.MAKER)
        yield row


def _inserted(
    kind: Kind[P], subject: str, payload: Mapping[str, Any], reason: str, actor: str, now: datetime
) -> P:
    row = kind.model(
        kind=kind.name, subject=subject, payload=dict(payload), reason=reason, makers=[actor], created_at=now
    )
    _save(kind, row, Action.CREATED, actor)
    return row


def _allowed(kind: Kind[P], action: str) -> tuple[str, ...]:
    if action == Action.SUBMITTED:
        return (State.DRAFT,)
    return UNDECIDED if kind.revisable and action in (Action.EDITED, Action.WITHDRAWN) else (State.SUBMITTED,)


def _of_others(kind: Kind[P]) -> tuple[str, ...]:
    return (Action.APPROVED, Action.NOTED, *(() if kind.makers_reject else (Action.REJECTED,)))


def _with(makers: list[str], actor: str) -> list[str]:
    return makers if actor in makers else [*makers, actor]


def _save(kind: Kind[P], row: P, action: str, actor: str) -> None:
    """Save a proposal; an index of the kind limits the open proposals of one subject."""
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        # only the limit of open proposals is an error of the user
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise kind.refusal(row, Refused(Why.TAKEN, action, actor)) from error


def _ended(kind: Kind[P], row: P, action: str, actor: str, now: datetime, comment: str) -> P:
    step = _step(row, action, actor, now, comment)
    _add(row, step)
    row.state = action  # a state has the name of the step that leads to it
    row.save(update_fields=["state"])
    _audit(kind, row, step)
    return row


def _keep(kind: Kind[P], row: P, action: str, actor: str, now: datetime, comment: str) -> None:
    step = _step(row, action, actor, now, comment)
    _add(row, step)
    _audit(kind, row, step)


def _step(row: Proposal, action: str, actor: str, now: datetime, comment: str) -> Step:
    return Step(
        proposal_id=row.pk, at=now, actor=actor, action=action, comment=comment.strip()[:MAX_COMMENT],
        revision=row.revision, payload=row.payload,
    )  # fmt: skip


def _add(row: Proposal, step: Step) -> None:
    step.save()
    row.__dict__.pop("history", None)


def _audit(kind: Kind[P], row: P, step: Step) -> None:
    if step.action in kind.audit:
        subject, detail = kind.audit_subject(row), kind.detail(row, step)
        audit_record(actor=step.actor, action=kind.audit[step.action], subject=subject, detail=detail)
