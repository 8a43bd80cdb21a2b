"""Reading: disputes with their deadlines, and how well they are handled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import Any

from django.db.models import QuerySet, Sum

from billing.corrections.models import Dispute
from billing.invoices.models import Invoice, Note
from billing.tenancy.models import Team
from pricing.number_text import amount_text

Status = Dispute.Status
ZERO = Decimal("0.00")


def disputes_of(teams: QuerySet[Team] | None = None) -> QuerySet[Dispute]:
    """Disputes of some teams, or all, the newest first."""
    disputes = Dispute.objects.select_related("team", "invoice", "note", "correction", "hold").prefetch_related("steps")
    return (disputes if teams is None else disputes.filter(team__in=teams)).order_by("-id")


def overdue(dispute: Dispute, now: datetime) -> str | None:
    """Which deadline has passed: "triage", "decision", or None."""
    if dispute.status in (Status.UPHELD, Status.REJECTED, Status.WITHDRAWN):
        return None
    if dispute.status == Status.OPEN and now >= dispute.triage_due:
        return "triage"
    return "decision" if now >= dispute.decision_due else None


@dataclass(frozen=True, slots=True)
class DisputeFigures:
    """Disputed over billed amount, median age of a decision, upheld share of what was decided; None without any."""

    number: int
    disputed: Decimal
    billed: Decimal
    median_age: timedelta | None
    upheld: Decimal
    decided: Decimal
    overdue: int

    @property
    def rate(self) -> Fraction | None:
        return Fraction(self.disputed) / Fraction(self.billed) if self.billed else None

    @property
    def upheld_share(self) -> Fraction | None:
        return Fraction(self.upheld) / Fraction(self.decided) if self.decided else None


def dispute_figures(disputes: Sequence[Dispute], now: datetime) -> DisputeFigures:
    """The figures of some disputes, against all that was ever issued."""
    decided = [item for item in disputes if item.status in (Status.UPHELD, Status.REJECTED)]
    ages = [item.decided_at - item.opened_at for item in decided if item.decided_at is not None]
    invoices = Invoice.objects.filter(number__isnull=False).aggregate(sum=Sum("total"))["sum"]
    rebills = Note.objects.filter(number__isnull=False, kind=Note.Kind.REBILL).aggregate(sum=Sum("total"))["sum"]
    return DisputeFigures(
        number=len(disputes),
        disputed=_sum(disputes),
        billed=(invoices or ZERO) + (rebills or ZERO),
        median_age=median(ages) if ages else None,  # type: ignore[type-var]  # times add up and halve like numbers
        upheld=_sum([item for item in decided if item.status == Status.UPHELD]),
        decided=_sum(decided),
        overdue=sum(overdue(item, now) is not None for item in disputes),
    )


def _sum(disputes: Sequence[Dispute]) -> Decimal:
    return sum((item.amount for item in disputes), ZERO)


def dispute_as_dict(dispute: Dispute, now: datetime) -> dict[str, Any]:
    """One dispute for programs, with its steps and what became of it."""
    return {
        "id": dispute.pk,
        "status": dispute.status,
        "team": dispute.team.code,
        "document": dispute.document.number,
        "lines": dispute.positions,
        "amount": amount_text(dispute.amount),
        "currency": dispute.currency,
        "reason_code": dispute.reason_code,
        "statement": dispute.statement,
        "opened_by": dispute.opened_by,
        "opened_at": dispute.opened_at.isoformat(),
        "triage_due": dispute.triage_due.isoformat(),
        "decision_due": dispute.decision_due.isoformat(),
        "overdue": overdue(dispute, now),
        "decided_by": dispute.decided_by or None,
        "decided_at": dispute.decided_at.isoformat() if dispute.decided_at else None,
        "decision": dispute.decision or None,
        "correction": dispute.correction_id,
        "held": _held(dispute),
        "steps": [
            {"kind": step.kind, "by": step.actor, "at": step.at.isoformat(), "text": step.text}
            for step in dispute.steps.all()
        ],
    }


def _held(dispute: Dispute) -> dict[str, Any] | None:
    """What of it is, or was, kept off the ledger; None where it posted like any other."""
    hold = getattr(dispute, "hold", None)
    if hold is None:
        return None
    return {
        "amount": amount_text(hold.amount),
        "reason": hold.reason,
        "placed_by": hold.placed_by,
        "placed_at": hold.placed_at.isoformat(),
        "ended_at": hold.ended_at.isoformat() if hold.ended_at else None,
        "ended_by": hold.ended_by or None,
    }
