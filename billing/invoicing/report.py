"""Answers "can we close this month?": every reconciliation and every exception of a period, with amounts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Sum

from billing.invoicing.acceptance import acceptance_counts
from billing.invoicing.engine_comparison import ModelComparison, compare
from billing.invoicing.exception_kinds import ExceptionKind, kind_of
from billing.invoicing.models import BillingPeriod, ExceptionWaiver, Invoice, JournalExport, PeriodReopening
from billing.invoicing.selectors import journal_as_dict, last_export, reopening_as_dict, reopenings_of
from billing.rating.assessment import Assessment, DeviceTime, assess
from billing.rating.books import gpu_seconds
from billing.rating.models import Charge as ChargeRow
from billing.usage.epochs import one_snapshot
from billing.usage.gaps import metering_gaps
from billing.usage.overheld import overheld
from billing.usage.reconciliation import SequenceGaps, completeness, estimated_ends, sequence_gaps
from billing.usage.selectors import (
    EpochFilter,
    ScanSum,
    capacity_sums,
    double_held,
    gpu_sums,
    not_taken_in,
    scan_sums,
    usage_months,
)
from billing.usage.token_sums import rollup_difference
from metering.accelerators import device_share
from metering.intervals import Interval
from pricing.allocation import IDLE
from pricing.money import AMOUNT_PLACES, EXACT, round_part, round_to
from pricing.rating import DIVISOR, Unpriced

ACKNOWLEDGED_WITHIN = timedelta(days=5)
"""How long a ledger may take to confirm a journal before the report says so."""
SCAN_TOLERANCE = Decimal("0.001")
"""Of all units that scans listed, how many may differ from what was watched."""
SHOWN_GAPS = 10
"""How many gaps of a source an exception spells out."""


@dataclass(frozen=True, slots=True)
class Check:
    """One reconciliation: what was compared, whether it agrees, and the figures."""

    name: str
    ok: bool
    detail: str


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
    action: str = ""
    waived_by: str = ""
    amount: Decimal | None = None
    waived_until: datetime | None = None
    waiver_reason: str = ""
    waiver_expired: bool = False

    @property
    def facts(self) -> ExceptionKind:
        """Whose it is, where it is solved and by what."""
        return kind_of(self.kind)


@dataclass
class Report:
    """The answer for one period. `scans`: what hourly scans listed, of a month that is not closed."""

    period: str
    status: str
    checks: list[Check] = field(default_factory=list)
    exceptions: list[ReportedException] = field(default_factory=list)
    gpu_seconds: dict[str, Decimal | None] = field(default_factory=dict)
    pools: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    engines: list[ModelComparison] = field(default_factory=list)
    scans: list[ScanSum] | None = None
    journal: JournalExport | None = None
    reopenings: list[PeriodReopening] = field(default_factory=list)
    acceptance: dict[str, int] = field(default_factory=dict)

    @property
    def blocking(self) -> list[ReportedException]:
        """The exceptions that hold the close."""
        return [item for item in self.exceptions if item.blocks]

    @property
    def closable(self) -> bool:
        """Whether the month can be closed now (or is)."""
        return not self.blocking and all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of the contract."""
        return {
            "period": self.period,
            "status": self.status,
            "closable": self.closable,
            "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in self.checks],
            "exceptions": [
                {
                    "kind": e.kind, "subject": e.subject, "quantity": number(e.quantity), "unit": e.unit,
                    "blocks": e.blocks, "action": e.action, "waived_by": e.waived_by or None,
                    "amount": None if e.amount is None else format(e.amount, "f"), "owner": e.facts.owner.value,
                    "solution": str(e.facts.solution), "link": e.facts.link(self.period),
                    "waived_until": e.waived_until.isoformat() if e.waived_until else None,
                    "waiver_reason": e.waiver_reason or None, "waiver_expired": e.waiver_expired,
                }
                for e in self.exceptions
            ],
            "gpu_seconds": {name: None if v is None else number(v) for name, v in self.gpu_seconds.items()},
            "pools": self.pools,
            "tokens": self.tokens,
            "reopenings": [reopening_as_dict(item) for item in self.reopenings],
            "acceptance": self.acceptance,
            "journal": None if self.journal is None else journal_as_dict(self.journal),
            "engines": [
                {
                    "model": e.model, "days": e.days, "days_not_covered": e.not_covered, "difference": e.total.difference,
                    "gateway": {"input_tokens": e.total.gateway_input, "output_tokens": e.total.gateway_output},
                    "engine": {"input_tokens": e.total.engine_input, "output_tokens": e.total.engine_output},
                }
                for e in self.engines
            ],
        }  # fmt: skip


def number(value: Decimal) -> int | Decimal:
    """A quantity as an integer where it is one, else as an exact decimal."""
    return int(value) if value == value.to_integral_value() else value.normalize()


def shown(value: Decimal) -> str:
    """A quantity for people: thousands separated, at most three decimals."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def build_report(
    period: BillingPeriod, *, now: datetime, thorough: bool = True, assessment: Assessment | None = None
) -> Report:
    """Assess the period as a close now would (or, once closed, as its close did). `thorough` also sums all events.

    `assessment` where the caller has made it already.
    """
    with one_snapshot():
        return judged(found_in(period, now, assessment, thorough=thorough), period, now, thorough=thorough)


def found_at_once(period: BillingPeriod, *, now: datetime) -> Report:
    """Of all that can hold a month, what takes no sum of its usage to find: asked again while no usage can come in."""
    window, report = Interval(period.start, period.end), Report(period.month, period.status)
    report.exceptions += _unended(period, now) + _gaps(window, min(window.end, now)) + _quarantined(window)
    report.exceptions += [_sequence_gap(gaps) for gaps in sequence_gaps(window)] + _scans_differing(scan_sums(window))
    report.exceptions += _double_held(window, blocks=True)
    _waive(report, period, now)
    return report


def judged(report: Report, period: BillingPeriod, now: datetime, *, thorough: bool = True) -> Report:
    """What was found of a period under its waivers and with its journal: both can change without any usage."""
    report.exceptions += _held_teams(period)
    if thorough:
        report.journal = last_export(period)
        report.reopenings = reopenings_of(period)
        report.acceptance = acceptance_counts(period, now) if period.ordinal is not None else {}
        report.exceptions += _unacknowledged(report.journal, now)
    _waive(report, period, now)
    report.checks.insert(2, _engines_agree(report))
    if report.scans is not None:
        report.checks.insert(4, _scans_agree(report, report.scans))
    return report


def found_in(
    period: BillingPeriod, now: datetime, assessment: Assessment | None = None, *, thorough: bool = True
) -> Report:
    """Everything that was found in usage, owners and prices, as if nobody answered for any of it."""
    window = Interval(period.start, period.end)
    assessment = assessment or assess(window=window, zone=period.zone, ordinal=period.ordinal)
    report = Report(period.month, period.status, tokens=_tokens(assessment))
    missing = completeness(window, period.zone, until=min(window.end, now))
    report.engines = compare(missing.engine_days)
    if period.ordinal is None:
        report.exceptions += _unended(period, now) + _unowned(assessment) + _unpriced(assessment)
        report.exceptions += _gaps(window, min(window.end, now)) + _quarantined(window)
        report.exceptions += _silent(missing.silent, min(window.end, now))
        report.exceptions += [_sequence_gap(gaps) for gaps in sequence_gaps(window)]
        report.scans = scan_sums(window)
        report.exceptions += _scans_differing(report.scans)
    if period.status == BillingPeriod.Status.CLOSING:
        report.exceptions += _unowned(assessment) + _unpriced(assessment)
    report.exceptions += _double_held(window, blocks=period.ordinal is None)
    report.exceptions += _estimated_ends(window, period.zone)
    report.exceptions += _engine_differences(report.engines, blocks=period.ordinal is None)
    if thorough:
        report.exceptions += _unbilled_months(period)
    report.checks.append(_all_accounted(assessment, window, period.ordinal))
    report.checks.append(_all_tokens_accounted(assessment))
    _account_capacity(report, assessment, window, thorough=thorough)
    if thorough:
        report.checks.append(_rollups_equal_events(window))
    if period.status == BillingPeriod.Status.CLOSED:
        report.checks += _charges_agree(period, assessment)
    return report


def _unended(period: BillingPeriod, now: datetime) -> list[ReportedException]:
    if now >= period.end:
        return []
    left = Decimal(int((period.end - now).total_seconds()))
    return [ReportedException("period_not_ended", period.month, left, "seconds", True, "close after the month has ended")]


def _unowned(assessment: Assessment) -> list[ReportedException]:
    totals: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    worth: dict[tuple[str, str, str], Decimal | None] = {}
    for item in assessment.unowned:
        key = (item.kind, item.subject, item.unit)
        totals[key] = EXACT.add(totals[key], item.quantity)
        before = worth.get(key, Decimal(0))
        worth[key] = None if before is None or item.amount is None else before + item.amount
    advice = {"unowned_namespace": "give it an owner under `ownership:`", "unowned_consumer": "add it under `consumers:`"}
    return [
        ReportedException(kind, subject, quantity, unit, True, advice[kind], amount=worth[kind, subject, unit])
        for (kind, subject, unit), quantity in sorted(totals.items())
    ]


def _unpriced(assessment: Assessment) -> list[ReportedException]:
    advice = "publish a price version that covers it"
    note = "the platform's own use has no price: its recovery cannot be told"
    return _unpriced_sums(assessment.unpriced, advice, blocks=True) + _unpriced_sums(
        assessment.platform_unpriced, note, blocks=False
    )


def _unpriced_sums(items: list[Unpriced], action: str, *, blocks: bool) -> list[ReportedException]:
    totals: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for item in items:
        if item.unit == "tokens":
            key, quantity = (item.sku, "tokens"), item.quantity
        else:
            key, quantity = (item.sku, "gpu_seconds"), gpu_seconds(item.quantity)
        totals[key] = EXACT.add(totals[key], quantity)
    return [
        ReportedException("unpriced", sku, quantity, unit, blocks, action)
        for (sku, unit), quantity in sorted(totals.items())
    ]


def _gaps(window: Interval, until: datetime) -> list[ReportedException]:
    """Seconds of the period, as far as it has passed, that nobody has watched and nobody filled."""
    if until <= window.start:
        return []
    passed = Interval(window.start, until)
    found = []
    for gap in metering_gaps(until):
        missing_us = sum(cut.microseconds for piece in gap.unwatched if (cut := piece.overlap(passed)))
        told = f"{gap.allocations} open allocations were not seen after that: " if gap.allocations else ""
        if missing_us:
            subject, seconds = f"{gap.cluster}/{gap.subject}", Decimal(missing_us // 1_000_000)
            found.append(ReportedException("metering_gap", subject, seconds, "seconds", True, told + gap.advice))
    return found


def _silent(silent: list[tuple[str, datetime]], until: datetime) -> list[ReportedException]:
    """Gateways that reported nearly every day and then nothing: told, for nobody can know that there was usage."""
    advice = "see whether its reporter runs; what it sends late is still billed"
    return [
        ReportedException("silent_source", source, Decimal(int((until - last).total_seconds())), "seconds", False, advice)
        for source, last in silent
    ]


def _sequence_gap(gaps: SequenceGaps) -> ReportedException:
    """Records that a source numbered and nobody has: lost on the way, or in quarantine."""
    shown_gaps = [str(first) if first == last else f"{first}-{last}" for first, last in gaps.stretches[:SHOWN_GAPS]]
    more = len(gaps.stretches) - len(shown_gaps)
    told = ", ".join(shown_gaps) + (f" and {more} more gaps" if more else "")
    subject = f"{gaps.source}/{gaps.run}" if gaps.run else gaps.source
    advice = f"numbers {told} never arrived: have the source send them again, or waive them"
    return ReportedException("sequence_gap", subject, Decimal(gaps.missing), "records", True, advice)


def _quarantined(window: Interval) -> list[ReportedException]:
    return [_not_taken_in(*found) for found in not_taken_in(window)]


def _not_taken_in(what: str, whose: str, count: int, text: str) -> ReportedException:
    """A record in quarantine, or what an agent says that it could not meter: both are usage that is in no charge."""
    if what == "agent problem":
        advice = "is not metered: mend what the agent names, or waive it"
        return ReportedException("agent_problem", whose, Decimal(count), "objects", True, f"{text}: {advice}")
    if what == "agent unknown":
        option = "--claim-driver" if "/dra/" in whose else "--resource"
        advice = f"nobody knows this extended resource: if it is a device, tell the agent with {option}"
        return ReportedException("unknown_resource", whose, Decimal(count), "resources", False, advice)
    kind = "conflict" if what == "conflict" else "quarantine"
    advice = "look at it with `manage.py quarantine`, then correct or dismiss it"
    return ReportedException(kind, whose, Decimal(count), "records", True, advice)


def _double_held(window: Interval, *, blocks: bool) -> list[ReportedException]:
    return [
        ReportedException(
            "overlap", f"{cluster}/{pod_uid}", Decimal(overlap).scaleb(-6), "seconds", blocks,
            "one pod is reported to hold the same resource twice at a time: correct it at its source, or waive it",
        )
        for cluster, pod_uid, overlap in double_held(window)
    ]  # fmt: skip


def _estimated_ends(window: Interval, zone: str) -> list[ReportedException]:
    """Holds whose end nobody told: what is quoted is the most by which the bill may be wrong, either way."""

    def local(at: datetime) -> str:
        return at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")

    return [
        ReportedException(
            "estimated_end", f"{end.cluster}/{end.pod or 'others'}", gpu_seconds(end.device_us), "gpu_seconds", False,
            f"ended between {local(end.earliest)} and {local(end.latest)} ({end.rule}); billed until {local(end.ended_at)}"
            if end.pod else f"{end.holds} more holds, which ended between {local(end.earliest)} and {local(end.latest)}",
        )
        for end in estimated_ends(window)
    ]  # fmt: skip


def _engine_differences(engines: list[ModelComparison], *, blocks: bool) -> list[ReportedException]:
    """A model whose month differs holds the close until somebody found out why; single days are told, and hold nothing."""
    advice = "find the side that lacks (docs/gateways.md, Reconciliation): correct it at its source, or waive it"
    months = [
        ReportedException(
            "engine_difference", item.model, Decimal(item.total.difference), "tokens", blocks,
            f"{item.total.words}: {advice}",
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


def _engines_agree(report: Report) -> Check:
    """Whether what gateways told is what inference servers counted, where servers were read, or somebody took it on."""
    name = "gateway tokens = inference servers' counters (0.5 %)"
    if not report.engines:
        return Check(name, True, "no counters were reported")
    open_differences = {item.subject for item in report.blocking if item.kind == "engine_difference"}
    told = [
        f"{item.model}: {item.total.difference:,} of {item.total.engine_input + item.total.engine_output:,} tokens differ, "
        f"{item.days} of {item.days + item.not_covered} days compared"
        for item in report.engines
    ]  # fmt: skip
    return Check(name, not open_differences, "; ".join(told))


def _scans_differing(scans: Sequence[ScanSum]) -> list[ReportedException]:
    """Clusters whose lists differ by more than the tolerance from what was watched."""
    return [
        ReportedException(
            "scan_difference", scan.cluster, Decimal(scan.differing), "units", True,
            f"{scan.scanned:,} units were listed by {scan.scans} scans: look for what the agent missed",
        )
        for scan in scans
        if scan.differing > SCAN_TOLERANCE * scan.scanned
    ]  # fmt: skip


def _scans_agree(report: Report, scans: Sequence[ScanSum]) -> Check:
    name = f"watched holds = hourly scans (within {SCAN_TOLERANCE:.1%})"
    if not scans:
        return Check(name, True, "no scan was reported")
    scanned, differing = sum(scan.scanned for scan in scans), sum(scan.differing for scan in scans)
    agree = not any(item.kind == "scan_difference" and item.blocks for item in report.exceptions)
    return Check(name, agree, f"{scanned:,} units in {sum(scan.scans for scan in scans):,} scans, {differing:,} differ")


def _unbilled_months(period: BillingPeriod) -> list[ReportedException]:
    """Earlier months with usage that nobody has closed: a close bills its own month and what came late, not these."""
    used = usage_months(period.start, period.zone)
    closed = set(BillingPeriod.objects.exclude(ordinal=None).values_list("month", flat=True)) if used else set()
    months = [month for month in used if month not in closed]
    advice = "close it with `manage.py period_close`"
    return [ReportedException("unbilled_month", month, Decimal(1), "months", False, advice) for month in months]


def _held_teams(period: BillingPeriod) -> list[ReportedException]:
    """Teams that the close could not bill while it billed the others."""
    held = period.held_teams.all() if period.status == BillingPeriod.Status.CLOSING else ()
    return [
        ReportedException("team_held", item.team, Decimal(1), "teams", True, item.problem, amount=item.amount)
        for item in held
    ]


def _unacknowledged(export: JournalExport | None, now: datetime) -> list[ReportedException]:
    """A journal that the ledger has not confirmed in time; the whole of it is at risk of not being posted."""
    if export is None or export.acknowledged_at is not None or now - export.exported_at < ACKNOWLEDGED_WITHIN:
        return []
    days, told = Decimal((now - export.exported_at).days), f"exported {export.exported_at.isoformat()}, not acknowledged"
    return [
        ReportedException("journal_unacknowledged", export.batch_hash, days, "days", False, told, amount=export.debit)
    ]


def _waive(report: Report, period: BillingPeriod, now: datetime) -> None:
    waivers = period.waivers.all() if period.pk else ()
    waived = {(waiver.kind, waiver.subject): waiver for waiver in waivers}
    asked = now if period.ordinal is None else None  # once the close is done its waivers stay what they were
    report.exceptions = [_waived(item, waived.get((item.kind, item.subject)), asked) for item in report.exceptions]


def _waived(item: ReportedException, waiver: ExceptionWaiver | None, now: datetime | None) -> ReportedException:
    """The exception as far and as long as it is waived: more than somebody answers for, or longer, blocks again."""
    if waiver is None or item.quantity > waiver.quantity:
        return item
    told = replace(item, waived_until=waiver.expires_at, waiver_reason=waiver.reason)
    if now is not None and waiver.expires_at is not None and now >= waiver.expires_at:
        return replace(told, waiver_expired=True)
    return replace(told, blocks=False, waived_by=waiver.waived_by)


def _tokens(assessment: Assessment) -> dict[str, int]:
    return {name: count for name, count in sorted(assessment.tokens.items())}


def _all_accounted(assessment: Assessment, window: Interval, before: int | None) -> Check:
    """What nodes held, summed without any cut, is what was charged, the platform's, unowned or unpriced."""
    epochs = EpochFilter() if before is None else EpochFilter(before=before)
    held = reduce(EXACT.add, (item.device_us for item in gpu_sums([window], epochs)), Decimal(0))
    parts = reduce(
        EXACT.add,
        (part for t in assessment.device_time.values() for part in (t.charged, t.platform, t.unowned, t.unpriced)),
        Decimal(0),
    )
    detail = f"{shown(gpu_seconds(held))} GPU-seconds held, {shown(gpu_seconds(parts))} accounted for"
    return Check("held GPU time = charged + platform + unowned + unpriced", held == parts, detail)


def _all_tokens_accounted(assessment: Assessment) -> Check:
    """Tokens reported are in a charge, unowned or unpriced."""
    reported = sum(assessment.tokens.values())
    charged = sum(
        int(charge.usage_quantity)
        for charge in assessment.charges
        if charge.key.kind == "tokens" and not charge.key.correction
    )
    left = assessment.tokens_left
    detail = f"{reported:,} tokens reported, {charged:,} charged, {left:,} unowned or unpriced"
    return Check("tokens = charged + unowned + unpriced", reported == charged + left, detail)


def _account_capacity(report: Report, assessment: Assessment, window: Interval, *, thorough: bool) -> None:
    """Charged + platform + unowned + unpriced + idle = capacity, per cluster and accelerator and in sum."""
    offered: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    over = overheld(window) if thorough else {}
    for item in capacity_sums(window):
        offered[item.cluster, item.accelerator] += Fraction(item.unit_us) * device_share(item.resource)
    sums: dict[str, Decimal] = {name: Decimal(0) for name in ("charged", "platform", "unowned", "unpriced")}
    allocated = _allocated(assessment)
    idle = capacity = Decimal(0)
    for cluster, accelerator in sorted(offered.keys() | assessment.device_time.keys()):
        time = assessment.device_time.get((cluster, accelerator), DeviceTime())
        used = {name: gpu_seconds(getattr(time, name)) for name in sums}
        for name, value in used.items():
            sums[name] = EXACT.add(sums[name], value)
        known = offered.get((cluster, accelerator))
        pool: dict[str, Any] = {"cluster": cluster, "accelerator": accelerator}
        pool |= {name: number(value) for name, value in used.items()}
        if known is None:
            report.pools.append(pool | {"idle": None, "capacity": None})
            continue
        pool_capacity = round_to(known / 1_000_000, 6)
        pool_idle = EXACT.subtract(pool_capacity, sum(used.values(), Decimal(0)))
        capacity, idle = EXACT.add(capacity, pool_capacity), EXACT.add(idle, pool_idle)
        pool |= {"idle": number(pool_idle), "capacity": number(pool_capacity)}
        report.pools.append(pool | allocated.get((cluster, accelerator), {}))
        if (beyond := max(-pool_idle, over.get((cluster, accelerator), Decimal(0)))) > 0:
            report.exceptions.append(
                ReportedException("over_capacity", f"{cluster}/{accelerator}", beyond, "gpu_seconds", False,
                           "more was held than nodes offered: check capacity reports and device fractions")
            )  # fmt: skip
    report.gpu_seconds = {**sums, "idle": idle if offered else None, "capacity": capacity if offered else None}
    report.checks.append(_capacity_check(report, offered))


def _allocated(assessment: Assessment) -> dict[tuple[str, str], dict[str, Any]]:
    """Per pool the idle GPU-seconds that fall to each team, and the amount of them that a policy bills, or None."""
    billed: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for charge in assessment.charges:
        if charge.key.kind == IDLE and not charge.key.correction:
            billed[charge.key.cluster, charge.key.accelerator] += charge.amount
    return {
        (pool.cluster, pool.accelerator): {
            "idle_shares": {team: number(round_to(gpu_seconds(share), 6)) for team, share in pool.shares.items()},
            "idle_billed": format(billed[name], "f") if (name := (pool.cluster, pool.accelerator)) in billed else None,
        }
        for pool in assessment.pools
    }


def _capacity_check(report: Report, offered: dict[tuple[str, str], Fraction]) -> Check:
    unknown = [f"{pool['cluster']}/{pool['accelerator']}" for pool in report.pools if pool["capacity"] is None]
    if not offered:
        return Check("charged + platform + idle = capacity", True, "capacity unknown: no capacity was reported")
    detail = f"{shown(report.gpu_seconds['capacity'] or Decimal(0))} GPU-seconds offered"
    if unknown:
        detail += f"; capacity unknown for {', '.join(unknown)}"
    return Check("charged + platform + idle = capacity", True, detail)


def _rollups_equal_events(window: Interval) -> Check:
    difference = {name: count for name, count in rollup_difference(window).items() if count}
    detail = ", ".join(f"{name} {count:+d}" for name, count in difference.items()) or "equal in every count"
    return Check("token roll-ups = token events", not difference, detail)


def _charges_agree(period: BillingPeriod, assessment: Assessment) -> list[Check]:
    """What a close stored, against its usage rated again and against its invoices; read once for both."""
    columns = ("line_key", "usage_quantity", "platform", "unit", "unit_price")
    stored, charged = {}, Decimal("0.00")
    for key, quantity, platform, unit, price in ChargeRow.objects.filter(closing=period.ordinal).values_list(*columns):
        stored[key] = quantity
        charged += Decimal(0) if platform else round_part(EXACT.multiply(quantity, price), DIVISOR[unit], AMOUNT_PLACES)
    return [_charges_follow(stored, assessment), _invoices_equal_charges(period, charged)]


def _charges_follow(stored: Mapping[str, Decimal], assessment: Assessment) -> Check:
    again = {charge.key.digest(): charge.usage_quantity for charge in assessment.charges}
    return Check(
        "rating the stored usage again gives the same charges", stored == again,
        f"{len(stored)} charges, {len(stored.items() ^ again.items())} differ",
    )  # fmt: skip


def _invoices_equal_charges(period: BillingPeriod, charged: Decimal) -> Check:
    invoiced = period.invoices.exclude(status=Invoice.Status.VOID).aggregate(total=Sum("total"))["total"] or Decimal("0.00")
    return Check("sum of invoices = sum of charges", invoiced == charged, f"invoices {invoiced:,}, charges {charged:,}")
