"""Reads of the instant through which usage was reported, by cluster and source; an early end may mean half a file."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.models import AgentWatermark, TokenFile
from billing.usage.store.hours import last_used
from metering.intervals import Interval

HOUR: Final = timedelta(hours=1)
HELD: Final = """SELECT cluster, bool_and(from_file), max(least(observed_until, %(hi)s)) FROM usage_gpuallocation
    WHERE started_at < %(hi)s AND observed_until >= %(lo)s GROUP BY 1"""


@dataclass(frozen=True, slots=True, order=True)
class Reached:
    """Cluster (`gpu`) or source of tokens: True if only files report it, and the instant through which it is reported."""

    kind: str
    name: str
    from_file: bool
    through: datetime


def reached_in(window: Interval) -> list[Reached]:
    """Return every cluster and source with usage in the window, with `through` capped at the end of the window.

    `through` is an agent's watermark, a file's latest record, or the end of a gateway's last hour with usage.
    """
    watched: dict[str, datetime] = {}
    for cluster, watermark in AgentWatermark.objects.filter(watermark__gt=window.start).values_list("cluster", "watermark"):
        watched[cluster] = max(watched.get(cluster, watermark), watermark)
    rows = rows_read(HELD, {"lo": window.start, "hi": window.end})
    held = {cluster: (from_file, until) for cluster, from_file, until in rows}
    files, used = dict(TokenFile.objects.values_list("source", "until")), dict[str, datetime]()
    for (source, _), hour in last_used(window.start.replace(minute=0), window.end).items():
        used[source] = max(used.get(source, hour), hour)
    found = [
        Reached("gpu", cluster, from_file and cluster not in watched, max(until, watched.get(cluster, until)))
        for cluster, (from_file, until) in held.items()
    ]
    for source, hour in used.items():
        from_file = source in files and files[source] >= hour
        through = files[source] if from_file else watched.get(source, hour + HOUR)
        found.append(Reached("tokens", source, from_file and source not in watched, through))
    return sorted(Reached(one.kind, one.name, one.from_file, min(one.through, window.end)) for one in found)
