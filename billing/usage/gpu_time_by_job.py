"""Reads of device time by job and queue, and by hour of the week, for given namespaces and consumers.

Exact sums of device-microseconds and tokens, in agreement with `billing.usage.selectors` for whole months.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from billing.runtime.parallel_reads import rows_read
from billing.usage.queries import IN_NAMESPACES, namespace_lists
from billing.usage.selectors import JOB
from billing.usage.store.hours import model_hours
from metering.intervals import Interval
from pricing.meters import MICROSECONDS_PER_HOUR

HOUR = timedelta(hours=1)
WeekHour = tuple[int, int]
"""Weekday (Monday is 0) and hour of the day, both local."""


def queues_of(window: Interval, places: Collection[tuple[str, str]]) -> set[str]:
    """Return the queue names of allocations in `places`; an empty queue is left out."""
    if not places:
        return set()
    rows = rows_read(
        f"""SELECT DISTINCT a.queue FROM usage_gpuallocation a WHERE a.queue <> '' AND {IN_NAMESPACES} AND EXISTS (
                SELECT 1 FROM usage_allocationrevision s
                WHERE s.allocation_id = a.id AND s.start < %(hi)s AND s.until > %(lo)s)""",
        {"lo": window.start, "hi": window.end, **namespace_lists(places)},
    )
    return {queue for (queue,) in rows}


WeekHours = dict[WeekHour, Decimal]
DeviceName = tuple[str, str, str]
"""Cluster, accelerator, resource."""


def devices_by_week_hour(
    window: Interval, zone: str, places: Collection[tuple[str, str]], *, job: str = "", queue: str = ""
) -> dict[DeviceName, WeekHours]:
    """Return device-microseconds in `places` by local weekday and hour; hours are those of UTC, named by their start.

    Only starts and ends are read: an hour's sum is the level at its start for the whole hour, plus its changes.
    """
    if not places:
        return {}
    rows = rows_read(
        f"""WITH held AS (
                SELECT greatest(s.start, %(lo)s) AS start, least(s.until, %(hi)s) AS until,
                       a.cluster, a.accelerator, a.resource, a.quantity * a.device_fraction AS devices
                FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
                WHERE s.start < %(hi)s AND s.until > %(lo)s AND {IN_NAMESPACES}
                      AND (%(queue)s = '' OR a.queue = %(queue)s) AND (%(job)s = '' OR {JOB} = %(job)s)),
            changes AS (SELECT cluster, accelerator, resource, start AS at, devices FROM held
                        UNION ALL SELECT cluster, accelerator, resource, until, -devices FROM held)
            SELECT cluster, accelerator, resource, date_trunc('hour', at, 'UTC') AS hour, sum(devices),
                   sum(devices * microseconds(date_trunc('hour', at, 'UTC') + interval '1 hour' - at))
            FROM changes GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4""",
        {"lo": window.start, "hi": window.end, "job": job, "queue": queue, **namespace_lists(places)},
    )
    changes: dict[DeviceName, list[tuple[datetime, Decimal, Decimal]]] = defaultdict(list)
    for *name, hour, change, partial in rows:
        changes[name[0], name[1], name[2]].append((hour, change, partial))
    return {name: _of_the_week(_levels(found), zone) for name, found in changes.items()}


def _levels(changes: Sequence[tuple[datetime, Decimal, Decimal]]) -> list[tuple[datetime, Decimal]]:
    """Return device-microseconds per hour: the level at its start for a whole hour, plus each change times the time left."""
    found: list[tuple[datetime, Decimal]] = []
    level, reached = Decimal(0), None
    for hour, change, partial in changes:
        while reached is not None and reached < hour:
            found.append((reached, level * MICROSECONDS_PER_HOUR))
            reached += HOUR
        found.append((hour, level * MICROSECONDS_PER_HOUR + partial))
        level, reached = level + change, hour + HOUR
    return found


def _of_the_week(hours: Sequence[tuple[datetime, Decimal]], zone: str) -> WeekHours:
    where = ZoneInfo(zone)
    sums: dict[WeekHour, Decimal] = defaultdict(Decimal)
    for hour, amount in hours:
        if amount:
            there = hour.astimezone(where)
            sums[there.weekday(), there.hour] += amount
    return dict(sums)


def tokens_by_week_hour(
    window: Interval, zone: str, consumers: Collection[str], model: str = ""
) -> dict[str, WeekHours]:
    """Return tokens of `consumers` by model, local weekday and hour, from the roll-up; all classes, also cached input."""
    if not consumers:
        return {}
    hours: dict[str, list[tuple[datetime, Decimal]]] = defaultdict(list)
    for found in model_hours(window, consumers=consumers, models=[model] if model else None):
        hours[found.model].append((found.hour, Decimal(found.input_tokens + found.output_tokens)))
    return {name: _of_the_week(found, zone) for name, found in hours.items()}
