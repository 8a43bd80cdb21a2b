"""Reads of devices allocated beyond what nodes offered at an instant, which idle time of other hours hides in the sums, and
of time allocated while nobody reported what nodes offered.
"""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.selectors import OFFERED
from metering.accelerators import device_share
from metering.intervals import Interval
from pricing.money import round_to

SHORTEST: Final = timedelta(minutes=1)
"""Shortest excess that counts: starts and ends come from clocks that differ by seconds."""
FRACTION_PLACES: Final = 12
SMALLEST: Final = Decimal("0.000000001")
"""Tolerance for fractions of devices, rounded to twelve decimals: six sixths may be a little more than one."""


@dataclass(frozen=True, slots=True)
class Overallocation:
    """GPU-seconds allocated while capacity is known (`held`), and the part of them beyond the capacity."""

    beyond: Decimal = Decimal(0)
    held: Decimal = Decimal(0)


def overallocations(window: Interval) -> dict[tuple[str, str], Overallocation]:
    """Return allocated time beyond the capacity offered at the same instant, by (cluster, accelerator).

    Time in which a cluster reported no capacity of an accelerator is left out, since its capacity is unknown. Pools without
    excess are absent.
    """
    offered = "SELECT DISTINCT resource FROM usage_nodecapacity WHERE start < %(end)s AND until > %(start)s"
    resources = [name for (name,) in rows_read(offered, {"start": window.start, "end": window.end})]
    if not resources:
        return {}
    rows = rows_read(
        f"""WITH offer AS (
               SELECT c.cluster, c.accelerator, c.start, c.until, c.quantity * r.share AS devices
               FROM ({OFFERED}) AS c JOIN unnest(%(resources)s::text[], %(shares)s::numeric[]) AS r (resource, share)
                    USING (resource)
               WHERE c.until > c.start
           ), hold AS (
               SELECT a.cluster, a.accelerator, greatest(s.start, %(lo)s) AS start, least(s.until, %(hi)s) AS until,
                      a.quantity * a.device_fraction AS devices
               FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
               WHERE s.start < %(hi)s AND s.until > %(lo)s
                 AND (a.cluster, a.accelerator) IN (SELECT cluster, accelerator FROM offer)
           ), move AS (
               SELECT cluster, accelerator, start AS at, devices AS held, 0 AS offered FROM hold
               UNION ALL SELECT cluster, accelerator, until, -devices, 0 FROM hold
               UNION ALL SELECT cluster, accelerator, start, 0, devices FROM offer
               UNION ALL SELECT cluster, accelerator, until, 0, -devices FROM offer
           ), step AS (
               SELECT cluster, accelerator, at, sum(sum(held)) OVER w AS held, sum(sum(offered)) OVER w AS offered,
                      lead(at) OVER w AS until
               FROM move GROUP BY cluster, accelerator, at
               WINDOW w AS (PARTITION BY cluster, accelerator ORDER BY at)
           ), judged AS (
               SELECT *, offered > 0 AND held > offered + %(smallest)s AS over FROM step WHERE until IS NOT NULL
           ), stretch AS (
               SELECT *, count(*) FILTER (WHERE NOT over) OVER (PARTITION BY cluster, accelerator ORDER BY at) AS number
               FROM judged
           ), excess AS (
               SELECT cluster, accelerator, sum((held - offered) * microseconds(until - at)) AS device_us
               FROM stretch WHERE over GROUP BY cluster, accelerator, number
               HAVING sum(microseconds(until - at)) >= %(shortest)s
           )
           SELECT cluster, accelerator, sum(device_us), (
               SELECT sum(j.held * microseconds(j.until - j.at)) FROM judged j
               WHERE j.offered > 0 AND (j.cluster, j.accelerator) = (excess.cluster, excess.accelerator))
           FROM excess GROUP BY 1, 2 ORDER BY 1, 2""",
        {
            "lo": window.start, "hi": window.end, "resources": resources, "smallest": SMALLEST,
            "shares": [round_to(device_share(name), FRACTION_PLACES) for name in resources],
            "shortest": SHORTEST // timedelta(microseconds=1),
        },
    )  # fmt: skip
    return {
        (cluster, accelerator): Overallocation(beyond.scaleb(-6), held.scaleb(-6))
        for cluster, accelerator, beyond, held in rows
    }


def time_without_capacity(window: Interval, *, over: bool) -> dict[tuple[str, str], Decimal]:
    """Return GPU-seconds allocated while no capacity of their pool was reported, by (cluster, accelerator).

    Pools of which no capacity was reported in the whole window are absent. `over`: the window has passed, so that time after
    the last report is without capacity too; until then the next report may cover it.
    """
    rows = rows_read(
        f"""WITH offer AS (SELECT cluster, accelerator, start, until FROM ({OFFERED}) AS offered WHERE until > start),
            edge AS (
               SELECT cluster, accelerator, start AS until,
                      coalesce(max(until) OVER (PARTITION BY cluster, accelerator ORDER BY start, until
                                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), %(lo)s) AS start
               FROM offer
               UNION ALL SELECT cluster, accelerator, %(hi)s, max(until) FROM offer WHERE %(over)s GROUP BY 1, 2
            ), gap AS MATERIALIZED (SELECT * FROM edge WHERE until > start)
            SELECT a.cluster, a.accelerator, sum(a.quantity * a.device_fraction * microseconds(
                       least(s.until, gap.until) - greatest(s.start, gap.start)))
            FROM gap JOIN usage_gpuallocation a USING (cluster, accelerator)
                 JOIN usage_allocationrevision s ON s.allocation_id = a.id AND s.start < gap.until AND s.until > gap.start
            GROUP BY 1, 2 ORDER BY 1, 2""",
        {"lo": window.start, "hi": window.end, "over": over},
    )
    return {(cluster, accelerator): device_us.scaleb(-6) for cluster, accelerator, device_us in rows}
