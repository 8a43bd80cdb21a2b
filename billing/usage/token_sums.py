"""Tokens of stretches of time, summed exactly: of whole days and hours from the roll-ups, of the rest from the events."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import connection

from billing.usage.selectors import EpochFilter
from metering.intervals import Interval
from pricing.contexts import contexts_of, priced_class

HOUR, DAY, EPOCH = timedelta(hours=1), timedelta(days=1), datetime(1970, 1, 1, tzinfo=UTC)
COUNTS = (
    "requests", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip


class TokenSums(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one consumer and model in one piece."""

    piece: int
    source: str
    consumer: str
    model: str
    requests: int
    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int
    context: str = ""

    @property
    def by_class(self) -> dict[str, int]:
        """Disjoint classes: what prices are per, in the bucket of prompt lengths where the model has some."""
        counts = {
            "input": self.input_tokens - self.cache_read_input_tokens - self.cache_creation_input_tokens,
            "cache_read": self.cache_read_input_tokens,
            "cache_creation": self.cache_creation_input_tokens,
            "output": self.output_tokens,
        }
        return {priced_class(name, self.context): count for name, count in counts.items()}


Bounds = Mapping[str, tuple[int, ...]]
"""Where the buckets of prompt lengths end, by model."""


Range = tuple[int, datetime, datetime]
"""A stretch of time with the number of its piece."""


def token_sums(pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds] = ()) -> list[TokenSums]:
    """Tokens per piece, source, consumer and model: whole days and hours from the roll-ups, cut hours from the events.

    `bounds`: of each piece; models that it names are summed per bucket of prompt lengths, from the events alone, since a
    roll-up no longer knows how long a request was.
    """
    days, hours, edges = _parted(pieces)
    sources = (
        token_source("token_usage_day", "day", "requests", "d", days),
        token_source("token_usage_hour", "hour", "requests", "h", hours),
        token_source("token_event", "time", "1", "e", edges),
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT s.i, d.source, d.consumer, d.model, {_sums('s', '::bigint')}
                FROM (SELECT u.i, u.dimension, {_sums('u')} FROM ({' UNION ALL '.join(sources)}) u GROUP BY 1, 2) s
                JOIN token_dimension d ON d.id = s.dimension
                WHERE NOT EXISTS (SELECT 1 FROM {BUCKETED} AS c (i, model, firsts)
                                  WHERE c.i = s.i AND c.model = d.model)
                GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4""",
            {
                **ranged("d", days), **ranged("h", hours), **ranged("e", edges), **bucketed(bounds),
                "first": epochs.first, "before": epochs.before,
            },
        )  # fmt: skip
        found = [TokenSums(*row) for row in cursor.fetchall()]
    return [*found, *_bucket_sums(pieces, epochs, bounds)] if any(bounds) else found


def _parted(pieces: Sequence[Interval]) -> tuple[list[Range], list[Range], list[Range]]:
    """The pieces as whole UTC days, as whole hours of the days that they cut, and as what is left of hours."""
    hours, edges = _whole(((index, piece.start, piece.end) for index, piece in enumerate(pieces)), this_hour, next_hour)
    return *whole_days(hours), edges


def whole_days(hours: Iterable[Range]) -> tuple[list[Range], list[Range]]:
    """Ranges of whole hours as whole UTC days, and what is left of days."""
    return _whole(hours, this_day, next_day)


def _whole(
    ranges: Iterable[Range], floor: Callable[[datetime], datetime], ceiling: Callable[[datetime], datetime]
) -> tuple[list[Range], list[Range]]:
    """Of each range the part between two bounds of a grid, and what lies before and behind it."""
    inside: list[Range] = []
    outside: list[Range] = []
    for index, start, end in ranges:
        first, last = ceiling(start), floor(end)
        cuts = [(start, first), (last, end)] if first < last else [(start, end)]
        inside += [(index, first, last)] if first < last else []
        outside += [(index, lo, hi) for lo, hi in cuts if lo < hi]
    return inside, outside


BUCKETED = "unnest(%(bucket_i)s::int[], %(bucket_model)s::text[], %(bucket_firsts)s::text[])"
"""The models that are priced in buckets, each with its piece and the first length of every bucket but the first."""


def bucketed(bounds: Sequence[Bounds]) -> dict[str, Any]:
    """The parameters of BUCKETED."""
    rows = [(index, model, ends) for index, named in enumerate(bounds) for model, ends in sorted(named.items())]
    return {
        "bucket_i": [index for index, _, _ in rows], "bucket_model": [model for _, model, _ in rows],
        "bucket_firsts": [",".join(str(end + 1) for end in ends) for _, _, ends in rows],
    }  # fmt: skip


def _bucket_sums(pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds]) -> list[TokenSums]:
    """The same for models that have buckets, one sum per bucket. The events are read in order of time, once."""
    ranges = [(index, piece.start, piece.end) for index, piece in enumerate(pieces) if bounds[index]]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT e.i, d.source, d.consumer, d.model, {_sums('e', '::bigint')},
                       width_bucket(e.input_tokens, string_to_array(c.firsts, ',')::bigint[]) AS bucket
                FROM ({token_source('token_event', 'time', '1', 'b', ranges)}) e
                JOIN token_dimension d ON d.id = e.dimension
                JOIN {BUCKETED} AS c (i, model, firsts) ON c.i = e.i AND c.model = d.model
                GROUP BY 1, 2, 3, 4, bucket ORDER BY 1, 2, 3, 4, bucket""",
            {**ranged("b", ranges), **bucketed(bounds), "first": epochs.first, "before": epochs.before},
        )
        rows = cursor.fetchall()
    return [TokenSums(*row[:-1], str(contexts_of(bounds[row[0]][row[3]])[row[-1]])) for row in rows]


def _sums(table: str, cast: str = "") -> str:
    return ", ".join(f"sum({table}.{name}){cast} AS {name}" for name in COUNTS)


FEW: Final = 24
"""Up to how many ranges are read one by one, each by its index, so that what lies between them is not read at all."""


def token_source(table: str, instant: str, requests: str, prefix: str, ranges: Sequence[Range]) -> str:
    """Rows of the ranges, each with the number of its piece."""
    rows = ", ".join(f"t.{name}" for name in COUNTS[1:])
    known = "t.epoch >= %(first)s AND t.epoch < %(before)s"
    if 0 < len(ranges) <= FEW:
        return " UNION ALL ".join(
            f"""SELECT %({prefix}_i_{n})s AS i, t.dimension, {requests} AS requests, {rows} FROM {table} t
                WHERE t.{instant} >= %({prefix}_lo_{n})s AND t.{instant} < %({prefix}_hi_{n})s AND {known}"""
            for n in range(len(ranges))
        )
    return _source_by_bisection(table, instant, requests, prefix, rows, known)


def _source_by_bisection(table: str, instant: str, requests: str, prefix: str, rows: str, known: str) -> str:
    """The range of a row is found by bisection of the starts rather than by a join: the table is read once, in order, by as
    many workers as the database allows, however many pieces there are.
    """
    return f"""SELECT (%({prefix}_i)s::int[])[t.w] AS i, t.dimension, {requests} AS requests, {rows}
        FROM (SELECT t.*, width_bucket(t.{instant}, %({prefix}_lo)s::timestamptz[]) AS w FROM {table} t
              WHERE t.{instant} >= %({prefix}_first)s AND t.{instant} < %({prefix}_last)s AND {known}) t
        WHERE t.{instant} < (%({prefix}_hi)s::timestamptz[])[t.w]"""


def ranged(prefix: str, ranges: Iterable[Range]) -> dict[str, Any]:
    """Ranges that do not overlap, by their start; where there are none, one that holds nothing."""
    ordered = sorted(ranges, key=lambda item: item[1]) or [(0, EPOCH, EPOCH)]
    numbers, starts, ends = (list(column) for column in zip(*ordered, strict=True))
    return {
        f"{prefix}_i": numbers, f"{prefix}_lo": starts, f"{prefix}_hi": ends, f"{prefix}_first": starts[0],
        f"{prefix}_last": ends[-1],
        **{f"{prefix}_i_{n}": number for n, number in enumerate(numbers)},
        **{f"{prefix}_lo_{n}": start for n, start in enumerate(starts)},
        **{f"{prefix}_hi_{n}": end for n, end in enumerate(ends)},
    }  # fmt: skip


def this_hour(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def next_hour(instant: datetime) -> datetime:
    floor = this_hour(instant)
    return floor if floor == instant else floor + HOUR


def this_day(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def next_day(instant: datetime) -> datetime:
    floor = this_day(instant)
    return floor if floor == instant else floor + DAY


def rollup_difference(window: Interval) -> dict[str, int]:
    """Roll-up minus events for the hours of `window`, and roll-up by day minus roll-up by hour for its days, per count; and
    how many sums of an hour or a day differ: what moved from one consumer to another leaves every count as it was. All
    zero or the ledger is broken.
    """
    hours, days = (this_hour(window.start), next_hour(window.end)), (this_day(window.start), next_day(window.end))
    by_hour = _difference(("token_usage_hour", "hour", "sum(requests)"), ("token_event", "time", "count(*)"), "hour", hours)
    by_day = _difference(
        ("token_usage_day", "day", "sum(requests)"), ("token_usage_hour", "hour", "sum(requests)"), "day", days
    )
    return by_hour | {f"{name} by day": count for name, count in by_day.items()}


def _difference(
    summed: tuple[str, str, str], parts: tuple[str, str, str], unit: str, bounds: tuple[datetime, datetime]
) -> dict[str, int]:
    """What one table says between two instants, minus what another does, per count, and how many of their sums differ."""
    told = [
        f"""(SELECT date_trunc('{unit}', {instant}, 'UTC') AS at, dimension, epoch, {requests}::bigint AS requests,
                    {', '.join(f'sum({name})::bigint AS {name}' for name in COUNTS[1:])}
             FROM {table} WHERE {instant} >= %s AND {instant} < %s GROUP BY 1, 2, 3)"""
        for table, instant, requests in (summed, parts)
    ]  # fmt: skip
    differences = [f"coalesce(sum(r.{name}), 0)::bigint - coalesce(sum(e.{name}), 0)::bigint" for name in COUNTS]
    rows = [f"({', '.join(f'{table}.{name}' for name in COUNTS)})" for table in ("r", "e")]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT {', '.join(differences)}, count(*) FILTER (WHERE {' IS DISTINCT FROM '.join(rows)})
                FROM {told[0]} r FULL JOIN {told[1]} e USING (at, dimension, epoch)""",
            [*bounds, *bounds],
        )
        return dict(zip((*COUNTS, "sums"), cursor.fetchone(), strict=True))
