"""Usage of a window in a few numbers: whether any of it was added, lost or changed, without rating it again.

Most are the sum of a hash of every row that rating reads, which does not depend on the order of rows. Tokens of an hour
and dimension may be in several rows until the roll-up is folded, so their counts are summed, plain and weighted by a hash
of hour and dimension: tokens that moved to another hour or consumer give another weighted sum. They are read by day, and by
hour only of the days that something cuts, since nothing else of a day can be billed apart.

Allocations count as far as they lie in the window. A sample that reaches beyond it belongs to the job that it measured
there, so allocations count as far as the samples reach. No report changes what an allocation is, only how long it lasts;
but one that was reconstructed learns its workload and queue once it is reported as watched.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connection

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.selectors import KNOWN_SAMPLE
from billing.usage.token_sums import COUNTS, next_day, next_hour, this_day, this_hour
from metering.intervals import Interval

KNOWN_SPAN: Final = "s.start < %(end)s AND s.until > %(start)s AND s.epoch < %(before)s"
SPANS: Final = f"usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id WHERE {KNOWN_SPAN}"
HELD: Final = """a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction, a.pod_uid,
    a.workload_kind, a.workload_name, a.queue, a.site, a.started_at"""
TIME: Final = "greatest(s.start, %(start)s), least(s.until, %(end)s), s.epoch"
SAMPLE: Final = """e.id, e.cluster, e.pod_uid, e.workload, e.start, e."end", e.gpu_seconds, e.mfu, e.hfu, e.dtype,
    e.coverage, e.workload_kind"""
WEIGHED: Final = " + ".join(f"{weight} * t.{name}" for weight, name in zip((1, 2, 3, 5, 7, 11), COUNTS, strict=True))
"""With the plain sums of each count beside it, no change within an hour leaves all of them as they were."""
SAMPLES: Final = f"""SELECT sum(hash_record_extended(ROW({SAMPLE}), 0)), count(*), min(e.start), max(e."end")
    FROM usage_efficiencysample e WHERE {KNOWN_SAMPLE} AND e.start < %(end)s AND e."end" > %(start)s"""
ALLOCATIONS: Final = f"SELECT sum(hash_record_extended(ROW({HELD}, {TIME}), 0)), count(*) FROM {SPANS}"
TIMES: Final = f"""SELECT sum(hash_record_extended(ROW(s.allocation_id, {TIME}), 0)), count(*)
    FROM usage_allocationrevision s WHERE {KNOWN_SPAN}"""
RECONSTRUCTED: Final = "SELECT sum(hashint8(id)), count(*) FROM usage_gpuallocation WHERE reconstructed_from <> ''"
ENDS: Final = """SELECT sum(hash_record_extended(ROW(e.allocation_id, e.epoch, e.ended_at, e.end_reason), 0)), count(*)
    FROM usage_allocationinterruption e WHERE e.epoch < %(before)s AND (e.ended_at IS NULL OR e.ended_at > %(start)s)"""
DAYS: Final = """SELECT day AS at, d.* FROM token_usage_day d
        WHERE d.day >= %(day)s AND d.day < %(last_day)s AND d.day <> ALL (%(cut)s)
    UNION ALL SELECT hour, h.* FROM unnest(%(cut)s::timestamptz[]) AS c (day) JOIN token_usage_hour h
        ON h.hour >= greatest(c.day, %(hour)s) AND h.hour < least(c.day + interval '24 hours', %(last_hour)s)"""
TOKENS: Final = f"""SELECT {', '.join(f'sum(t.{name})' for name in COUNTS)},
        sum((hash_record_extended(ROW(t.at, t.dimension), 0) & 65535) * ({WEIGHED}))
    FROM ({DAYS}) t WHERE t.epoch < %(before)s"""
EVENTS: Final = f"""SELECT
    sum(hash_record_extended(ROW(t.time, t.dimension, {', '.join(f't.{name}' for name in TOKEN_COUNTS)}), 0)), count(*)
    FROM token_event t WHERE t.epoch < %(before)s AND t.time >= %(start)s AND t.time < %(end)s"""
Name = tuple[str, str]


def usage_fingerprint(
    window: Interval, *, before: int, last_sample: int, cuts: Iterable[datetime], events: bool, stored: bool
) -> dict[str, list[str]]:
    """What was known of a window before the `before`-th close, and samples up to the `last_sample`-th however late.

    cuts: the instants at which the owner or the price of tokens changes. events: also every request, where prices go by the
    length of its prompt. stored: also what no report can change, but somebody may have in the database.
    """
    asked = {"start": window.start, "end": window.end, "before": before, "last_sample": last_sample}
    with connection.cursor() as cursor:
        samples = _row(cursor, SAMPLES, asked)
        reach = {"start": min(window.start, samples[2] or window.start), "end": max(window.end, samples[3] or window.end)}
        found = {
            "samples": samples, "allocations": _row(cursor, ALLOCATIONS if stored else TIMES, asked | reach),
            "learned": [] if stored else _row(cursor, RECONSTRUCTED, asked), "ends": _row(cursor, ENDS, asked),
            "tokens": _row(cursor, TOKENS, asked | _days(window, cuts)),
        }  # fmt: skip
        if events:
            found["events"] = _row(cursor, EVENTS, asked)
    return {name: [str(value) for value in values] for name, values in found.items()}


def _days(window: Interval, cuts: Iterable[datetime]) -> dict[str, Any]:
    """The days of a window, its hours, and which of its days are read by hour."""
    cut = {this_day(at) for at in (window.start, window.end, *cuts) if at != this_day(at)}
    return {
        "day": this_day(window.start), "last_day": next_day(window.end), "hour": this_hour(window.start),
        "last_hour": next_hour(window.end), "cut": sorted(cut),
    }  # fmt: skip


def names_before(window: Interval, before: int) -> tuple[list[Name], list[Name]]:
    """(cluster, namespace) and (source, consumer) that usage of a window had, as known before the `before`-th close;
    and those of tokens of the days that it begins and ends in.
    """
    asked: dict[str, Any] = {
        "start": window.start, "end": window.end, "before": before, "day": this_day(window.start),
        "last_day": next_day(window.end),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT DISTINCT a.cluster, a.namespace FROM {SPANS} ORDER BY 1, 2", asked)
        namespaces = cursor.fetchall()
        cursor.execute(
            """SELECT DISTINCT d.source, d.consumer FROM (
                    SELECT DISTINCT t.dimension FROM token_usage_day t
                    WHERE t.epoch < %(before)s AND t.day >= %(day)s AND t.day < %(last_day)s) u
                JOIN token_dimension d ON d.id = u.dimension ORDER BY 1, 2""",
            asked,
        )
        return namespaces, cursor.fetchall()


def _row(cursor: Any, statement: str, asked: dict[str, Any]) -> Sequence[Any]:
    cursor.execute(statement, asked)
    found: Sequence[Any] = cursor.fetchone()
    return found
