"""What decided disputes still ask for: a credit that nobody issued, and a reason that comes back."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Final

from billing.closing.exceptions import ReportedException
from billing.corrections.models import Dispute
from billing.invoices.models import BillingPeriod, Correction
from metering.messages import Message

REPEATED_WITHIN: Final = timedelta(days=92)
"""How long before the end of a month an upheld dispute counts for the next of its reason."""
REPEATED: Final = 2
DEAD: Final = (Correction.Status.ISSUED, Correction.Status.VOID)


def disputes_left(period: BillingPeriod) -> list[ReportedException]:
    """Of upheld disputes what a month takes over: credits not issued yet, and reasons upheld again and again.

    None of it holds a close: the credit comes as a note in the open month, the reason is a defect somewhere else.
    """
    decided = Dispute.objects.filter(
        status=Dispute.Status.UPHELD, decided_at__gte=period.end - REPEATED_WITHIN, decided_at__lt=period.end
    )
    upheld = list(decided.select_related("correction", "invoice", "note").order_by("id"))
    return _uncredited(upheld) + _repeated(upheld)


def _uncredited(upheld: Sequence[Dispute]) -> list[ReportedException]:
    waiting = [item for item in upheld if item.correction is not None and item.correction.status not in DEAD]
    return [
        ReportedException(
            "upheld_uncredited", f"dispute {item.pk} of {item.document.number}", Decimal(1), "disputes", False,
            Message("correction %(n)s is not issued yet", n=item.correction_id), amount=item.amount,
        )
        for item in waiting
    ]  # fmt: skip


def _repeated(upheld: Sequence[Dispute]) -> list[ReportedException]:
    by_reason: dict[str, list[Dispute]] = defaultdict(list)
    for item in upheld:
        by_reason[item.reason_code].append(item)
    return [
        ReportedException(
            "upheld_repeatedly", code, Decimal(len(items)), "disputes", False,
            Message(
                "upheld in %(numbers)s: open a defect", numbers=", ".join(str(item.document.number) for item in items)
            ),
            amount=sum((item.amount for item in items), Decimal("0.00")),
        )
        for code, items in sorted(by_reason.items())
        if len(items) >= REPEATED
    ]  # fmt: skip
