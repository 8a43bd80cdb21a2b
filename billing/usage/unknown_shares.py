"""Reads of allocations whose share of a device nobody knows yet. Every sum is exact."""

from dataclasses import dataclass
from decimal import Decimal

from billing.runtime.parallel_reads import rows_read
from metering.intervals import Interval


@dataclass(frozen=True, slots=True)
class UnknownUse:
    """Units of a resource that pods of a namespace held on an accelerator in a window, and what is not known of them."""

    cluster: str
    namespace: str
    resource: str
    accelerator: str
    allocations: int
    unit_us: Decimal
    reasons: tuple[str, ...]

    @property
    def subject(self) -> str:
        """As the period report names it."""
        return f"{self.cluster}/{self.namespace}/{self.resource} on {self.accelerator}"


def unknown_shares(window: Interval) -> list[UnknownUse]:
    """What was held in the window with an unknown share, and what came of closed months since, from its start."""
    rows = rows_read(
        """WITH held AS (
               SELECT cluster, namespace, resource, accelerator, quantity, why,
                      CASE WHEN billable_from > started_at AND billable_from >= %(lo)s AND billable_from < %(hi)s
                           THEN started_at ELSE greatest(started_at, %(lo)s) END AS start,
                      least(until, %(hi)s) AS until
               FROM usage_unknownshare
               WHERE settled = '' AND started_at < %(hi)s
                     AND (until > %(lo)s OR billable_from >= %(lo)s AND billable_from < %(hi)s))
           SELECT cluster, namespace, resource, accelerator, count(*),
                  sum(quantity::numeric * microseconds(until - start)),
                  (array_agg(DISTINCT why ORDER BY why))[:3]
           FROM held WHERE until > start GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4""",
        {"lo": window.start, "hi": window.end},
    )
    return [
        UnknownUse(cluster, namespace, resource, accelerator, allocations, unit_us, tuple(reasons))
        for cluster, namespace, resource, accelerator, allocations, unit_us, reasons in rows
    ]
