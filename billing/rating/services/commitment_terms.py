"""Terms of commitments where it is known which time is closed: no close passes while they are proposed or approved."""

from datetime import datetime

from django.db import transaction

from billing.rates.models import CommitmentDraft
from billing.rates.services.commitment_drafts import (
    Proposal,
    commitment_draft_approve,
    commitment_propose,
    commitment_propose_end,
)
from billing.rates.services.commitments import CommitmentTerms
from billing.rating.selectors import closed_until
from billing.usage.epochs import ingest_lock_shared


def terms_propose(*, terms: CommitmentTerms, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    """Propose a commitment that begins in open time.  Raises RateError."""
    return commitment_propose(terms=terms, by=Proposal(actor, now, reason, closed_until()))


def terms_propose_end(*, name: str, at: datetime, actor: str, now: datetime, reason: str) -> CommitmentDraft:
    """Propose that a commitment ends earlier, in open time.  Raises RateError."""
    return commitment_propose_end(name=name, at=at, by=Proposal(actor, now, reason, closed_until()))


def terms_approve(*, draft_id: int, actor: str, now: datetime, reason: str = "") -> CommitmentDraft:
    """Approve proposed terms as a second person, as long as the time they change is open.  Raises RateError."""
    with transaction.atomic():
        ingest_lock_shared()  # no period is cut off before this ends
        return commitment_draft_approve(
            draft_id=draft_id, actor=actor, now=now, closed_until=closed_until(), reason=reason
        )
