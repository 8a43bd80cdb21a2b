"""Reads which clusters reported anything of a window: allocations, capacity, or that they were watched without either."""

from collections.abc import Sequence

from django.db import connection

from metering.intervals import Interval


def clusters_reported(window: Interval, clusters: Sequence[str]) -> set[str]:
    """Those of `clusters` of which an agent or a file reported anything that lies in the window."""
    with connection.cursor() as cursor:
        cursor.execute(
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
        return {name for (name,) in cursor.fetchall()}
