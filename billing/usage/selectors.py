"""Reads of usage. Every sum is exact: integers or numeric, never a float.

A *piece* is an interval that no price or ownership change cuts; sums come per piece. `EpochFilter` selects the rows that
count: a close sees what was learned before it, and as late usage what was learned since the close before it.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec
from django.db.models import Count, Max, QuerySet

from billing.runtime.parallel_reads import rows_read
from billing.usage.grid import HOUR, next_hour, this_hour
from billing.usage.models import Close, EfficiencySample, GpuAllocation, QuarantinedRecord
from billing.usage.scope import EpochFilter
from billing.usage.store.hours import deltas_waiting, hours_used, last_used, records_counted, windows_used
from metering.intervals import Interval

JOB = """CASE WHEN a.workload_name <> '' THEN coalesce(nullif(a.workload_kind, ''), 'workload') || '/' || a.workload_name
              ELSE 'pod/' || a.pod_uid END"""
SAMPLED = """usage_efficiencysample e
    JOIN LATERAL (
        SELECT * FROM usage_gpuallocation WHERE e.pod_uid <> '' AND cluster = e.cluster AND pod_uid = e.pod_uid
        UNION ALL
        SELECT * FROM usage_gpuallocation WHERE e.workload <> '' AND cluster = e.cluster AND workload_name = e.workload
               AND (e.workload_kind IN (workload_kind, '') OR workload_kind = '')
    ) a ON EXISTS (SELECT 1 FROM usage_allocationrevision m WHERE m.allocation_id = a.id AND m.epoch < %(before)s
                   AND m.start < e."end" AND m.until > e.start)"""
"""SQL of samples `e` with the allocations `a` they measured: those allocated at that time, as known before the close.
Otherwise an allocation of a later month that reuses the name of a workload would change a closed one. Kinds tell
workloads of one name apart if both sample and allocation have one.
"""
KNOWN_SAMPLE = "(e.epoch < %(before)s OR e.id <= %(last_sample)s)"


JobName = tuple[str, str, str]
"""Cluster, namespace, and kind/name of the controller (`pod/UID` without one)."""


def close_before(close_seq: int) -> int:
    """Return the number of the close before `close_seq`, 0 if there is none; withdrawn closes do not count."""
    return _last_close(Close.objects.filter(close_seq__lt=close_seq, withdrawn_at=None))


def late_epochs(close_seq: int) -> EpochFilter:
    """Return the epochs that close `close_seq` bills of earlier closed windows: those since the close before it."""
    return EpochFilter(before=close_seq, first=close_before(close_seq))


def last_sample() -> int:
    """Return the id of the last efficiency sample; while the ingest lock is held exclusively, no lower id can appear."""
    return EfficiencySample.objects.aggregate(last=Max("id"))["last"] or 0


@dataclass(frozen=True, slots=True)
class ClosedSpan:
    """Closed window: [start, end), closed as number `close_seq`."""

    close_seq: int
    start: datetime
    end: datetime


def late_windows(close_seq: int, *, of_tokens: bool = True) -> list[ClosedSpan]:
    """Return closed windows with late usage for close `close_seq`: learned since the close before it.

    `of_tokens`: also windows with late tokens only; False: those with late device time.
    """
    if close_seq <= 1:
        return []
    first = close_before(close_seq)
    found = rows_read(
        """WITH closed AS (SELECT * FROM usage_close w WHERE w.close_seq < %(close_seq)s AND w.withdrawn_at IS NULL),
                late AS MATERIALIZED (
                    SELECT s.start, s.until FROM usage_allocationrevision s
                    WHERE s.epoch >= %(first)s AND s.epoch < %(close_seq)s AND s.start < (SELECT max("end") FROM closed))
           SELECT w.close_seq, w.start, w."end",
                  EXISTS (SELECT 1 FROM late s WHERE s.start < w."end" AND s.until > w.start)
           FROM closed w ORDER BY w.close_seq""",
        {"close_seq": close_seq, "first": first},
    )
    spans = [Interval(start, end) for _, start, end, _ in found] if of_tokens else []
    used = windows_used(spans, range(first, close_seq))
    return [ClosedSpan(*span) for place, (*span, held) in enumerate(found) if held or place in used]


def last_close_seq() -> int:
    """Return the number of the last close, 0 before the first; a withdrawn close has used its number."""
    return _last_close(Close.objects.all())


def _last_close(closes: QuerySet[Close]) -> int:
    return closes.aggregate(last=Max("close_seq"))["last"] or 0


def allocated_devices(window: Interval, epochs: EpochFilter) -> Decimal:
    """Return device-microseconds allocated in the window, as one control total, independent of pieces."""
    ((held,),) = rows_read(
        """SELECT coalesce(sum(a.quantity * a.device_fraction
                      * extract(epoch FROM least(s.until, %(hi)s) - greatest(s.start, %(lo)s))) * 1000000, 0)
           FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
           WHERE s.start < %(hi)s AND s.until > %(lo)s AND s.epoch >= %(first)s AND s.epoch < %(before)s""",
        {"lo": window.start, "hi": window.end, "first": epochs.first, "before": epochs.before},
    )
    return Decimal(held)


def job_queues(window: Interval, epochs: EpochFilter) -> dict[JobName, str]:
    """Return the queue of each job with allocations in the window, the first by name; jobs without a queue are absent."""
    rows = rows_read(
        f"""SELECT a.cluster, a.namespace, {JOB}, min(a.queue) FROM usage_allocationrevision s
            JOIN usage_gpuallocation a ON a.id = s.allocation_id
            WHERE a.queue <> '' AND s.start < %(end)s AND s.until > %(start)s AND s.epoch >= %(first)s
              AND s.epoch < %(before)s GROUP BY 1, 2, 3""",
        {"start": window.start, "end": window.end, "first": epochs.first, "before": epochs.before},
    )
    return {(cluster, namespace, job): queue for cluster, namespace, job, queue in rows}


class Sample(msgspec.Struct, frozen=True, gc=False):
    """Efficiency sample of a job, with the accelerator it ran on. `pod`: its UID, "" for a whole workload."""

    cluster: str
    namespace: str
    job: str
    accelerator: str
    start: datetime
    end: datetime
    gpu_seconds: Decimal
    mfu: Decimal | None
    hfu: Decimal | None
    dtype: str
    coverage: Decimal
    method: str = ""
    reason: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """Samples, each once, and every job of which they measured a pod: one sample may name pods of several jobs."""

    samples: list[Sample]
    jobs: list[JobName]


def scored(window: Interval, before: int, last_sample: int = 0) -> Scored:
    """Return samples that overlap `window`, each with the job of its first measured pod; see `EpochFilter`."""
    rows = rows_read(
        f"""SELECT e.id, a.cluster, a.namespace, {JOB}, a.accelerator, e.start, e."end",
                   e.gpu_seconds, e.mfu, e.hfu, e.dtype, e.coverage, e.method, e.reason, e.pod_uid
            FROM {SAMPLED}
            WHERE {KNOWN_SAMPLE} AND e.start < %(end)s AND e."end" > %(start)s
            ORDER BY e.id, a.namespace, a.allocation_id""",
        {"before": before, "last_sample": last_sample, "end": window.end, "start": window.start},
    )
    # rows of one sample follow each other: the first allocation gives its job
    samples = [Sample(*next(measured)[1:]) for _, measured in groupby(rows, key=itemgetter(0))]
    return Scored(samples, list({row[1:4]: None for row in rows}))


@dataclass(frozen=True, slots=True)
class Hold:
    """Devices allocated to one pod of a job, as known in some epochs."""

    allocation_id: str
    pod: str
    node: str
    resource: str
    quantity: int
    device_fraction: Decimal
    start: datetime
    until: datetime


def job_holds(window: Interval, epochs: EpochFilter, job: JobName) -> list[Hold]:
    """Return the allocations of a job (cluster, namespace, name) within the window, in order of time."""
    rows = rows_read(
        f"""SELECT a.allocation_id, a.pod, a.node, a.resource, a.quantity, a.device_fraction,
                   greatest(s.start, %(start)s), least(s.until, %(end)s)
            FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
            WHERE a.cluster = %(cluster)s AND a.namespace = %(namespace)s AND {JOB} = %(job)s AND s.start < %(end)s
              AND s.until > %(start)s AND s.epoch >= %(first)s AND s.epoch < %(before)s ORDER BY 7, 1""",
        {
            "cluster": job[0], "namespace": job[1], "job": job[2], "start": window.start, "end": window.end,
            "first": epochs.first, "before": epochs.before,
        },
    )  # fmt: skip
    return [Hold(*row) for row in rows]


OFFERED: Final = """SELECT cluster, accelerator, resource, quantity, least(until, %(hi)s) AS until,
           greatest(start, %(lo)s, max(until) OVER (PARTITION BY cluster, node, resource ORDER BY start, id
                                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS start
    FROM usage_nodecapacity WHERE start < %(hi)s AND until > %(lo)s"""
"""SQL of node offers in [lo, hi), without overlaps: an agent that takes over a Lease reports from its own first sight
on, so its intervals overlap those of the agent before. A row that adds nothing ends before it begins.
"""


@dataclass(frozen=True, slots=True)
class CapacitySum:
    """Units that nodes of a cluster offered in a window, in unit-microseconds."""

    cluster: str
    accelerator: str
    resource: str
    unit_us: Decimal


def capacity_sums(window: Interval) -> list[CapacitySum]:
    """Return offered units per cluster, accelerator and resource."""
    rows = rows_read(
        f"""SELECT cluster, accelerator, resource, sum(quantity::numeric * microseconds(until - start))
            FROM ({OFFERED}) AS offered WHERE until > start GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",
        {"lo": window.start, "hi": window.end},
    )
    return [CapacitySum(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class ScanSum:
    """Scans of a cluster in a window: their number, and the sums of units scanned and of units that differed."""

    cluster: str
    scans: int
    scanned: int
    differing: int


def scan_sums(window: Interval) -> list[ScanSum]:
    """Return sums of hourly scans compared with watched allocations, per cluster."""
    rows = rows_read(
        """SELECT cluster, count(*), sum(scanned)::bigint, sum(differing)::bigint FROM usage_clusterscan
           WHERE at >= %(start)s AND at < %(end)s GROUP BY 1 ORDER BY 1""",
        {"start": window.start, "end": window.end},
    )
    return [ScanSum(*row) for row in rows]


KUBERNETES_UID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


def allocated_twice_by_pod(window: Interval, since: int = 0) -> list[tuple[str, str, int]]:
    """Return (cluster, pod uid, overlapping microseconds) of pods reported with one resource twice at a time.

    `since`: only pods of which something was learned in this epoch or a later one.

    A UID given by Kubernetes is one pod everywhere: a cluster reported under two names has all its pods twice. Claimed
    devices (`dra/DRIVER`) of two products are two resources under one name. Revisions of one allocation never overlap, so
    only pods with several allocations are compared. A run of Slurm has another uid if its reports know another key of it, so
    its job identifies the holder: runs of one job follow each other.
    """
    return rows_read(
        """WITH holds AS MATERIALIZED (
               SELECT a.id AS allocation, a.cluster, a.resource, a.accelerator, s.start, s.until, s.id, s.epoch,
                      CASE WHEN a.resource LIKE 'slurm/%%' THEN split_part(a.pod_uid, '/', 1) || '/' || a.pod
                           ELSE a.pod_uid END AS holder
               FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
               WHERE s.start < %(hi)s AND s.until > %(lo)s
           ), several AS (
               SELECT holder FROM holds GROUP BY 1 HAVING min(allocation) < max(allocation) AND max(epoch) >= %(since)s
           )
           SELECT cluster, holder, sum(microseconds(least(until, before) - start))::bigint FROM (
               SELECT cluster, holder, start, until,
                      max(until) OVER (
                          PARTITION BY CASE WHEN holder ~ %(uid)s THEN '' ELSE cluster END, holder, resource,
                                       CASE WHEN resource LIKE 'dra/%%' THEN accelerator END
                          ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
               FROM holds JOIN several USING (holder)) held
           WHERE before > start GROUP BY 1, 2 ORDER BY 1, 2""",
        {"lo": window.start, "hi": window.end, "uid": KUBERNETES_UID, "since": since},
    )


def not_taken_in(window: Interval) -> list[tuple[str, str, int, str]]:
    """Return (kind, subject, count, text) of a window's records in quarantine and of usage that agents could not meter.

    kind: the reason of the quarantine, else `agent problem` or `agent unknown`. An unknown resource is left out once it is
    declared, or if its allocations are kept with their quantity (`usage.unknown_shares`).
    """
    return rows_read(
        r"""SELECT reason, reporter || ' via ' || door, count(*), '' FROM usage_quarantinedrecord
           WHERE status = 'open' AND at >= %(start)s AND at < %(end)s GROUP BY 1, 2
           UNION ALL
           SELECT 'agent ' || kind, cluster || '/' || subject, 1, text
           FROM usage_agentdiagnostic n, regexp_replace(subject, ', \d{4}-\d{2}$', '') AS named (resource)
           WHERE at >= %(start)s AND at < %(end)s AND (kind <> 'unknown' OR NOT EXISTS (
                     SELECT 1 FROM usage_sharedeclaration d WHERE d.cluster = n.cluster AND d.resource = named.resource
                     UNION ALL
                     SELECT 1 FROM usage_unknownshare u WHERE u.cluster = n.cluster AND u.resource = named.resource))
           ORDER BY 1, 2""",
        {"start": window.start, "end": window.end},
    )


def usage_months(before: datetime, zone: str) -> list[str]:
    """Return the billing months before `before` with usage; records decide about an hour that midnight cuts."""
    from billing.usage.store.sums import token_sums  # it imports numpy, which commands must not load at their start

    span = usage_span()
    months = rows_read(
        """SELECT month, lo, hi, EXISTS (SELECT 1 FROM usage_allocationrevision s WHERE s.start < hi AND s.until > lo)
           FROM (
               SELECT to_char(m, 'YYYY-MM') AS month, m AT TIME ZONE %(zone)s AS lo,
                      (m + interval '1 month') AT TIME ZONE %(zone)s AS hi
               FROM generate_series(
                   date_trunc('month', %(first)s::timestamptz AT TIME ZONE %(zone)s),
                   (%(before)s::timestamptz AT TIME ZONE %(zone)s) - interval '1 month', interval '1 month') AS m) x
           ORDER BY month""",
        {"zone": zone, "before": before, "first": None if span is None else span.start},
    )
    used = windows_used([Interval(next_hour(start), this_hour(end)) for _, start, end, _ in months])
    cut = [
        (place, Interval(*bounds))
        for place, (_, start, end, held) in enumerate(months)
        if not held and place not in used
        for bounds in ((start, next_hour(start)), (this_hour(end), end))
        if bounds[0] < bounds[1]
    ]
    used |= {cut[item.piece][0] for item in token_sums([piece for _, piece in cut], EpochFilter())}
    return [month for place, (month, _, _, held) in enumerate(months) if held or place in used]


def usage_span() -> Interval | None:
    """Return the interval from the first usage to the end of the last; None without usage. Each bound is one look-up."""
    (held,), hours = rows_read("SELECT min(start), max(until) FROM usage_allocationrevision", {}), hours_used()
    spans = [held] * (held[0] is not None) + ([(hours[0], hours[1] + HOUR)] if hours else [])
    return Interval(min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


def usage_counts() -> dict[str, int]:
    return {"allocations": GpuAllocation.objects.count(), "token_records": records_counted()}


@dataclass(frozen=True, slots=True)
class IngestState:
    """State of ingest: roll-up deltas not yet folded, closes made, and open quarantine records by reason."""

    deltas: int
    closes: int
    quarantined: dict[str, int]


def ingest_state() -> IngestState:
    """Return the state of ingest, from small tables only."""
    waiting = QuarantinedRecord.objects.filter(status=QuarantinedRecord.Status.OPEN)
    return IngestState(deltas_waiting(), Close.objects.count(), dict(waiting.values_list("reason").annotate(Count("id"))))


def names_used_since(since: datetime) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (cluster, namespace) and (source, consumer) with known usage after `since`."""
    held = "SELECT DISTINCT cluster, namespace FROM usage_gpuallocation WHERE observed_until >= %(since)s"
    return rows_read(held, {"since": since}), list(last_used(this_hour(since)))
