"""Reads of the close: reopenings, and teams that it could not bill."""

from typing import Any

from billing.closing.models import BlockedTeam, PeriodReopening
from billing.invoices.models import BillingPeriod


def reopenings_of(period: BillingPeriod) -> list[PeriodReopening]:
    """Return every request to open a month again, the oldest first."""
    return list(PeriodReopening.objects.filter(subject=period.month).prefetch_related("steps").order_by("id"))


def reopening_as_dict(item: PeriodReopening) -> dict[str, Any]:
    """Return one request to open a month again, for programs: requester, decider, and the close that it withdraws."""
    return {
        "id": item.pk,
        "status": item.status,
        "reason": item.reason,
        "requested_by": item.requested_by,
        "requested_at": item.requested_at.isoformat(),
        "decided_by": item.decided_by or None,
        "decided_at": item.decided_at.isoformat() if item.decided_at else None,
        "decision": item.decision or None,
        "closed_by": item.closed_by,
        "closed_at": item.closed_at.isoformat() if item.closed_at else None,
        "drafts_voided": item.drafts,
    }


def teams_blocked_count() -> int:
    """Count the teams that closes could not bill while they billed the others."""
    return BlockedTeam.objects.count()
