"""Preparing the close of a large month that is over, so that whoever closes it does not wait for its rating.

What a prepared close is, and when it may be adopted, says `billing.closing.prepared`.
"""

import time
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import connection, transaction

from billing.closing.precheck import precheck, requires_full_rating
from billing.closing.prepared import made_of, standing
from billing.closing.previews import due
from billing.closing.report import held_uncut
from billing.closing.services.closing import draft_all, unbillable
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.invoicing.models import BillingPeriod, MonthPreview, PreparedClose
from billing.rating.assessment import rate_period
from billing.rating.services import capacity_freeze, charges_drop, charges_write, idle_shares_write, pool_times_write
from billing.runtime.progress import no_progress
from billing.usage.altered import usage_altered
from billing.usage.digests import usage_digest
from billing.usage.epochs import epoch_prepare, ingest_lock_exclusive, one_snapshot
from metering.intervals import Interval

PREPARE_LOCK: Final = 0x5058
CUT_AGAIN: Final = timedelta(minutes=15)
"""How soon usage is cut off once more for a month of which something came in since; twice as long after each time, since
every cut parts the holds that go on."""
DOUBLINGS: Final = 6
"""How often that wait is doubled: to sixteen hours."""


def closes_prepare(*, now: datetime) -> bool:
    """Prepare the close of the earliest large month that is over, where that is to be done; whether it did.

    Months are not prepared beside each other, since the later would have to know what the earlier bills.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [PREPARE_LOCK])
        if not cursor.fetchone()[0]:
            return False
        try:
            _sweep()
            period = _next(now)
            return period is not None and _due(period, now) and close_prepare(month=period.month, now=now)
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [PREPARE_LOCK])


def close_prepare(*, month: str, now: datetime) -> bool:
    """Prepare the close of a month anew; False where it is not over, something holds it, or its close compares sums.

    Two transactions, as a close is: the first cuts usage off, the second writes what is rated of it, at one instant of all
    that it is rated by. Whoever dies between them leaves nothing that could be adopted.
    """
    started, period = time.monotonic(), period_open(month=month)
    prepared, _ = PreparedClose.objects.get_or_create(period=period, defaults={"tried_at": now})
    if not _drop(prepared) or period.status != BillingPeriod.Status.OPEN:
        return False
    if not requires_full_rating(period) and precheck(period, now=now).report.closable:
        _cut_ahead(prepared, now)
    prepared.tried_at, prepared.took_ms = now, _since(started)
    prepared.save(update_fields=["tried_at", "took_ms"])
    if prepared.ordinal is None:
        return False
    _write_ahead(prepared, started)
    return prepared.ready


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def _cut_ahead(prepared: PreparedClose, now: datetime) -> None:
    with transaction.atomic():
        period = BillingPeriod.objects.select_for_update().get(pk=prepared.period_id)
        if period.status != BillingPeriod.Status.OPEN:
            return
        ingest_lock_exclusive()
        ordinal = epoch_prepare(start=period.start, end=period.end, now=now)
        capacity_freeze(window=Interval(period.start, period.end), ordinal=ordinal)
        prepared.ordinal, prepared.attempts = ordinal, prepared.attempts + 1
        prepared.save(update_fields=["ordinal", "attempts"])


def _write_ahead(prepared: PreparedClose, started: float) -> None:
    """Charges and drafts as of the cut; nothing where a close would hold a team, or could not bill all usage as reported."""
    period, ordinal = prepared.period, prepared.ordinal or 0
    window = Interval(period.start, period.end)
    with one_snapshot(writing=True), transaction.atomic():
        assessment = rate_period(window=window, zone=period.zone, ordinal=ordinal, isolate=True)
        if assessment.faults or unbillable(assessment, held_uncut(window, ordinal)()) or usage_altered(window):
            return
        charges_write(assessment=assessment, ordinal=ordinal)
        idle_shares_write(assessment=assessment, ordinal=ordinal)
        pool_times_write(assessment=assessment, ordinal=ordinal)
        draft_all(period, assessment.charges, no_progress, prepared=prepared)
        prepared.made_of, prepared.usage = made_of(ordinal), usage_digest(window, ordinal)
        prepared.ready, prepared.took_ms = True, _since(started)
        prepared.save(update_fields=["made_of", "usage", "ready", "took_ms"])


def _next(now: datetime) -> BillingPeriod | None:
    """The earliest large month that is over and open; none while a close is under way, nor before somebody has opened the
    first period of the house: that settles its zone and currency, and is a person's to do.
    """
    known = {period.month: period for period in BillingPeriod.objects.all()}
    if not known or any(period.status == BillingPeriod.Status.CLOSING for period in known.values()):
        return None
    large = MonthPreview.objects.filter(lines__gte=settings.CACHE_STATEMENTS_ABOVE_LINES).order_by("month")
    for month in large.values_list("month", flat=True):
        period = known.get(month) or period_of(month)
        if period.status == BillingPeriod.Status.OPEN:
            return period if period.end <= now else None
    return None


def _due(period: BillingPeriod, now: datetime) -> bool:
    prepared = PreparedClose.objects.filter(period__month=period.month).first()
    if prepared is None:
        return True
    if not prepared.attempts:
        return due(prepared.tried_at, prepared.took_ms, now)
    return now - prepared.tried_at >= CUT_AGAIN * 2 ** min(prepared.attempts - 1, DOUBLINGS) and standing(period) is None


def _sweep() -> None:
    """Remove what was prepared of months that were closed otherwise."""
    for prepared in PreparedClose.objects.exclude(period__status=BillingPeriod.Status.OPEN):
        if _drop(prepared):
            prepared.delete()


def _drop(prepared: PreparedClose) -> bool:
    """Remove charges and drafts that were not adopted; False where they were. Who adopts waits for this, or this for it."""
    with transaction.atomic(), connection.cursor() as cursor:
        kept = PreparedClose.objects.select_for_update().filter(pk=prepared.pk).first()
        if kept is None:
            return False
        for table in ("invoicing_invoiceline", "invoicing_invoicesums"):
            drafts = "SELECT id FROM invoicing_invoice WHERE prepared_id = %s"
            cursor.execute(f"DELETE FROM {table} WHERE invoice_id IN ({drafts})", [prepared.pk])  # noqa: S608
        cursor.execute("DELETE FROM invoicing_invoice WHERE prepared_id = %s", [prepared.pk])
        if kept.ordinal is not None:
            charges_drop(ordinal=kept.ordinal)
        prepared.ordinal, prepared.ready, prepared.made_of = None, False, ""
        prepared.save(update_fields=["ordinal", "ready", "made_of"])
    return True
