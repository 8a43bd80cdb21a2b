"""Corrections of issued documents: requested by one person, approved by another, issued as numbered notes at once.

An issued document never changes. A credit note takes back what it charged wrongly and, where another charge was due, a
rebill charges that; both belong to the month that is open when they are issued.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction

from billing.approvals.limits import has_right, require_right
from billing.approvals.models import Proposal
from billing.approvals.services import approve, proposal_create, proposal_submit, reject
from billing.corrections.credited_lines import (
    billed_lines,
    credited_of,
    document_numbered,
    facts_of,
    given,
    reversed_rows,
)
from billing.corrections.note_lines import (
    BilledLine,
    NoteEntry,
    NoteError,
    allowance,
    credit_kept,
    note_document,
    note_draft,
    ordered,
    rebilled_line,
    reversal,
    total_of_entries,
    withdrawal,
)
from billing.corrections.services.correction_kind import CORRECTION, correction_decided, not_a_draft, prior_year
from billing.invoices.lines import issuer_facts, recipient_facts
from billing.invoices.models import (
    BillingPeriod,
    Correction,
    CorrectionProposal,
    Invoice,
    InvoiceLine,
    Note,
    NoteLine,
    NumberSeries,
)
from billing.invoices.selectors import document_of
from billing.invoices.services.mails import mails_queue
from billing.invoices.services.periods import period_open
from billing.rating.models import RetroactiveChange
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from billing.tenancy.cost_centers import CostCenters, organisation_of
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from metering.intervals import MICROSECOND, fiscal_quarter_of, month_of
from metering.messages import Message
from pricing.money import PRICE_PLACES, amount_places, round_to, smallest_amount
from pricing.number_text import QUANTITY_PLACES
from pricing.rating import DIVISOR

SERIES_MARK = {Note.Kind.CREDIT: "CN", Note.Kind.REBILL: "RB"}
ZERO = Decimal("0.00")
NEED_EVIDENCE = (Correction.Reason.SLA, Correction.Reason.MFU, Correction.Reason.WRITE_OFF)


@dataclass(frozen=True, slots=True)
class LineCredit:
    """Credit of a line: the whole line (no `amount`), or an amount of it.

    With a whole line, `rebill_price` or `rebill_quantity` (in the line's unit) are the correct values. With an amount,
    `quantity` and `unit_price` may explain it.
    """

    position: int
    amount: Decimal | None = None
    rebill_price: Decimal | None = None
    rebill_quantity: Decimal | None = None
    quantity: Decimal | None = None
    unit_price: Decimal | None = None

    @property
    def rebilled(self) -> bool:
        """Return True if the line is billed again."""
        return self.rebill_price is not None or self.rebill_quantity is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Reason of a correction, and its requester and time; the requester has one of the `rights`.

    `carried`: the time that it credits because the platform carries it: allocation, start and end of each part.
    """

    reason_code: str
    reason: str
    evidence: str
    actor: str
    now: datetime
    rights: tuple[Right, ...] = (Right.CLOSE,)
    carried: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True)
class NotePlan:
    """Planned note: issuer, team, cost centre, invoice (if any), and lines."""

    kind: str
    team: Team
    invoice: Invoice | None
    issuer: Mapping[str, str]
    cost_center: str
    entries: Sequence[NoteEntry]
    legal_entity: str
    cost_centers: Sequence[Mapping[str, Any]] = ()
    """Cost centres with their start, where the usage of the lines had several."""


def credit_plans(team: Team, invoice: Invoice | None, credits: Sequence[NoteEntry]) -> list[NotePlan]:
    """Plan a credit note for each issuer and each cost centre that was charged: the ledger credits costs where they are.

    Credits of a document without a cost centre go to the team's present one. The present issuer is stated with its present
    facts.
    """
    now = _issuer_now()
    issuers = {now["name"]: now}
    charged: dict[str, tuple[str, str, str, str]] = {}
    parts: dict[tuple[str, str, str, str], list[NoteEntry]] = defaultdict(list)
    dated = "legal_entity" in team.dated_organisation
    for entry in ordered(credits):
        number = entry.of.document if entry.of else None
        if number and number not in charged:
            document = document_of(document_numbered(number))
            name = document["issuer"]["name"]
            issuers.setdefault(name, document["issuer"])
            recipient = document["recipient"]
            listed = json.dumps(recipient.get("cost_centers", []))
            entity = recipient.get("legal_entity", "") if dated else team.legal_entity
            charged[number] = name, recipient["cost_center"] or team.cost_center, listed, entity
        parts[charged[number] if number else (now["name"], team.cost_center, "[]", team.legal_entity)].append(entry)
    return [
        NotePlan(Note.Kind.CREDIT, team, invoice, issuers[name], center, entries, entity, json.loads(listed))
        for (name, center, listed, entity), entries in parts.items()
    ]


def rebill_plan(team: Team, invoice: Invoice | None, entries: Sequence[NoteEntry]) -> NotePlan:
    """Plan a rebill of the present issuer, for the cost centres at the time of use, or the team's present one."""
    center, listed, entity = team.cost_center, [], team.legal_entity
    dated = team.dated_cost_centers or "legal_entity" in team.dated_organisation
    months = {entry.key.charge_period for entry in entries} if dated else set()
    windows = [period.window for period in BillingPeriod.objects.filter(month__in=months)]
    if "legal_entity" in team.dated_organisation and windows:
        entity = organisation_of(team, "legal_entity").at(max(window.start for window in windows))
    if team.dated_cost_centers and windows:
        centers = CostCenters.of(team)
        center = centers.at(max(window.end for window in windows) - MICROSECOND)
        listed = centers.listed(windows, billing_setup().zone)
    return NotePlan(Note.Kind.REBILL, team, invoice, _issuer_now(), center, entries, entity, listed)


def _issuer_now() -> dict[str, str]:
    setup = billing_setup()
    return {"name": setup.issuer, **issuer_facts(setup)}


def credit_note_draft(*, number: str, credits: Sequence[LineCredit], wanted: Wanted) -> Correction:
    """Draft a correction of lines of one issued document; it takes effect only when approved and issued.

    Raises NoteError, AuthorityError; then nothing is stored.
    """
    _require_reason(wanted)
    with transaction.atomic():
        document = document_numbered(number)
        lines = _lines_asked_for(document, credits)
        credited, taken = credited_of(lines), reversed_rows(lines)
        entries: list[NoteEntry] = []
        rebills: list[tuple[NoteEntry, Decimal]] = []
        for line, credit in zip(lines, credits, strict=True):
            before = credited[line.document, line.position]
            if credit.amount is None and (type(line.row), line.row.pk) in taken:
                raise _credited_already(line)
            entries += line_credits(line, credit, before)
            if credit.rebilled:
                rebills.append((_rebill(line, credit), -before))
        invoice = document if isinstance(document, Invoice) else document.invoice
        plans = credit_plans(document.team, invoice, entries)
        if rebills:
            plans.append(rebill_plan(document.team, invoice, carried_over(rebills)))
        if not any(total_of_entries(plan.entries) for plan in plans):
            raise NoteError(Message(
                "lines %(lines)s of %(number)s: nothing was charged there, and no note of %(nothing)s is issued",
                lines=", ".join(str(line.position) for line in lines), number=number, nothing=round_to(0, amount_places()),
            ))
        return correction_store(plans=plans, wanted=wanted)


def _require_reason(wanted: Wanted) -> None:
    if wanted.reason_code not in Correction.Reason.values:
        raise NoteError(Message(
            "reason code %(code)s is none of %(names)s",
            code=repr(wanted.reason_code), names=", ".join(Correction.Reason.values),
        ))
    if not wanted.reason.strip():
        raise NoteError(Message("a correction needs a reason in words"))
    if wanted.reason_code in NEED_EVIDENCE and not wanted.evidence.strip():
        raise NoteError(Message(
            "a correction for %(code)s needs evidence: a ticket, an incident, a page", code=wanted.reason_code
        ))


def _lines_asked_for(document: Invoice | Note, credits: Sequence[LineCredit]) -> list[BilledLine]:
    positions = [credit.position for credit in credits]
    if not positions:
        raise NoteError(Message("name at least one line to credit"))
    if len(set(positions)) < len(positions):
        raise NoteError(Message("lines %(positions)s: name each line once", positions=sorted(positions)))
    lines = {line.position: line for line in billed_lines(document, positions)}
    missing = [position for position in positions if position not in lines]
    if missing:
        raise NoteError(Message(
            "line %(line)s: %(number)s charges no line of that position", line=missing[0], number=document.number
        ))
    return [lines[position] for position in positions]


def line_credits(line: BilledLine, credit: LineCredit, before: Decimal) -> list[NoteEntry]:
    """Return the entries that credit a line, or an amount of it; `before`: earlier credits (negative or zero).

    Raises NoteError where less is left, or nothing.
    """
    left = line.amount + before
    name = f"line {line.position} of {line.document}"
    if credit.amount is None:
        if line.amount and not left:
            raise _credited_already(line)
        return [*([withdrawal(line, before)] if before else []), reversal(line)]
    if credit.rebilled:
        raise NoteError(Message("%(name)s: only a whole line is billed again; leave its amount out", name=name))
    _require_places(name, "amount", credit.amount, amount_places())
    if credit.quantity is not None:
        _require_places(name, "quantity", credit.quantity, QUANTITY_PLACES)
    if not ZERO < credit.amount <= left:
        raise NoteError(Message(
            "%(name)s: %(amount)s is not between %(least)s and the %(left)s left of its %(all)s",
            name=name, amount=credit.amount, least=smallest_amount(), left=left, all=line.amount,
        ))
    return [allowance(line, credit.amount, quantity=credit.quantity, unit_price=credit.unit_price)]


def _credited_already(line: BilledLine) -> NoteError:
    """Return the error for a line without rest, also for a line of amount 0, which never has one."""
    name = f"line {line.position} of {line.document}"
    return NoteError(Message("%(name)s: its %(amount)s are credited already", name=name, amount=line.amount))


def _rebill(line: BilledLine, credit: LineCredit) -> NoteEntry:
    usage = None
    if credit.rebill_quantity is not None:
        _require_places(f"line {line.position}", "rebill_quantity", credit.rebill_quantity, QUANTITY_PLACES)
        if credit.rebill_quantity <= 0:
            raise NoteError(Message(
                "line %(position)s: rebill_quantity %(rebill_quantity)s must be positive",
                position=line.position, rebill_quantity=credit.rebill_quantity,
            ))
        usage = credit.rebill_quantity * DIVISOR[line.key.unit]
    if credit.rebill_price is not None:
        _require_places(f"line {line.position}", "rebill_price", credit.rebill_price, PRICE_PLACES)
        if credit.rebill_price < 0:
            raise NoteError(Message(
                "line %(position)s: rebill_price %(rebill_price)s must not be negative",
                position=line.position, rebill_price=credit.rebill_price,
            ))
    return rebilled_line(line, unit_price=credit.rebill_price, usage_quantity=usage)


def _require_places(subject: str, field: str, value: Decimal, places: int) -> None:
    if round_to(value, places) != value:
        raise NoteError(Message(
            "%(subject)s: %(field)s %(value)s has more than %(places)s decimals",
            subject=subject, field=field, value=value, places=places,
        ))


def carried_over(rebills: Sequence[tuple[NoteEntry, Decimal]]) -> list[NoteEntry]:
    """Return rebilled lines, followed by the earlier credits (positive) of the lines that they replace.

    A team with a credit of 640.00 for a fault of the platform keeps it when the price is corrected, up to the new charge.
    """
    kept = ordered([entry for entry, _ in rebills])
    granted = {id(entry): amount for entry, amount in rebills}
    carried = [
        allowance(placed(entry, position), min(granted[id(entry)], entry.amount))
        for position, entry in enumerate(kept, start=1)
        if granted[id(entry)] > 0 and entry.amount > 0
    ]
    return [*kept, *carried]


def split_credit(credit: Decimal, entries: Sequence[NoteEntry]) -> list[tuple[NoteEntry, Decimal]]:
    """Split `credit` over the rebilled lines in proportion to their amounts, at most all of them."""
    return list(zip(entries, credit_kept(credit, [entry.amount for entry in entries]), strict=True))


def placed(entry: NoteEntry, position: int) -> BilledLine:
    """Return a rebilled line as a line that can be credited, in its own note."""
    return BilledLine(
        document=None, position=position, close_seq=entry.close_seq, key=entry.key, quantity=given(entry.quantity),
        unit_price=given(entry.unit_price), amount=entry.amount, usage_quantity=given(entry.usage_quantity),
        change_seq=entry.change_seq,
    )  # fmt: skip


def correction_store(
    *, plans: Sequence[NotePlan], wanted: Wanted, change: RetroactiveChange | None = None
) -> Correction:
    """Store a correction with its notes as drafts, in the calling transaction.  Raises AuthorityError.

    A correction that follows from a change of closed time is decided with the change.
    """
    setup = billing_setup()
    amount = -sum((total_of_entries(plan.entries) for plan in plans if plan.kind == Note.Kind.CREDIT), ZERO)
    require_right(wanted.actor, Message(
        "ask for a credit of %(amount)s %(currency)s", amount=amount, currency=setup.currency
    ), *wanted.rights)
    facts = {"reason_code": wanted.reason_code, "reason": wanted.reason, "evidence": wanted.evidence}
    notes = [[plan.kind, plan.team.code, str(total_of_entries(plan.entries))] for plan in plans]
    carried = {"carried": list(wanted.carried)} if wanted.carried else {}
    proposal: Proposal = change.proposal if change else proposal_create(
        CORRECTION, subject=f"{amount} {setup.currency}", reason=wanted.reason, actor=wanted.actor, now=wanted.now,
        payload={**facts, "currency": setup.currency, "amount": str(amount), "notes": notes, **carried},
    )  # fmt: skip
    correction = Correction.objects.create(**facts, currency=setup.currency, amount=amount, change=change, proposal=proposal)
    for plan in plans:
        _store_note(correction, plan)
    if isinstance(proposal, CorrectionProposal):
        proposal_submit(CORRECTION, proposal, actor=wanted.actor, now=wanted.now, reason=wanted.reason)
    else:
        audit_record(
            actor=wanted.actor, action="correction_draft", subject=f"correction {correction.pk}",
            detail={**facts, "notes": notes},
        )  # fmt: skip
    return correction


def _store_note(correction: Correction, plan: NotePlan) -> None:
    invoice, team = plan.invoice, plan.team
    header = {
        "kind": plan.kind, "issuer": plan.issuer,
        "recipient": {
            "team": team.code, "name": team.name, "cost_center": plan.cost_center,
            **recipient_facts(team, plan.legal_entity),
            **({"cost_centers": list(plan.cost_centers)} if plan.cost_centers else {}),
        },
        "currency": correction.currency, "reason": {"code": correction.reason_code, "text": correction.reason},
        "invoice": invoice and {"number": invoice.number, "sha256": invoice.sha256, "month": invoice.period.month},
    }  # fmt: skip
    note = Note.objects.create(
        correction=correction, kind=plan.kind, team=team, invoice=invoice, currency=correction.currency,
        issuer=plan.issuer["name"], total=total_of_entries(plan.entries), draft=note_draft(header, plan.entries),
    )  # fmt: skip
    entries = list(enumerate(plan.entries, start=1))
    # one statement: the trigger checks a reversal together with the withdrawal of earlier credits
    rows = NoteLine.objects.bulk_create(
        _line_row(note, position, entry, {}) for position, entry in entries if not _of_own_note(entry)
    )
    own = {row.position: row for row in rows}
    NoteLine.objects.bulk_create(
        _line_row(note, position, entry, own) for position, entry in entries if _of_own_note(entry)
    )


def _of_own_note(entry: NoteEntry) -> bool:
    return entry.of is not None and entry.of.row is None


def _line_row(note: Note, position: int, entry: NoteEntry, own: Mapping[int, NoteLine]) -> NoteLine:
    key, of = entry.key, entry.of
    row = None if of is None else of.row or own[of.position]
    return NoteLine(
        note=note, position=position, style=entry.style, close_seq=entry.close_seq, change_seq=entry.change_seq,
        invoice_line=row if isinstance(row, InvoiceLine) else None,
        note_line=row if isinstance(row, NoteLine) else None, quantity=entry.quantity, unit_price=entry.unit_price,
        amount=entry.amount, usage_quantity=entry.usage_quantity, facility_kw=entry.facility_kw,
        energy_kwh=entry.energy_kwh, **NoteLine.of(key),
    )  # fmt: skip


def correction_approve(*, correction_id: int, actor: str, now: datetime) -> Correction:
    """Approve a draft, as a person other than the requester, with the right that its amount requires.

    The correction is approved with the last approval that its amount requires.  Raises NoteError, AuthorityError.
    """
    with transaction.atomic():
        correction = _locked(correction_id)
        if correction.status != Correction.Status.DRAFT:
            raise not_a_draft(correction)
        approve(CORRECTION, correction.proposal_id, actor=actor, now=now)
    return Correction.objects.get(pk=correction_id)


def correction_void(*, correction_id: int, actor: str, reason: str, now: datetime) -> Correction:
    """Void a correction before its issue; its lines can be credited again.  Raises NoteError."""
    if not reason.strip():
        raise NoteError(Message("say why the correction is dropped"))
    with transaction.atomic():
        correction = _locked(correction_id)
        if correction.status not in (Correction.Status.DRAFT, Correction.Status.APPROVED):
            raise NoteError(Message(
                "correction %(n)s is %(status)s: only before issue can it be voided",
                n=correction.pk, status=correction.status,
            ))
        if correction.status == Correction.Status.DRAFT:
            reject(CORRECTION, correction.proposal_id, actor=actor, now=now, comment=reason)
        else:
            subject = f"correction {correction.pk}"
            audit_record(actor=actor, action="correction_void", subject=subject, detail={"reason": reason})
        correction_decided(correction, Correction.Status.VOID, actor, now, reason)
    return correction


def _locked(correction_id: int) -> Correction:
    correction = Correction.objects.select_for_update().filter(pk=correction_id).first()
    if correction is None:
        raise NoteError(Message("correction %(number)s: there is none of that id", number=correction_id))
    return correction


def correction_issue(*, correction_id: int, actor: str, now: datetime) -> bool:
    """Number and issue all notes of an approved correction in one transaction; return False where that was done before.

    Any number of callers may do this concurrently and die at any point.  Raises NoteError.
    """
    found = Correction.objects.filter(pk=correction_id).first()
    if found is not None and found.status != Correction.Status.ISSUED:
        _require_issuable(found, now)
    running = _fiscal_year(month_of(now, billing_setup().zone))
    # before the transaction below: a series created inside it would block other issues until its end
    for note in Note.objects.filter(correction=correction_id):
        for year in (running, running + 1):  # the open month is this one or, rarely, the next
            NumberSeries.objects.get_or_create(kind=note.kind, issuer=note.issuer, fiscal_year=year)
    with transaction.atomic():
        correction = _locked(correction_id)
        if correction.status == Correction.Status.ISSUED:
            return False
        _require_issuable(correction, now)
        period = open_period(now)
        for note in correction.notes.select_for_update().order_by("kind", "team__code", "id"):
            _issue_note(note, period, actor, now)
        correction.status = Correction.Status.ISSUED
        correction.period, correction.issued_at = period, now
        correction.save(update_fields=["status", "period", "issued_at"])
    return True


def _require_issuable(correction: Correction, now: datetime) -> None:
    """Raise NoteError unless a correction is approved, by an approver if it became one of a past year since."""
    if correction.status != Correction.Status.APPROVED:
        raise NoteError(Message(
            "correction %(n)s is %(status)s: approve it first", n=correction.pk, status=correction.status
        ))
    if prior_year(correction, now) and not any(has_right(actor, Right.APPROVE) for actor in correction.approvers):
        raise NoteError(Message(
            "correction %(n)s is of a year that is over and no approver agreed to it: void it and ask anew", n=correction.pk
        ))


def open_period(now: datetime) -> BillingPeriod:
    """Return the month of `now`, or the first later one that is not closed; locked, so that it stays open."""
    at = now
    while True:
        month = month_of(at, billing_setup().zone)
        period_open(month=month)
        period = BillingPeriod.objects.select_for_update().get(month=month)
        if period.status == BillingPeriod.Status.OPEN:
            return period
        at = period.end


def _fiscal_year(month: str) -> int:
    return fiscal_quarter_of(month, settings.FISCAL_YEAR_START).year


def _issue_note(note: Note, period: BillingPeriod, actor: str, now: datetime) -> None:
    year = _fiscal_year(period.month)
    series, _ = NumberSeries.objects.get_or_create(kind=note.kind, issuer=note.issuer, fiscal_year=year)
    # the lock serialises numbers of a series: no gaps, and each document has the hash of the one before
    series = NumberSeries.objects.select_for_update().get(pk=series.pk)
    note.fiscal_year, note.sequence = year, series.last_number + 1
    note.number = f"{note.issuer}-{SERIES_MARK[Note.Kind(note.kind)]}-{year}-{note.sequence:06d}"
    note.previous_sha256 = series.last_sha256
    note.document = canonical_json(
        note_document(note.draft, period=facts_of(period), number=note.number, previous_sha256=series.last_sha256)
    )
    note.sha256, note.issued_at = document_hash(note.document), now
    note.save()
    series.last_number, series.last_sha256 = note.sequence, note.sha256
    series.save(update_fields=["last_number", "last_sha256"])
    audit_record(
        actor=actor, action="note_issue", subject=note.number,
        detail={"correction": note.correction_id, "total": str(note.total), "sha256": note.sha256},
    )  # fmt: skip
    mails_queue(note, now=now)
