"""Reads what nobody watched: stretches of an agent's silence, as far as nobody filled them, and holds left open."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from metering.intervals import Interval, without

BACKFILL: Final = "backfill"
"""The reporter that pieces holds together from kube-state-metrics, which tells requests and no claims."""
EDGE: Final = timedelta(hours=1)
"""Devices that were offered to claims so shortly before a stretch are taken to be offered within it."""
FILL_IT: Final = "report until the end of the period, fill it with `python -m metering backfill`, or waive with a reason"
CLAIMS_STAY: Final = (
    "claims of devices cannot be backfilled, and this cluster offers devices to claims: see what pods claimed meanwhile, "
    "import it, and waive with a reason"
)


@dataclass(frozen=True, slots=True)
class Gap:
    """What an agent saw last: `allocations` of a namespace still open then, or the agent's own silence (0).

    `unwatched`: the stretches in question, as far as nobody filled them. `claims`: somebody tried, but devices were offered
    to claims or held through them, so that what was pieced together afterwards does not fill them.
    """

    cluster: str
    subject: str
    seen_until: datetime
    allocations: int
    unwatched: tuple[Interval, ...] = ()
    claims: bool = False

    @property
    def advice(self) -> str:
        """What to do."""
        return CLAIMS_STAY if self.claims else FILL_IT


NOTES = """SELECT kind, cluster, agent, start, least(until, %(hi)s), 0, kind = 'filled' AND (
               EXISTS (SELECT 1 FROM usage_nodecapacity c WHERE c.cluster = w.cluster AND c.resource LIKE 'dra/%%'
                       AND c.start < w.until AND c.until >= w.start - %(edge)s)
               OR EXISTS (SELECT 1 FROM usage_gpuallocation a WHERE a.cluster = w.cluster AND a.resource LIKE 'dra/%%'
                          AND a.started_at < w.until AND a.observed_until >= w.start - %(edge)s))
           FROM usage_watchnote w WHERE start < %(hi)s"""

GAPS: Final = f"""SELECT 'open', cluster, namespace, min(observed_until), %(hi)s, count(*), false FROM usage_gpuallocation
                  WHERE ended_at IS NULL AND NOT from_file AND observed_until < %(hi)s AND started_at < %(hi)s
                  GROUP BY 1, 2, 3
                  UNION ALL
                  SELECT 'unwatched', cluster, agent, watermark, %(hi)s, 0, false
                  FROM usage_agentwatermark WHERE watermark < %(hi)s
                  UNION ALL {NOTES}
                  ORDER BY 1, 2, 3, 4"""


def metering_gaps(until: datetime) -> list[Gap]:
    """What agents left open: running allocations not seen until then, agents silent before it, stretches not watched."""
    with connection.cursor() as cursor:
        cursor.execute(GAPS, {"hi": until, "edge": EDGE})
        return gaps_of(cursor.fetchall())


def gaps_of(rows: Iterable[tuple[Any, ...]]) -> list[Gap]:
    """The gaps behind the rows of GAPS."""
    gaps: list[Gap] = []
    silent: dict[tuple[str, str], list[Interval]] = {}
    filled: dict[str, list[Interval]] = {}
    claiming: set[str] = set()
    for kind, cluster, subject, start, end, allocations, claims in rows:
        if kind == "open":
            gaps.append(Gap(cluster, subject, start, allocations, (Interval(start, end),)))
        elif claims and subject == BACKFILL:
            claiming.add(cluster)
        elif kind == "filled":
            filled.setdefault(cluster, []).append(Interval(start, end))
        else:
            silent.setdefault((cluster, subject), []).append(Interval(start, end))
    return gaps + _unfilled(silent, filled, claiming)


def _unfilled(
    silent: dict[tuple[str, str], list[Interval]], filled: dict[str, list[Interval]], claiming: set[str]
) -> list[Gap]:
    """Stretches that agents did not watch, without what was filled."""
    found = []
    for (cluster, agent), stretches in sorted(silent.items()):
        left = tuple(without(stretches, filled.get(cluster, ())))
        if left:
            found.append(Gap(cluster, f"agent {agent}", left[0].start, 0, left, cluster in claiming))
    return found
