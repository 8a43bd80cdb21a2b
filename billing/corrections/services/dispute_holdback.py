"""Keeping the disputed part of a document off the ledger, and letting it go: by finance, with a reason, in the audit log."""

from collections import defaultdict
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from billing.approvals.limits import require_right
from billing.corrections.credited_lines import billed_lines, split_over
from billing.corrections.dispute_holdback import hold_of, holds_of, why_not_held
from billing.corrections.models import Dispute, DisputeHoldback, DisputeStep
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from metering.messages import Message, UserError
from pricing.number_text import amount_text

ZERO = Decimal("0.00")


class HoldError(UserError, ValueError):
    """A hold that cannot be placed or ended as asked."""

    code = "dispute_hold"


def dispute_hold(*, dispute_id: int, actor: str, now: datetime, text: str) -> DisputeHoldback:
    """Keep the disputed amount off the ledger until the dispute is decided; the rest of the document is posted as ever.

    Only above the limits of the company, and only before the document was handed to the ledger. A journal that is being
    exported waits, or this does.  Raises HoldError, NoteError, AuthorityError.
    """
    if not text.strip():
        raise HoldError(Message("say why the disputed amount is kept off the ledger"))
    with transaction.atomic():
        dispute = _locked(dispute_id)
        require_right(actor, Message("keep the amount of dispute %(number)s off the ledger", number=dispute.pk), Right.CLOSE)
        journal_lock(dispute.document)
        if why := why_not_held(dispute):
            raise HoldError(why)
        hold = DisputeHoldback.objects.create(
            dispute=dispute, sequence=holds_of(dispute.document).count() + 1, kinds=_kinds(dispute), amount=dispute.amount,
            reason=text.strip(), placed_by=actor, placed_at=now,
        )  # fmt: skip
        _report(dispute, "hold", actor, now, text, hold)
    return hold


def dispute_let_go(*, dispute_id: int, actor: str, now: datetime, text: str) -> DisputeHoldback:
    """End a hold before the dispute is decided: the next journal posts the amount.  Raises HoldError, AuthorityError."""
    if not text.strip():
        raise HoldError(Message("say why the disputed amount is posted now"))
    with transaction.atomic():
        dispute = _locked(dispute_id)
        require_right(actor, Message("let the amount of dispute %(number)s go", number=dispute.pk), Right.CLOSE)
        hold = hold_end(dispute=dispute, actor=actor, now=now, reason=text)
        if hold is None:
            raise HoldError(Message("dispute %(n)s keeps nothing off the ledger", n=dispute.pk))
    return hold


def hold_end(*, dispute: Dispute, actor: str, now: datetime, reason: str) -> DisputeHoldback | None:
    """End the hold of a dispute, where there is one, in the calling transaction; returns it."""
    hold = hold_of(dispute)
    if hold is None or hold.ended_at is not None:
        return None
    journal_lock(dispute.document)
    hold.ended_by, hold.ended_at, hold.ended_reason = actor, now, reason.strip() or "decided"
    hold.save(update_fields=["ended_by", "ended_at", "ended_reason"])
    _report(dispute, "let_go", actor, now, reason, hold)
    return hold


def journal_lock(document: Invoice | Note) -> None:
    """Let no journal of the document's month be handed out meanwhile; `journal_export` takes the same lock."""
    period = document.period_id if isinstance(document, Invoice) else document.correction.period_id
    if period is None:
        raise ValueError(f"{document}: is not issued, so that no journal has it")
    list(BillingPeriod.objects.select_for_update(no_key=True).filter(pk=period))


def _locked(dispute_id: int) -> Dispute:
    dispute = Dispute.objects.select_for_update().filter(pk=dispute_id).first()
    if dispute is None:
        raise HoldError(Message("dispute %(number)s: there is none of that id", number=dispute_id))
    return dispute


def _kinds(dispute: Dispute) -> dict[str, str]:
    """The disputed amount by kind of line, shared out over its lines as a credit of it would be."""
    lines = billed_lines(dispute.document, dispute.positions)
    sums: dict[str, Decimal] = defaultdict(lambda: ZERO)
    for line, share in zip(lines, split_over(dispute.amount, lines), strict=True):
        sums[line.key.kind] += share
    return {kind: amount_text(amount) for kind, amount in sorted(sums.items()) if amount}


def _report(dispute: Dispute, kind: str, actor: str, now: datetime, text: str, hold: DisputeHoldback) -> None:
    DisputeStep.objects.create(dispute=dispute, kind=kind, actor=actor, at=now, text=text)
    audit_record(
        actor=actor, action=f"dispute_{kind}", subject=f"dispute {dispute.pk} of {dispute.document.number}",
        detail={"text": text, "amount": str(hold.amount), "kinds": hold.kinds},
    )  # fmt: skip
