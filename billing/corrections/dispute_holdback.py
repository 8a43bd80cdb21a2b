"""Holdbacks: parts of documents that journals of earlier releases did not post, and the month whose journal posts each.

Disputes have no holdback any more: a journal posts documents as invoiced, and an upheld dispute is a credit note. A part
held back before is posted once, as a journal of its own (`GL-NUMBER-Hk`), by the next journal with acknowledgement.
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
    """Amount that a dispute kept out of the ledger, by kind of line; always a separate journal."""

    sequence: int
    dispute: int
    amounts: Mapping[str, Decimal]


def hold_of(dispute: Dispute) -> DisputeHoldback | None:
    """Return the holdback that an earlier release placed for a dispute."""
    return DisputeHoldback.objects.filter(dispute=dispute).select_related("posted_with").first()


def held_parts(documents: Iterable[Invoice | Note]) -> dict[str, list[HeldPart]]:
    """Return all parts of documents that are not posted with the rest of their document, by its number."""
    numbers = [document.number for document in documents]
    parts: dict[str, list[HeldPart]] = defaultdict(list)
    for field in ("invoice", "note"):
        mine = DisputeHoldback.objects.filter(**{f"dispute__{field}__number__in": numbers})
        for hold in mine.select_related(f"dispute__{field}").order_by("sequence"):
            parts[str(hold.dispute.document.number)].append(part_of(hold))
    return dict(parts)


def posted_parts(period: BillingPeriod, at: datetime | None = None) -> list[DisputeHoldback]:
    """Return the holdbacks that the journal of a month posts, in order of documents; `at`: known at that instant."""
    posted = DisputeHoldback.objects.filter(posted_with=period)
    if at is not None:
        posted = posted.filter(posted_at__lte=at)
    return _by_document(posted.select_related(*OF_DOCUMENT))


def parts_to_post() -> list[DisputeHoldback]:
    """Lock and return the holdbacks that no journal has posted yet; in the calling transaction."""
    waiting = DisputeHoldback.objects.select_for_update(of=("self",)).filter(posted_with=None)
    return _by_document(waiting.select_related(*OF_DOCUMENT))


def part_of(hold: DisputeHoldback) -> HeldPart:
    """Return a holdback as a part of its document."""
    amounts = {kind: Decimal(text) for kind, text in hold.kinds.items()}
    return HeldPart(hold.sequence, hold.dispute_id, amounts)


def _by_document(holds: Iterable[DisputeHoldback]) -> list[DisputeHoldback]:
    return sorted(holds, key=lambda hold: (str(hold.dispute.document.number), hold.sequence))
