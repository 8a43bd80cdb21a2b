"""Lines of a month with the inputs of their rating: of a closed month from its invoices, else from its rating."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from zlib import crc32

from django.db.models import Count, Max
from msgspec import structs

from billing.explorer.cube import whole_units
from billing.explorer.models import MonthCube
from billing.invoices.issued import unbuilt_teams
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod, Invoice, InvoiceLine, Note, NoteLine
from billing.invoices.selectors import known_before
from billing.invoices.services.drafts import charges_by_invoice
from billing.rating.assessment import RatingResult
from billing.rating.efficiency import Verdict
from billing.rating.freshness import Unbilled, unbilled_in
from billing.rating.gathering import is_gathered, shared_out, used_in_close
from billing.rating.models import EfficiencyVerdict, RatingSnapshot
from billing.rating.snapshots import rated_now, result_of, snapshot_of, team_ratings
from billing.rating.walk import VerdictLike as AnyVerdict
from billing.tenancy.models import BillingMode
from billing.usage.selectors import last_close_seq
from metering.intervals import day_of
from metering.messages import Message
from pricing.money import EXACT
from pricing.rating import Charge, LineKey

FORM = 9
"""Version of the format of cubes: another number is of another release."""
MOST_UNITS: Final = 2**53
"""Limit of the units of a team in a month, so that 64-bit sums over months and teams can add a thousand of them."""


@dataclass(frozen=True, slots=True)
class BilledLine:
    """Line as its document states it, or would; `co2_kg` by the average of the grid. `shadow`: showback, not charged."""

    key: LineKey
    amount: Decimal
    quantity: Decimal
    energy_kwh: Decimal | None
    co2_kg: Decimal | None
    shadow: bool


@dataclass(frozen=True, slots=True)
class NotedLine:
    """Line of a credit note or rebill (`note`: its key), which counts on the local day of the issue.

    consumer: its part of a line of all consumers of the team, of which each has one.
    """

    key: LineKey
    amount: Decimal
    day: date
    note: int
    consumer: str = ""


@dataclass(frozen=True)
class MonthLines:
    """Lines of a month, and the close whose knowledge they use (`before`).

    `preview`: the amounts can still change. `unrated`: errors of teams without lines, or without document. `unbilled`: usage
    in no line.
    """

    period: BillingPeriod
    lines: Sequence[BilledLine]
    verdicts: Sequence[AnyVerdict]
    before: int
    as_of: datetime
    preview: bool = False
    unrated: dict[str, str] = field(default_factory=dict)
    unbilled: Sequence[Unbilled] = ()
    notes: Sequence[NotedLine] = ()


def sources_of(periods: Iterable[BillingPeriod]) -> dict[str, str]:
    """Return the source of the lines of each month: it changes with documents, notes, closes and ratings.

    For an open month it also has the last close (which may have billed its late usage) and the billing modes of teams
    (charged or showback).
    """
    found = list(periods)
    live = Invoice.objects.filter(period__in=[period for period in found if period.pk]).exclude(status=Invoice.Status.VOID)
    rows = live.order_by().values_list("period__month").annotate(Count("pk"), Max("pk"))
    documents = {month: f"{number}-{last}" for month, number, last in rows}
    kept = RatingSnapshot.objects.filter(month__in=[period.month for period in found]).values_list("month", "sha256")
    closes, modes = last_close_seq(), _modes()
    ratings, notes = dict(kept), _notes_by_month([period.month for period in found])
    forms = {period.month: f"{FORM}.{notes.get(period.month, 0)}" for period in found}
    return {
        period.month: f"{forms[period.month]} closed {period.close_seq} {documents.get(period.month, 'none')}"
        if period.status == BillingPeriod.Status.CLOSED
        else f"{forms[period.month]}-{modes}.{closes} open {period.close_seq or '-'} {ratings.get(period.month, '')}".strip()
        for period in found
    }


def _modes() -> str:
    """Return a checksum of the billing modes, which changes with them."""
    rows = BillingMode.objects.order_by("team_id", "from_month").values_list("team_id", "from_month", "mode")
    return f"{crc32(repr(list(rows)).encode()):x}"


def is_of_these_closes(cube: MonthCube, source: str) -> bool:
    """Return True if this release can read the cube, and no month was closed or reopened since."""
    return _closes_of(cube.source) == _closes_of(source)


def _closes_of(source: str) -> tuple[str, ...]:
    """Return the parts of a source without notes, modes, documents and ratings."""
    first, *rest = source.split()
    form, _notes, *closes = first.split(".")
    return form, *closes, *rest[:2]


def _notes_by_month(months: Collection[str]) -> dict[str, int]:
    """Count the notes issued in each month: an issued note is never withdrawn."""
    issued = Note.objects.filter(correction__period__month__in=months, number__isnull=False).order_by()
    return dict(issued.values_list("correction__period__month").annotate(Count("pk")))


def month_lines(period: BillingPeriod, now: datetime) -> MonthLines:
    """Return all lines of a month, charged and showback; usage that the platform carries has none.

    Notes are those issued in the month, whichever month they correct.
    """
    before, notes = known_before(period), list(_noted(period))
    if period.status == BillingPeriod.Status.CLOSED:
        verdicts = list(EfficiencyVerdict.objects.filter(close_seq=before))
        lines = list(_invoiced(period))
        return _countable(
            MonthLines(period, lines, verdicts, before, now, unrated=unbuilt_teams(period), notes=notes)
        )
    snapshot = _snapshot(period)
    if snapshot is not None:
        ratings = team_ratings(snapshot, snapshot.teams.values_list("team", flat=True)).values()
        charges = [charge for rating in ratings for charge in rating.charges]
        judged: list[Verdict] = [verdict for rating in ratings for verdict in rating.verdicts]
        # a large month is not rated for a page: its stored rating is shown with its time
        found, as_of = result_of(snapshot, judged), snapshot.as_of or now
    else:
        found = _rated_now(period)
        charges, as_of = found.charges, now
    lines = list(_rated(charges))
    return _countable(
        MonthLines(period, lines, found.verdicts, before, as_of, True, dict(found.faults), unbilled_in(found), notes)
    )


def _countable(month: MonthLines) -> MonthLines:
    """Remove teams whose sums are too large to be added up, and list them as unrated."""
    units: dict[tuple[str, str], int] = defaultdict(int)
    for line in month.lines:
        values = {"amount": line.amount, "quantity": line.quantity, "energy": line.energy_kwh, "co2": line.co2_kg}
        for name, value in values.items():
            units[line.key.team, name] += abs(whole_units(value, name)) if value else 0
    for noted in month.notes:
        units[noted.key.team, "amount"] += abs(whole_units(noted.amount, "amount"))
    beyond = {team for (team, _), number in units.items() if number > MOST_UNITS}
    if not beyond:
        return month
    problem = Message(
        "its sums of %(month)s are too large for the explorer; its documents have them", month=month.period.month
    )
    return replace(
        month, lines=[line for line in month.lines if line.key.team not in beyond],
        notes=[noted for noted in month.notes if noted.key.team not in beyond],
        unrated=month.unrated | dict.fromkeys(beyond, problem),
    )  # fmt: skip


def judged_in(period: BillingPeriod, teams: Collection[str], *, judged: bool) -> tuple[Sequence[AnyVerdict], int]:
    """Return the verdicts on jobs of teams, none unless `judged`; and the close whose knowledge they use."""
    before = known_before(period)
    if not judged:
        return [], before
    if period.status == BillingPeriod.Status.CLOSED:
        return list(EfficiencyVerdict.objects.filter(close_seq=before, team__in=teams)), before
    snapshot = snapshot_of(period.month, period.close_seq)
    if snapshot is None:
        return _rated_now(period).verdicts, before
    return [verdict for rating in team_ratings(snapshot, teams).values() for verdict in rating.verdicts], before


def _snapshot(period: BillingPeriod) -> RatingSnapshot | None:
    """Return the cached rating of a large open month, unless it precedes a close, which may have billed late usage."""
    kept = snapshot_of(period.month, period.close_seq)
    closed = BillingPeriod.objects.aggregate(last=Max("closed_at"))["last"]
    return None if kept and closed and kept.as_of and kept.as_of <= closed else kept


def _rated_now(period: BillingPeriod) -> RatingResult:
    return rated_now(month=period.month, window=period.window, zone=period.zone, close_seq=period.close_seq)


def _rated(charges: Iterable[Charge]) -> Iterator[BilledLine]:
    for (_, shadow), own in sorted(charges_by_invoice(charges).items()):
        for line in invoice_lines(own):
            yield BilledLine(line.key, line.amount, line.quantity, line.energy_kwh, line.co2_location_kg, shadow)


def _invoiced(period: BillingPeriod) -> Iterator[BilledLine]:
    live = period.invoices.exclude(status=Invoice.Status.VOID)
    invoices = {
        pk: (team, shadow, _co2(draft))
        for pk, team, shadow, draft in live.values_list("pk", "team__code", "shadow", "draft").iterator()
    }
    for row in InvoiceLine.objects.filter(invoice__in=live).order_by("invoice_id", "position").iterator():
        team, shadow, co2 = invoices[row.invoice_id]
        key = LineKey.of(row, team=team, platform=False)
        yield BilledLine(key, row.amount, row.quantity, row.energy_kwh, co2.get(row.position), shadow)


def _noted(period: BillingPeriod) -> Iterator[NotedLine]:
    issued = NoteLine.objects.filter(note__correction__period__month=period.month, note__number__isnull=False)
    rows = list(issued.select_related("note__team").order_by("note_id", "position"))
    first, consumers = day_of(period.start, period.zone), _consumers_of_notes(rows)
    for row in rows:
        if row.note.issued_at is not None:  # always set on a numbered note
            key = LineKey.of(row, team=row.note.team.code, platform=False, correction=False)
            day = day_of(row.note.issued_at, period.zone)
            # a note belongs to the first month that is not closed, which may begin after its issue
            # a rebill has another price than the line that its close billed
            used = consumers.get((row.close_seq, key)) or consumers.get((row.close_seq, key.changed(price_version=""))) or {}
            shares = shared_out(row.amount, used) if used else {key.consumer: row.amount}
            for name, amount in shares.items():
                yield NotedLine(key, amount, max(first, day), row.note_id, name)


def _consumers_of_notes(rows: Iterable[NoteLine]) -> Mapping[tuple[int, LineKey], Mapping[str, Decimal]]:
    """Return the tokens by consumer of the usage of note lines, of those that are of all consumers of a team.

    By close and line, and by close and line without its price version.
    """
    keys: dict[int, set[LineKey]] = defaultdict(set)
    for row in rows:
        key = LineKey.of(row, team=row.note.team.code, platform=False, correction=False)
        if is_gathered(key):
            keys[row.close_seq].add(key)
    found: dict[tuple[int, LineKey], dict[str, Decimal]] = defaultdict(dict)
    for period in BillingPeriod.objects.filter(close_seq__in=keys):
        as_of = period.close_number
        asked = [structs.replace(key, correction=key.charge_period != period.month) for key in keys[as_of]]
        for key, used in used_in_close(asked, period.window, period.zone, as_of).items():
            billed = structs.replace(key, correction=False)
            found[as_of, billed] = dict(used)
            whole = found[as_of, billed.changed(price_version="")]
            for name, tokens in used.items():
                whole[name] = EXACT.add(whole.get(name, Decimal(0)), tokens)
    return found


def _co2(document: dict[str, Any]) -> dict[int, Decimal]:
    """Return the kilograms of CO2 by position of the line, where the document states them."""
    known = ((line["position"], line.get("co2_location_kg")) for line in document["lines"])
    return {position: Decimal(kg) for position, kg in known if kg is not None}
