"""Reads of token roll-ups for everything but rating: when tokens were used, by whom, and how many per hour."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from billing.runtime.parallel_reads import rows_read
from metering.intervals import Interval

Name = tuple[str, str]
"""Source and consumer."""
USED = """
    SELECT w.i::int - 1 FROM unnest(%(start)s::timestamptz[], %(end)s::timestamptz[]) WITH ORDINALITY AS w (start, "end", i),
    LATERAL (SELECT date_trunc('hour', w.start, 'UTC') AS hour,
                    date_trunc('day', w.start + interval '1 day' - interval '1 microsecond', 'UTC') AS first_day,
                    date_trunc('day', w."end", 'UTC') AS last_day) d
    WHERE EXISTS (SELECT 1 FROM token_day t WHERE {known} AND t.day >= d.first_day AND t.day < d.last_day)
       OR EXISTS (SELECT 1 FROM token_hour_delta t WHERE {known} AND t.hour >= d.hour AND t.hour < w."end")
       OR EXISTS (SELECT 1 FROM token_hour t WHERE {known} AND t.hour >= d.hour AND t.hour < least(d.first_day, w."end"))
       OR EXISTS (SELECT 1 FROM token_hour t
                  WHERE {known} AND t.hour >= greatest(d.last_day, d.hour) AND t.hour < w."end")
"""


def hours_used() -> tuple[datetime, datetime] | None:
    """Return the first and the last hour with tokens; each is one look-up in an index."""
    both = "SELECT (SELECT min(hour) FROM token_usage_hour), (SELECT max(hour) FROM token_usage_hour)"
    ((first, last),) = rows_read(both, {})
    return None if first is None else (first, last)


def windows_used(windows: Sequence[Interval], epochs: Collection[int] | None = None) -> set[int]:
    """Return indexes of the windows with tokens learned in `epochs`; an hour cut by a window counts as inside."""
    known = "TRUE" if epochs is None else "t.epoch = ANY(%(epochs)s)"
    starts, ends = [window.start for window in windows], [window.end for window in windows]
    rows = rows_read(USED.format(known=known), {"start": starts, "end": ends, "epochs": list(epochs or ())})
    return {place for (place,) in rows}


def last_used(since: datetime, until: datetime | None = None) -> dict[Name, datetime]:
    """Return the last hour of each source and consumer among hours that begin in [since, until)."""
    rows = rows_read(
        """SELECT d.source, d.consumer, max(t.last)
           FROM (SELECT dimension, max(hour) AS last FROM token_usage_hour
                 WHERE hour >= %(since)s AND (%(until)s::timestamptz IS NULL OR hour < %(until)s) GROUP BY 1) t
           JOIN token_dimension d ON d.id = t.dimension GROUP BY 1, 2""",
        {"since": since, "until": until},
    )
    return {(source, consumer): last for source, consumer, last in rows}


def models_used(window: Interval) -> dict[str, datetime]:
    """Return the first hour with usage of each model, among hours that overlap `window`."""
    rows = rows_read(
        """SELECT d.model, min(t.hour) FROM token_usage_hour t JOIN token_dimension d ON d.id = t.dimension
           WHERE t.hour > %(start)s::timestamptz - interval '1 hour' AND t.hour < %(end)s GROUP BY 1""",
        {"start": window.start, "end": window.end},
    )
    return dict(rows)


def used_by_source(unit: Literal["hour", "day"], sources: Collection[str], window: Interval) -> list[tuple[str, datetime]]:
    """Return (source, hour or day) with usage of these sources, in order."""
    return rows_read(
        f"""SELECT DISTINCT d.source, t.{unit} FROM token_usage_{unit} t JOIN token_dimension d ON d.id = t.dimension
            WHERE d.source = ANY(%(sources)s) AND t.{unit} >= %(start)s AND t.{unit} < %(end)s ORDER BY 1, 2""",
        {"sources": sorted(sources), "start": window.start, "end": window.end},
    )


def names_used(days: Interval, before: int) -> list[Name]:
    """Return (source, consumer) pairs with usage of these whole days known before close `before`, in order."""
    return rows_read(
        """SELECT DISTINCT d.source, d.consumer FROM (
               SELECT DISTINCT t.dimension FROM token_usage_day t
               WHERE t.epoch < %(before)s AND t.day >= %(start)s AND t.day < %(end)s) u
           JOIN token_dimension d ON d.id = u.dimension ORDER BY 1, 2""",
        {"before": before, "start": days.start, "end": days.end},
    )


class ModelHour(NamedTuple):
    """Tokens of a model in an hour, all classes, cached input included."""

    model: str
    hour: datetime
    input_tokens: int
    output_tokens: int


def model_hours(
    window: Interval, *, models: Collection[str] | None = None, consumers: Collection[str] | None = None
) -> list[ModelHour]:
    """Return sums of hours that begin in the window, by model and hour; optionally only of these models or consumers."""
    rows = rows_read(
        """SELECT d.model, t.hour, sum(t.input_tokens), sum(t.output_tokens)
           FROM token_usage_hour t JOIN token_dimension d ON d.id = t.dimension
           WHERE t.hour >= %(start)s AND t.hour < %(end)s AND (%(models)s::text[] IS NULL OR d.model = ANY(%(models)s))
                 AND (%(consumers)s::text[] IS NULL OR d.consumer = ANY(%(consumers)s)) GROUP BY 1, 2 ORDER BY 1, 2""",
        {
            "start": window.start, "end": window.end, "models": None if models is None else sorted(models),
            "consumers": None if consumers is None else sorted(consumers),
        },
    )  # fmt: skip
    return [ModelHour(model, hour, int(given), int(made)) for model, hour, given, made in rows]


def records_counted() -> int:
    ((count,),) = rows_read("SELECT coalesce(sum(requests), 0) FROM token_usage_hour", {})
    return int(count)


def deltas_waiting() -> int:
    """Return the number of deltas not yet folded into the roll-ups."""
    ((count,),) = rows_read("SELECT count(*) FROM token_hour_delta", {})
    return int(count)
