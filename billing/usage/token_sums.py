"""Tokens of stretches of time, summed exactly: of whole days and hours from the roll-ups, of the rest from the events."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from django.db import connection

from billing.runtime.parallel_reads import rows_fetched
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.queries import hour_of
from billing.usage.selectors import EpochFilter
from metering.intervals import Interval
from pricing.contexts import Context, class_and_context, contexts_of, parse_context, priced_class

HOUR, DAY, EPOCH = timedelta(hours=1), timedelta(days=1), datetime(1970, 1, 1, tzinfo=UTC)
COUNTS = ("requests", *TOKEN_COUNTS)


BY_CLASS: Final[Mapping[str, str]] = {
    "input": "(t.input_tokens - t.cache_read_input_tokens - t.cache_creation_input_tokens)",
    "cache_read": "t.cache_read_input_tokens",
    "cache_creation": "t.cache_creation_input_tokens",
    "output": "t.output_tokens",
}
"""What of a request `t` is of a class."""


class TokenSums(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one consumer and model in one piece; by UTC hour and site where the grain distinguishes them."""

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
    hour: datetime | None = None
    site: str = ""

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


def token_sums(
    pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds] = (), *, hourly: bool = False,
    dimensions: Collection[int] | None = None,
) -> Iterator[TokenSums]:  # fmt: skip
    """Tokens per piece, source, consumer and model: whole days and hours from the roll-ups, cut hours from the events.

    `bounds`: of each piece; models that it names are summed per bucket of prompt lengths, from the events alone, since a
    roll-up no longer knows how long a request was. `hourly`: per hour and site, too. `dimensions`: only of these names.
    """
    if not pieces or (dimensions is not None and not dimensions):
        return
    grain = _Grain(hourly, dimensions is not None)
    hours, edges = _whole(((index, piece.start, piece.end) for index, piece in enumerate(pieces)), this_hour, next_hour)
    days, hours = ([], hours) if hourly else whole_days(hours)
    sources = (
        grain.source("token_usage_day", "day", "requests", "d", days),
        grain.source("token_usage_hour", "hour", "requests", "h", hours),
        grain.source("token_event", "time", "1", "e", edges),
    )
    given = {"first": epochs.first, "before": epochs.before, "dimensions": sorted(dimensions or ()), **bucketed(bounds)}
    ranges = {**ranged("d", days), **ranged("h", hours), **ranged("e", edges)}
    for row in rows_fetched(grain.statement(" UNION ALL ".join(sources), WITHOUT_BUCKETS), given | ranges):
        yield TokenSums(*(*row[:10], "", _hour(row[10]), row[11]))
    if any(bounds):
        parts = [(index, piece.start, piece.end) for index, piece in enumerate(pieces) if bounds[index]]
        events = grain.source("token_event", "time", "1", "b", parts)
        for row in rows_fetched(grain.statement(events, IN_BUCKETS, BUCKET), given | ranged("b", parts)):
            context = str(contexts_of(bounds[row[0]][row[3]])[row[12]])
            yield TokenSums(*(*row[:10], context, _hour(row[10]), row[11]))


def _hour(seconds: int | None) -> datetime | None:
    return None if seconds is None else hour_of(seconds)


BUCKETED = "unnest(%(bucket_i)s::int[], %(bucket_model)s::text[], %(bucket_firsts)s::text[]) AS c (i, model, firsts)"
"""The models that are priced in buckets, each with its piece and the first length of every bucket but the first."""
WITHOUT_BUCKETS: Final = f"WHERE NOT EXISTS (SELECT 1 FROM {BUCKETED} WHERE c.i = s.i AND c.model = d.model)"
IN_BUCKETS: Final = f"JOIN {BUCKETED} ON c.i = s.i AND c.model = d.model"
BUCKET: Final = "width_bucket(s.input_tokens, string_to_array(c.firsts, ',')::bigint[])"


@dataclass(frozen=True, slots=True)
class _Grain:
    """What sums distinguish beside piece, source, consumer and model, and whether only some names are read."""

    hourly: bool
    of_some: bool

    def source(self, table: str, instant: str, requests: str, prefix: str, ranges: Sequence[Range]) -> str:
        """Rows of the ranges, each with its hour in seconds where these are distinguished."""
        hour = f"extract(epoch FROM date_trunc('hour', t.{instant}, 'UTC'))::bigint AS hour, " if self.hourly else ""
        some = "t.dimension = ANY(%(dimensions)s::int[])" if self.of_some else "TRUE"
        return token_source(table, instant, requests, prefix, ranges, more=hour, condition=some)

    def statement(self, rows: str, condition: str, bucket: str = "") -> str:
        """Piece, names, counts, hour and site, then the number of the bucket; without one the rows are summed before the
        names are looked up.
        """
        if not bucket:
            by = "u.i, u.dimension" + ", u.hour" * self.hourly
            rows = f"SELECT {by}, {_sums('u')} FROM ({rows}) u GROUP BY {by}"
        keys = [1, 2, 3, 4, *([11, 12] if self.hourly else []), *([13] if bucket else [])]
        ordered = ", ".join(map(str, keys))
        return f"""SELECT s.i, d.source, d.consumer, d.model, {_sums('s', '::bigint')},
                          {"s.hour, coalesce(d.site, '')" if self.hourly else "NULL::bigint, ''"}
                          {', ' + bucket if bucket else ''}
                   FROM ({rows}) s JOIN token_dimension d ON d.id = s.dimension {condition}
                   GROUP BY {ordered} ORDER BY {ordered}"""


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


def bucketed(bounds: Sequence[Bounds]) -> dict[str, Any]:
    """The parameters of BUCKETED."""
    rows = [(index, model, ends) for index, named in enumerate(bounds) for model, ends in sorted(named.items())]
    return {
        "bucket_i": [index for index, _, _ in rows], "bucket_model": [model for _, model, _ in rows],
        "bucket_firsts": [",".join(str(end + 1) for end in ends) for _, _, ends in rows],
    }  # fmt: skip


class TokenName(NamedTuple):
    """A source that reports tokens of one consumer and model, and the number of a dimension of it."""

    number: int
    source: str


def token_names(consumer: str, model: str) -> list[TokenName]:
    """Under which dimensions a consumer used a model."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, source FROM token_dimension WHERE consumer = %s AND model = %s", [consumer, model])
        return [TokenName(*row) for row in cursor.fetchall()]


def requests_of(
    ranges: Sequence[tuple[str, Interval]], names: Sequence[TokenName], epochs: EpochFilter, priced: str, most: int
) -> list[dict[str, Any]]:
    """The first requests that used a priced class, in order of time, each beside the sum and the number of all of them.

    `ranges`: of which source from when to when. The events of each are read by its bounds (OFFSET 0): joined, all of the
    ledger would be.
    """
    token_class, context = class_and_context(priced)
    prompts, usage = parse_context(context) if context else Context(0, None), BY_CLASS[token_class]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT t.time, t.id, d.source, d.status, {usage}::numeric AS usage,
                       sum({usage}) OVER ()::numeric AS usage_of_all, count(*) OVER () AS number
                FROM unnest(%(source)s::text[], %(lo)s::timestamptz[], %(hi)s::timestamptz[]) AS r (source, lo, hi)
                CROSS JOIN LATERAL (SELECT * FROM token_event t WHERE t.time >= r.lo AND t.time < r.hi
                                    AND t.dimension = ANY(%(dimensions)s) OFFSET 0) t
                JOIN token_dimension d ON d.id = t.dimension AND d.source = r.source
                WHERE t.epoch >= %(first)s AND t.epoch < %(before)s AND {usage} > 0
                      AND t.input_tokens >= %(shortest)s AND (%(longest)s::bigint IS NULL OR t.input_tokens <= %(longest)s)
                ORDER BY t.time, d.source, t.id LIMIT %(most)s""",
            {
                "source": [source for source, _ in ranges], "lo": [time.start for _, time in ranges],
                "hi": [time.end for _, time in ranges], "dimensions": [name.number for name in names],
                "first": epochs.first, "before": epochs.before, "shortest": prompts.first, "longest": prompts.last,
                "most": most,
            },
        )  # fmt: skip
        columns = [column.name for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _sums(table: str, cast: str = "") -> str:
    return ", ".join(f"sum({table}.{name}){cast} AS {name}" for name in COUNTS)


FEW: Final = 24
"""Up to how many ranges are read one by one, each by its index, so that what lies between them is not read at all."""


def token_source(
    table: str, instant: str, requests: str, prefix: str, ranges: Sequence[Range], *, more: str = "",
    condition: str = "TRUE",
) -> str:  # fmt: skip
    """Rows of the ranges that fulfil a condition, each with the number of its piece; `more` columns before the counts."""
    names = ", ".join(f"t.{name}" for name in TOKEN_COUNTS)
    columns = f"t.dimension, {more}{requests} AS requests, {names}"
    known = f"t.epoch >= %(first)s AND t.epoch < %(before)s AND {condition}"
    if 0 < len(ranges) <= FEW:
        return " UNION ALL ".join(
            f"""SELECT %({prefix}_i_{n})s AS i, {columns} FROM {table} t
                WHERE t.{instant} >= %({prefix}_lo_{n})s AND t.{instant} < %({prefix}_hi_{n})s AND {known}"""
            for n in range(len(ranges))
        )
    return _source_by_bisection(table, instant, prefix, columns, known)


def _source_by_bisection(table: str, instant: str, prefix: str, columns: str, known: str) -> str:
    """The range of a row is found by bisection of the starts rather than by a join: the table is read once, in order, by as
    many workers as the database allows, however many pieces there are.
    """
    return f"""SELECT (%({prefix}_i)s::int[])[t.w] AS i, {columns}
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
    tables = [
        f"""(SELECT date_trunc('{unit}', {instant}, 'UTC') AS at, dimension, epoch, {requests}::bigint AS requests,
                    {', '.join(f'sum({name})::bigint AS {name}' for name in TOKEN_COUNTS)}
             FROM {table} WHERE {instant} >= %s AND {instant} < %s GROUP BY 1, 2, 3)"""
        for table, instant, requests in (summed, parts)
    ]  # fmt: skip
    differences = [f"coalesce(sum(r.{name}), 0)::bigint - coalesce(sum(e.{name}), 0)::bigint" for name in COUNTS]
    rows = [f"({', '.join(f'{table}.{name}' for name in COUNTS)})" for table in ("r", "e")]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT {', '.join(differences)}, count(*) FILTER (WHERE {' IS DISTINCT FROM '.join(rows)})
                FROM {tables[0]} r FULL JOIN {tables[1]} e USING (at, dimension, epoch)""",
            [*bounds, *bounds],
        )
        return dict(zip((*COUNTS, "sums"), cursor.fetchone(), strict=True))
