"""Building of the cubes of months: by the scheduler, and of small months by their first reader."""

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from billing.explorer.building import month_rows
from billing.explorer.cube import packed
from billing.explorer.facts import CubeFacts
from billing.explorer.models import CubeColumn, MonthCube
from billing.explorer.month_lines import is_of_these_closes, month_lines, sources_of
from billing.invoices.models import BillingPeriod, InvoiceLine
from billing.invoices.selectors import period_of, period_unopened
from billing.rating.models import RatingSnapshot
from billing.rating.snapshots import due
from billing.runtime.advisory_lock import advisory_lock
from billing.runtime.apart import each_apart
from billing.runtime.bulk_copy import rows_copy
from billing.runtime.gc_pause import collector_paused
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.selectors import usage_months
from metering.intervals import month_of

LEAST_PARTS: Final = 3
"""Number of parts of a source without documents and without a cached rating (format, status and close only)."""
CUBE_LOCK: Final = 0x5058
REFRESH_LOCK: Final = 0x5059


def cube_make(period: BillingPeriod, *, now: datetime) -> MonthCube:
    """Build the cube of a month with the present knowledge, replacing the stored one."""
    started, source = time.monotonic(), sources_of([period])[period.month]
    with collector_paused():
        month = month_lines(period, now)
        rows = month_rows(month)
        columns = {name: packed(column) for name, column in rows.columns().items()}
    facts = CubeFacts(month.preview, month.unrated, list(month.unbilled), month.period.zone)
    kept = {
        "source": source, "as_of": month.as_of, "rows": rows.number, "facts": msgspec.msgpack.encode(facts, enc_hook=str),
        "took_ms": round((time.monotonic() - started) * 1000),
    }  # fmt: skip
    with transaction.atomic(), connection.cursor() as cursor:
        # two readers may build one month at once: one after the other replaces its columns
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CUBE_LOCK])
        cube, _ = MonthCube.objects.update_or_create(month=period.month, defaults=kept)
        cube.columns.all().delete()
        rows_copy(CubeColumn, ("cube_id", "name", "content"), ((cube.pk, name, column) for name, column in columns.items()))
    return cube


def cubes_ready(months: Iterable[str], *, now: datetime) -> tuple[list[MonthCube], list[str]]:
    """Return the cubes of the months in their order, and the months that the scheduler has yet to build.

    A small month is built for the reader where its cube is missing or outdated; a large one waits for the scheduler and is
    shown as last built, but never as it was before a close or a reopening.
    """
    periods = _periods(months)
    sources, found, missing = sources_of(periods), list[MonthCube](), list[str]()
    kept = {cube.month: cube for cube in MonthCube.objects.filter(month__in=[period.month for period in periods])}
    for period in periods:
        cube = kept.get(period.month)
        if not is_current(cube, period, sources[period.month], now):
            is_closed = period.status == BillingPeriod.Status.CLOSED
            if not _is_large(period):
                cube = cube_make(period, now=now)
            elif cube is None or is_closed or not is_of_these_closes(cube, sources[period.month]):
                missing.append(period.month)
                continue
        if cube is not None:
            found.append(cube)
    return found, missing


def _periods(months: Iterable[str]) -> list[BillingPeriod]:
    wanted = list(months)
    known = {period.month: period for period in BillingPeriod.objects.filter(month__in=wanted)}
    return [known.get(month) or period_unopened(month) for month in wanted]


def is_current(cube: MonthCube | None, period: BillingPeriod, source: str, now: datetime) -> bool:
    """Return True if a month needs no new cube.

    A closed month needs none while its documents are the same; an open one for twenty times as long as building took, and a
    large one while its rating is the same.
    """
    # format, notes, modes and status are the first two parts: a change of these outdates a cube at once
    if cube is None or cube.source.split()[:2] != source.split()[:2]:
        return False
    same, kept = cube.source == source, len(source.split()) > LEAST_PARTS
    if period.status == BillingPeriod.Status.CLOSED:
        return same
    return not due(cube.as_of, cube.took_ms, now) or (kept and same)


def _is_large(period: BillingPeriod) -> bool:
    """Return True if building the cube takes longer than a reader waits."""
    if period.status == BillingPeriod.Status.CLOSED:
        lines = InvoiceLine.objects.filter(invoice__period=period)[: settings.CACHE_STATEMENTS_ABOVE_LINES].count()
        return lines >= settings.CACHE_STATEMENTS_ABOVE_LINES
    return RatingSnapshot.objects.filter(
        month=period.month, close_seq=period.close_seq, size__gte=settings.CACHE_STATEMENTS_ABOVE_LINES
    ).exists()


def cubes_refresh() -> int:
    """Build the cubes that are missing or outdated, newest month first, unless another process does; return their number."""
    with advisory_lock(REFRESH_LOCK, wait=False) as taken:
        return sum(each_apart(_months(), _refreshed)) if taken else 0


def _months() -> list[str]:
    try:
        zone, now = billing_setup().zone, timezone.now()
    except NoSetupError:
        return []
    known = BillingPeriod.objects.values_list("month", flat=True)
    return sorted({month_of(now, zone), *usage_months(now, zone), *known}, reverse=True)


def _refreshed(month: str) -> bool:
    period, now = period_of(month), timezone.now()
    cube = MonthCube.objects.filter(month=month).first()
    if is_current(cube, period, sources_of([period])[month], now):
        return False
    cube_make(period, now=now)
    return True
