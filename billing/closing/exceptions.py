"""What somebody must see before a month is closed: each exception with its amount and what solves it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from billing.closing.engine_comparison import ModelComparison
from billing.closing.exception_kinds import ExceptionKind, kind_of
from billing.closing.models import ExceptionWaiver
from billing.invoices.models import BillingPeriod, JournalExport
from billing.rates.selectors import allocation_policy_at
from billing.rating.assessment import RatingResult
from billing.rating.reference_data import gpu_seconds
from billing.usage.gaps import Gap, metering_gaps
from billing.usage.reconciliation import SequenceGaps, estimated_ends
from billing.usage.selectors import (
    ScanSum,
    double_held,
    not_taken_in,
    usage_months,
)
from metering.intervals import Interval
from metering.messages import Message
from metering.names import as_name, visible
from pricing.money import EXACT
from pricing.rating import Unpriced

ACKNOWLEDGED_WITHIN = timedelta(days=5)
"""How long a ledger may take to confirm a journal before the report says so."""
SCAN_TOLERANCE = Decimal("0.001")
"""Of all units that scans listed, how many may differ from what was watched."""
NOTHING: Final = Message("")
SHOWN_GAPS = 10
"""How many gaps of a source an exception spells out."""


@dataclass(frozen=True, slots=True)
class ReportedException:
    """Something that somebody must see; `blocks`: it holds the close until it is solved or waived.

    `amount`: the money at risk in the currency of the house, None where nobody can know it.
    """

    kind: str
    subject: str
    quantity: Decimal
    unit: str
    blocks: bool
    action: Message = NOTHING
    waived_by: str = ""
    amount: Decimal | None = None
    waived_until: datetime | None = None
    waiver_reason: str = ""
    waiver_expired: bool = False

    @property
    def facts(self) -> ExceptionKind:
        """Whose it is, where it is solved and by what."""
        return kind_of(self.kind)


def number(value: Decimal) -> int | Decimal:
    """A quantity as an integer where it is one, else as an exact decimal."""
    return int(value) if value == value.to_integral_value() else value.normalize()


def shown(value: Decimal) -> str:
    """A quantity for people: thousands separated, at most three decimals."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def not_ended(period: BillingPeriod, now: datetime) -> list[ReportedException]:
    if now >= period.end:
        return []
    left = Decimal(int((period.end - now).total_seconds()))
    return [ReportedException("period_not_ended", period.month, left, "seconds", True, Message(
        "close after the month has ended"
    ))]


def costs_not_measured(period: BillingPeriod) -> list[ReportedException]:
    """Shared costs that follow from what a store kept, of which nobody has entered this month's figures."""
    policy = allocation_policy_at(period.start)
    return [
        ReportedException(
            "shared_cost_unknown", rule.name, Decimal(1), "months", True,
            Message("enter what it was this month under `allocation_policies:`, in a policy that begins with the month"),
        )
        for rule in (policy.unmeasured(period.start) if policy else ())
    ]  # fmt: skip


def without_owner(assessment: RatingResult) -> list[ReportedException]:
    totals: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    worth: dict[tuple[str, str, str], Decimal | None] = {}
    for item in assessment.unowned:
        key = (item.kind, item.subject, item.unit)
        totals[key] = EXACT.add(totals[key], item.quantity)
        before = worth.get(key, Decimal(0))
        worth[key] = None if before is None or item.amount is None else before + item.amount
    advice = {
        "unowned_namespace": Message("give it an owner under `ownership:`"),
        "unowned_consumer": Message("add it under `consumers:`"),
    }
    return [
        ReportedException(
            kind, subject, quantity, unit, True, _spelled(advice[kind], subject, visible(subject)),
            amount=worth[kind, subject, unit],
        )
        for (kind, subject, unit), quantity in sorted(totals.items())
    ]  # fmt: skip


def _spelled(advice: Message, name: str, written: str) -> Message:
    """With how a name is to be written that no file can hold as it is: it was stored before there was a rule for names."""
    if written == name:
        return advice
    return Message("%(advice)s, and write its name as %(name)s", advice=advice, name=written)


def without_price(assessment: RatingResult) -> list[ReportedException]:
    advice = Message("publish a price version that covers it")
    note = Message("the platform's own use has no price: its recovery cannot be told")
    return _unpriced_sums(assessment.unpriced, advice, blocks=True) + _unpriced_sums(
        assessment.platform_unpriced, note, blocks=False
    )


def _unpriced_sums(items: list[Unpriced], action: Message, *, blocks: bool) -> list[ReportedException]:
    totals: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for item in items:
        if item.unit == "tokens":
            key, quantity = (item.sku, "tokens"), item.quantity
        else:
            key, quantity = (item.sku, "gpu_seconds"), gpu_seconds(item.quantity)
        totals[key] = EXACT.add(totals[key], quantity)
    return [
        ReportedException("unpriced", sku, quantity, unit, blocks, _spelled(action, name, as_name(name)))
        for (sku, unit), quantity in sorted(totals.items())
        for name in [sku.rpartition(" ")[0] if unit == "tokens" else sku]
    ]


def unwatched(window: Interval, until: datetime) -> list[ReportedException]:
    """Seconds of the period, as far as it has passed, that nobody has watched and nobody filled."""
    if until <= window.start:
        return []
    passed = Interval(window.start, until)
    found = []
    for gap in metering_gaps(until):
        missing_us = sum(cut.microseconds for piece in gap.unwatched if (cut := piece.overlap(passed)))
        if missing_us:
            subject, seconds = f"{gap.cluster}/{gap.subject}", Decimal(-(-missing_us // 1_000_000))
            found.append(ReportedException("metering_gap", subject, seconds, "seconds", True, _unseen(gap)))
    return found


def _unseen(gap: Gap) -> Message:
    """What to do about a gap, after how many allocations it left open."""
    if not gap.allocations:
        return gap.advice
    return Message.counted(
        "%(n)s open allocation was not seen after that: %(advice)s",
        "%(n)s open allocations were not seen after that: %(advice)s", gap.allocations, n=gap.allocations, advice=gap.advice,
    )


def numbers_missing(gaps: SequenceGaps) -> ReportedException:
    """Records that a source numbered and nobody has: lost on the way, or in quarantine."""
    shown_gaps = [str(first) if first == last else f"{first}-{last}" for first, last in gaps.stretches[:SHOWN_GAPS]]
    more = len(gaps.stretches) - len(shown_gaps)
    numbers = Message("%(numbers)s", numbers=", ".join(shown_gaps))
    if more:
        numbers = Message("%(numbers)s and %(n)s more gaps", numbers=numbers, n=more)
    subject = f"{gaps.source}/{gaps.run}" if gaps.run else gaps.source
    advice = Message("numbers %(numbers)s never arrived: have the source send them again, or waive them", numbers=numbers)
    return ReportedException("sequence_gap", subject, Decimal(gaps.missing), "records", True, advice)


def in_quarantine(window: Interval) -> list[ReportedException]:
    return [_not_taken_in(*found) for found in not_taken_in(window)]


def _not_taken_in(what: str, whose: str, count: int, text: str) -> ReportedException:
    """A record in quarantine, or what an agent says that it could not meter: both are usage that is in no charge."""
    if what == "agent problem":
        return ReportedException("agent_problem", whose, Decimal(count), "objects", True, Message(
            "%(text)s: is not metered: mend what the agent names, or waive it", text=text
        ))
    if what == "agent unknown":
        option = "--claim-driver" if "/dra/" in whose else "--resource"
        units = Decimal(text) if text.isascii() and text.isdecimal() else Decimal(count)
        return ReportedException("unknown_resource", whose, units, "resources", True, Message(
            "nobody knows this extended resource: if it is a device, tell the agent with %(option)s; if it is none, declare "
            "it with `manage.py gpu_share`", option=option,
        ))
    kind = "conflict" if what == "conflict" else "quarantine"
    advice = Message("look at it with `manage.py quarantine`, then correct or dismiss it")
    return ReportedException(kind, whose, Decimal(count), "records", True, advice)


def held_twice(window: Interval, *, blocks: bool) -> list[ReportedException]:
    return [
        ReportedException(
            "overlap", f"{cluster}/{pod_uid}", Decimal(overlap).scaleb(-6), "seconds", blocks,
            Message("one pod is reported to hold the same resource twice at a time: correct it at its source, or waive it"),
        )
        for cluster, pod_uid, overlap in double_held(window)
    ]  # fmt: skip


def ends_estimated(window: Interval, zone: str) -> list[ReportedException]:
    """Holds whose end nobody told: what is quoted is the most by which the bill may be wrong, either way."""

    def local(at: datetime) -> str:
        return at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")

    return [
        ReportedException(
            "estimated_end", f"{end.cluster}/{end.pod or 'others'}", gpu_seconds(end.device_us), "gpu_seconds", False,
            Message(
                "ended between %(earliest)s and %(latest)s (%(rule)s); billed until %(until)s",
                earliest=local(end.earliest), latest=local(end.latest), rule=end.rule, until=local(end.ended_at),
            )
            if end.pod else Message.counted(
                "%(n)s more hold, which ended between %(earliest)s and %(latest)s",
                "%(n)s more holds, which ended between %(earliest)s and %(latest)s", end.holds,
                n=end.holds, earliest=local(end.earliest), latest=local(end.latest),
            ),
        )
        for end in estimated_ends(window)
    ]  # fmt: skip


def engines_differing(engines: list[ModelComparison], *, blocks: bool) -> list[ReportedException]:
    """A model whose month differs holds the close until somebody found out why; single days are told, and hold nothing."""
    months = [
        ReportedException(
            "engine_difference", item.model, Decimal(item.total.difference), "tokens", blocks,
            Message(
                "%(words)s: find the side that lacks (docs/gateways.md, Reconciliation): correct it at its source, or waive "
                "it",
                words=item.total.words,
            ),
        )
        for item in engines if item.total.exceeds
    ]  # fmt: skip
    days = [
        ReportedException(
            "engine_difference_day", f"{item.model} {day.day.isoformat()}", Decimal(alone.difference), "tokens", False,
            alone.words,
        )
        for item in engines for day, alone in item.differing
    ]  # fmt: skip
    return months + days


def scans_differing(scans: Sequence[ScanSum]) -> list[ReportedException]:
    """Clusters whose lists differ by more than the tolerance from what was watched."""
    return [
        ReportedException(
            "scan_difference", scan.cluster, Decimal(scan.differing), "units", True,
            Message.counted(
                "%(n)s unit was listed by %(scans)s scans: look for what the agent missed",
                "%(n)s units were listed by %(scans)s scans: look for what the agent missed", scan.scanned,
                n=f"{scan.scanned:,}", scans=scan.scans,
            ),
        )
        for scan in scans
        if scan.differing > SCAN_TOLERANCE * scan.scanned
    ]  # fmt: skip


def months_unbilled(period: BillingPeriod) -> list[ReportedException]:
    """Earlier months with usage that nobody has closed: a close bills its own month and what came late, not these."""
    used = usage_months(period.start, period.zone)
    closed = set(BillingPeriod.objects.exclude(close_seq=None).values_list("month", flat=True)) if used else set()
    months = [month for month in used if month not in closed]
    advice = Message("close it with `manage.py period_close`")
    return [ReportedException("unbilled_month", month, Decimal(1), "months", False, advice) for month in months]


def teams_held(period: BillingPeriod) -> list[ReportedException]:
    """Teams that the close could not bill while it billed the others."""
    held = period.held_teams.all() if period.status == BillingPeriod.Status.CLOSING else ()
    return [
        ReportedException("team_held", item.team, Decimal(1), "teams", True, Message.of(item.problem), amount=item.amount)
        for item in held
    ]


def not_rated(assessment: RatingResult, period: BillingPeriod) -> list[ReportedException]:
    """Teams whose rating raises: the close will hold them and bill the others, unless what others pay hangs on them.

    A close that holds them has said so itself.
    """
    named = {item.team for item in period.held_teams.all()} if period.status == BillingPeriod.Status.CLOSING else set()
    return [
        ReportedException("team_unrated", team, Decimal(1), "teams", assessment.entangled, Message.of(problem))
        for team, problem in sorted(assessment.faults.items())
        if team not in named
    ]


def journal_unacknowledged(export: JournalExport | None, now: datetime) -> list[ReportedException]:
    """A journal that the ledger has not confirmed in time; the whole of it is at risk of not being posted."""
    if export is None or export.acknowledged_at is not None or now - export.exported_at < ACKNOWLEDGED_WITHIN:
        return []
    days = Decimal((now - export.exported_at).days)
    advice = Message("exported %(at)s, not acknowledged", at=export.exported_at.isoformat())
    return [
        ReportedException("journal_unacknowledged", export.batch_hash, days, "days", False, advice, amount=export.debit)
    ]


def as_answered_for(item: ReportedException, waiver: ExceptionWaiver | None, now: datetime | None) -> ReportedException:
    """The exception as far and as long as it is waived: more than somebody answers for, or longer, blocks again."""
    if waiver is None or item.quantity > waiver.quantity:
        return item
    told = replace(item, waived_until=waiver.expires_at, waiver_reason=waiver.reason)
    if now is not None and waiver.expires_at is not None and now >= waiver.expires_at:
        return replace(told, waiver_expired=True)
    return replace(told, blocks=False, waived_by=waiver.waived_by)
