"""Sums of GPU time: one SQL builder for every grain, exact, as of a close.

Device-microseconds are quantity x device_fraction x microseconds, unit-microseconds leave the fraction out. A sum is per
piece of time, cluster, namespace, accelerator and resource, and per further `Detail` that the caller names.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from billing.runtime.parallel_reads import rows_fetched
from billing.usage.capacity_types import capacity_type_sql
from billing.usage.grid import hour_of
from billing.usage.scope import EpochFilter
from billing.usage.selectors import JOB, JobName
from metering.allocation import Rule
from metering.intervals import Interval
from pricing.interruptions import InterruptionRule

FOREVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
Namespaces = Collection[tuple[str, str]]
"""(cluster, namespace) pairs to read; None for all."""
IN_NAMESPACES: Final = "(a.cluster, a.namespace) IN (SELECT * FROM unnest(%(clusters)s::text[], %(namespaces)s::text[]))"

Detail = Literal["job", "queue", "site", "hour", "allocation", "pool", "tier", "capacity_type"]
DETAILS: Final[Mapping[Detail, str]] = {
    "job": JOB, "queue": "a.queue", "site": "a.site", "hour": "extract(epoch FROM h.hour)::bigint", "allocation": "a.id",
    "pool": "coalesce(a.facts ->> 'pool', '')", "tier": "coalesce(a.facts ->> 'priority_class', '')",
    "capacity_type": capacity_type_sql("p.lo"),
}  # fmt: skip
PLACE: Final = ("cluster", "namespace", "accelerator", "resource")
WITHOUT: Final[Mapping[Detail, str]] = {
    "job": "''", "queue": "''", "site": "''", "hour": "NULL::bigint", "allocation": "0", "pool": "''", "tier": "''",
    "capacity_type": "''",
}  # fmt: skip


class GpuTime(msgspec.Struct, frozen=True, gc=False):
    """Devices allocated in one piece of time; fields outside the grain are empty.

    `hour` is a UTC hour. `capacity_type` is that of the start of the piece: cut pieces at `capacity_type_changes`. `first`
    and `last`: bounds of one allocation. `policy` and `reason`: only for time that the platform carries.
    """

    piece: int
    cluster: str
    namespace: str
    accelerator: str
    resource: str
    device_us: Decimal
    unit_us: Decimal
    job: str = ""
    queue: str = ""
    site: str = ""
    hour: datetime | None = None
    allocation: int = 0
    pool: str = ""
    tier: str = ""
    capacity_type: str = ""
    first: datetime | None = None
    last: datetime | None = None
    policy: str = ""
    reason: str = ""


def gpu_time(
    pieces: Sequence[Interval], epochs: EpochFilter, by: Collection[Detail] = (), *,
    namespaces: Namespaces | None = None, jobs: Collection[JobName] | None = None,
) -> Iterator[GpuTime]:  # fmt: skip
    """Return sums of allocated time in the pieces; optionally only of these namespaces or these jobs."""
    # an empty filter matches no row; None is no filter
    if not pieces or (namespaces is not None and not namespaces) or (jobs is not None and not jobs):
        return iter(())
    source = "usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id"
    return _summed(source, "s.start", (), pieces, epochs, by, namespaces, jobs, {})


def carried_time(
    pieces: Sequence[Interval], epochs: EpochFilter, rules: Sequence[InterruptionRule], by: Collection[Detail] = (), *,
    namespaces: Namespaces | None = None,
) -> Iterator[GpuTime]:  # fmt: skip
    """Return sums of time learned in `epochs` that the platform carries by the rules, by ends known before `epochs.before`.

    The end of an allocation decides about all of its pieces, and a rule's cap is counted back from it through them.
    Time that a close had billed before its end was known is not in any later close's epochs.
    """
    if not pieces or not rules or (namespaces is not None and not namespaces):
        return iter(())
    given = {
        "policies": [rule.policy for rule in rules], "reasons": [rule.reason for rule in rules],
        "froms": [rule.valid_from for rule in rules], "caps": [rule.cap_us for rule in rules],
        "untils": [rule.valid_until or FOREVER for rule in rules],
    }  # fmt: skip
    begin = "greatest(s.start, b.since)"
    return _summed(CARRIED, begin, ("policy", "reason"), pieces, epochs, by, namespaces, None, given)


_LAST_KNOWN = """NOT EXISTS (SELECT 1 FROM usage_allocationinterruption n WHERE n.allocation_id = {end}.allocation_id
                            AND n.epoch > {end}.epoch AND n.epoch < %(before)s) AND {end}.epoch < %(before)s"""
_PIECE_BEFORE = f"""x.cluster = z.cluster AND x.pod_uid = z.pod_uid AND x.namespace = z.namespace AND x.resource = z.resource
    AND x.accelerator = z.accelerator AND x.started_at < z.started_at AND c.end_reason = '{Rule.SHARE_CHANGED.value}'
    AND c.ended_at <= z.started_at AND {_LAST_KNOWN.format(end="c")}"""
"""SQL condition that `x` is an earlier piece of `z`: an agent cuts shared claims where their share changes (`c`).
Only the last piece has the reason of the end; a voided piece is empty and does not decide about earlier ones.
"""
CARRIED: Final = f"""usage_allocationinterruption e
    JOIN unnest(%(policies)s::text[], %(reasons)s::text[], %(froms)s::timestamptz[], %(untils)s::timestamptz[],
                %(caps)s::bigint[]) AS r (policy, reason, valid_from, valid_until, cap_us)
      ON r.reason = e.end_reason AND e.ended_at >= r.valid_from AND e.ended_at < r.valid_until
         AND {_LAST_KNOWN.format(end="e")}
    CROSS JOIN LATERAL (
        SELECT e.allocation_id AS id
        UNION ALL
        SELECT x.id FROM usage_gpuallocation z JOIN usage_gpuallocation x ON x.cluster = z.cluster
        JOIN usage_allocationinterruption c ON c.allocation_id = x.id
        WHERE z.id = e.allocation_id AND e.ended_at > z.started_at AND {_PIECE_BEFORE}) AS part
    JOIN usage_gpuallocation a ON a.id = part.id
    CROSS JOIN LATERAL (SELECT greatest(a.started_at, CASE WHEN r.cap_us IS NULL THEN a.started_at
                            ELSE e.ended_at - r.cap_us * interval '1 microsecond' END) AS since) b
    JOIN usage_allocationrevision s ON s.allocation_id = a.id AND s.until > b.since"""


def _summed(
    source: str, begin: str, rule: Sequence[str], pieces: Sequence[Interval], epochs: EpochFilter, by: Collection[Detail],
    namespaces: Namespaces | None, jobs: Collection[JobName] | None, given: Mapping[str, Any],
) -> Iterator[GpuTime]:  # fmt: skip
    """Return the sums. `begin`: SQL of a revision's counted start; `rule`: columns of the policy and the reason.

    Rows are sorted by name, except those of hours and allocations, of which there may be millions. Revisions are read once,
    by the bounds of all pieces (OFFSET 0 keeps the planner from searching once per piece). Time is added up first: only its
    sums, by quantity and share, are multiplied.
    """
    lo, hi = "greatest(a.start, p.lo)", "least(a.until, p.hi)"
    hours = f"""CROSS JOIN LATERAL generate_series(date_trunc('hour', {lo}, 'UTC'), {hi} - interval '1 microsecond',
                                                  interval '1 hour') AS h (hour)"""
    if "hour" in by:
        lo, hi = f"greatest({lo}, h.hour)", f"least({hi}, h.hour + interval '1 hour')"
    names = ["piece", *PLACE, *(name for name in DETAILS if name in by), *rule]
    details = ", ".join(name if name in by else WITHOUT[name] for name in DETAILS)
    parts = ["(p.i - 1)::int AS piece", *PLACE, *(f"{DETAILS[name]} AS {name}" for name in DETAILS if name in by), *rule]
    first_last = "min(first), max(last)" if "allocation" in by else "NULL::timestamptz, NULL::timestamptz"
    found = rows_fetched(
        f"""SELECT piece, {', '.join(PLACE)}, sum(quantity * device_fraction * microseconds(time)),
                   sum(quantity::numeric * microseconds(time)), {details}, {first_last}, {', '.join(rule) or "'', ''"}
            FROM (SELECT {', '.join(parts)}, quantity, device_fraction, sum({hi} - {lo}) AS time
                         {f', min({lo}) AS first, max({hi}) AS last' if 'allocation' in by else ''}
                  FROM (SELECT a.*, {begin} AS start, s.until{''.join(f', r.{name}' for name in rule)} FROM {source}
                        WHERE s.start < %(end)s AND s.until > %(start)s AND s.epoch >= %(first)s AND s.epoch < %(before)s
                              AND {_only(namespaces, jobs)} OFFSET 0) a
                  JOIN unnest(%(lo)s::timestamptz[], %(hi)s::timestamptz[]) WITH ORDINALITY AS p (lo, hi, i)
                    ON a.start < p.hi AND a.until > p.lo {hours if 'hour' in by else ''}
                  GROUP BY {', '.join(names)}, quantity, device_fraction) t
            GROUP BY {', '.join(names)} {'' if {'hour', 'allocation'} & set(by) else f"ORDER BY {', '.join(names)}"}""",
        {
            "lo": [piece.start for piece in pieces], "hi": [piece.end for piece in pieces],
            "start": min(piece.start for piece in pieces), "end": max(piece.end for piece in pieces), "first": epochs.first,
            "before": epochs.before, **namespace_lists(namespaces or ()),
            "jobs": msgspec.json.encode(list(jobs or ())).decode(), **given,
        },
    )  # fmt: skip
    return (GpuTime(*(*row[:10], None if row[10] is None else hour_of(row[10]), *row[11:])) for row in found)


def _only(namespaces: Namespaces | None, jobs: Collection[JobName] | None) -> str:
    """Return the SQL condition of the namespaces and jobs.

    IS TRUE makes the database look each allocation up in the set of jobs. As a join it would go from each job through all
    allocations of its namespace.
    """
    conditions = ["TRUE"]
    if namespaces is not None:
        conditions.append(IN_NAMESPACES)
    if jobs is not None:
        conditions.append(
            f"""((a.cluster, a.namespace, {JOB}) IN (
                SELECT j ->> 0, j ->> 1, j ->> 2 FROM jsonb_array_elements(%(jobs)s::jsonb) AS j)) IS TRUE"""
        )
    return " AND ".join(conditions)


def namespace_lists(namespaces: Namespaces) -> dict[str, list[str]]:
    """Return the SQL parameters of IN_NAMESPACES."""
    ordered = sorted(namespaces)
    return {"clusters": [cluster for cluster, _ in ordered], "namespaces": [namespace for _, namespace in ordered]}
