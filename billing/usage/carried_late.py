"""Interruptions learned of after their usage was billed: time that the platform would have carried stays charged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.queries import FOREVER
from metering.intervals import Interval, without
from pricing.interruptions import InterruptionRule
from pricing.money import EXACT

LEARNED_LATE: Final = """
    WITH rules AS (SELECT * FROM unnest(%(reasons)s::text[], %(froms)s::timestamptz[], %(untils)s::timestamptz[],
                                        %(caps)s::bigint[]) AS r (reason, valid_from, valid_until, cap_us)),
    carried AS (
        SELECT e.allocation_id, e.epoch, e.end_reason, e.ended_at, greatest(a.started_at, CASE WHEN r.cap_us IS NULL
                   THEN a.started_at ELSE e.ended_at - r.cap_us * interval '1 microsecond' END) AS since
        FROM usage_allocationinterruption e
        JOIN rules r ON r.reason = e.end_reason AND e.ended_at >= r.valid_from AND e.ended_at < r.valid_until
        JOIN usage_gpuallocation a ON a.id = e.allocation_id)
    SELECT a.id, a.allocation_id, a.cluster, a.namespace, a.accelerator, a.resource, a.quantity, a.device_fraction,
           e.end_reason, e.ended_at, e.epoch, billed.close_seq, m.start, m."end",
           greatest(s.start, e.since, m.start), least(s.until, e.ended_at, m."end"), known.since, known.ended_at
    FROM carried e
    JOIN usage_gpuallocation a ON a.id = e.allocation_id AND a.device_fraction IS NOT NULL
    JOIN usage_allocationrevision s ON s.allocation_id = a.id AND s.until > e.since AND s.start < e.ended_at
    JOIN usage_close m ON m.withdrawn_at IS NULL AND m.start < least(s.until, e.ended_at)
         AND m."end" > greatest(s.start, e.since)
    CROSS JOIN LATERAL (SELECT min(c.close_seq) AS close_seq FROM usage_close c
                        WHERE c.withdrawn_at IS NULL AND c.close_seq > s.epoch AND c.close_seq >= m.close_seq) billed
    LEFT JOIN LATERAL (SELECT k.since, k.ended_at FROM carried k
                       WHERE k.allocation_id = e.allocation_id AND k.epoch < billed.close_seq
                             AND NOT EXISTS (SELECT 1 FROM usage_allocationinterruption n
                                             WHERE n.allocation_id = k.allocation_id AND n.epoch > k.epoch
                                                   AND n.epoch < billed.close_seq)) known ON true
    WHERE e.epoch >= billed.close_seq
          AND NOT EXISTS (SELECT 1 FROM usage_allocationinterruption n
                          WHERE n.allocation_id = e.allocation_id AND n.epoch > e.epoch)
    ORDER BY a.id, 15"""
"""SQL of billed time by interruption. `e`: last known end. `m`: closed month of a part of the allocation. `billed`: close
that billed the part, before it knew the end. `known`: what that close carried by the end that it knew, if any.
"""


@dataclass(frozen=True, slots=True)
class CarriedLate:
    """Billed time of one allocation, in one month, that the platform would carry.

    `learned`: number of the last close before its end was learned. `close_seq`: the close that billed it.
    """

    allocation: int
    name: str
    cluster: str
    namespace: str
    accelerator: str
    resource: str
    quantity: int
    device_fraction: Decimal
    end_reason: str
    ended_at: datetime
    learned: int
    close_seq: int
    month: Interval
    time: Interval

    @property
    def subject(self) -> str:
        return f"{self.cluster}/{self.namespace}"

    @property
    def unit_us(self) -> Decimal:
        """Return the microseconds of units."""
        return Decimal(self.time.microseconds * self.quantity)

    @property
    def device_us(self) -> Decimal:
        """Return the microseconds of whole devices."""
        return EXACT.multiply(self.unit_us, self.device_fraction)

    @property
    def device_seconds(self) -> Decimal:
        """Return the seconds of whole devices."""
        return EXACT.scaleb(self.device_us, -6)

    def within(self, times: Sequence[Interval]) -> list["CarriedLate"]:
        """Return the parts of it in some times."""
        return [replace(self, time=part) for time in times if (part := self.time.overlap(time))]


def carried_late(rules: Sequence[InterruptionRule]) -> list[CarriedLate]:
    """Return time of closed months, billed before its end was known, that the platform would now carry.

    Grain: allocation, month, and stretch that one report made known; in the order of allocations and time.
    """
    if not rules:
        return []
    given = {
        "reasons": [rule.reason for rule in rules], "froms": [rule.valid_from for rule in rules],
        "untils": [rule.valid_until or FOREVER for rule in rules], "caps": [rule.cap_us for rule in rules],
    }  # fmt: skip
    found: list[CarriedLate] = []
    for row in rows_read(LEARNED_LATE, given):
        facts: list[Any] = [*row[:12], Interval(row[12], row[13]), Interval(row[14], row[15])]
        one = CarriedLate(*facts)
        since, until = row[16:]
        known = [] if since is None or since >= until else [Interval(since, until)]
        found += one.within(without([one.time], known))
    return found
