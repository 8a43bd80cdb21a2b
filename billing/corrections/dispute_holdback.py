"""Reading: what of issued documents is kept off the ledger by disputes, and whether a dispute is large enough for that.

A document posts as it is, disputed or not, and is credited later where the team is right. Above a limit finance may keep
the disputed part off the ledger until the dispute is decided; the undisputed part is posted as ever.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.db.models import Q, QuerySet

from billing.corrections.models import Dispute, DisputeHoldback
from billing.invoices.models import Invoice, JournalExport, Note
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup
from metering.messages import Message
from pricing.money import EXACT
from pricing.number_text import plain_text


@dataclass(frozen=True, slots=True)
class HeldPart:
    """What a dispute kept off the ledger, by kind of line: a journal of its own, posted once the holdback has `ended`."""

    sequence: int
    dispute: int
    amounts: Mapping[str, Decimal]
    ended: bool

    @property
    def amount(self) -> Decimal:
        """All of it."""
        return sum(self.amounts.values(), ZERO)


Status = Dispute.Status
UNDECIDED: Final = (Status.OPEN, Status.TRIAGED, Status.EVIDENCE, Status.ESCALATED)
AGES: Final = ((0, 14), (14, 30), (30, None))
"""Days since a dispute was opened: from (inclusive) and to (exclusive); None without end."""
ZERO: Final = Decimal("0.00")


@dataclass(frozen=True, slots=True)
class AgedDisputes:
    """Undecided disputes opened so many days ago: how many, what they dispute, and what of that is off the ledger."""

    first_day: int
    end_day: int | None
    number: int
    disputed: Decimal
    held: Decimal


def hold_of(dispute: Dispute) -> DisputeHoldback | None:
    """The holdback of a dispute, ended or not."""
    return DisputeHoldback.objects.filter(dispute=dispute).first()


def holds_of(document: Invoice | Note) -> QuerySet[DisputeHoldback]:
    return DisputeHoldback.objects.filter(dispute__in=document.disputes.all())


def material(dispute: Dispute, setup: BillingSetup) -> bool:
    """Whether the disputed amount is above both limits of the company: a share of the document, and an amount."""
    limit = EXACT.multiply(dispute.document.total, setup.dispute_hold_share)
    return dispute.amount > limit and dispute.amount > setup.dispute_hold_amount


def why_not_held(dispute: Dispute, setup: BillingSetup | None = None) -> Message | None:
    """Why the disputed part cannot be kept off the ledger, in a sentence; None where it can."""
    limits, number = setup or billing_setup(), dispute.document.number
    if dispute.status not in UNDECIDED:
        return Message(
            "dispute %(n)s is %(status)s: only an undecided one keeps its amount off the ledger",
            n=dispute.pk, status=dispute.status,
        )
    if not material(dispute, limits):
        return Message(
            "dispute %(n)s of %(amount)s is not above %(limit)s and %(share)s of %(number)s: it posts, and is credited "
            "later if it is upheld",
            n=dispute.pk, amount=dispute.amount, limit=limits.dispute_hold_amount,
            share=f"{plain_text(limits.dispute_hold_share * 100)} %", number=number,
        )
    if DisputeHoldback.objects.filter(dispute=dispute).exists():
        return Message("the amount of dispute %(n)s was kept off the ledger before: that is done once", n=dispute.pk)
    exports = JournalExport.objects.filter(Q(documents__contains=[number]) | Q(in_part__contains=[number]))
    if exports.exists():
        return Message("%(number)s was handed to the ledger already: what is upheld is credited by a note", number=number)
    if holds_of(dispute.document).filter(dispute__positions__overlap=dispute.positions).exists():
        return Message(
            "a line of dispute %(n)s was kept off the ledger before by another dispute: that is done once", n=dispute.pk
        )
    return None


def held_parts(documents: Iterable[Invoice | Note], at: datetime | None = None) -> dict[str, list[HeldPart]]:
    """The parts of documents that post on their own, by number of the document, in the order of their holds.

    `at`: as they were at an instant; without it, as they are.
    """
    numbers = [document.number for document in documents]
    parts: dict[str, list[HeldPart]] = defaultdict(list)
    for field in ("invoice", "note"):
        mine = DisputeHoldback.objects.filter(**{f"dispute__{field}__number__in": numbers})
        for hold in mine.select_related(f"dispute__{field}").order_by("sequence"):
            amounts = {kind: Decimal(text) for kind, text in hold.kinds.items()}
            ended = hold.ended_at is not None and (at is None or hold.ended_at <= at)
            part = HeldPart(hold.sequence, hold.dispute_id, amounts, ended=ended)
            parts[str(hold.dispute.document.number)].append(part)
    return dict(parts)


def all_held(document: Invoice | Note) -> bool:
    """Whether everything that is disputed of a document is kept off the ledger, so that the rest can be posted."""
    waiting = document.disputes.filter(status__in=UNDECIDED)
    return waiting.exists() and not waiting.exclude(hold__ended_at=None, hold__isnull=False).exists()


def held_now(document: Invoice | Note) -> Decimal:
    """What of a document is off the ledger now."""
    return sum(holds_of(document).filter(ended_at=None).values_list("amount", flat=True), ZERO)


def aged(disputes: Sequence[Dispute], now: datetime) -> list[AgedDisputes]:
    """The undecided ones of some disputes by their age, the youngest first."""
    waiting = [item for item in disputes if item.status in UNDECIDED]
    holds = DisputeHoldback.objects.filter(dispute__in=waiting, ended_at=None).values_list("dispute_id", "amount")
    held: dict[int, Decimal] = dict(holds)
    found = []
    for first, end in AGES:
        mine = [
            item for item in waiting
            if timedelta(days=first) <= now - item.opened_at and (end is None or now - item.opened_at < timedelta(days=end))
        ]  # fmt: skip
        disputed = sum((item.amount for item in mine), ZERO)
        found.append(AgedDisputes(first, end, len(mine), disputed, sum((held.get(item.pk, ZERO) for item in mine), ZERO)))
    return found
