"""Fingerprint of the usage of a window: a few numbers that show without rating if rows were added, lost or changed.

Most are the sum of a hash of every row that rating reads, which does not depend on the order of rows. Tokens have a checksum
of their own (`store.proofs`). They are read by day, and by hour only for days that a change of price or owner cuts: all
other days are billed whole.

Allocations are cut to the window. A sample that reaches beyond the window belongs to the job it measured there, so
allocations are read as far as the samples reach. No report changes an allocation's properties, only its duration; but a
reconstructed allocation gets its workload and queue once it is reported as watched.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connection

from billing.runtime.parallel_reads import rows_read
from billing.usage.grid import DAY, next_day, next_hour, this_day, this_hour
from billing.usage.scope import EpochFilter
from billing.usage.selectors import KNOWN_SAMPLE
from billing.usage.store.details import details_checksum
from billing.usage.store.hours import Name, names_used
from billing.usage.store.proofs import records_checksum, rollup_checksum
from metering.intervals import Interval

KNOWN_SPAN: Final = "s.start < %(end)s AND s.until > %(start)s AND s.epoch < %(before)s"
SPANS: Final = f"usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id WHERE {KNOWN_SPAN}"
HELD: Final = """a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction, a.pod_uid,
    a.workload_kind, a.workload_name, a.queue, a.site, a.started_at"""
TIME: Final = "greatest(s.start, %(start)s), least(s.until, %(end)s), s.epoch"
SAMPLE: Final = """e.id, e.cluster, e.pod_uid, e.workload, e.start, e."end", e.gpu_seconds, e.mfu, e.hfu, e.dtype,
    e.coverage, e.workload_kind"""
SAMPLES: Final = f"""SELECT sum(hash_record_extended(ROW({SAMPLE}), 0)), count(*), min(e.start), max(e."end")
    FROM usage_efficiencysample e WHERE {KNOWN_SAMPLE} AND e.start < %(end)s AND e."end" > %(start)s"""
ALLOCATIONS: Final = f"SELECT sum(hash_record_extended(ROW({HELD}, {TIME}), 0)), count(*) FROM {SPANS}"
TIMES: Final = f"""SELECT sum(hash_record_extended(ROW(s.allocation_id, {TIME}), 0)), count(*)
    FROM usage_allocationrevision s WHERE {KNOWN_SPAN}"""
RECONSTRUCTED: Final = "SELECT sum(hashint8(id)), count(*) FROM usage_gpuallocation WHERE reconstructed_from <> ''"
ENDS: Final = """SELECT sum(hash_record_extended(ROW(e.allocation_id, e.epoch, e.ended_at, e.end_reason), 0)), count(*)
    FROM usage_allocationinterruption e WHERE e.epoch < %(before)s AND (e.ended_at IS NULL OR e.ended_at > %(start)s)"""


def usage_fingerprint(
    window: Interval, *, before: int, last_sample: int, cuts: Iterable[datetime], events: bool, stored: bool
) -> dict[str, list[str]]:
    """Return the fingerprint of a window: usage known before close `before`, and samples up to id `last_sample`.

    cuts: instants at which the owner or the price of tokens changes. events: include every request, where prices depend
    on the length of the prompt. stored: include columns that no report changes, but that someone may change in the database.
    """
    asked = {"start": window.start, "end": window.end, "before": before, "last_sample": last_sample}
    with connection.cursor() as cursor:
        samples = _row(cursor, SAMPLES, asked)
        reach = {"start": min(window.start, samples[2] or window.start), "end": max(window.end, samples[3] or window.end)}
        found = {
            "samples": samples, "allocations": _row(cursor, ALLOCATIONS if stored else TIMES, asked | reach),
            "learned": [] if stored else _row(cursor, RECONSTRUCTED, asked), "ends": _row(cursor, ENDS, asked),
            "tokens": rollup_checksum(*_days_and_hours(window, cuts), EpochFilter(before)),
        }  # fmt: skip
        if (details := details_checksum(window, EpochFilter(before)))[0]:
            found["details"] = details  # absent if there are none, so that earlier fingerprints stay valid
        if events:
            found["events"] = records_checksum(window, before)
    return {name: [str(value) for value in values] for name, values in found.items()}


def _days_and_hours(window: Interval, cuts: Iterable[datetime]) -> tuple[list[Interval], list[Interval]]:
    """Return the days of a window without a cut, and the hours of days with one."""
    first, last = this_day(window.start), next_day(window.end)
    cut = sorted({this_day(at) for at in (window.start, window.end, *cuts) if at != this_day(at) and first <= at < last})
    days = zip([first, *(day + DAY for day in cut)], [*cut, last], strict=True)
    hours = Interval(this_hour(window.start), next_hour(window.end))
    return [Interval(*part) for part in days if part[0] < part[1]], [
        part for day in cut if (part := Interval(day, day + DAY).overlap(hours))
    ]


def names_before(window: Interval, before: int) -> tuple[list[Name], list[Name]]:
    """Return (cluster, namespace) and (source, consumer) of a window's usage, as known before close `before`.

    Those of tokens are of whole days: also of the days in which the window begins and ends.
    """
    asked: dict[str, Any] = {"start": window.start, "end": window.end, "before": before}
    namespaces = rows_read(f"SELECT DISTINCT a.cluster, a.namespace FROM {SPANS} ORDER BY 1, 2", asked)
    return namespaces, names_used(Interval(this_day(window.start), next_day(window.end)), before)


def _row(cursor: Any, statement: str, asked: dict[str, Any]) -> Sequence[Any]:
    cursor.execute(statement, asked)
    found: Sequence[Any] = cursor.fetchone()
    return found
