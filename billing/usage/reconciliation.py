"""Reads of missing and estimated usage: gateways compared with inference servers, silent sources, estimated ends.

Tokens that gateways reported are compared with tokens that inference servers counted, per model and day.

A counter grows by the difference of two readings of a replica, and the growth belongs to the day of the later one. A
counter that was reset, because the server restarted, has grown by its value; tokens counted between the last reading and
the end of the server are unknown. The first reading of a replica counts as growth only if the server was started on that
day, else it is a baseline. Readings every few minutes keep the tokens on the wrong side of midnight, and those lost with a
server, far below the tolerance.

A day is comparable for a model if readings, or the reported start of a server, lie before it, and readings after its end.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import groupby, pairwise
from operator import itemgetter

from billing.runtime.parallel_reads import rows_read
from billing.usage.grid import HOUR, next_hour, this_day, this_hour
from billing.usage.models import AgentWatermark, TokenFile
from billing.usage.store.dimensions import names_reported
from billing.usage.store.hours import last_used, model_hours, used_by_source
from metering.intervals import Interval, day_of, midnights

ENGINE_DAYS = """
    WITH reading AS (
        SELECT model, time, started_at, prompt_tokens, generation_tokens,
               width_bucket(time, %(bounds)s::timestamptz[]) AS day,
               width_bucket(started_at, %(bounds)s::timestamptz[]) AS start_day,
               lag(time) OVER w AS last_time, lag(started_at) OVER w AS last_start,
               lag(prompt_tokens) OVER w AS last_prompt, lag(generation_tokens) OVER w AS last_generation
        FROM usage_enginereading
        WHERE time >= %(first)s::timestamptz - interval '7 days' AND time < %(last)s::timestamptz + interval '1 day'
        WINDOW w AS (PARTITION BY source, replica, model ORDER BY time)
    ), growth AS (
        SELECT *, CASE WHEN last_time IS NULL THEN start_day = day
                       ELSE started_at <> last_start OR prompt_tokens < last_prompt OR generation_tokens < last_generation
                  END IS TRUE AS anew
        FROM reading
    ), engine AS (
        SELECT model, day,
               sum(CASE WHEN anew THEN prompt_tokens WHEN last_time IS NOT NULL THEN prompt_tokens - last_prompt
                        ELSE 0 END) AS prompt_tokens,
               sum(CASE WHEN anew THEN generation_tokens WHEN last_time IS NOT NULL THEN generation_tokens - last_generation
                        ELSE 0 END) AS generation_tokens
        FROM growth GROUP BY model, day
    ), reach AS (
        SELECT model, min(least(time, started_at)) AS first, max(time) AS last FROM reading GROUP BY model
    ), days AS (
        SELECT day::int, first, lead(first) OVER (ORDER BY day) AS last
        FROM unnest(%(bounds)s::timestamptz[]) WITH ORDINALITY AS b (first, day)
    )
    SELECT model AS subject, day, coalesce(e.prompt_tokens, 0), coalesce(e.generation_tokens, 0),
           r.first <= d.first AND r.last >= d.last
    FROM reach r CROSS JOIN days d LEFT JOIN engine e USING (model, day) WHERE d.last IS NOT NULL ORDER BY subject, day
"""
"""SQL of engine tokens by model and day; days are numbered from 1, each from one of the bounds to the next."""
USUAL_DAYS = 7
SILENT_AFTER = timedelta(hours=24)
LOOKED_BACK = timedelta(days=62)
"""Look-back that still finds in this month a source that fell silent in the month before."""


@dataclass(frozen=True, slots=True)
class EngineDay:
    """Tokens of one model on one day of the billing zone: reported by gateways, counted by servers."""

    model: str
    day: date
    gateway_input: int
    gateway_output: int
    engine_input: int
    engine_output: int
    comparable: bool


def silent_sources(until: datetime) -> list[tuple[str, datetime]]:
    """Return (source, end of the last hour with usage) of token sources that have fallen silent.

    Such a source was used on seven days or more, and then not for a day, nor for as long as its longest earlier pause. A
    source is not missed if an agent's watermark for it advances, nor if its last usage came in a file.

    Only sources without recent usage are looked up in the past: usually none, so that no other hour is read.
    """
    lately = {source for source, _ in last_used(this_hour(until - SILENT_AFTER), until)}
    missed = set(names_reported("source")) - lately
    missed -= set(AgentWatermark.objects.filter(watermark__gt=until - SILENT_AFTER).values_list("cluster", flat=True))
    if not missed:
        return []
    files, found = dict(TokenFile.objects.values_list("source", "until")), list[tuple[str, datetime]]()
    used = used_by_source("hour", missed, Interval(until - LOOKED_BACK, until))
    for source, rows in groupby(used, key=itemgetter(0)):
        hours = [hour for _, hour in rows]
        idle = max((later - hour - HOUR for hour, later in pairwise(hours)), default=SILENT_AFTER)
        regular = len({this_day(hour) for hour in hours}) >= USUAL_DAYS
        in_a_file = source in files and files[source] >= hours[-1]
        if regular and not in_a_file and hours[-1] + HOUR <= until - max(SILENT_AFTER, idle):
            found.append((source, hours[-1] + HOUR))
    return found


def engine_days(window: Interval, zone: str) -> list[EngineDay]:
    """Return every day of the window for every model with readings, by model and day.

    Gateways' tokens are summed by UTC hour: if midnight cuts an hour, the day begins with the next hour, on both sides.
    """
    days = midnights(window.start, window.end, zone)
    bounds = [next_hour(midnight) for midnight in days]
    rows = rows_read(ENGINE_DAYS, {"bounds": bounds, "first": bounds[0], "last": bounds[-1]})
    compared, models = Interval(bounds[0], bounds[-1]), {row[0] for row in rows}
    gateways: dict[tuple[str, int], tuple[int, int]] = {}
    for model, hour, given, made in model_hours(compared, models=models) if rows else ():
        number = model, bisect_right(bounds, hour)
        before = gateways.get(number, (0, 0))
        gateways[number] = before[0] + given, before[1] + made
    return [
        EngineDay(
            model, day_of(days[number - 1], zone), *gateways.get((model, number), (0, 0)), int(read), int(generated),
            comparable,
        )
        for model, number, read, generated, comparable in rows
    ]


ESTIMATED_ENDS = """
    WITH guess AS (
        SELECT cluster, namespace || '/' || pod AS subject, end_rule, ended_at, end_earliest, end_latest,
               quantity * device_fraction
               * microseconds(least(end_latest, %(end)s) - greatest(end_earliest, %(start)s)) AS device_us,
               row_number() OVER (ORDER BY (end_latest - end_earliest) * quantity DESC, allocation_id) AS place
        FROM usage_gpuallocation
        WHERE end_estimated AND end_earliest < end_latest AND end_earliest < %(end)s AND end_latest > %(start)s
    )
    SELECT cluster, CASE WHEN place <= %(most)s THEN subject END, min(end_rule), min(ended_at), min(end_earliest),
           max(end_latest), sum(device_us), count(*)
    FROM guess GROUP BY 1, 2, CASE WHEN place <= %(most)s THEN place END ORDER BY min(place)
"""
# pods listed one by one; the rest is summed by cluster
MOST_ENDS = 50


@dataclass(frozen=True, slots=True)
class EstimatedEnd:
    """Allocation whose end was not reported: billed until `ended_at`, ended within [earliest, latest].

    `device_us`: microseconds of whole devices between these bounds, cut to the window. `pod` is namespace/name, or None for
    a cluster's sum of `holds` allocations beyond the listed ones.
    """

    cluster: str
    pod: str | None
    rule: str
    ended_at: datetime
    earliest: datetime
    latest: datetime
    device_us: Decimal
    holds: int


def estimated_ends(window: Interval, *, most: int = MOST_ENDS) -> list[EstimatedEnd]:
    """Return estimated ends whose bounds overlap the window, the widest first; beyond `most` they are summed by cluster."""
    rows = rows_read(ESTIMATED_ENDS, {"start": window.start, "end": window.end, "most": most})
    return [EstimatedEnd(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class SequenceGaps:
    """Sequence numbers of a source's run without a record in the ledger: ranges (first, last), both inclusive."""

    source: str
    run: str
    stretches: list[tuple[int, int]]

    @property
    def missing(self) -> int:
        return sum(last - first + 1 for first, last in self.stretches)


def sequence_gaps(window: Interval) -> list[SequenceGaps]:
    """Return sequence numbers that never arrived, by source and run.

    A gap belongs to every window that contains one of the two records around it, or the time between them: the time of its
    requests is unknown. Numbers before the first and after the last record that arrived of a run are not known.
    """
    rows = rows_read(
        """SELECT source, run, array_agg(ARRAY[last + 1, following - 1] ORDER BY last)
           FROM (SELECT source, run, last, last_time, lead(first) OVER w AS following,
                        lead(first_time) OVER w AS following_time
                 FROM token_sequence_island WINDOW w AS (PARTITION BY source, run ORDER BY first)) AS beside
           WHERE following IS NOT NULL AND least(last_time, following_time) < %(end)s
             AND greatest(last_time, following_time) >= %(start)s
           GROUP BY source, run ORDER BY source, run""",
        {"start": window.start, "end": window.end},
    )
    return [SequenceGaps(source, run, [(first, last) for first, last in found]) for source, run, found in rows]
