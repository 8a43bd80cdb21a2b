"""Effect of a change of closed time on billed months: the charges before and after, and the lines concerned.

For every close whose usage the change covers, the slice is assessed twice, without and with the change; where both
differ, the line in a document is to be reversed and the new one billed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import Q, Sum

from billing.corrections.credited_lines import billed_lines, credited_of, reversed_rows
from billing.corrections.note_lines import BilledLine, NoteError, credit_kept
from billing.invoices.models import BillingPeriod, Invoice, Note, NoteLine
from billing.invoices.selectors import unbuilt_drafts
from billing.rating.assessment import RatingResult, rate_slice
from billing.rating.models import RetroactiveChange
from billing.rating.selectors import billed_slices, changes_through, reference_data_with
from billing.tenancy.showback import billing_modes
from billing.usage.selectors import last_close_seq
from metering.messages import Message
from pricing.money import round_to
from pricing.number_text import QUANTITY_PLACES, amount_text, price_text, quantity_text
from pricing.rating import Charge, LineKey

ZERO = Decimal("0.00")


@dataclass(frozen=True, slots=True)
class Moved:
    """Charges of one close that a change removes and adds."""

    close_seq: int
    before: Sequence[Charge]
    after: Sequence[Charge]


@dataclass(frozen=True, slots=True)
class TeamMonth:
    """Charges of a team for a month of usage in the lines that change, and the correct amount.

    credited: earlier credits of those lines, positive; kept: the part that stays on the lines billed instead.
    """

    team: str
    month: str
    charged: Decimal
    should_be: Decimal
    credited: Decimal = ZERO
    kept: Decimal = ZERO

    @property
    def difference(self) -> Decimal:
        """Return the sum of the notes: negative where the team gets money back."""
        return self.should_be - self.kept - (self.charged - self.credited)


@dataclass(frozen=True)
class Effect:
    """Effect of a change, by close.

    `unrated`: errors of teams that cannot be rated: their changes are unknown, and none of their charges are included. With
    `entangled` other teams' charges depend on theirs: then no charges are included.
    """

    moved: Sequence[Moved] = field(default_factory=list)
    goodwill: Mapping[tuple[str, str], tuple[Decimal, Decimal]] = field(default_factory=dict)
    """Earlier credits of the lines by team and month of usage, and the part that stays, both positive."""
    unrated: Mapping[str, str] = field(default_factory=dict)
    entangled: bool = False

    @property
    def teams(self) -> list[str]:
        """Return the teams whose charges change."""
        return sorted({charge.key.team for item in self.moved for charge in (*item.before, *item.after)})

    def by_team_and_month(self) -> list[TeamMonth]:
        sums: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [ZERO, ZERO])
        for item in self.moved:
            for column, charges in enumerate((item.before, item.after)):
                for charge in charges:
                    sums[charge.key.team, charge.key.charge_period][column] += charge.amount
        return [
            TeamMonth(team, month, charged, should_be, *self.goodwill.get((team, month), (ZERO, ZERO)))
            for (team, month), (charged, should_be) in sorted(sums.items())
        ]


def effect_of(change: RetroactiveChange) -> Effect:
    """Return the effect of a change on the closes made before it, or, once approved, made before the approval."""
    # 2**31 - 1: a proposed change has no number yet and comes after all others
    before = changes_through((change.change_seq or 2**31 - 1) - 1)
    through = last_close_seq() if change.epoch is None else change.epoch
    reference_data = reference_data_with(before), reference_data_with([*before, change])
    unrated, entangled = dict[str, str](), False
    moved: dict[int, tuple[list[Charge], list[Charge]]] = defaultdict(lambda: ([], []))
    for part in billed_slices(change.valid_from, change.valid_until, through):
        zone = BillingPeriod.objects.get(close_seq=part.close_seq).zone
        assessed = [  # one slice at a time: a change may cover years
            rate_slice(
                window=part.window, zone=zone, reference_data=known, close_seq=part.close_seq, correction=part.correction,
            )
            for known in reference_data
        ]  # fmt: skip
        for one in assessed:
            unrated |= one.faults
            entangled |= one.entangled
        was, will = map(_charges, assessed)
        moved[part.close_seq][0].extend(charge for key, charge in was.items() if _differs(will.get(key), charge))
        moved[part.close_seq][1].extend(charge for key, charge in will.items() if _differs(was.get(key), charge))
    if entangled:
        return Effect(unrated=unrated, entangled=True)
    rated = (
        Moved(close_seq, _without(unrated, taken), _without(unrated, put))
        for close_seq, (taken, put) in sorted(moved.items())
    )
    found = [item for item in rated if item.before or item.after]
    return Effect(found, _goodwill_of_notes(change) if change.change_seq else _goodwill(found), unrated)


def _goodwill(moved: Iterable[Moved]) -> dict[tuple[str, str], tuple[Decimal, Decimal]]:
    """Return the credits of issued notes on the lines that change, and the part carried over to the lines billed instead."""
    found: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [ZERO, ZERO])
    for item in moved:
        for team in {charge.key.team for charge in item.before}:
            try:
                standing = current_lines(item.close_seq, team, lock=False)
            except NoteError:  # its invoice is not issued: no credits yet, and the approval raises this error
                continue
            granted = ZERO
            for charge in item.before:
                line = standing.lines.get(charge.key)
                credited = standing.credit(line) if charge.key.team == team and line else ZERO
                found[team, charge.key.charge_period][0] -= credited
                granted -= credited
            after = [charge for charge in item.after if charge.key.team == team]
            for charge, kept in zip(after, credit_kept(granted, [charge.amount for charge in after]), strict=True):
                found[team, charge.key.charge_period][1] += kept
    return {name: (credited, kept) for name, (credited, kept) in found.items()}


def _goodwill_of_notes(change: RetroactiveChange) -> dict[tuple[str, str], tuple[Decimal, Decimal]]:
    """Return the earlier credits from the notes of an approved change."""
    lines = NoteLine.objects.filter(note__correction__change=change)
    rows = lines.order_by().values_list("note__team__code", "charge_period")
    credited, kept = (
        Sum("amount", filter=Q(style=style), default=ZERO) for style in (NoteLine.Style.WITHDRAWAL, NoteLine.Style.ALLOWANCE)
    )
    return {(team, month): (taken, -left) for team, month, taken, left in rows.annotate(credited=credited, kept=kept)}


def _without(teams: Collection[str], charges: Iterable[Charge]) -> list[Charge]:
    return [charge for charge in charges if charge.key.team not in teams]


def _charges(assessed: RatingResult) -> dict[LineKey, Charge]:
    modes = billing_modes()
    return {
        charge.key: charge
        for charge in assessed.charges
        if not charge.key.platform and not modes.shadow(charge.key.team, charge.key.charge_period)
    }


def _differs(other: Charge | None, charge: Charge) -> bool:
    return other is None or (other.usage_quantity, other.unit_price) != (charge.usage_quantity, charge.unit_price)


@dataclass(frozen=True)
class CurrentLines:
    """Current lines of one team and close in issued documents, with the credits of each (negative)."""

    invoice: Invoice | None
    lines: Mapping[LineKey, BilledLine]
    credited: Mapping[tuple[str | None, int], Decimal]

    def line(self, charge: Charge) -> BilledLine:
        """Return the line of a charge.  Raises NoteError where it was credited or billed again by hand."""
        found, key = self.lines.get(charge.key), charge.key
        facts = {
            "team": key.team, "charge_period": key.charge_period, "sku": key.sku, "price_version": key.price_version
        }
        if found is None:
            raise NoteError(Message(
                "%(team)s %(charge_period)s %(sku)s %(price_version)s: its line was credited in full by hand; this "
                "change cannot say what is due there: bill or credit it by hand and leave that time out", **facts,
            ))
        quantity = round_to(charge.quantity, QUANTITY_PLACES)
        if (found.quantity, found.unit_price) != (quantity, charge.unit_price):
            raise NoteError(Message(
                "%(team)s %(charge_period)s %(sku)s %(price_version)s: its line was billed again by hand, as line "
                "%(line)s of %(number)s; this change cannot say what is due there: bill that line again with "
                "%(quantity)s at %(price)s, as its close did, and correct it after the change", **facts,
                line=found.position, number=found.document, quantity=quantity_text(quantity),
                price=price_text(charge.unit_price),
            ))
        return found

    def credit(self, line: BilledLine) -> Decimal:
        return self.credited.get((line.document, line.position), ZERO)


def current_lines(close_seq: int, team: str, *, lock: bool = True) -> CurrentLines:
    """Lock the team's current lines of a close, and return them.  Raises NoteError where its invoice is not issued.

    `lock`: False reads without locks; with locks, NoteError is also raised for lines with an undecided credit.
    """
    invoices = Invoice.objects.filter(period__close_seq=close_seq, team__code=team, shadow=False)
    invoice = invoices.exclude(status=Invoice.Status.VOID).select_related("team", "period").first()
    if invoice is None:
        _refuse_unbuilt(close_seq, team)
    if invoice is not None and invoice.status != Invoice.Status.ISSUED:
        raise NoteError(Message(
            "the invoice of %(team)s for %(month)s is %(status)s: issue it first, then correct it",
            team=team, month=invoice.period.month, status=invoice.status,
        ))
    documents: list[Invoice | Note] = [invoice] if invoice is not None else []
    notes = Note.objects.filter(kind=Note.Kind.REBILL, team__code=team, number__isnull=False, lines__close_seq=close_seq)
    documents += notes.select_related("team", "invoice__period").distinct().order_by("id")
    lines = [line for document in documents for line in billed_lines(document, lock=lock) if line.close_seq == close_seq]
    taken = reversed_rows(lines)
    standing = [line for line in lines if (type(line.row), line.row.pk) not in taken]
    return CurrentLines(invoice, {line.key: line for line in standing}, credited_of(standing, decided=lock))


def _refuse_unbuilt(close_seq: int, team: str) -> None:
    period = BillingPeriod.objects.get(close_seq=close_seq)
    if any(draft.team.code == team and not draft.shadow for draft in unbuilt_drafts(period)):
        raise NoteError(Message(
            "the draft of %(team)s for %(month)s was voided: build it again and issue it first, then correct it",
            team=team, month=period.month,
        ))


def change_as_dict(change: RetroactiveChange) -> dict[str, Any]:
    """Return a change of closed time for programs: its terms, its effect, and its notes."""
    notes = Note.objects.filter(correction__change=change, number__isnull=False).order_by("kind", "sequence")
    effect = effect_of(change)
    return {
        "id": change.pk,
        "kind": change.kind,
        "name": change.name,
        "status": change.status,
        "valid_from": change.valid_from.isoformat(),
        "valid_until": change.valid_until.isoformat(),
        "fact": change.fact,
        "reason": change.reason,
        "evidence": change.evidence or None,
        "requested_by": change.requested_by,
        "acknowledged": change.acknowledged,
        "approvers": change.approvers,
        "effect": [
            {
                "team": row.team, "month": row.month, "charged": amount_text(row.charged),
                "should_be": amount_text(row.should_be), "credited": amount_text(row.credited),
                "credit_kept": amount_text(row.kept), "difference": amount_text(row.difference),
            }
            for row in effect.by_team_and_month()
        ],
        "unrated": [{"team": team, "problem": problem} for team, problem in sorted(effect.unrated.items())],
        "notes": list(notes.values_list("number", flat=True)),
    }  # fmt: skip
