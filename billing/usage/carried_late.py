"""Interruptions learned of after their usage was billed: time that the platform would have carried stays charged."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.queries import FOREVER
from pricing.interruptions import InterruptionRule

LEARNED_LATE: Final = """
    SELECT a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction, greatest(s.start, b.since),
           least(s.until, e.ended_at, %(closed)s)
    FROM usage_allocationinterruption e
    JOIN unnest(%(reasons)s::text[], %(froms)s::timestamptz[], %(untils)s::timestamptz[], %(caps)s::bigint[])
         AS r (reason, valid_from, valid_until, cap_us)
      ON r.reason = e.end_reason AND e.ended_at >= r.valid_from AND e.ended_at < r.valid_until
    JOIN usage_gpuallocation a ON a.id = e.allocation_id
    CROSS JOIN LATERAL (SELECT greatest(a.started_at, CASE WHEN r.cap_us IS NULL THEN a.started_at
                            ELSE e.ended_at - r.cap_us * interval '1 microsecond' END) AS since) b
    JOIN usage_allocationrevision s ON s.allocation_id = a.id AND s.epoch < %(number)s AND s.start < %(closed)s
         AND s.until > b.since AND s.start < e.ended_at
    WHERE e.epoch >= %(number)s AND b.since < %(closed)s AND a.device_fraction IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM usage_allocationinterruption n
                          WHERE n.allocation_id = e.allocation_id AND n.epoch > e.epoch)"""
"""SQL of billed time by interruption. `number`: last close, which knew the revisions but not the ends. `closed`: the
end of its month.
"""


@dataclass(frozen=True, slots=True)
class CarriedLate:
    """Billed time of one allocation that the platform would carry."""

    cluster: str
    namespace: str
    accelerator: str
    resource: str
    quantity: int
    device_fraction: Decimal
    start: datetime
    until: datetime


def carried_late(rules: Sequence[InterruptionRule], closed: datetime, number: int) -> list[CarriedLate]:
    """Return time before `closed`, billed by close `number` or an earlier one, that the platform would now carry."""
    if not rules:
        return []
    given = {
        "reasons": [rule.reason for rule in rules], "froms": [rule.valid_from for rule in rules],
        "untils": [rule.valid_until or FOREVER for rule in rules], "caps": [rule.cap_us for rule in rules],
        "closed": closed, "number": number,
    }  # fmt: skip
    return [CarriedLate(*row) for row in rows_read(LEARNED_LATE, given)]
