"""Close of a month: once, completely, or not at all.

The month is checked and rated while usage comes in. Two transactions follow. The first locks ingest for an instant, in
which it sets the cut-off and tests whether any rating input has changed. The second writes charges and drafts: of
that rating if none has, else of another one as of the close. If the process dies between them, the period stays in
`closing`, and the next run rates it again and finishes it with the same result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import transaction
from django.db.models import QuerySet

from billing.closing.close_check import CloseCheck, close_check
from billing.closing.models import BlockedTeam
from billing.closing.partial_close import TEAMS_NAMED, differing, unwritten
from billing.closing.report import Report, UsageReads, accounted, as_reported, build_report
from billing.closing.services.per_team_write import write_teams
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.drafts import Draft, charges_by_invoice, drafts_write, month_windows, parties_of
from billing.invoices.services.periods import PeriodError, period_open
from billing.rating import rules
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.gathering import layouts_write
from billing.rating.input_fingerprint import reference_data_lock
from billing.rating.services.charges import capacity_freeze, charges_write, idle_shares_write, pool_times_write
from billing.runtime.gc_pause import collector_paused
from billing.runtime.parallel_reads import deferred_check, parallel_reads
from billing.runtime.progress import ProgressCallback, no_progress
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from billing.usage.altered import usage_altered
from billing.usage.digests import usage_digest
from billing.usage.epochs import epoch_advance, epoch_withdraw, ingest_lock_exclusive, next_close_seq
from metering.messages import Message, UserError
from pricing.number_text import amounts_text
from pricing.rating import Charge


class TeamsBlockedError(PeriodError):
    """Error: teams with broken facts are blocked, the others are billed. The period is closing until all are billed."""

    code = "teams_blocked"

    def __init__(self, month: str, held: list[BlockedTeam], billed: int) -> None:
        parts: list[str] = [
            Message.counted(
                "period %(month)s is not closed: %(n)s of its teams cannot be billed, %(drafted)s invoice of others is "
                "drafted",
                "period %(month)s is not closed: %(n)s of its teams cannot be billed, %(drafted)s invoices of others are "
                "drafted",
                billed, month=month, n=len(held), drafted=billed,
            ),
            Message("repair the facts, then close again"),
            *(f"{item.team}: {item.problem}" for item in held[:TEAMS_NAMED]),
        ]
        if len(held) > TEAMS_NAMED:
            parts.append(Message("and %(n)s more", n=len(held) - TEAMS_NAMED))
        super().__init__(Message.joined(parts))


class CloseRefusedError(UserError):
    """Error: exceptions that are neither solved nor waived block the close."""

    code = "close_refused"

    def __init__(self, report: Report) -> None:
        super().__init__(_blocked_by(report))
        self.report = report


def _blocked_by(report: Report) -> Message:
    """Return the number of exceptions that block a close; without any, the reconciliation that fails."""
    count = len(report.blocking)
    failing = next((check for check in report.checks if check.holds and not check.ok), None)
    if not count and failing is not None:
        return Message(
            "period %(month)s cannot be closed: %(name)s: %(detail)s",
            month=report.period, name=failing.name, detail=failing.detail,
        )
    if count == 1:
        return Message("period %(month)s cannot be closed: 1 exception blocks it", month=report.period)
    return Message("period %(month)s cannot be closed: %(n)s exceptions block it", month=report.period, n=count)


@dataclass(frozen=True)
class Closed:
    """Outcome of a close."""

    period: BillingPeriod
    invoices: int
    changed: bool


def period_close(*, month: str, actor: str, now: datetime, report_progress: ProgressCallback = no_progress) -> Closed:
    """Close the month and build its drafts; a closed month is left as it is. `report_progress` is called at each step.

    Raises CloseRefusedError; TeamsBlockedError once the others are billed; PeriodError.
    """
    period, checked = period_open(month=month), None
    with collector_paused():
        if period.status == BillingPeriod.Status.OPEN:
            checked = close_check(period, now=now, report_progress=report_progress)
            _require_closable(checked.report)
        report_progress("cut_off", 0, 0)
        rated = _cut_off(month, actor, now, checked)
        return _bill(month, actor, now, rated, report_progress)


def _require_closable(report: Report) -> None:
    if not report.closable:
        raise CloseRefusedError(report)


def _cut_off(month: str, actor: str, now: datetime, checked: CloseCheck | None = None) -> RatingResult | None:
    """Set the cut-off of an open month that can be closed; return its rating if that is what the close bills.

    A month that was opened again since it was checked is checked while ingest waits.
    """
    with transaction.atomic():
        period = BillingPeriod.objects.select_for_update().get(month=month)
        if period.status != BillingPeriod.Status.OPEN:
            return None
        ingest_lock_exclusive()
        _refuse_beside_unbilled_close()
        # no owner or price may change between the comparison of inputs and the new epoch
        reference_data_lock()
        report, rated = (checked or close_check(period, now=now)).at_cut_off(period, now=now)
        _require_closable(report)
        period.close_seq = close_seq = next_close_seq()
        period.status = BillingPeriod.Status.CLOSING
        period.closed_by = actor
        period.save()
        epoch_advance(close_seq=close_seq, start=period.start, end=period.end, rating_rules=rules.NOW)
        capacity_freeze(window=period.window, close_seq=close_seq)
        audit_record(actor=actor, action="period_cut_off", subject=month, detail={"close_seq": period.close_seq})
        return rated


def _refuse_beside_unbilled_close() -> None:
    """Raise PeriodError while a close has billed nothing yet.

    That close may be withdrawn; another one behind it would have billed its late usage.
    """
    for period in BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSING).order_by("close_seq"):
        if not _live(period).exists():
            raise PeriodError(Message(
                "period %(month)s is being closed: finish `manage.py period_close %(month)s` first, or have two persons "
                "open it again",
                month=period.month,
            ))


def _bill(
    month: str, actor: str, now: datetime, rated: RatingResult | None, report_progress: ProgressCallback
) -> Closed:
    """Write charges and drafts of a period whose cut-off is set; `rated`: as its close sees it, None to rate it again.

    The close belongs to the person who set the cut-off; `actor` adds who acts under that name, if it is the same.
    """
    with parallel_reads(), transaction.atomic():
        period = BillingPeriod.objects.select_for_update().get(month=month)
        if period.status == BillingPeriod.Status.CLOSED:
            return Closed(period, _live(period).count(), changed=False)
        if period.status == BillingPeriod.Status.OPEN:
            raise PeriodError(Message(
                "period %(month)s was opened again while it was being closed: look at it, then close again", month=month
            ))
        period.closed_by = actor if actor == period.closed_by else period.closed_by
        window, reads = period.window, None if rated else UsageReads.begun(period)
        usage = deferred_check(usage_digest, window, period.close_number)
        if rated is None:
            report_progress("rate", 0, 0)
            rated = rate_period(window=window, zone=period.zone, close_seq=period.close_seq)
        # with a rating of the check the cut-off has compared the inputs: nothing can be missing
        lost = reads is not None and (unbillable(rated, reads.held()) or bool(reads.altered()))
        blocked = [] if lost else _write(period, rated, now, report_progress)
        if lost:
            _take_cut_off_back(period, rated, now)
        elif not blocked:
            pool_times_write(assessment=rated, close_seq=period.close_number)
            _closed(period, now, usage())
    if lost:
        # raised after the commit: the withdrawal of the cut-off must stay
        raise CloseRefusedError(build_report(period, now=now, thorough=False))
    if blocked:
        raise TeamsBlockedError(month, blocked, _live(period).count())
    return Closed(period, _live(period).count(), changed=True)


def unbillable(assessment: RatingResult, held: Decimal) -> bool:
    """Return True if some usage could not be billed, so that nothing is; `held`: control total of device-microseconds."""
    missing = assessment.unowned or assessment.unpriced or assessment.entangled
    return bool(missing) or not all(check.ok for check in accounted(assessment, held))


def _take_cut_off_back(period: BillingPeriod, assessment: RatingResult, now: datetime) -> None:
    """Open a month again of which nothing was written: usage without owner or price came in at the last moment, or charges
    of other teams depend on a team that cannot be rated.

    While the period is `closing`, owners and prices are locked, so that nobody could repair it.  Raises PeriodError if
    teams are billed already.
    """
    if _live(period).exists():
        if assessment.entangled:
            raise PeriodError(Message.joined([
                Message("period %(month)s: what others pay hangs on teams that cannot be rated", month=period.month),
                Message("repair the facts, then close again"),
                *(f"{team}: {problem}" for team, problem in sorted(assessment.faults.items())),
            ]))
        if altered := usage_altered(period.window):
            failing = as_reported(altered)
            raise PeriodError(Message(
                "period %(month)s cannot be closed: %(name)s: %(detail)s",
                month=period.month, name=failing.name, detail=failing.detail,
            ))
        raise PeriodError(Message(
            "period %(month)s lost an owner or a price after its cut-off: put it back, then close again", month=period.month
        ))
    ingest_lock_exclusive()
    epoch_withdraw(close_seq=period.close_number, now=now)
    audit_record(
        actor=period.closed_by, action="period_cut_off_withdraw", subject=period.month,
        detail={"close_seq": period.close_seq},
    )  # fmt: skip
    period.status, period.close_seq, period.closed_by = BillingPeriod.Status.OPEN, None, ""
    period.save()


def _write(
    period: BillingPeriod, assessment: RatingResult, now: datetime, report_progress: ProgressCallback
) -> list[BlockedTeam]:
    """Write what is not written yet: every team, or those that an earlier attempt blocked; return the blocked teams."""
    close_seq, again = period.close_number, period.held_teams.exists()
    if again and (moved := differing(period, assessment)):
        raise PeriodError(Message(
            "the repair changed what is billed already of %(teams)s in %(month)s: change only what concerns the teams "
            "that are blocked, or have two persons open %(month)s again with `period_reopen`",
            teams=", ".join(moved[:TEAMS_NAMED]), month=period.month,
        ))

    report_progress("write", 0, 0)

    def write(part: RatingResult) -> None:
        charges_write(assessment=part, close_seq=close_seq)
        draft_all(period, part.charges, report_progress)

    blocked = write_teams(unwritten(period, assessment) if again else assessment, write)
    if not again:
        idle_shares_write(assessment=assessment, close_seq=close_seq)
        layouts_write(assessment.layouts, close_seq)
    # replaced by the teams that this attempt blocks
    period.held_teams.all().delete()
    for item in blocked:
        item.period, item.held_at = period, now
    BlockedTeam.objects.bulk_create(blocked)
    if blocked:
        detail = {item.team: item.problem for item in blocked}
        audit_record(actor=period.closed_by, action="period_hold", subject=period.month, detail=detail)
    return blocked


def _closed(period: BillingPeriod, now: datetime, usage: Mapping[str, str]) -> None:
    """Mark a period closed; `usage`: the digest of the billed usage, for the audit chain."""
    period.status, period.closed_at = BillingPeriod.Status.CLOSED, now
    period.save()
    totals = list(_live(period).values_list("total", flat=True))
    audit_record(
        actor=period.closed_by, action="period_close", subject=period.month,
        detail={"invoices": len(totals), "total": amounts_text(totals), "close_seq": period.close_seq, "usage": dict(usage)},
    )  # fmt: skip


def _live(period: BillingPeriod) -> QuerySet[Invoice]:
    return period.invoices.exclude(status=Invoice.Status.VOID)


def draft_all(period: BillingPeriod, charges: list[Charge], report_progress: ProgressCallback) -> None:
    """Build the drafts of a period from its charges, one per team and mode."""
    setup, teams = billing_setup(), Team.objects.in_bulk(field_name="code")
    grouped, windows = charges_by_invoice(charges), month_windows()

    def drafts() -> Iterator[Draft]:
        for number, ((code, shadow), items) in enumerate(sorted(grouped.items()), start=1):
            lines = invoice_lines(items)
            yield lines, parties_of(period, setup, teams[code], lines, windows, shadow=shadow)
            report_progress("draft", number, len(grouped))

    drafts_write(period, setup, teams, len(grouped), drafts())
