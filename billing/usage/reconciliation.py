"""Reads that ask whether anything is missing or guessed: gateways beside inference servers, sources that have fallen
silent, allocations whose end was not reported.

Compared are tokens that gateways reported with tokens that inference servers counted, per model and day.

A counter shows how much it grew between two readings of a replica, and that growth belongs to the day of the later one. A
counter that was set back, because the server was started again, has grown by what it shows; what was counted between the
last reading and the end of the server is not known. The first reading of a replica has grown by what it shows only if the
server was started on that day, else it is a beginning and shows nothing. Readings of every few minutes keep what falls on
the wrong side of midnight, and what is lost with a server, far below the tolerance.

A day is comparable for a model if readings, or the start of a server that they report, lie before it, and readings
after its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from metering.intervals import Interval

ENGINE_DAYS = """
    WITH reading AS (
        SELECT model, time, started_at, prompt_tokens, generation_tokens,
               (time AT TIME ZONE %(zone)s)::date AS day, (started_at AT TIME ZONE %(zone)s)::date AS start_day,
               lag(time) OVER w AS last_time, lag(started_at) OVER w AS last_start,
               lag(prompt_tokens) OVER w AS last_prompt, lag(generation_tokens) OVER w AS last_generation
        FROM usage_enginereading
        WHERE time >= %(start)s::timestamptz - interval '7 days' AND time < %(end)s::timestamptz + interval '1 day'
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
    ), gateway AS (
        SELECT d.model, (t.hour AT TIME ZONE %(zone)s)::date AS day,
               sum(t.input_tokens) AS input_tokens, sum(t.output_tokens) AS output_tokens
        FROM token_usage_hour t JOIN token_dimension d ON d.id = t.dimension
        WHERE t.hour >= %(start)s AND t.hour < %(end)s AND d.model IN (SELECT model FROM reach) GROUP BY 1, 2
    ), days AS (
        SELECT at::date AS day, at AT TIME ZONE %(zone)s AS first, (at + interval '1 day') AT TIME ZONE %(zone)s AS last
        FROM generate_series((%(start)s::timestamptz AT TIME ZONE %(zone)s)::date::timestamp,
                             (%(end)s::timestamptz AT TIME ZONE %(zone)s)::date::timestamp - interval '1 day',
                             interval '1 day') AS at
    )
    SELECT model AS subject, day, coalesce(g.input_tokens, 0), coalesce(g.output_tokens, 0),
           coalesce(e.prompt_tokens, 0), coalesce(e.generation_tokens, 0), r.first <= d.first AND r.last >= d.last
    FROM reach r CROSS JOIN days d LEFT JOIN engine e USING (model, day) LEFT JOIN gateway g USING (model, day)
"""
SILENT = """
    WITH lately AS MATERIALIZED (
        SELECT DISTINCT d.source FROM token_usage_hour t JOIN token_dimension d ON d.id = t.dimension
        WHERE t.hour > %(until)s::timestamptz - %(after)s - interval '1 hour' AND t.hour < %(until)s
    ), missed AS MATERIALIZED (
        SELECT id, source FROM token_dimension WHERE source NOT IN (SELECT source FROM lately)
    ), used AS (
        SELECT DISTINCT d.source, t.hour FROM token_usage_hour t JOIN missed d ON d.id = t.dimension
        WHERE t.hour >= %(until)s::timestamptz - %(back)s AND t.hour < %(until)s
    ), pause AS (
        SELECT source, hour, hour - lag(hour) OVER (PARTITION BY source ORDER BY hour) - interval '1 hour' AS idle FROM used
    )
    SELECT source, max(hour) + interval '1 hour' AS last FROM pause p
    GROUP BY source
    HAVING max(hour) + interval '1 hour' <= %(until)s::timestamptz - greatest(%(after)s, max(idle))
       AND count(DISTINCT (hour AT TIME ZONE 'UTC')::date) >= %(days)s
       AND NOT EXISTS (SELECT 1 FROM usage_agentwatermark w
                       WHERE w.cluster = p.source AND w.watermark > %(until)s::timestamptz - %(after)s)
       AND NOT EXISTS (SELECT 1 FROM usage_tokenfile f WHERE f.source = p.source AND f.until >= max(hour))
    ORDER BY source
"""
"""Only sources without usage lately are looked back at: as a rule none, so that no other hour is read."""
USUAL_DAYS = 7
SILENT_AFTER = timedelta(hours=24)
LOOKED_BACK = timedelta(days=62)
"""So that a source which fell silent in the month before is still missed in this one."""


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
    """(source, end of the last hour with usage) of token sources that have fallen silent.

    Such a source was used on seven days or more, and then not for a day, nor for as long as it had ever paused before. A
    source is not missed of which an agent says that it went on watching, nor one whose last usage came in a file.
    """
    given: dict[str, Any] = {"until": until, "after": SILENT_AFTER, "days": USUAL_DAYS, "back": LOOKED_BACK}
    with connection.cursor() as cursor:
        cursor.execute(SILENT, given)
        return list(cursor.fetchall())


def engine_days(window: Interval, zone: str) -> list[EngineDay]:
    """Every day of the window for every model that has readings, by model and day."""
    with connection.cursor() as cursor:
        cursor.execute(f"{ENGINE_DAYS} ORDER BY subject, day", {"start": window.start, "end": window.end, "zone": zone})
        return [_engine_day(row) for row in cursor.fetchall()]


def _engine_day(row: Sequence[Any]) -> EngineDay:
    subject, day, gateway_input, gateway_output, engine_input, engine_output, comparable = row
    return EngineDay(
        subject, day, int(gateway_input), int(gateway_output), int(engine_input), int(engine_output), comparable
    )  # fmt: skip


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
MOST_ENDS = 50


@dataclass(frozen=True, slots=True)
class EstimatedEnd:
    """An allocation whose end was not reported: billed until `ended_at`, it ended within [earliest, latest].

    `device_us`: microseconds of whole devices between these bounds, as far as they lie in the window. `pod` is
    namespace/name; it is None for the `holds` of a cluster that are summed, because there are more than are listed.
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
    """Holds whose end is an estimate of which a part lies in the window, the widest first; `most` of them one by one."""
    with connection.cursor() as cursor:
        cursor.execute(ESTIMATED_ENDS, {"start": window.start, "end": window.end, "most": most})
        return [EstimatedEnd(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class SequenceGaps:
    """Numbers of a run of a source of which the ledger has no record: stretches (first, last), both inclusive."""

    source: str
    run: str
    stretches: list[tuple[int, int]]

    @property
    def missing(self) -> int:
        """How many numbers."""
        return sum(last - first + 1 for first, last in self.stretches)


def sequence_gaps(window: Interval) -> list[SequenceGaps]:
    """What sources numbered and never got to the ledger, by source and run.

    A gap belongs to every window into which one of the two records beside it falls, or the time between them: nobody knows
    when its requests were. What a run numbered before its first and after its last record that arrived is not known.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT source, run, array_agg(ARRAY[last + 1, following - 1] ORDER BY last)
               FROM (SELECT source, run, last, last_time, lead(first) OVER w AS following,
                            lead(first_time) OVER w AS following_time
                     FROM token_sequence_island WINDOW w AS (PARTITION BY source, run ORDER BY first)) AS beside
               WHERE following IS NOT NULL AND least(last_time, following_time) < %s
                 AND greatest(last_time, following_time) >= %s
               GROUP BY source, run ORDER BY source, run""",
            [window.end, window.start],
        )
        return [
            SequenceGaps(source, run, [(first, last) for first, last in found]) for source, run, found in cursor.fetchall()
        ]
