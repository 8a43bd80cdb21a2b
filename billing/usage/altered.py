"""Checks of stored usage against what was reported: rows changed, added or removed other than by the services.

Each row carries the hash of its report (`contents`). The revisions of an allocation cover its time from start to
`observed_until`; of an allocation that was interrupted, the last noted end equals the end of its row; the number of stored
rows equals the number accepted. Counts of token records are stored a second time, in the roll-ups:
`store.proofs.rollup_difference`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.contents import ALLOCATION, CAPACITY, SAMPLE, content_sha256
from billing.usage.models import AcceptedRows
from billing.usage.services.allocations import NOTED
from billing.usage.store.details import ALTERED as DETAILS_ALTERED
from metering.intervals import Interval
from metering.messages import Message

HELD: Final = "(SELECT * FROM usage_gpuallocation WHERE observed_until > %(start)s AND started_at < %(end)s) a"
ALTERED: Final[Mapping[str, str]] = {
    "allocations": f"""SELECT count(*), min(a.allocation_id) FROM {HELD}
        WHERE a.content_sha256 <> {content_sha256(ALLOCATION, 'a')}""",
    # an allocation may lack revisions only if it has no time
    "pieces of allocations": f"""SELECT count(*), min(a.allocation_id) FROM {HELD} FULL JOIN (
            SELECT allocation_id, sum(until - start) AS known, min(start) AS start, max(until) AS until
            FROM usage_allocationrevision WHERE allocation_id IN (
                SELECT allocation_id FROM usage_allocationrevision WHERE until > %(start)s AND start < %(end)s)
            GROUP BY 1) s ON s.allocation_id = a.id
        WHERE (s.start, s.until, s.known) IS DISTINCT FROM (a.started_at, a.observed_until, a.observed_until - a.started_at)
          AND NOT (s.start IS NULL AND a.observed_until = a.started_at)""",
    # the latest note must equal the end in the row
    "ends of allocations": f"""SELECT count(*), min(a.allocation_id) FROM {HELD} JOIN (
            SELECT DISTINCT ON (allocation_id) * FROM usage_allocationinterruption ORDER BY allocation_id, epoch DESC
        ) e ON e.allocation_id = a.id
        WHERE (e.end_reason = ANY(%(noted)s) OR a.end_reason = ANY(%(noted)s))
          AND (e.ended_at, e.end_reason) IS DISTINCT FROM (a.ended_at, a.end_reason)""",
    "reports of capacity": f"""SELECT count(*), min(c.cluster || '/' || c.node) FROM usage_nodecapacity c
        WHERE c.until > %(start)s AND c.start < %(end)s AND c.content_sha256 <> {content_sha256(CAPACITY, 'c')}""",
    "efficiency samples": f"""SELECT count(*), min(e.cluster || '/' || e.pod_uid || e.workload)
        FROM usage_efficiencysample e
        WHERE e."end" > %(start)s AND e.start < %(end)s AND e.content_sha256 <> {content_sha256(SAMPLE, 'e')}""",
    "details of token records": DETAILS_ALTERED,
}  # fmt: skip
KINDS: Final = {
    "allocations": Message("allocations"), "pieces of allocations": Message("pieces of allocations"),
    "ends of allocations": Message("ends of allocations"), "reports of capacity": Message("reports of capacity"),
    "efficiency samples": Message("efficiency samples"),
    "details of token records": Message("details of token records"),
}  # fmt: skip
COUNTED: Final = " UNION ALL ".join(
    f"""SELECT 'counted', '{kind.label}', NULL, (SELECT count(*) FROM usage_{kind.value}),
               coalesce((SELECT sum(rows) FROM usage_acceptedrows WHERE kind = '{kind.value}'), 0)::bigint"""
    for kind in AcceptedRows.Kind
)  # fmt: skip
STATEMENT: Final = " UNION ALL ".join(
    [f"SELECT 'altered', '{kind}', x.example, x.rows, 0 FROM ({rows}) x (rows, example)" for kind, rows in ALTERED.items()]
    + [COUNTED]
)


@dataclass(frozen=True, slots=True)
class Altered:
    """Altered rows of one kind: their number, and a detail with one example."""

    kind: str
    rows: int
    detail: Message


def usage_altered(window: Interval) -> list[Altered]:
    """Return changed rows in the stored usage of a window, and rows added or removed in the whole ledger; usually none."""
    rows = rows_read(STATEMENT, {"start": window.start, "end": window.end, "noted": sorted(NOTED)})
    found = [_altered(*row) for row in rows]
    return [item for item in found if item.rows]


def _altered(asked: str, kind: str, example: str | None, rows: int, accepted: int) -> Altered:
    if asked == "counted":
        return Altered(kind, abs(accepted - rows), Message(
            "%(accepted)s %(kind)s were accepted, %(stored)s are stored", accepted=accepted, kind=KINDS[kind], stored=rows
        ))
    return Altered(kind, rows, Message(
        "%(n)s %(kind)s not as reported, such as %(example)s",
        n=rows, kind=KINDS[kind], example=example or Message("one that is gone"),
    ))
