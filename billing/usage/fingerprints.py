"""Usage of a closed window in a few numbers: whether any of it was added, lost or changed, without rating it again.

Most are the sum of a hash of every row that rating reads, which does not depend on the order of rows. Tokens of an hour
and dimension may stand in several rows until the roll-up is folded, so their counts are summed, plain and weighted by a
hash of hour and dimension: tokens that moved to another hour or consumer give another weighted sum.
"""

from datetime import datetime
from typing import Any, Final

from django.db import connection

from billing.usage.token_sums import COUNTS
from metering.intervals import Interval

SPANS: Final = """usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
    WHERE s.start < %(end)s AND s.until > %(start)s AND s.epoch < %(before)s"""
HOURS: Final = """token_usage_hour t WHERE t.epoch < %(before)s AND t.hour < %(end)s
    AND t.hour >= date_trunc('hour', %(start)s::timestamptz, 'UTC')"""
HELD: Final = """a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction, a.pod_uid,
    a.workload_kind, a.workload_name, a.queue, a.site, a.started_at, s.start, s.until, s.epoch"""
SAMPLE: Final = """e.id, e.cluster, e.pod_uid, e.workload, e.start, e."end", e.gpu_seconds, e.mfu, e.hfu, e.dtype,
    e.coverage, e.workload_kind"""
WEIGHED: Final = " + ".join(f"{weight} * t.{name}" for weight, name in zip((1, 2, 3, 5, 7, 11), COUNTS, strict=True))
"""With the plain sums of each count beside it, no change within an hour leaves all of them as they were."""
FORMS: Final = {
    "spans": f"SELECT sum(hash_record_extended(ROW({HELD}), 0)), count(*) FROM {SPANS}",
    "tokens": f"""SELECT {', '.join(f'sum(t.{name})' for name in COUNTS)}, sum(
        (hash_record_extended(ROW(t.hour, t.dimension), 0) & 65535) * ({WEIGHED})) FROM {HOURS}""",
    "ends": """SELECT sum(hash_record_extended(ROW(e.allocation_id, e.epoch, e.ended_at, e.end_reason), 0)), count(*)
        FROM usage_allocationinterruption e WHERE e.epoch < %(before)s AND (e.ended_at IS NULL OR e.ended_at > %(start)s)""",
    "samples": f"""SELECT sum(hash_record_extended(ROW({SAMPLE}), 0)), count(*) FROM usage_efficiencysample e
        WHERE (e.epoch < %(before)s OR e.id <= %(last_sample)s) AND e.start < %(end)s AND e."end" > %(start)s""",
}
EVENTS: Final = f"""SELECT
    sum(hash_record_extended(ROW(t.time, t.dimension, {', '.join(f't.{name}' for name in COUNTS[1:])}), 0)), count(*)
    FROM token_event t WHERE t.epoch < %(before)s AND t.time >= %(start)s AND t.time < %(end)s"""
Name = tuple[str, str]


def usage_fingerprint(window: Interval, *, before: int, last_sample: int, events: bool) -> dict[str, list[str]]:
    """What was known of a window before the `before`-th close, and samples up to the `last_sample`-th however late.

    events: also every request, where prices go by the length of its prompt.
    """
    asked: dict[str, datetime | int] = {
        "start": window.start, "end": window.end, "before": before, "last_sample": last_sample
    }  # fmt: skip
    forms = FORMS | ({"events": EVENTS} if events else {})
    with connection.cursor() as cursor:
        return {name: [str(value) for value in _row(cursor, statement, asked)] for name, statement in forms.items()}


def names_before(window: Interval, before: int) -> tuple[list[Name], list[Name]]:
    """(cluster, namespace) and (source, consumer) that usage of a window had, as known before the `before`-th close."""
    asked = {"start": window.start, "end": window.end, "before": before}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT DISTINCT a.cluster, a.namespace FROM {SPANS} ORDER BY 1, 2", asked)
        namespaces = cursor.fetchall()
        cursor.execute(
            f"""SELECT DISTINCT d.source, d.consumer FROM (SELECT DISTINCT t.dimension FROM {HOURS}) u
                JOIN token_dimension d ON d.id = u.dimension ORDER BY 1, 2""",
            asked,
        )
        return namespaces, cursor.fetchall()


def _row(cursor: Any, statement: str, asked: dict[str, Any]) -> tuple[Any, ...]:
    cursor.execute(statement, asked)
    found: tuple[Any, ...] = cursor.fetchone()
    return found
