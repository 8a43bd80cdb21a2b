"""Charged lines of documents, with their exact usage and later credits."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet, Sum

from billing.corrections.note_lines import CO2_FIELDS, BilledLine, Co2, NoteError, co2_of
from billing.invoices.lines import period_facts
from billing.invoices.models import BillingPeriod, Correction, Invoice, InvoiceLine, Note, NoteLine
from billing.invoices.selectors import document_of
from billing.rating.models import Charge
from billing.rating.selectors import changes_known, last_change
from metering.messages import Message
from pricing.money import split_amount
from pricing.number_text import amount_text
from pricing.rating import LineKey

ZERO = Decimal("0.00")
UNDECIDED = (Correction.Status.DRAFT, Correction.Status.APPROVED)


def document_numbered(number: str) -> Invoice | Note:
    """Return the issued invoice or note of a number.  Raises NoteError."""
    found = Invoice.objects.select_related("team", "period").filter(number=number).first()
    note = Note.objects.select_related("team", "correction", "invoice").filter(number=number).first()
    document = found or note
    if document is None:
        raise NoteError(Message("document %(number)s: no invoice or note of that number is issued", number=repr(number)))
    return document


def row_key(row: InvoiceLine | NoteLine, team: str, *, correction: bool) -> LineKey:
    """Return the key of the charge of a stored line."""
    return LineKey.of(row, team=team, platform=False, correction=correction)


def billed_lines(
    document: Invoice | Note, positions: Iterable[int] | None = None, *, lock: bool = True
) -> list[BilledLine]:
    """Return lines of an issued document that can be credited; with `lock`, locked until the calling transaction ends."""
    if isinstance(document, Note):
        return _rebilled(document, positions, lock=lock)
    rows = _at(InvoiceLine.objects.filter(invoice=document), positions).order_by("id")
    # ordered above, so that two corrections lock lines in the same order and cannot deadlock
    rows = rows.select_for_update() if lock else rows
    keys = {row.pk: row_key(row, document.team.code, correction=row.correction) for row in rows}
    change_seq = last_change(changes_known(document.period.close_number))
    charges = {
        charge.line_key: charge
        for charge in Charge.objects.filter(
            close_seq=document.period.close_number, line_key__in=[key.digest() for key in keys.values()]
        )
    }
    co2 = _stated_co2(document)
    return [
        BilledLine(
            document=str(document.number), position=row.position, close_seq=document.period.close_number,
            key=keys[row.pk], quantity=row.quantity, unit_price=row.unit_price, amount=row.amount,
            usage_quantity=charges[keys[row.pk].digest()].usage_quantity,
            facility_kw=charges[keys[row.pk].digest()].facility_kw, energy_kwh=row.energy_kwh,
            change_seq=change_seq, row=row, co2=co2.get(row.position),
        )
        for row in rows
    ]  # fmt: skip


def _rebilled(note: Note, positions: Iterable[int] | None, *, lock: bool) -> list[BilledLine]:
    rows = _at(NoteLine.objects.filter(note=note, style=NoteLine.Style.REBILL), positions)
    months, co2 = month_of_close(), _stated_co2(note)
    return [
        BilledLine(
            document=str(note.number), position=row.position, close_seq=row.close_seq,
            key=row_key(row, note.team.code, correction=row.charge_period != months[row.close_seq]),
            quantity=given(row.quantity), unit_price=given(row.unit_price), amount=row.amount,
            usage_quantity=given(row.usage_quantity), facility_kw=row.facility_kw, energy_kwh=row.energy_kwh,
            change_seq=row.change_seq, row=row, co2=co2.get(row.position),
        )
        for row in (rows.select_for_update() if lock else rows).order_by("id")
    ]  # fmt: skip


def _stated_co2(document: Invoice | Note) -> dict[int, Co2]:
    """Return the kilograms of CO2 of the lines of a document, by position, where it states them."""
    if CO2_FIELDS[0] not in document.document:  # a text of many lines is read only where it has any
        return {}
    lines = document_of(document)["lines"]
    return {line["position"]: kg for line in lines if (kg := co2_of(line)) is not None}


def given(value: Decimal | None) -> Decimal:
    """Return a figure that every line of usage has, zero included.  Raises ValueError for None."""
    if value is None:
        raise ValueError("a line that charges or reverses usage has neither usage nor price")
    return value


def _at(rows: QuerySet[Any], positions: Iterable[int] | None) -> QuerySet[Any]:
    return rows if positions is None else rows.filter(position__in=list(positions))


def month_of_close() -> dict[int, str]:
    closed = BillingPeriod.objects.exclude(close_seq=None).only("close_seq", "month")
    return {period.close_number: period.month for period in closed}


def facts_of(period: BillingPeriod) -> dict[str, str]:
    """Return the facts of a period as documents state them."""
    return period_facts(period.month, period.zone, period.window)


def credited_of(lines: Sequence[BilledLine], *, decided: bool = True) -> dict[tuple[str | None, int], Decimal]:
    """Return the credits of each line by issued notes, by document and position.

    With `decided` it raises NoteError where an undecided correction is of one of them: both would credit the same money.
    """
    sums: dict[tuple[str | None, int], Decimal] = defaultdict(lambda: ZERO)
    for field, model in (("invoice_line", InvoiceLine), ("note_line", NoteLine)):
        mine = {line.row.pk: line for line in lines if isinstance(line.row, model)}
        credits = NoteLine.objects.filter(**{f"{field}__in": list(mine)}).exclude(
            note__correction__status=Correction.Status.VOID
        )
        # rebills credit nothing, so an undecided one does not conflict
        waiting = credits.filter(note__correction__status__in=UNDECIDED).exclude(style=NoteLine.Style.REBILL).first()
        if waiting is not None and decided:
            line = mine[getattr(waiting, f"{field}_id")]
            raise NoteError(Message(
                "line %(line)s of %(number)s: correction %(n)s of it is not decided yet: issue or void it first",
                line=line.position, number=line.document, n=waiting.note.correction_id,
            ))
        issued = credits.exclude(note__correction__status__in=UNDECIDED)
        for pk, amount in issued.values_list(field).annotate(sum=Sum("amount")):
            sums[mine[pk].document, mine[pk].position] = amount
    return sums


def reversed_rows(lines: Iterable[BilledLine]) -> set[tuple[type, int]]:
    """Return the rows of lines that a note reversed."""
    reversals = NoteLine.objects.filter(style=NoteLine.Style.REVERSAL).exclude(
        note__correction__status=Correction.Status.VOID
    )
    found: set[tuple[type, int]] = set()
    for field_name, model in (("invoice_line", InvoiceLine), ("note_line", NoteLine)):
        mine = [line.row.pk for line in lines if isinstance(line.row, model)]
        taken = reversals.filter(**{f"{field_name}__in": mine}).values_list(f"{field_name}_id", flat=True)
        found |= {(model, pk) for pk in taken}
    return found


def credited_by_position(invoice: Invoice) -> dict[int, Decimal]:
    """Return the credits of each line of an invoice by issued notes, negative, by position."""
    credits = NoteLine.objects.filter(invoice_line__invoice=invoice, note__number__isnull=False)
    return dict(credits.values_list("invoice_line__position").annotate(sum=Sum("amount")))


def split_over(amount: Decimal, lines: Sequence[BilledLine]) -> list[Decimal]:
    """Split an amount over lines of one document in proportion to their uncredited rest.  Raises NoteError beyond it."""
    left = list(left_of(lines).values())
    if amount > sum(left, ZERO):
        raise NoteError(Message(
            "less than %(amount)s is left of these lines of %(number)s: they were credited meanwhile",
            amount=amount_text(amount), number=lines[0].document,
        ))
    return split_amount(amount, left)


def left_of(lines: Sequence[BilledLine]) -> dict[int, Decimal]:
    """Return the uncredited rest of charged lines, by position; 0 for rewards, which are negative."""
    credited = credited_of(lines)
    return {
        line.position: max(line.amount + credited.get((line.document, line.position), ZERO), ZERO) for line in lines
    }
