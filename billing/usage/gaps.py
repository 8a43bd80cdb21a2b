"""Reads of metering gaps: intervals that no agent watched and no report filled, allocations left open, silent clusters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from billing.runtime.parallel_reads import rows_read
from metering.intervals import Interval, union, without
from metering.messages import Message

BACKFILL: Final = "backfill"
"""Reporter that derives allocations from kube-state-metrics, which has requests and no claims."""
BEHIND: Final = timedelta(hours=1)
"""Age of a watermark beyond which its agent counts as silent, even if the agent still contacts the server."""
EDGE: Final = timedelta(hours=1)
"""Time before an interval within which devices offered to claims count as offered in the interval."""
FILL_IT: Final = Message(
    "report until the end of the period, fill it with `python -m metering backfill`, or waive with a reason"
)
CLAIMS_STAY: Final = Message(
    "claims of devices cannot be backfilled, and this cluster offers devices to claims: see what pods claimed meanwhile, "
    "import it, and waive with a reason"
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Metering gap: `allocations` of a namespace still open at `seen_until`, or the silence of an agent (0 allocations).

    `unwatched`: intervals of the gap that are not filled. `claims`: a backfill was tried and does not count, since devices
    were offered to claims or allocated through them, and a backfill cannot see claims.
    """

    cluster: str
    subject: str
    seen_until: datetime
    allocations: int
    unwatched: tuple[Interval, ...] = ()
    claims: bool = False

    @property
    def advice(self) -> Message:
        return CLAIMS_STAY if self.claims else FILL_IT


LEFT_OPEN = """SELECT a.cluster, a.namespace, a.observed_until,
           least(%(hi)s, (SELECT min(w.watched_since) FROM usage_agentwatermark w
                          WHERE w.cluster = a.cluster AND w.watched_since > a.observed_until
                            AND w.watermark > w.watched_since AND a.resource NOT LIKE 'dra/%%')) AS gone_by
           FROM usage_gpuallocation a
           WHERE a.ended_at IS NULL AND NOT a.from_file AND a.observed_until < %(hi)s AND a.started_at < %(hi)s"""
"""SQL of allocations without an end that were not seen lately. If the agent began anew and does not report an allocation,
it ended before the first list of the new state; for claims that is unknown, for such an agent cuts them differently.
"""
NOTES = """SELECT kind, cluster, agent, start, least(until, %(hi)s), 0, kind = 'filled' AND (
               EXISTS (SELECT 1 FROM usage_nodecapacity c WHERE c.cluster = w.cluster AND c.resource LIKE 'dra/%%'
                       AND c.start < w.until AND c.until >= w.start - %(edge)s)
               OR EXISTS (SELECT 1 FROM usage_gpuallocation a WHERE a.cluster = w.cluster AND a.resource LIKE 'dra/%%'
                          AND a.started_at < w.until AND a.observed_until >= w.start - %(edge)s))
           FROM usage_coveragenote w WHERE start < %(hi)s"""

GAPS: Final = f"""SELECT 'open', cluster, namespace, min(observed_until), gone_by, count(*), false
                  FROM ({LEFT_OPEN}) AS a WHERE observed_until < %(due)s OR gone_by < %(hi)s
                  GROUP BY cluster, namespace, gone_by
                  UNION ALL
                  SELECT 'unwatched', cluster, agent, watermark, %(hi)s, 0, false
                  FROM usage_agentwatermark WHERE watermark < %(due)s
                  UNION ALL {NOTES}
                  ORDER BY 1, 2, 3, 4"""


def metering_gaps(until: datetime, *, period_end: datetime | None = None) -> list[Gap]:
    """Return metering gaps before `until`: allocations not seen since, silent agents, unwatched intervals.

    period_end: until then an agent that is less than BEHIND late makes no gap.
    """
    due = until if period_end is None or until >= period_end else until - BEHIND
    return gaps_of(rows_read(GAPS, dict[str, Any](hi=until, due=due, edge=EDGE)))


def gaps_of(rows: Iterable[tuple[Any, ...]]) -> list[Gap]:
    left_open: dict[tuple[str, str], list[tuple[Interval, int]]] = {}
    silent: dict[tuple[str, str], list[Interval]] = {}
    filled: dict[str, list[Interval]] = {}
    claiming: set[str] = set()
    for kind, cluster, subject, start, end, allocations, claims in rows:
        if kind == "open":
            left_open.setdefault((cluster, subject), []).append((Interval(start, end), allocations))
        # the backfill could not see claims: its interval stays a gap
        elif claims and subject == BACKFILL:
            claiming.add(cluster)
        elif kind == "filled":
            filled.setdefault(cluster, []).append(Interval(start, end))
        else:
            silent.setdefault((cluster, subject), []).append(Interval(start, end))
    gaps = [_left_open(*name, pieces) for name, pieces in left_open.items()]
    return gaps + _unfilled(silent, filled, claiming)


def _left_open(cluster: str, namespace: str, pieces: list[tuple[Interval, int]]) -> Gap:
    """Return the gap of a namespace's allocations whose end was not reported."""
    unseen = tuple(union(piece for piece, _ in pieces))
    return Gap(cluster, namespace, unseen[0].start, sum(count for _, count in pieces), unseen)


def _unfilled(
    silent: dict[tuple[str, str], list[Interval]], filled: dict[str, list[Interval]], claiming: set[str]
) -> list[Gap]:
    """Return gaps of intervals that agents did not watch, without what was filled."""
    found = []
    for (cluster, agent), stretches in sorted(silent.items()):
        left = tuple(without(stretches, filled.get(cluster, ())))
        if left:
            found.append(Gap(cluster, f"agent {agent}", left[0].start, 0, left, cluster in claiming))
    return found


def clusters_reported(window: Interval, clusters: Sequence[str]) -> set[str]:
    """Return those of `clusters` for which an agent or a file reported anything in the window."""
    rows = rows_read(
        """SELECT name FROM unnest(%(clusters)s::text[]) AS name
           WHERE EXISTS (SELECT 1 FROM usage_agentwatermark w WHERE w.cluster = name AND w.watermark > %(lo)s
                         AND coalesce(w.watched_since, %(lo)s) < %(hi)s)
              OR EXISTS (SELECT 1 FROM usage_gpuallocation a WHERE a.cluster = name AND a.started_at < %(hi)s
                         AND a.observed_until >= %(lo)s)
              OR EXISTS (SELECT 1 FROM usage_unknownshare u WHERE u.cluster = name AND u.started_at < %(hi)s
                         AND u.until >= %(lo)s)
              OR EXISTS (SELECT 1 FROM usage_nodecapacity c WHERE c.cluster = name AND c.start < %(hi)s
                         AND c.until > %(lo)s)
              OR EXISTS (SELECT 1 FROM usage_coveragenote n WHERE n.cluster = name AND n.start < %(hi)s
                         AND n.until > %(lo)s)""",
        {"clusters": list(clusters), "lo": window.start, "hi": window.end},
    )
    return {name for (name,) in rows}
