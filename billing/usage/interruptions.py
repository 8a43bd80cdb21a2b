"""Reads the time of holds that somebody else ended, as far as a rule says that somebody else pays for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from django.db import connection

from billing.usage.selectors import JOB, EpochFilter
from metering.allocation import Rule
from metering.intervals import Interval

FOREVER = datetime(9999, 12, 31, tzinfo=UTC)
_LAST_KNOWN = """NOT EXISTS (SELECT 1 FROM usage_allocationinterruption n WHERE n.allocation_id = {end}.allocation_id
                            AND n.epoch > {end}.epoch AND n.epoch < %(before)s) AND {end}.epoch < %(before)s"""
_PIECE_BEFORE = f"""p.cluster = z.cluster AND p.pod_uid = z.pod_uid AND p.namespace = z.namespace AND p.resource = z.resource
    AND p.accelerator = z.accelerator AND p.started_at < z.started_at AND c.end_reason = '{Rule.SHARE_CHANGED.value}'
    AND c.ended_at <= z.started_at AND {_LAST_KNOWN.format(end="c")}"""
"""A hold of shared claims is cut wherever its share changes: `p`, which `c` ended so, is of the same hold as the later `z`.
The last piece alone tells why the hold ended; one that was taken back is empty, and tells nothing of those before it."""
ENDS_OF_HOLD = f"""
    SELECT e.ended_at, e.end_reason FROM usage_allocationinterruption e
    WHERE e.allocation_id = a.id AND {_LAST_KNOWN.format(end="e")}
    UNION ALL
    SELECT e.ended_at, e.end_reason FROM usage_gpuallocation p JOIN usage_allocationinterruption c ON c.allocation_id = p.id
    JOIN usage_gpuallocation z ON z.cluster = p.cluster AND z.pod_uid = p.pod_uid
    JOIN usage_allocationinterruption e ON e.allocation_id = z.id
    WHERE p.id = a.id AND e.ended_at > z.started_at AND {_PIECE_BEFORE} AND {_LAST_KNOWN.format(end="e")}"""
"""Of an allocation `a`: ends of the hold that it is, or of which it is a piece, as they were known `before` a close."""


@dataclass(frozen=True, slots=True)
class CarriedRule:
    """Of holds that ended by `reason` in [valid_from, valid_until) the last `cap_us` are carried; None: all of them."""

    policy: str
    reason: str
    valid_from: datetime
    valid_until: datetime | None
    cap_us: int | None


@dataclass(frozen=True, slots=True)
class CarriedTime:
    """Carried devices of one piece, UTC hour and job, in device- and unit-microseconds."""

    piece: int
    hour: datetime
    cluster: str
    namespace: str
    accelerator: str
    resource: str
    job: str
    site: str
    policy: str
    reason: str
    device_us: Decimal
    unit_us: Decimal


def carried_times(
    pieces: Sequence[Interval], epochs: EpochFilter, rules: Sequence[CarriedRule], *, job: str | None = None,
    namespaces: Sequence[tuple[str, str]] | None = None,
) -> list[CarriedTime]:  # fmt: skip
    """What the rules say of the time that was learned in `epochs`, by ends that were known before them.

    The end of a hold decides of all of its pieces, and a rule's cap is counted back from it through them.

    `job`: only of that one; `namespaces`: only of these, (cluster, namespace).
    Time that a close had billed before its end was known is not in any later close's epochs.
    """
    if not pieces or not rules:
        return []
    boundary = """greatest(a.started_at, CASE WHEN r.cap_us IS NULL THEN a.started_at
                           ELSE e.ended_at - r.cap_us * interval '1 microsecond' END)"""
    inside = "microseconds(least(s.until, p.hi, h.hour + interval '1 hour') - greatest(s.start, p.lo, h.hour, b.boundary))"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT (p.i - 1)::int, h.hour, a.cluster, a.namespace, a.accelerator, a.resource, {JOB}, a.site, r.policy,
                       r.reason, sum(a.quantity * a.device_fraction * {inside}), sum(a.quantity::numeric * {inside})
                FROM usage_allocationinterruption e
                JOIN unnest(%(policies)s::text[], %(reasons)s::text[], %(froms)s::timestamptz[], %(untils)s::timestamptz[],
                            %(caps)s::bigint[]) AS r (policy, reason, valid_from, valid_until, cap_us)
                  ON r.reason = e.end_reason AND e.ended_at >= r.valid_from AND e.ended_at < r.valid_until
                CROSS JOIN LATERAL (
                    SELECT e.allocation_id AS id
                    UNION ALL
                    SELECT p.id FROM usage_gpuallocation z JOIN usage_gpuallocation p ON p.cluster = z.cluster
                    JOIN usage_allocationinterruption c ON c.allocation_id = p.id
                    WHERE z.id = e.allocation_id AND e.ended_at > z.started_at AND {_PIECE_BEFORE}) AS piece
                JOIN usage_gpuallocation a ON a.id = piece.id
                CROSS JOIN LATERAL (SELECT {boundary} AS boundary) b
                JOIN usage_allocationrevision s ON s.allocation_id = a.id AND s.until > b.boundary
                JOIN unnest(%(lo)s::timestamptz[], %(hi)s::timestamptz[]) WITH ORDINALITY AS p (lo, hi, i)
                  ON s.start < p.hi AND s.until > p.lo AND b.boundary < p.hi
                CROSS JOIN LATERAL generate_series(
                    date_trunc('hour', greatest(s.start, p.lo, b.boundary), 'UTC'),
                    least(s.until, p.hi) - interval '1 microsecond', interval '1 hour') AS h (hour)
                WHERE {_LAST_KNOWN.format(end="e")} AND s.epoch >= %(first)s AND s.epoch < %(before)s
                  AND (%(job)s::text IS NULL OR {JOB} = %(job)s)
                  AND (%(everywhere)s OR (a.cluster, a.namespace) IN (
                       SELECT * FROM unnest(%(clusters)s::text[], %(namespaces)s::text[])))
                GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10""",
            {
                "policies": [rule.policy for rule in rules], "reasons": [rule.reason for rule in rules],
                "froms": [rule.valid_from for rule in rules], "caps": [rule.cap_us for rule in rules],
                "untils": [rule.valid_until or FOREVER for rule in rules], "job": job,
                "lo": [piece.start for piece in pieces], "hi": [piece.end for piece in pieces],
                "first": epochs.first, "before": epochs.before, "everywhere": namespaces is None,
                "clusters": [cluster for cluster, _ in namespaces or ()],
                "namespaces": [namespace for _, namespace in namespaces or ()],
            },
        )  # fmt: skip
        return [CarriedTime(*row) for row in cursor.fetchall()]
