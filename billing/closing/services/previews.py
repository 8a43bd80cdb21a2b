"""Keeping the last assessment of large months, so that no page waits for one."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from billing.closing.cached_report import report_kept
from billing.closing.models import ProvisionalStatement, ProvisionalTeamStatement
from billing.closing.previews import KeptSums, StatementLine, TeamContent, by_team, due, kind_sums, large, month_facts
from billing.closing.previous_month_to_date import DaysBefore
from billing.closing.report import found_in
from billing.closing.weekly_usage_profile import weekly_usage_profile
from billing.invoices.line_rollups import LineRollup, MonthRollups, encoded, line_rollups, wasting_jobs
from billing.invoices.lines import Line, invoice_lines
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.invoices.services.drafts import charges_by_invoice
from billing.rating.assessment import RatingResult, rate_period
from billing.runtime.bulk_copy import rows_copy
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.selectors import usage_months
from metering.intervals import Interval, month_of
from metering.messages import Message

PREVIEW_LOCK, REFRESH_LOCK = 0x5056, 0x5057
MONTHS_KEPT = 3
"""How many of the newest months the scheduler assesses."""


def statement_line(line: Line) -> StatementLine:
    """A line of charges that no close has billed yet."""
    charge = line.charge
    return StatementLine(charge.key, line.position, line.quantity, charge.unit_price, line.amount, line.energy_kwh)


def preview_keep(
    period: BillingPeriod, assessment: RatingResult, *, as_of: datetime, took_ms: int, at_leisure: bool = False
) -> None:
    """Keep an assessment of a month where it is large.

    at_leisure: when nobody waits for it: with its use by hour of the week; of a small month just that it is small.
    """
    size = len(assessment.charges) + len(assessment.verdicts)
    if not large(size) and not at_leisure:
        return
    teams = _contents(assessment) if large(size) else {}
    started = time.monotonic()
    facts, compared = month_facts(assessment), dict[str, list[LineRollup]]()
    if at_leisure and teams:
        compared, until = _compared(period, assessment, as_of)
        facts = replace(facts, use=weekly_usage_profile(period, teams.values(), as_of), compared_until=until)
    took_ms += round((time.monotonic() - started) * 1000)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PREVIEW_LOCK])
        kept = {
            "ordinal": period.ordinal, "as_of": as_of, "took_ms": took_ms, "lines": size,
            "facts": encoded(facts) if teams else b"",
        }  # fmt: skip
        preview, _ = ProvisionalStatement.objects.update_or_create(month=period.month, defaults=kept)
        preview.teams.all().delete()
        rows = (
            (preview.pk, code, encoded(_sums(content)), encoded(content), encoded(compared.get(code, [])))
            for code, content in _with_gone(teams, compared)
        )
        rows_copy(ProvisionalTeamStatement, ("preview_id", "team", "sums", "content", "compared"), rows)


def _compared(
    period: BillingPeriod, assessment: RatingResult, now: datetime
) -> tuple[dict[str, list[LineRollup]], datetime | None]:
    """Sums by team of as many days of the month before a running one, and until when; nothing of one that is over."""
    reference_data = assessment.reference_data
    if reference_data is None or not period.start <= now < period.end:
        return {}, None
    found = DaysBefore.of(period, now, reference_data)
    if found is None or found.assessed.faults:  # what is unknown is compared with nothing
        return {}, None
    sums: dict[str, list[LineRollup]] = defaultdict(list)
    for item in line_rollups([statement_line(line) for line in found.lines]):
        sums[item.team].append(item)
    return sums, found.window.end


def _with_gone(
    teams: Mapping[str, TeamContent], compared: Mapping[str, list[LineRollup]]
) -> Iterator[tuple[str, TeamContent]]:
    """The teams of the month, and those that only the month before had."""
    yield from teams.items()
    yield from ((code, TeamContent()) for code in compared if code not in teams)


def _contents(assessment: RatingResult) -> dict[str, TeamContent]:
    verdicts, lines = by_team(assessment.verdicts), defaultdict[tuple[str, bool], list[StatementLine]](list)
    for key, charges in charges_by_invoice(assessment.charges).items():
        lines[key] = [statement_line(line) for line in invoice_lines(charges)]
    codes = sorted({code for code, _ in lines} | set(verdicts))
    return {
        code: TeamContent(lines.get((code, False), []), lines.get((code, True), []), verdicts.get(code, []))
        for code in codes
    }


def _sums(content: TeamContent) -> KeptSums:
    facets = MonthRollups(line_rollups(content.charged), line_rollups(content.shadow), wasting_jobs(content.verdicts))
    return KeptSums(kind_sums(content.charged), kind_sums(content.shadow), facets)


def preview_make(period: BillingPeriod, *, now: datetime) -> ProvisionalStatement:
    """Assess a month now and keep what came of it."""
    started = time.monotonic()
    assessment = rate_period(
        window=Interval(period.start, period.end), zone=period.zone, ordinal=period.ordinal, isolate=True
    )
    took = round((time.monotonic() - started) * 1000)
    preview_keep(period, assessment, as_of=now, took_ms=took, at_leisure=True)
    return ProvisionalStatement.objects.defer("facts", "report").get(month=period.month)


def report_make(period: BillingPeriod, *, now: datetime) -> None:
    """Make the whole report of a month whose preview is kept, and keep it beside."""
    started = time.monotonic()
    facts = report_kept(found_in(period, now))
    took = round((time.monotonic() - started) * 1000)
    kept = ProvisionalStatement.objects.filter(month=period.month)
    kept.update(report=facts, report_as_of=now, report_took_ms=took)


def month_assess(*, month: str, now: datetime) -> Message:
    """Assess a month for its pages, whatever is kept of it; returns what was done in words."""
    period = period_of(month)
    preview = preview_make(period, now=now)
    if large(preview.lines):
        report_make(period, now=now)
    return Message.counted(
        "%(n)s line or verdict assessed", "%(n)s lines and verdicts assessed", preview.lines, n=preview.lines
    )


def previews_refresh() -> int:
    """Assess the newest months where it is time to, unless somebody is at it; returns how often it assessed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [REFRESH_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        try:
            return sum(_refresh(period) for period in _open_periods())
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [REFRESH_LOCK])


def _open_periods() -> list[BillingPeriod]:
    try:
        zone, now = billing_setup().zone, timezone.now()
    except NoSetupError:
        return []
    known = {period.month: period for period in BillingPeriod.objects.all()}
    used = sorted({month_of(now, zone), *usage_months(now, zone), *known}, reverse=True)[:MONTHS_KEPT]
    return [known.get(month) or period_of(month) for month in used]


def _refresh(period: BillingPeriod) -> int:
    kept, done = ProvisionalStatement.objects.defer("facts", "report").filter(month=period.month).first(), 0
    closed = period.status == BillingPeriod.Status.CLOSED
    changes = not closed and kept is not None and due(kept.as_of, kept.took_ms, timezone.now())
    if kept is None or kept.ordinal != period.ordinal or changes:
        kept, done = preview_make(period, now=timezone.now()), 1
    if large(kept.lines) and _report_due(kept, period, timezone.now()):
        report_make(period, now=timezone.now())
        done += 1
    return done


def _report_due(kept: ProvisionalStatement, period: BillingPeriod, now: datetime) -> bool:
    """Of a closed month once after the close and then once a day."""
    if period.closed_at is None or kept.report_as_of is None or kept.report_as_of < period.closed_at:
        return due(kept.report_as_of, kept.report_took_ms, now) or period.closed_at is not None
    return now - kept.report_as_of >= timedelta(days=1)
