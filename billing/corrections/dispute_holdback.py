"""Parts of documents that journals of earlier releases kept off the ledger, and the month whose journal posts each.

Disputes hold nothing back: a journal posts what was invoiced, and an upheld dispute is a credit note. A part that was
held before is posted once, as a journal of its own (`GL-NUMBER-Hk`), by the next journal that is handed out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from billing.corrections.models import Dispute, DisputeHoldback
from billing.invoices.models import BillingPeriod, Invoice, Note

OF_DOCUMENT: Final = ("dispute__invoice__period", "dispute__note__correction__period")


@dataclass(frozen=True, slots=True)
class HeldPart:
    """An amount that a dispute kept off the ledger, by kind of line: a journal of its own for good."""

    sequence: int
    dispute: int
    amounts: Mapping[str, Decimal]


def hold_of(dispute: Dispute) -> DisputeHoldback | None:
    """The holdback that an earlier release placed for a dispute."""
    return DisputeHoldback.objects.filter(dispute=dispute).select_related("posted_with").first()


def held_parts(documents: Iterable[Invoice | Note]) -> dict[str, list[HeldPart]]:
    """All parts of documents that do not post with the rest of their document, by its number."""
    numbers = [document.number for document in documents]
    parts: dict[str, list[HeldPart]] = defaultdict(list)
    for field in ("invoice", "note"):
        mine = DisputeHoldback.objects.filter(**{f"dispute__{field}__number__in": numbers})
        for hold in mine.select_related(f"dispute__{field}").order_by("sequence"):
            parts[str(hold.dispute.document.number)].append(part_of(hold))
    return dict(parts)


def posted_parts(period: BillingPeriod, at: datetime | None = None) -> list[DisputeHoldback]:
    """The holdbacks that the journal of a month posts, in the order of their documents; `at`: known at that instant."""
    posted = DisputeHoldback.objects.filter(posted_with=period)
    if at is not None:
        posted = posted.filter(posted_at__lte=at)
    return _by_document(posted.select_related(*OF_DOCUMENT))


def parts_to_post() -> list[DisputeHoldback]:
    """The holdbacks that no journal has posted yet, locked; in the calling transaction."""
    waiting = DisputeHoldback.objects.select_for_update(of=("self",)).filter(posted_with=None)
    return _by_document(waiting.select_related(*OF_DOCUMENT))


def part_of(hold: DisputeHoldback) -> HeldPart:
    """The holdback as a part of its document."""
    amounts = {kind: Decimal(text) for kind, text in hold.kinds.items()}
    return HeldPart(hold.sequence, hold.dispute_id, amounts)


def _by_document(holds: Iterable[DisputeHoldback]) -> list[DisputeHoldback]:
    return sorted(holds, key=lambda hold: (str(hold.dispute.document.number), hold.sequence))
