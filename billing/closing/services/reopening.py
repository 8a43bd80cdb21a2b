"""Opening a month again: asked for by one person, approved by another, and only while nothing of it was issued.

The month is closed, or in the middle of a close that holds teams or that died.

An issued document never changes, and what follows from it is corrected with notes. A month that has none yet can be
closed anew: its drafts are voided, its close no longer counts, and the next close bills the month with all that was
learned since. Off unless the set-up says `reopening: two-persons`.
"""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Max

from billing.approvals.limits import require_right, require_second_person
from billing.closing.models import PeriodReopening
from billing.invoices.models import BillingPeriod, Invoice
from billing.rating.models import RatingSnapshot
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup
from billing.usage.epochs import epoch_withdraw, ingest_lock_exclusive
from billing.usage.selectors import close_before, last_ordinal
from metering.messages import Message, UserError

Status = PeriodReopening.Status


class ReopeningError(UserError, ValueError):
    """A month that cannot be opened again as asked."""

    code = "reopening"


def reopening_request(*, month: str, reason: str, actor: str, now: datetime) -> PeriodReopening:
    """Ask that a month be opened again; nothing changes before somebody else approves it.

    Raises ReopeningError, AuthorityError.
    """
    require_right(actor, Message("ask to open %(month)s again", month=month), Right.CLOSE)
    if not reason.strip():
        raise ReopeningError(Message("say why the month is to be opened again"))
    with transaction.atomic():
        period = _reopenable(month)
        if period.reopenings.filter(status=Status.REQUESTED).exists():
            raise ReopeningError(Message(
                "somebody asked already to open %(month)s again: approve that, or turn it down", month=month
            ))
        asked = PeriodReopening.objects.create(
            period=period, closing=period.ordinal, reason=reason.strip(), requested_by=actor, requested_at=now,
            closed_by=period.closed_by, closed_at=period.closed_at,
        )  # fmt: skip
        _tell("reopening_request", asked, actor)
    return asked


def reopening_approve(*, reopening_id: int, actor: str, now: datetime) -> PeriodReopening:
    """Open the month again: another person than who asked.  Raises ReopeningError, AuthorityError.

    One transaction that holds all ingest for an instant, as the close does: drafts are voided, the close is taken back.
    """
    with transaction.atomic():
        asked = _waiting(reopening_id, Message("approved"))
        what = Message("open %(month)s again", month=asked.period.month)
        require_second_person(actor, asked.requested_by, Message("to %(what)s", what=what))
        require_right(actor, what, Right.APPROVE)
        ingest_lock_exclusive()
        period = _reopenable(asked.period.month)
        if period.ordinal != asked.closing:
            raise ReopeningError(Message("%(month)s was closed again since somebody asked: ask anew", month=period.month))
        asked.status, asked.decided_by, asked.decided_at = Status.APPROVED, actor, now
        asked.drafts = _void_drafts(period, asked)
        held = list(period.held_teams.values_list("team", flat=True))
        period.held_teams.all().delete()
        asked.last_draft = period.invoices.aggregate(last=Max("id"))["last"] or 0
        asked.save()
        epoch_withdraw(ordinal=asked.closing, now=now)
        period.status, period.ordinal = BillingPeriod.Status.OPEN, None
        period.closed_at, period.closed_by = None, ""
        period.save()
        RatingSnapshot.objects.filter(month=period.month).delete()  # of the closed month, or of before its close
        _tell("period_reopen", asked, actor, held)
    return asked


def reopening_reject(*, reopening_id: int, reason: str, actor: str, now: datetime) -> PeriodReopening:
    """Turn a request down, or take one's own back.  Raises ReopeningError, AuthorityError."""
    require_right(actor, Message("turn a reopening down"), Right.APPROVE, Right.CLOSE)
    if not reason.strip():
        raise ReopeningError(Message("say why the reopening is turned down"))
    with transaction.atomic():
        asked = _waiting(reopening_id, Message("turned down"))
        asked.status, asked.decided_by, asked.decided_at = Status.REJECTED, actor, now
        asked.decision = reason.strip()
        asked.save()
        _tell("reopening_reject", asked, actor)
    return asked


def reopening_step(*, step: str, month: str, reason: str, actor: str, now: datetime) -> PeriodReopening:
    """Take one step (request, approve, reject) of the reopening of a month, of which one at most waits.

    Raises ReopeningError, AuthorityError.
    """
    if step == "request":
        return reopening_request(month=month, reason=reason, actor=actor, now=now)
    waiting = PeriodReopening.objects.filter(period__month=month, status=Status.REQUESTED).first()
    if waiting is None:
        raise ReopeningError(Message(
            "nobody asked to open %(month)s again: `manage.py period_reopen request %(month)s --reason ...`", month=month
        ))
    if step == "approve":
        return reopening_approve(reopening_id=waiting.pk, actor=actor, now=now)
    return reopening_reject(reopening_id=waiting.pk, reason=reason, actor=actor, now=now)


def why_not_reopenable(period: BillingPeriod, setup: BillingSetup | None = None) -> Message | None:
    """Why a month cannot be opened again, in a sentence that says what to do instead; None where it can. `setup` where
    it is read already.
    """
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
                "invoices of %(month)s are issued and never change: repair the facts of the teams that its close holds (the "
                "set-up file may change what concerns them only), then close again", month=month,
            )
        return Message(
            "invoices of %(month)s are issued and never change: correct them with a credit note or a change of closed time",
            month=month,
        )
    if period.ordinal != close_before(last_ordinal() + 1):
        return Message(
            "a later month was closed after %(month)s and may have billed its late usage: correct %(month)s with notes",
            month=month,
        )
    return None


def _reopenable(month: str) -> BillingPeriod:
    """The month, locked with its drafts, so that nobody issues one of them meanwhile.  Raises ReopeningError."""
    period = BillingPeriod.objects.select_for_update().filter(month=month).first()
    if period is None:
        raise ReopeningError(Message("period %(month)s is open: only a closed month is opened again", month=month))
    list(period.invoices.select_for_update().order_by("id").values_list("id", flat=True))
    if why := why_not_reopenable(period):
        raise ReopeningError(why)
    return period


def _waiting(reopening_id: int, what: Message) -> PeriodReopening:
    asked = PeriodReopening.objects.select_for_update(of=("self",)).filter(pk=reopening_id).select_related("period").first()
    if asked is None:
        raise ReopeningError(Message("reopening %(number)s: there is none of that id", number=reopening_id))
    if asked.status != Status.REQUESTED:
        raise ReopeningError(Message(
            "reopening %(number)s is %(status)s: only one that waits can be %(what)s",
            number=asked.pk, status=asked.status, what=what,
        ))
    return asked


def _void_drafts(period: BillingPeriod, asked: PeriodReopening) -> int:
    """Void what the close drafted, shadows included; each stays readable, with the reason."""
    drafts = list(period.invoices.exclude(status=Invoice.Status.VOID).select_related("team").order_by("team__code", "id"))
    for draft in drafts:
        draft.status, draft.approved_by = Invoice.Status.VOID, ""
        draft.void_reason = f"{period.month} was opened again: {asked.reason}"
        draft.save(update_fields=["status", "approved_by", "void_reason"])
    return len(drafts)


def _tell(action: str, asked: PeriodReopening, actor: str, held: Sequence[str] = ()) -> None:
    detail = {"reason": asked.reason, "requested_by": asked.requested_by, "closing": asked.closing}
    if asked.status == Status.APPROVED:
        detail |= {"approved_by": asked.decided_by, "drafts": asked.drafts}
    if held:
        detail |= {"held": list(held)}
    if asked.status == Status.REJECTED:
        detail |= {"decision": asked.decision}
    audit_record(actor=actor, action=action, subject=asked.period.month, detail=detail)
