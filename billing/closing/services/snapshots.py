"""Writes of snapshots: the last rating of large months, so that no page or close waits for an unchanged one."""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from billing.closing.report import found_in
from billing.closing.snapshots import Beside, KeptSums, TeamContent, kind_sums, report_kept, team_contents
from billing.closing.usage_profile import Compared, weekly_usage_profile
from billing.invoices.line_rollups import MonthRollups, line_rollups, wasting_jobs
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.input_fingerprint import facts_now, fingerprint_now
from billing.rating.models import RatingSnapshot, TeamSnapshot
from billing.rating.snapshots import (
    ClosedMonth,
    TeamRating,
    by_team,
    charges_differing,
    content_sha256,
    due,
    large,
    shared_bytes,
    size_of,
    team_bytes,
)
from billing.runtime.advisory_lock import advisory_lock
from billing.runtime.apart import each_apart
from billing.runtime.bulk_copy import rows_copy
from billing.runtime.gc_pause import collector_paused
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.epochs import one_snapshot
from billing.usage.selectors import usage_months
from metering.intervals import month_of
from metering.messages import Message

SNAPSHOT_LOCK, REFRESH_LOCK = 0x5056, 0x5057
MONTHS_KEPT = 3
"""Number of the newest months that the scheduler rates."""


def snapshot_make(
    period: BillingPeriod, *, now: datetime, at_leisure: bool = False
) -> tuple[RatingSnapshot | None, RatingResult]:
    """Rate a month as it is known now, or as its close saw it, and store the result if it is large.

    at_leisure: nobody waits for the result: also store its fingerprint, and the extras of pages; for a small month only its
    size.
    """
    started, proof = time.monotonic(), {"close_seq": period.close_seq, "input_fingerprint": "", "names": None}
    with collector_paused():
        rated = _rated_with(proof, period) if at_leisure else _rated(period)
    if not large(size_of(rated)) and not at_leisure:
        return None, rated
    beside, compared, contents = Beside(), Compared(), dict[str, TeamContent]()
    if large(size_of(rated)):
        contents = team_contents(rated.charges, {team: mine.verdicts for team, mine in by_team(rated).items()})
    if at_leisure and contents:
        beside, compared = _beside(period, rated, contents, now)
    facts = {
        **proof, "as_of": now, "size": size_of(rated), "took_ms": round((time.monotonic() - started) * 1000),
        "result": shared_bytes(rated) if contents else b"", "beside": msgspec.json.encode(beside),
    }  # fmt: skip
    return _keep(period.month, facts, rated, contents, compared), rated


def _rated(period: BillingPeriod) -> RatingResult:
    return rate_period(window=period.window, zone=period.zone, close_seq=period.close_seq)


def _rated_with(proof: dict[str, Any], period: BillingPeriod) -> RatingResult:
    """Rate as of one instant, and put the fingerprint under which the rating is valid in `proof`."""
    window, close_seq = period.window, period.close_seq
    with one_snapshot(beside=True):
        rated = _rated(period)
        if close_seq is None:
            proof["input_fingerprint"] = fingerprint_now(window=window, zone=period.zone)
        elif period.status == BillingPeriod.Status.CLOSED and not charges_differing(rated, close_seq):
            proof |= ClosedMonth(period.month, window, period.zone, close_seq, facts_now()).proof()
    return rated


def _beside(
    period: BillingPeriod, rated: RatingResult, contents: Mapping[str, TeamContent], now: datetime
) -> tuple[Beside, Compared]:
    """Return the weekly use of charged lines, or if there are none of showback lines, and the comparison of months."""
    charged = [line.key for content in contents.values() for line in content.charged]
    keys = charged or [line.key for content in contents.values() for line in content.shadow]
    compared = Compared() if rated.reference_data is None else Compared.of(period, rated.reference_data, now)
    return Beside(weekly_usage_profile(period, keys, now), compared.until), compared


def _keep(
    month: str, facts: dict[str, Any], rated: RatingResult, contents: Mapping[str, TeamContent], compared: Compared
) -> RatingSnapshot:
    """Store a snapshot in place of the last. A team only in the month before is stored for the comparison."""
    mine = by_team(rated) if contents else {}
    teams = [(team, team_bytes(mine.get(team, TeamRating()))) for team in sorted(mine.keys() | compared.teams.keys())]
    digest = content_sha256(facts["input_fingerprint"], facts["result"], teams)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [SNAPSHOT_LOCK])
        snapshot, _ = RatingSnapshot.objects.update_or_create(month=month, defaults=facts | {"sha256": digest})
        snapshot.teams.all().delete()
        rows = (
            (snapshot.pk, team, own, msgspec.json.encode(_sums(contents.get(team, TeamContent()))),
             msgspec.json.encode(compared.teams.get(team, [])))
            for team, own in teams
        )  # fmt: skip
        rows_copy(TeamSnapshot, ("snapshot_id", "team", "rated", "sums", "compared"), rows)
    return snapshot


def _sums(content: TeamContent) -> KeptSums:
    rollups = MonthRollups(line_rollups(content.charged), line_rollups(content.shadow), wasting_jobs(content.verdicts))
    return KeptSums(kind_sums(content.charged), kind_sums(content.shadow), rollups)


def report_make(period: BillingPeriod, rated: RatingResult | None, *, now: datetime) -> None:
    """Make the whole report of a month that has a snapshot, and store it there; `rated`: if the caller has it."""
    started = time.monotonic()
    found = report_kept(found_in(period, now, rated))
    took = round((time.monotonic() - started) * 1000)
    RatingSnapshot.objects.filter(month=period.month).update(report=found, report_as_of=now, report_took_ms=took)


def month_assess(*, month: str, now: datetime) -> Message:
    """Rate a month for its pages, whatever is stored; return what was done in words."""
    period = period_of(month)
    _, rated = snapshot_make(period, now=now, at_leisure=True)
    if large(size_of(rated)):
        report_make(period, rated, now=now)
    size = size_of(rated)
    return Message.counted("%(n)s line or verdict assessed", "%(n)s lines and verdicts assessed", size, n=size)


def snapshots_refresh() -> int:
    """Rate the newest months again that have changed and are due, unless another process does.

    Returns how often a month was rated or a report made.
    """
    with advisory_lock(REFRESH_LOCK, wait=False) as taken:
        return sum(each_apart(_newest_periods(), lambda period: _refresh(period, timezone.now()))) if taken else 0


def _newest_periods() -> list[BillingPeriod]:
    try:
        zone, now = billing_setup().zone, timezone.now()
    except NoSetupError:
        return []
    known = {period.month: period for period in BillingPeriod.objects.all()}
    used = sorted({month_of(now, zone), *usage_months(now, zone), *known}, reverse=True)[:MONTHS_KEPT]
    return [known.get(month) or period_of(month) for month in used]


def _refresh(period: BillingPeriod, now: datetime) -> int:
    # without the columns of many megabytes
    kept = RatingSnapshot.objects.defer("result", "beside", "report").filter(month=period.month).first()
    rated, done = None, 0
    if not _current(kept, period, now):
        kept, rated = snapshot_make(period, now=now, at_leisure=True)
        done = 1
    if kept is not None and large(kept.size or 0) and _report_due(kept, period, now):
        report_make(period, rated, now=now)
        done += 1
    return done


def _current(kept: RatingSnapshot | None, period: BillingPeriod, now: datetime) -> bool:
    """Return True if pages need no new rating: it is valid, or not due yet; a closed month is rated once."""
    if kept is None or kept.as_of is None or kept.close_seq != period.close_seq:
        return False
    if period.status == BillingPeriod.Status.CLOSED or not due(kept.as_of, kept.took_ms, now):
        return True
    if period.close_seq is not None:
        return False
    valid = kept.input_fingerprint == fingerprint_now(window=period.window, zone=period.zone)
    if valid:
        # still valid: the next check is due as if it had been rated now
        RatingSnapshot.objects.filter(pk=kept.pk, input_fingerprint=kept.input_fingerprint).update(as_of=now)
    return valid


def _report_due(kept: RatingSnapshot, period: BillingPeriod, now: datetime) -> bool:
    """Return True if the report is due: for a closed month once after the close and then once a day."""
    if period.closed_at is None or kept.report_as_of is None or kept.report_as_of < period.closed_at:
        return due(kept.report_as_of, kept.report_took_ms, now) or period.closed_at is not None
    return now - kept.report_as_of >= timedelta(days=1)
