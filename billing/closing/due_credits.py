"""Drafts of credit notes that are due: time of closed months that turned out to be the platform's after it was billed.

A draft is computed from the ledger and stored nowhere: a person checks and submits it as a correction, which another
approves. The correction notes the time of each allocation that it credits, so that none is credited twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from billing.closing.models import ExceptionWaiver
from billing.corrections.effect import CurrentLines, current_lines
from billing.corrections.note_lines import BilledLine, NoteError
from billing.corrections.services.corrections import LineCredit
from billing.invoices.models import BillingPeriod, Correction, CorrectionProposal, Invoice
from billing.rates.selectors import interruption_rules
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.tenancy.showback import billing_modes
from billing.usage.carried_late import CarriedLate, carried_late
from billing.usage.models import Close
from billing.usage.selectors import last_close_seq
from metering.intervals import Interval, month_of, without
from metering.messages import Message
from pricing.commitments import USED
from pricing.money import EXACT, round_amount, round_to
from pricing.number_text import QUANTITY_PLACES
from pricing.rate_card import UnpricedError
from pricing.rating import DIVISOR, GpuUsage, LineKey, gpu_line, measured

CARRIED_IN_CLOSED_TIME: Final = "carried_in_closed_time"
NOTHING: Final = Decimal(0)


@dataclass(frozen=True, slots=True)
class DueCredit:
    """Draft of a credit note of one issued invoice: what to credit line by line, and the time that it is for."""

    invoice: Invoice
    credits: Sequence[LineCredit]
    time: Sequence[CarriedLate]

    @property
    def amount(self) -> Decimal:
        return sum((credit.amount for credit in self.credits if credit.amount is not None), Decimal("0.00"))

    @property
    def subjects(self) -> frozenset[str]:
        """Return the namespaces whose time it credits, as exceptions of the report name them."""
        return frozenset(one.subject for one in self.time)

    @property
    def carried(self) -> list[Any]:
        """Return the credited time as the correction keeps it: allocation, start and end."""
        return [[one.allocation, one.time.start.isoformat(), one.time.end.isoformat()] for one in self.time]

    @property
    def reason(self) -> Message:
        return Message("ended by what the platform carries, which was learned after the close")

    @property
    def evidence(self) -> str:
        """Return the allocations, with reason and instant of their ends."""
        ends = dict.fromkeys(f"{one.name}: {one.end_reason} {one.ended_at.isoformat()}" for one in self.time)
        return "; ".join(ends)


def uncredited_time() -> list[CarriedLate]:
    """Return billed time of closed months that the platform would carry and no correction credits, waiting ones included."""
    found = carried_late(interruption_rules())
    if not found:
        return []
    credited: dict[int, list[Interval]] = defaultdict(list)
    asked = CorrectionProposal.objects.filter(payload__has_key="carried")
    for parts in asked.exclude(corrections__status=Correction.Status.VOID).values_list("payload__carried", flat=True):
        for allocation, start, end in parts:
            credited[allocation].append(Interval(datetime.fromisoformat(start), datetime.fromisoformat(end)))
    return [part for one in found for part in one.within(without([one.time], credited[one.allocation]))]


def credits_due() -> list[DueCredit]:
    """Return the drafts of credit notes that are due, by the number of the invoice.

    There is none for time that somebody answered for in the report, for invoices that are not issued, and for lines that a
    note billed again: the report names these.
    """
    by_close: dict[int, list[CarriedLate]] = defaultdict(list)
    for one in _unanswered(uncredited_time()):
        by_close[one.close_seq].append(one)
    if not by_close:
        return []
    reference_data = reference_data_known(last_close_seq() + 1)
    drafts = [draft for close_seq, time in by_close.items() for draft in _of_close(close_seq, time, reference_data)]
    return sorted(drafts, key=lambda draft: str(draft.invoice.number))


def _unanswered(time: Sequence[CarriedLate]) -> list[CarriedLate]:
    """Return the time without a waiver, in the month that was open when its end was learned, of as much or more."""
    waivers = ExceptionWaiver.objects.filter(kind=CARRIED_IN_CLOSED_TIME).select_related("period") if time else ()
    waived = {(waiver.period.start, waiver.subject): waiver.quantity for waiver in waivers}
    if not waived:
        return list(time)
    ends = Close.objects.filter(withdrawn_at=None).values_list("close_seq", "end")
    asked = [(max(end for close_seq, end in ends if close_seq <= one.learned), one.subject) for one in time]
    seconds: dict[tuple[datetime, str], Decimal] = defaultdict(Decimal)
    for one, name in zip(time, asked, strict=True):
        seconds[name] = EXACT.add(seconds[name], one.device_seconds)
    return [one for one, name in zip(time, asked, strict=True) if waived.get(name, NOTHING) < seconds[name]]


def _of_close(close_seq: int, time: Iterable[CarriedLate], reference_data: ReferenceData) -> list[DueCredit]:
    """Return the drafts for the invoices of one close."""
    period, modes = BillingPeriod.objects.get(close_seq=close_seq), billing_modes()
    used: dict[str, dict[LineKey, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    of_team: dict[str, list[CarriedLate]] = defaultdict(list)
    for one in time:
        month = month_of(one.month.start, period.zone)
        for part in one.within(reference_data.device_pieces(one.month)):
            owner = reference_data.namespaces.owner(part.cluster, part.namespace, part.time.start)
            if owner is None or owner.platform or modes.shadow(owner.team, month):
                continue
            usage = GpuUsage(
                owner.team, False, part.cluster, part.namespace, part.accelerator, part.resource, part.time.start,
                part.device_us, part.unit_us, month, month != period.month,
            )  # fmt: skip
            try:
                key, price = gpu_line(usage, reference_data.card)
            except UnpricedError:
                continue
            used[owner.team][key] = EXACT.add(used[owner.team][key], measured(usage, price))
            of_team[owner.team].append(part)
    drafts = [_of_team(close_seq, team, lines, of_team[team]) for team, lines in sorted(used.items())]
    return [draft for draft in drafts if draft is not None]


def _of_team(
    close_seq: int, team: str, used: Mapping[LineKey, Decimal], time: Sequence[CarriedLate]
) -> DueCredit | None:
    """Return the draft of a team's invoice; None where a line of the time is not on it, or nothing is left of them."""
    try:
        standing = current_lines(close_seq, team, lock=False)
    except NoteError:  # its invoice is not issued
        return None
    invoice, credits = standing.invoice, list[LineCredit]()
    for key, microseconds in sorted(used.items()):
        lines = _lines_of(key, standing)
        if invoice is None or not lines or any(line.document != invoice.number for line in lines):
            return None
        for line in lines:
            part = min(microseconds, line.usage_quantity)
            microseconds = EXACT.subtract(microseconds, part)
            hours = Fraction(part) / DIVISOR[key.unit]
            amount, left = round_amount(hours * Fraction(line.unit_price)), line.amount + standing.credit(line)
            if amount and amount <= left:
                quantity = round_to(hours, QUANTITY_PLACES)
                credits.append(LineCredit(line.position, amount, quantity=quantity, unit_price=line.unit_price))
            elif left > 0 and amount:
                credits.append(LineCredit(line.position, left))
    return DueCredit(invoice, credits, time) if invoice is not None and credits else None


def _lines_of(key: LineKey, standing: CurrentLines) -> list[BilledLine]:
    """Return the lines that charge usage: the one at list price first, then those of commitments that paid for it."""
    bought = [
        line
        for other, line in standing.lines.items()
        if other.what.bought and other.reason == USED and other.changed(kind=key.kind, policy="", reason="") == key
    ]
    listed = standing.lines.get(key)
    return [*([] if listed is None else [listed]), *sorted(bought, key=lambda line: line.position)]
