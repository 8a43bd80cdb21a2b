"""Period report, which answers "can we close this month?": every reconciliation and every exception, with amounts."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Final, Self

from billing.closing import completeness, exceptions
from billing.closing.dispute_rollforward import dispute_rollforward
from billing.closing.document_reconciliation import documents_disagreeing
from billing.closing.engine_comparison import ModelComparison
from billing.closing.exceptions import Context, ReportedException, as_answered_for, number, shown
from billing.closing.models import PeriodReopening
from billing.closing.selectors import reopening_as_dict, reopenings_of
from billing.closing.unmatched_rules import UnmatchedRule, unmatched_rules
from billing.corrections.close_proof import closes_altered
from billing.invoices.acceptance import acceptance_counts
from billing.invoices.issued import issued_notes
from billing.invoices.models import BillingPeriod, Invoice, JournalExport
from billing.invoices.selectors import journal_as_dict, last_export
from billing.rating.allocation import capacity_of
from billing.rating.assessment import DeviceTime, RatingResult
from billing.rating.models import Charge as ChargeRow
from billing.rating.reference_data import gpu_seconds
from billing.rating.snapshots import lines_differing, rated_now
from billing.runtime.parallel_reads import deferred_check
from billing.usage.altered import Altered, usage_altered
from billing.usage.epochs import one_snapshot
from billing.usage.reached import Reached, reached_in
from billing.usage.scope import EpochFilter
from billing.usage.selectors import allocated_devices
from billing.usage.store.proofs import rollup_difference
from metering.intervals import Interval
from metering.messages import Message
from pricing.meters import Explanation
from pricing.money import EXACT, amount_places, round_part, round_to
from pricing.number_text import QUANTITY_PLACES, amount_text, grouped_amount, quantity_text
from pricing.rating import DIVISOR, Charge

BEFORE_CLOSE: Final = (
    exceptions.not_ended, exceptions.without_owner, exceptions.without_price, exceptions.tiers_without_price,
    exceptions.charged_apart, exceptions.costs_not_measured, exceptions.without_cost_center,
    exceptions.carried_in_closed_time, completeness.unwatched, completeness.in_quarantine, completeness.shares_unknown,
    completeness.clusters_silent, completeness.sources_silent, completeness.numbers_missing, completeness.scans_differing,
)  # fmt: skip
"""Checks of a month that is not closed yet."""
WHILE_CLOSING: Final = (exceptions.without_owner, exceptions.without_price)
ALWAYS: Final = (
    exceptions.not_rated, completeness.allocated_twice, completeness.ends_estimated, exceptions.engines_differing,
    exceptions.energy_differing,
)  # fmt: skip
AT_CUT_OFF: Final = (
    exceptions.not_ended, exceptions.tiers_without_price, exceptions.costs_not_measured, completeness.unwatched,
    completeness.in_quarantine, completeness.shares_unknown, completeness.numbers_missing, completeness.scans_differing,
)  # fmt: skip
"""Checks whose result may change between the check and the cut-off; changed usage is detected by the fingerprint."""


@dataclass(frozen=True, slots=True)
class Check:
    """One reconciliation: what was compared, the figures, and `ok` if they agree.

    `compared`: False if there was nothing to compare with; `ok` is True then.
    `holds`: True if a month in which it does not agree cannot be closed.
    `decided_by`: a kind of exception; a blocking one makes the check disagree, so that a waiver makes it agree.
    """

    name: Message
    ok: bool
    detail: Message
    compared: bool = True
    holds: bool = True
    decided_by: str = field(default="", compare=False)


@dataclass
class Report:
    """Report of a period: reconciliations, exceptions, and figures of capacity, tokens and rounding."""

    period: str
    status: str
    checks: list[Check] = field(default_factory=list)
    exceptions: list[ReportedException] = field(default_factory=list)
    gpu_seconds: dict[str, Decimal | None] = field(default_factory=dict)
    pools: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    engines: list[ModelComparison] = field(default_factory=list)
    unmatched: list[UnmatchedRule] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    journal: JournalExport | None = None
    reopenings: list[PeriodReopening] = field(default_factory=list)
    acceptance: dict[str, int] = field(default_factory=dict)
    rounding: list[dict[str, str]] = field(default_factory=list)
    """Exact sum of the lines, sum of the rounded lines, and their difference, by team and month of usage."""

    @property
    def rounded(self) -> list[dict[str, str]]:
        """Return the teams and months in which rounding came to a cent or more, the largest first."""
        moved = [row for row in self.rounding if abs(Decimal(row["rounding"])) >= Decimal("0.01")]
        return sorted(moved, key=lambda row: -abs(Decimal(row["rounding"])))

    @property
    def blocking(self) -> list[ReportedException]:
        return [item for item in self.exceptions if item.blocks]

    @property
    def closable(self) -> bool:
        """Return True if the month can be closed now (or is)."""
        return not self.blocking and all(check.ok for check in self.checks if check.holds)

    @property
    def adds_up(self) -> bool:
        """Return True if every reconciliation agrees, also those that block no close."""
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON of the contract."""
        return {
            "period": self.period,
            "status": self.status,
            "closable": self.closable,
            "checks": [{"name": str(c.name), "ok": c.ok, "detail": str(c.detail)} for c in self.checks],
            "exceptions": [
                {
                    "kind": e.kind, "subject": e.subject, "quantity": number(e.quantity), "unit": e.unit,
                    "blocks": e.blocks, "action": str(e.action), "waived_by": e.waived_by or None,
                    "amount": None if e.amount is None else amount_text(e.amount), "owner": e.facts.owner.value,
                    "solution": str(e.facts.solution), "link": e.facts.link(self.period),
                    "waived_until": e.waived_until.isoformat() if e.waived_until else None,
                    "waiver_reason": e.waiver_reason or None, "waiver_expired": e.waiver_expired,
                }
                for e in self.exceptions
            ],
            "gpu_seconds": {name: None if v is None else number(v) for name, v in self.gpu_seconds.items()},
            "pools": self.pools,
            "tokens": self.tokens,
            "unmatched_rules": [{"kind": rule.kind, "subject": rule.subject} for rule in self.unmatched],
            "reached": [
                {"kind": one.kind, "name": one.name, "from_file": one.from_file, "through": one.through.isoformat()}
                for one in self.reached
            ],
            "reopenings": [reopening_as_dict(item) for item in self.reopenings],
            "acceptance": self.acceptance,
            "rounding": self.rounding,
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


def build_report(
    period: BillingPeriod, *, now: datetime, thorough: bool = True, assessment: RatingResult | None = None
) -> Report:
    """Assess the period as a close now would (or, once closed, as its close did). `thorough` also sums all events.

    `assessment`: if the caller has made it already.
    """
    with one_snapshot():
        return judged(found_in(period, now, assessment, thorough=thorough), period, now, thorough=thorough)


def report_at_cut_off(context: Context, *, same: bool) -> Report:
    """Report what can block the close of an open month apart from rated usage; `same`: inputs are those of the check."""
    report = Report(context.period.month, context.period.status)
    checks = AT_CUT_OFF if same else (*AT_CUT_OFF, completeness.allocated_twice)
    report.exceptions = [item for check in checks for item in check(context)]
    _waive(report, context.period, context.now)
    return report


def accounted(assessment: RatingResult, held: Decimal) -> list[Check]:
    """Check that all usage is billed or accounted for; `held`: control total of allocated device-microseconds."""
    return [_all_accounted(assessment, held), _all_tokens_accounted(assessment)]


@dataclass(frozen=True, slots=True)
class UsageReads:
    """Reads to compare a rating with: control total of allocated device-microseconds, and altered usage."""

    held: Callable[[], Decimal]
    altered: Callable[[], list[Altered]]

    @classmethod
    def begun(cls, period: BillingPeriod) -> Self:
        """Start the reads, as the close of the period sees usage, or as it is known now."""
        window, close_seq = period.window, period.close_seq
        known = EpochFilter() if close_seq is None else EpochFilter(before=close_seq)
        return cls(deferred_check(allocated_devices, window, known), deferred_check(usage_altered, window))


def judged(report: Report, period: BillingPeriod, now: datetime, *, thorough: bool = True) -> Report:
    """Apply waivers to what was found of a period, and add its journal: both can change without any usage."""
    report.exceptions += exceptions.teams_blocked(period)
    if thorough:
        report.journal = last_export(period)
        report.reopenings = reopenings_of(period)
        report.acceptance = acceptance_counts(period, now) if period.close_seq is not None else {}
        report.exceptions += exceptions.journal_unacknowledged(report.journal, now)
        report.exceptions += exceptions.documents_without_cost_center(period) if period.close_seq is not None else ()
        disputes = dispute_rollforward(period, now)
        report.exceptions += exceptions.disputes_left(period) if disputes.upheld else ()
        faults = closes_altered() if period.close_seq is not None else []
        if altered := [fault for fault in faults if fault.month == period.month]:
            detail = Message.joined(
                Message("%(expected)s expected, found %(found)s", expected=fault.expected, found=fault.found)
                for fault in altered
            )
            report.checks.append(Check(Message("the close is as it was made"), False, detail))
        name = Message("disputes before + opened - decided = open at the end")
        report.checks.append(Check(name, disputes.agrees, disputes.detail))
    _waive(report, period, now)
    blocking = {item.kind for item in report.blocking}
    # after the waivers: a waived exception no longer fails its check
    report.checks = [replace(item, ok=item.ok and item.decided_by not in blocking) for item in report.checks]
    return report


def found_in(
    period: BillingPeriod, now: datetime, assessment: RatingResult | None = None, *, thorough: bool = True,
    reads: UsageReads | None = None,
) -> Report:  # fmt: skip
    """Find everything in usage, owners and prices of a period, without waivers. `reads`: if the caller has started them."""
    window, reads = period.window, reads or UsageReads.begun(period)
    rated = assessment or rated_now(month=period.month, window=window, zone=period.zone, close_seq=period.close_seq)
    context, is_open = Context(period, now, rated), period.close_seq is None
    report = Report(period.month, period.status, tokens=dict(sorted(rated.tokens.items())), engines=context.engines)
    report.rounding = _rounding(rated.charges)
    # a repair for blocked teams may cost others an owner or a price
    closing = WHILE_CLOSING if period.status == BillingPeriod.Status.CLOSING else ()
    for check in (*(BEFORE_CLOSE if is_open else closing), *ALWAYS, *([exceptions.months_unbilled] if thorough else [])):
        report.exceptions += check(context)
    _account_capacity(report, context)
    report.exceptions += exceptions.idle_without_capacity(context, report.pools) if is_open else ()
    partly = completeness.used_without_capacity(context)
    report.exceptions += completeness.idle_partly_unknown(context, partly) if is_open else ()
    if thorough or is_open:
        pools = [pool for pool in report.pools if pool["idle"] is not None]
        idle = {(pool["cluster"], pool["accelerator"]): Decimal(pool["idle"]) for pool in pools}
        report.exceptions += completeness.capacity_exceeded(context, idle)
    report.unmatched, report.reached = unmatched_rules(context), reached_in(window)
    report.exceptions += completeness.files_ending_early(context, report.reached) if is_open else ()
    report.checks = [*accounted(rated, reads.held()), _engines_agree(context), _capacity_check(report, partly)]
    report.checks += [_scans_agree(context)] if is_open else []
    report.checks.append(as_reported(reads.altered()))
    report.checks += [_rollups_equal_events(window)] if thorough else []
    if period.status == BillingPeriod.Status.CLOSED:
        report.checks += _charges_agree(period, rated, thorough=thorough)
    report.checks.append(_energy_agrees(context))
    return report


def _rounding(charges: Iterable[Charge]) -> list[dict[str, str]]:
    """Return what rounding each line to the cent changed, by team and month of usage, with 6 decimals."""
    exact: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    lines: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for charge in charges:
        if not charge.key.platform:
            name = charge.key.team, charge.key.charge_period
            exact[name] += charge.quantity * Fraction(charge.unit_price)
            lines[name] += charge.amount
    return [
        {
            "team": team, "month": month, "exact": quantity_text(round_to(exact[team, month], QUANTITY_PLACES)),
            "lines": amount_text(amount),
            "rounding": quantity_text(round_to(Fraction(amount) - exact[team, month], QUANTITY_PLACES)),
        }
        for (team, month), amount in sorted(lines.items())
    ]  # fmt: skip


def _documents_agree(period: BillingPeriod) -> Check:
    """Check that issued documents have one sum as lines, as documents, on pages, in the ledger's journal and in FOCUS."""
    count, total, differing = documents_disagreeing(period)
    detail = Message.joined(differing[:5]) or Message.counted(
        "%(n)s document, %(total)s", "%(n)s documents, %(total)s", count, n=count, total=grouped_amount(total)
    )
    return Check(Message("lines = documents = ledger journal = FOCUS"), not differing, detail)


def _engines_agree(context: Context) -> Check:
    """Check that gateways' tokens are those that inference servers counted, if any were read; a waiver makes it agree."""
    name = Message("gateway tokens = inference servers' counters (%(limit)s)", limit="0.5 %")
    if not context.engines:
        return Check(name, True, Message("no counters were reported"), compared=False)
    details = [
        Message(
            "%(model)s: %(n)s of %(all)s tokens differ, %(days)s of %(of)s days compared",
            model=item.model, n=f"{item.total.difference:,}", all=f"{item.total.engine_input + item.total.engine_output:,}",
            days=item.days, of=item.days + item.not_covered,
        )
        for item in context.engines
    ]  # fmt: skip
    compared = any(item.days for item in context.engines)
    return Check(name, True, Message.joined(details), compared=compared, decided_by="engine_difference")


def _energy_agrees(context: Context) -> Check:
    name = Message("energy at the meter = charged + shared (within %(limit)s)", limit="3%")
    words = [item.words for item in context.energy]
    detail = Message.joined(words) or Message("no meter was read: `manage.py meter_reading`")
    compared = any(not item.unknown for item in context.energy)
    return Check(name, True, detail, compared=compared, decided_by="energy_difference")


def _scans_agree(context: Context) -> Check:
    name = Message("watched allocations = hourly scans (within %(limit)s)", limit=f"{completeness.SCAN_TOLERANCE:.1%}")
    if not context.scans:
        return Check(name, True, Message("no scan was reported"), compared=False)
    scanned, differing = sum(scan.scanned for scan in context.scans), sum(scan.differing for scan in context.scans)
    detail = Message.counted(
        "%(n)s unit in %(scans)s scans, %(differ)s differ", "%(n)s units in %(scans)s scans, %(differ)s differ", scanned,
        n=f"{scanned:,}", scans=f"{sum(scan.scans for scan in context.scans):,}", differ=f"{differing:,}",
    )
    return Check(name, True, detail, decided_by="scan_difference")


def _waive(report: Report, period: BillingPeriod, now: datetime) -> None:
    waivers = period.waivers.all() if period.pk else ()
    waived = {(waiver.kind, waiver.subject): waiver for waiver in waivers}
    asked = now if period.close_seq is None else None  # after the close its waivers no longer expire
    report.exceptions = [as_answered_for(item, waived.get((item.kind, item.subject)), asked) for item in report.exceptions]


def _all_accounted(assessment: RatingResult, held: Decimal) -> Check:
    """Check that allocated time, a control total without cuts, is the sum of charged, platform, unowned, unpriced time."""
    parts = reduce(
        EXACT.add,
        (part for t in assessment.device_time.values() for part in (t.charged, t.platform, t.unowned, t.unpriced)),
        Decimal(0),
    )
    detail = Message(
        "%(held)s GPU-seconds metered, %(parts)s accounted for",
        held=shown(gpu_seconds(held)), parts=shown(gpu_seconds(parts)),
    )
    return Check(Message("all metered GPU time is accounted for"), held == parts, detail)


def _all_tokens_accounted(assessment: RatingResult) -> Check:
    """Check that all reported tokens are in a charge, unowned or unpriced."""
    reported = sum(assessment.tokens.values())
    charged = sum(
        int(charge.usage_quantity)
        for charge in assessment.charges
        if charge.key.counts_tokens and not charge.key.correction
    )
    left, held = assessment.tokens_left, assessment.tokens_held
    counts = {"n": f"{reported:,}", "charged": f"{charged:,}", "left": f"{left:,}"}
    detail = Message("%(n)s tokens reported, %(charged)s charged, %(left)s unowned or unpriced", **counts)
    if held:
        detail = Message(
            "%(n)s tokens reported, %(charged)s charged, %(left)s unowned or unpriced, %(held)s of teams that cannot be "
            "rated",
            **counts, held=f"{held:,}",
        )
    return Check(Message("tokens = charged + unowned + unpriced"), reported == charged + left + held, detail)


def _account_capacity(report: Report, context: Context) -> None:
    """Add charged + platform + unowned + unpriced + idle = capacity to the report, per pool and in total."""
    offered, device_time = capacity_of(context.period.window, None), context.rated.device_time
    sums: dict[str, Decimal] = {name: Decimal(0) for name in ("charged", "platform", "unowned", "unpriced")}
    allocated = _allocated(context.rated)
    idle = capacity = Decimal(0)
    for name in sorted(offered.keys() | device_time.keys()):
        time = device_time.get(name, DeviceTime())
        used = {use: gpu_seconds(getattr(time, use)) for use in sums}
        sums = {use: EXACT.add(total, used[use]) for use, total in sums.items()}
        pool: dict[str, Any] = {"cluster": name[0], "accelerator": name[1]}
        pool |= {use: number(value) for use, value in used.items()}
        if name not in offered:
            report.pools.append(pool | {"idle": None, "capacity": None})
            continue
        pool_capacity = gpu_seconds(offered[name])
        pool_idle = EXACT.subtract(pool_capacity, reduce(EXACT.add, used.values()))
        capacity, idle = EXACT.add(capacity, pool_capacity), EXACT.add(idle, pool_idle)
        pool |= {"idle": number(pool_idle), "capacity": number(pool_capacity)}
        report.pools.append(pool | allocated.get(name, {}))
    report.gpu_seconds = {**sums, "idle": idle if offered else None, "capacity": capacity if offered else None}


def _allocated(assessment: RatingResult) -> dict[tuple[str, str], dict[str, Any]]:
    """Return per pool the idle GPU-seconds that fall to each team, and the amount of them that a policy bills, or None."""
    billed: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for charge in assessment.charges:
        if charge.key.what.explained_by is Explanation.POOL and not charge.key.correction:
            billed[charge.key.cluster, charge.key.accelerator] += charge.amount
    return {
        (pool.cluster, pool.accelerator): {
            "idle_shares": {team: number(round_to(gpu_seconds(share), 6)) for team, share in pool.shares.items()},
            "idle_billed": amount_text(billed[name]) if (name := (pool.cluster, pool.accelerator)) in billed else None,
        }
        for pool in assessment.pools
    }


def _capacity_check(report: Report, partly: Iterable[tuple[str, str]]) -> Check:
    """Check that used and idle time add up to the capacity wherever no more was allocated than nodes offered.

    `partly`: pools used while nobody reported their capacity.
    """
    name = Message("charged + platform + idle = capacity")
    if report.gpu_seconds["capacity"] is None:
        return Check(name, True, Message("capacity unknown: no capacity was reported"), compared=False, holds=False)
    beyond = [item for item in report.exceptions if item.kind == "over_capacity"]
    unknown = [f"{pool['cluster']}/{pool['accelerator']}" for pool in report.pools if pool["capacity"] is None]
    details = [Message("%(n)s GPU-seconds offered", n=shown(report.gpu_seconds["capacity"]))]
    if beyond:
        pools = ", ".join(item.subject for item in beyond)
        details.append(Message("more was allocated than offered in %(pools)s", pools=pools))
    if unknown:
        details.append(Message("capacity unknown for %(pools)s", pools=", ".join(unknown)))
    if pools := ", ".join("/".join(pool) for pool in partly):
        details.append(Message(
            "capacity unknown for a part of the month in %(pools)s, whose idle time is too low", pools=pools
        ))  # fmt: skip
    return Check(name, not beyond, Message.joined(details), holds=False)


def as_reported(altered: Sequence[Altered]) -> Check:
    """Check that stored usage is what was reported: no row was changed, added or removed in the database."""
    detail = Message.joined(item.detail for item in altered) or Message("every row has the hash of its report")
    return Check(Message("stored usage = reported usage"), not altered, detail)


def _rollups_equal_events(window: Interval) -> Check:
    difference = {name: count for name, count in rollup_difference(window).items() if count}
    detail = ", ".join(f"{name} {count:+d}" for name, count in difference.items())
    words = Message("%(differences)s", differences=detail) if detail else Message("equal in every count")
    return Check(Message("token roll-ups = token events"), not difference, words)


def _charges_agree(period: BillingPeriod, assessment: RatingResult, *, thorough: bool) -> list[Check]:
    """Check what a close stored against its usage rated again, against its invoices, and against issued documents."""
    columns = ("line_key", "usage_quantity", "platform", "unit", "unit_price")
    stored, charged = dict[str, tuple[Decimal, Decimal]](), Decimal("0.00")
    rows = ChargeRow.objects.filter(close_seq=period.close_number)
    for key, quantity, platform, unit, price in rows.values_list(*columns):
        stored[key] = quantity, price
        # rounded one by one, as the lines of invoices are
        charged += Decimal(0) if platform else round_part(EXACT.multiply(quantity, price), DIVISOR[unit], amount_places())
    live = list(period.invoices.exclude(status=Invoice.Status.VOID).values_list("total", "number"))
    checks = [_charges_follow(stored, assessment), _invoices_equal_charges([total for total, _ in live], charged)]
    issued = thorough and (any(number for _, number in live) or bool(issued_notes(period.month)))
    return checks + ([_documents_agree(period)] if issued else [])


def _charges_follow(stored: Mapping[str, tuple[Decimal, Decimal]], assessment: RatingResult) -> Check:
    differing = lines_differing(stored, assessment)
    return Check(
        Message("rating the stored usage again gives the same charges"), not differing,
        Message.counted(
            "%(n)s charge, %(differ)s differ", "%(n)s charges, %(differ)s differ", len(stored),
            n=len(stored), differ=differing,
        ),
    )


def _invoices_equal_charges(totals: Sequence[Decimal], charged: Decimal) -> Check:
    invoiced = sum(totals, Decimal("0.00"))
    return Check(Message("sum of invoices = sum of charges"), invoiced == charged, Message(
        "invoices %(invoiced)s, charges %(charged)s", invoiced=grouped_amount(invoiced), charged=grouped_amount(charged)
    ))
