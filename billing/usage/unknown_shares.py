"""Reads of allocations whose share of a device is unknown. Every sum is exact."""

from dataclasses import dataclass
from decimal import Decimal

from billing.runtime.parallel_reads import rows_read
from metering.intervals import Interval


@dataclass(frozen=True, slots=True)
class UnknownUse:
    """Units of a resource held by pods of a namespace on an accelerator in a window, with reasons of the unknown share."""

    cluster: str
    namespace: str
    resource: str
    accelerator: str
    allocations: int
    unit_us: Decimal
    reasons: tuple[str, ...]

    @property
    def subject(self) -> str:
        """Return the subject in the period report."""
        return f"{self.cluster}/{self.namespace}/{self.resource} on {self.accelerator}"


def unknown_shares(window: Interval) -> list[UnknownUse]:
    """Return use of unknown share in the window, and use first reported after its month closed, counted from its start."""
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
