"""SLA credits for faults of the platform: lost GPU-hours, up to one checkpoint interval, at the price of the line.

The line has the price of the hours for its team: the list price, or that of the commitment that paid for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from django.db import transaction

from billing.corrections.credited_lines import billed_lines, document_numbered
from billing.corrections.note_lines import BilledLine, NoteError
from billing.corrections.services.corrections import LineCredit, Wanted, credit_note_draft
from billing.invoices.models import Correction
from metering.messages import Message
from pricing.commitments import USED
from pricing.meters import GPU_TIME, Explanation
from pricing.money import round_amount, round_to
from pricing.number_text import QUANTITY_PLACES


@dataclass(frozen=True, slots=True)
class LostWork:
    """Lost work: devices, hours since the last usable checkpoint, and the cap of credited hours."""

    gpus: int
    lost_hours: Decimal
    cap_hours: Decimal

    @property
    def gpu_hours(self) -> Fraction:
        """Return the credited GPU-hours.

        >>> LostWork(64, Decimal("3.5"), Decimal("1")).gpu_hours
        Fraction(64, 1)
        """
        return self.gpus * min(Fraction(self.lost_hours), Fraction(self.cap_hours))


def sla_credit_draft(*, number: str, position: int, lost: LostWork, wanted: Wanted) -> Correction:
    """Draft the credit of lost work on a GPU line (F18); reason code and evidence are in `wanted`.

    Raises NoteError where the line is not of GPU hours, or its rest is smaller than the credit; AuthorityError.
    """
    if lost.gpus < 1 or lost.lost_hours <= 0 or lost.cap_hours <= 0:
        raise NoteError(Message(
            "gpus %(gpus)s, lost_hours %(lost_hours)s, cap_hours %(cap_hours)s must be positive",
            gpus=lost.gpus, lost_hours=lost.lost_hours, cap_hours=lost.cap_hours,
        ))
    with transaction.atomic():
        line = next(iter(billed_lines(document_numbered(number), [position])), None)
        if line is None:
            raise NoteError(Message(
                "line %(line)s: %(number)s charges no line of that position", line=position, number=number
            ))
        what = line.key.what
        covered = what.bought and line.key.reason == USED  # paid for at the committed price
        if not (covered or what.on_demand) or what.meter is not GPU_TIME:
            raise NoteError(Message(
                "line %(position)s of %(number)s charges no GPU hours: credit an amount instead",
                position=position, number=number,
            ))
        _refuse_carried_twice(line, billed_lines(document_numbered(number)), lost)
        credit = LineCredit(
            position, amount=round_amount(lost.gpu_hours * Fraction(line.unit_price)),
            quantity=round_to(lost.gpu_hours, QUANTITY_PLACES), unit_price=line.unit_price,
        )  # fmt: skip
        return credit_note_draft(number=number, credits=[credit], wanted=wanted)


def _refuse_carried_twice(line: BilledLine, of_document: Sequence[BilledLine], lost: LostWork) -> None:
    """Refuse a credit of hours that the interruption policy already credited on the invoice."""
    # an interruption line has the key of the line that it credits, except kind, policy and reason
    place = line.key.changed(kind="interruption", policy="", reason="")
    carried = -sum(
        (one.amount for one in of_document
         if one.key.what.explained_by is Explanation.ENDS and one.key.changed(policy="", reason="") == place), Decimal(0)
    )  # fmt: skip
    wanted = round_amount(lost.gpu_hours * Fraction(line.unit_price))
    if carried and wanted > line.amount - carried:
        raise NoteError(Message(
            "line %(position)s of %(document)s: %(wanted)s is asked for, %(amount)s was charged and the platform "
            "carried %(carried)s of it already by its interruption policy",
            position=line.position, document=line.document, wanted=wanted, amount=line.amount, carried=carried,
        ))
