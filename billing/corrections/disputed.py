"""Queries of disputes, with their deadlines and key figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import Any, Final

from django.db.models import Q, QuerySet, Sum

from billing.corrections.models import Dispute
from billing.invoices.models import Invoice, Note
from billing.tenancy.models import Team
from pricing.number_text import amount_text

Status = Dispute.Status
UNDECIDED: Final = (Status.OPEN, Status.TRIAGED, Status.EVIDENCE, Status.ESCALATED)
AGES: Final = ((0, 14), (14, 30), (30, None))
"""Ages in days since a dispute was opened: from (inclusive) and to (exclusive); None without end."""
ZERO: Final = Decimal("0.00")


@dataclass(frozen=True, slots=True)
class AgedDisputes:
    """Undecided disputes in a range of ages: their number and the disputed amount."""

    first_day: int
    end_day: int | None
    number: int
    disputed: Decimal


def disputes_of(teams: QuerySet[Team] | None = None) -> QuerySet[Dispute]:
    """Return disputes of some teams, or all, the newest first."""
    disputes = Dispute.objects.select_related("team", "invoice", "note", "correction", "hold__posted_with")
    shown = disputes if teams is None else disputes.filter(team__in=teams)
    return shown.prefetch_related("steps").order_by("-id")


def disputed_amount(documents: Iterable[Invoice | Note]) -> Decimal:
    """Return the amount of undecided disputes of documents."""
    numbers = [document.number for document in documents if document.number]
    mine = Q(invoice__number__in=numbers) | Q(note__number__in=numbers)
    found = Dispute.objects.filter(mine, status__in=UNDECIDED).aggregate(sum=Sum("amount"))["sum"]
    return found or ZERO


def aged(disputes: Sequence[Dispute], now: datetime) -> list[AgedDisputes]:
    """Group undecided disputes by age, the youngest first."""
    waiting = [item for item in disputes if item.status in UNDECIDED]
    found = []
    for first, end in AGES:
        mine = [
            item.amount for item in waiting
            if timedelta(days=first) <= now - item.opened_at and (end is None or now - item.opened_at < timedelta(days=end))
        ]  # fmt: skip
        found.append(AgedDisputes(first, end, len(mine), sum(mine, ZERO)))
    return found


def overdue(dispute: Dispute, now: datetime) -> str | None:
    """Return the deadline that has passed: "triage", "decision", or None."""
    if dispute.status in (Status.UPHELD, Status.REJECTED, Status.WITHDRAWN):
        return None
    if dispute.status == Status.OPEN and now >= dispute.triage_due:
        return "triage"
    return "decision" if now >= dispute.decision_due else None


@dataclass(frozen=True, slots=True)
class DisputeFigures:
    """Key figures: disputed and billed amount, median age of decisions (None without any), upheld and decided amount."""

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
    """Return the figures of disputes, relative to all issued documents."""
    decided = [item for item in disputes if item.status in (Status.UPHELD, Status.REJECTED)]
    ages = [item.decided_at - item.opened_at for item in decided if item.decided_at is not None]
    invoices = Invoice.objects.filter(number__isnull=False).aggregate(sum=Sum("total"))["sum"]
    rebills = Note.objects.filter(number__isnull=False, kind=Note.Kind.REBILL).aggregate(sum=Sum("total"))["sum"]
    return DisputeFigures(
        number=len(disputes),
        disputed=_sum(disputes),
        billed=(invoices or ZERO) + (rebills or ZERO),
        median_age=median(ages) if ages else None,  # type: ignore[type-var]  # timedelta supports + and /
        upheld=_sum([item for item in decided if item.status == Status.UPHELD]),
        decided=_sum(decided),
        overdue=sum(overdue(item, now) is not None for item in disputes),
    )


def _sum(disputes: Sequence[Dispute]) -> Decimal:
    return sum((item.amount for item in disputes), ZERO)


def dispute_as_dict(dispute: Dispute, now: datetime) -> dict[str, Any]:
    """Return a dispute for programs, with its steps and outcome."""
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
    """Return the holdback of an earlier release, and the month whose journal posts it; None without."""
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
        "posted_with": hold.posted_with.month if hold.posted_with else None,
    }
