"""Reopening of a month: requested by one person, approved by another, and only while nothing of it was issued.

The month is closed, or in the middle of a close that blocks teams or that died.

An issued document never changes, and is corrected with notes. A month without issued documents or notes can be
closed anew: its drafts are voided, its close no longer counts, and the next close bills the month with everything
reported since. Off unless the set-up says `reopening: two-persons`.
"""

from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Max

from billing.approvals.kinds import Action, Approval, Kind, Refused, Why, register
from billing.approvals.limits import require_right, same_person_error
from billing.approvals.models import Step, instant_text
from billing.approvals.services import approve, propose, reject
from billing.closing.models import PeriodReopening
from billing.invoices.models import BillingPeriod, Invoice, NoteLine
from billing.rating.models import RatingSnapshot
from billing.tenancy.access import Right
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup
from billing.usage.epochs import epoch_withdraw, ingest_lock_exclusive
from billing.usage.selectors import close_before, last_close_seq
from metering.messages import Message, UserError

DONE = {Action.APPROVED: Message("approved"), Action.REJECTED: Message("turned down")}


class ReopeningError(UserError, ValueError):
    """Error: a month that cannot be opened again as requested."""

    code = "reopening"


class ReopeningKind(Kind[PeriodReopening]):
    """Proposal to open a closed month again: finance asks, one approver decides."""

    name = "reopening"
    model = PeriodReopening
    deciders = frozenset({Right.APPROVE})
    makers_reject = True
    audit = {
        Action.SUBMITTED: "reopening_request", Action.APPROVED: "period_reopen", Action.REJECTED: "reopening_reject",
        Action.WITHDRAWN: "reopening_reject",
    }  # fmt: skip

    def missing(self, pk: int) -> ReopeningError:
        return ReopeningError(Message("reopening %(number)s: there is none of that id", number=pk))

    def refusal(self, row: PeriodReopening, refused: Refused) -> Exception:
        match refused.why:
            case Why.MAKER:
                what = Message("open %(month)s again", month=row.month)
                return same_person_error(refused.actor, Message("to %(what)s", what=what))
            case Why.TAKEN:
                text = Message(
                    "somebody asked already to open %(month)s again: approve that, or turn it down", month=row.month
                )
            case Why.REASON:
                text = Message("say why the reopening is turned down")
            case _:
                text = Message(
                    "reopening %(number)s is %(status)s: only one that waits can be %(what)s",
                    number=row.pk, status=row.status, what=DONE[Action(refused.action)],
                )  # fmt: skip
        return ReopeningError(text)

    def authorise(self, row: PeriodReopening, actor: str, action: str) -> None:
        """Raise unless the actor may decide: approvers open a month again; finance may reject a request, too."""
        if action == Action.APPROVED:
            require_right(actor, Message("open %(month)s again", month=row.month), Right.APPROVE)
        else:
            require_right(actor, Message("turn a reopening down"), Right.APPROVE, Right.CLOSE)

    def approval(self, row: PeriodReopening, actor: str, now: datetime) -> Approval:
        """Return the action that voids the drafts and withdraws the close; ingest is locked meanwhile, as by a close."""
        ingest_lock_exclusive()
        period = _reopenable(row.month)
        if period.close_seq != row.close_seq:
            raise ReopeningError(Message("%(month)s was closed again since somebody asked: ask anew", month=period.month))
        held = list(period.held_teams.values_list("team", flat=True))
        drafts = period.invoices.exclude(status=Invoice.Status.VOID).count()
        last_draft = period.invoices.aggregate(last=Max("id"))["last"] or 0
        outcome = {"drafts": drafts, "last_draft": last_draft, "held": held}
        return Approval(partial(_reopen, row, period, now), outcome=outcome)

    def detail(self, row: PeriodReopening, step: Step) -> dict[str, Any]:
        """Return the requester, the close, and the effect of the approval."""
        detail = {"reason": row.reason, "requested_by": row.requested_by, "close_seq": row.close_seq}
        if step.action == Action.APPROVED:
            detail |= {"approved_by": step.actor, "drafts": row.drafts}
            return detail | ({"held": row.outcome["held"]} if row.outcome["held"] else {})
        return detail if step.action == Action.SUBMITTED else {**detail, "decision": step.comment}


REOPENING = ReopeningKind()
register(REOPENING)


def reopening_request(*, month: str, reason: str, actor: str, now: datetime) -> PeriodReopening:
    """Ask that a month be opened again; nothing changes before another person approves it.

    Raises ReopeningError, AuthorityError.
    """
    require_right(actor, Message("ask to open %(month)s again", month=month), Right.CLOSE)
    if not reason.strip():
        raise ReopeningError(Message("say why the month is to be opened again"))
    with transaction.atomic():
        period = _reopenable(month)
        payload = {"close_seq": period.close_seq, "closed_by": period.closed_by, "closed_at": instant_text(period.closed_at)}
        return propose(REOPENING, subject=month, payload=payload, reason=reason.strip(), actor=actor, now=now)


def reopening_approve(*, reopening_id: int, actor: str, now: datetime) -> PeriodReopening:
    """Open the month again, as another person than the requester.  Raises ReopeningError, AuthorityError."""
    return approve(REOPENING, reopening_id, actor=actor, now=now)


def reopening_reject(*, reopening_id: int, reason: str, actor: str, now: datetime) -> PeriodReopening:
    """Reject a request, or withdraw one's own.  Raises ReopeningError, AuthorityError."""
    return reject(REOPENING, reopening_id, actor=actor, now=now, comment=reason)


def reopening_step(*, step: str, month: str, reason: str, actor: str, now: datetime) -> PeriodReopening:
    """Take one step (request, approve, reject) of the reopening of a month, of which one at most waits.

    Raises ReopeningError, AuthorityError.
    """
    if step == "request":
        return reopening_request(month=month, reason=reason, actor=actor, now=now)
    waiting = PeriodReopening.objects.filter(subject=month, state=PeriodReopening.State.SUBMITTED).first()
    if waiting is None:
        raise ReopeningError(Message(
            "nobody asked to open %(month)s again: `manage.py period_reopen request %(month)s --reason ...`", month=month
        ))
    if step == "approve":
        return reopening_approve(reopening_id=waiting.pk, actor=actor, now=now)
    return reopening_reject(reopening_id=waiting.pk, reason=reason, actor=actor, now=now)


def why_not_reopenable(period: BillingPeriod, setup: BillingSetup | None = None) -> Message | None:
    """Return why a month cannot be opened again, and what to do instead; None if it can. `setup`: if it is read already."""
    month = period.month
    if (setup or billing_setup()).reopening != BillingSetup.Reopening.TWO_PERSONS:
        return Message(
            "closed months stay closed here: `reopening: two-persons` under `billing:` in the set-up file allows it"
        )
    if period.status == BillingPeriod.Status.OPEN:
        return Message(
            "period %(month)s is %(status)s: only a closed month is opened again", month=month, status=period.status
        )
    if period.invoices.filter(status=Invoice.Status.ISSUED).exists():
        if period.status == BillingPeriod.Status.CLOSING:
            return Message(
                "invoices of %(month)s are issued and never change: repair the facts of the teams that its close blocks "
                "(the set-up file may change what concerns them only), then close again", month=month,
            )
        return Message(
            "invoices of %(month)s are issued and never change: correct them with a credit note or a change of closed time",
            month=month,
        )
    if NoteLine.objects.filter(close_seq=period.close_number).exists():
        return Message(
            "notes correct %(month)s already and never change: correct it with a credit note or a change of closed time",
            month=month,
        )
    if period.close_seq != close_before(last_close_seq() + 1):
        return Message(
            "a later month was closed after %(month)s and may have billed its late usage: correct %(month)s with notes",
            month=month,
        )
    return None


def _reopenable(month: str) -> BillingPeriod:
    """Return the month, locked with its drafts, so that none of them is issued meanwhile.  Raises ReopeningError."""
    period = BillingPeriod.objects.select_for_update().filter(month=month).first()
    if period is None:
        raise ReopeningError(Message("period %(month)s is open: only a closed month is opened again", month=month))
    list(period.invoices.select_for_update().order_by("id").values_list("id", flat=True))
    if why := why_not_reopenable(period):
        raise ReopeningError(why)
    return period


def _reopen(row: PeriodReopening, period: BillingPeriod, now: datetime) -> None:
    _void_drafts(period, row.reason)
    period.held_teams.all().delete()
    epoch_withdraw(close_seq=row.close_seq, now=now)
    period.status, period.close_seq = BillingPeriod.Status.OPEN, None
    period.closed_at, period.closed_by = None, ""
    period.save()
    RatingSnapshot.objects.filter(month=period.month).delete()  # made for the close, or before it


def _void_drafts(period: BillingPeriod, reason: str) -> None:
    """Void the drafts of the close, showback included; each stays readable, with the reason."""
    for draft in period.invoices.exclude(status=Invoice.Status.VOID).order_by("team__code", "id"):
        draft.status, draft.approved_by = Invoice.Status.VOID, ""
        draft.void_reason = f"{period.month} was opened again: {reason}"
        draft.save(update_fields=["status", "approved_by", "void_reason"])
