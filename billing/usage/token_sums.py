"""Tokens of stretches of time, summed exactly: of whole hours from the roll-up, of the rest from the events themselves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from billing.usage.selectors import EpochFilter
from metering.intervals import Interval
from pricing.contexts import contexts_of, priced_class

HOUR, EPOCH = timedelta(hours=1), datetime(1970, 1, 1, tzinfo=UTC)
COUNTS = (
    "requests", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    "reasoning_output_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenSums:
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


def token_sums(pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds] = ()) -> list[TokenSums]:
    """Tokens per piece, source, consumer and model: whole hours from the roll-up, the cut hours from the events.

    `bounds`: of each piece; models that it names are summed per bucket of prompt lengths, from the events alone, since a
    roll-up no longer knows how long a request was.
    """
    hours: list[tuple[int, datetime, datetime]] = []
    edges: list[tuple[int, datetime, datetime]] = []
    for index, piece in enumerate(pieces):
        first, last = next_hour(piece.start), this_hour(piece.end)
        if first > last:
            edges.append((index, piece.start, piece.end))
            continue
        hours.append((index, first, last))
        edges += [(index, lo, hi) for lo, hi in ((piece.start, first), (last, piece.end)) if lo < hi]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT s.i, d.source, d.consumer, d.model, {_sums('s', '::bigint')}
                FROM (SELECT u.i, u.dimension, {_sums('u')}
                      FROM ({_token_source('token_usage_hour', 'hour', 'requests', 'h')}
                            UNION ALL {_token_source('token_event', 'time', '1', 'e')}) u GROUP BY 1, 2) s
                JOIN token_dimension d ON d.id = s.dimension
                WHERE NOT EXISTS (SELECT 1 FROM {BUCKETED} AS c (i, model, firsts)
                                  WHERE c.i = s.i AND c.model = d.model)
                GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4""",
            {
                **_ranges("h", hours), **_ranges("e", edges), **bucketed(bounds), "first": epochs.first,
                "before": epochs.before,
            },
        )  # fmt: skip
        found = [TokenSums(*row) for row in cursor.fetchall()]
    return [*found, *_bucket_sums(pieces, epochs, bounds)] if any(bounds) else found


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
                FROM ({_token_source('token_event', 'time', '1', 'b')}) e
                JOIN token_dimension d ON d.id = e.dimension
                JOIN {BUCKETED} AS c (i, model, firsts) ON c.i = e.i AND c.model = d.model
                GROUP BY 1, 2, 3, 4, bucket ORDER BY 1, 2, 3, 4, bucket""",
            {**_ranges("b", ranges), **bucketed(bounds), "first": epochs.first, "before": epochs.before},
        )
        rows = cursor.fetchall()
    return [TokenSums(*row[:-1], str(contexts_of(bounds[row[0]][row[3]])[row[-1]])) for row in rows]


def _sums(table: str, cast: str = "") -> str:
    return ", ".join(f"sum({table}.{name}){cast} AS {name}" for name in COUNTS)


def _token_source(table: str, instant: str, requests: str, prefix: str) -> str:
    """Rows of the ranges, each with the number of its piece.

    The range of a row is found by bisection of the starts rather than by a join: the table is read once, in order, by as
    many workers as the database allows, however many pieces there are.
    """
    rows = ", ".join(f"t.{name}" for name in COUNTS[1:])
    return f"""SELECT (%({prefix}_i)s::int[])[t.w] AS i, t.dimension, {requests} AS requests, {rows}
        FROM (SELECT t.*, width_bucket(t.{instant}, %({prefix}_lo)s::timestamptz[]) AS w FROM {table} t
              WHERE t.{instant} >= %({prefix}_first)s AND t.{instant} < %({prefix}_last)s
                AND t.epoch >= %(first)s AND t.epoch < %(before)s) t
        WHERE t.{instant} < (%({prefix}_hi)s::timestamptz[])[t.w]"""


def _ranges(prefix: str, ranges: Iterable[tuple[int, datetime, datetime]]) -> dict[str, Any]:
    """Ranges that do not overlap, by their start; where there are none, one that holds nothing."""
    ordered = sorted(ranges, key=lambda item: item[1]) or [(0, EPOCH, EPOCH)]
    numbers, starts, ends = (list(column) for column in zip(*ordered, strict=True))
    return {
        f"{prefix}_i": numbers, f"{prefix}_lo": starts, f"{prefix}_hi": ends, f"{prefix}_first": starts[0],
        f"{prefix}_last": ends[-1],
    }  # fmt: skip


def this_hour(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def next_hour(instant: datetime) -> datetime:
    floor = this_hour(instant)
    return floor if floor == instant else floor + HOUR


def rollup_difference(window: Interval) -> dict[str, int]:
    """Roll-up minus events for the whole hours of `window`, per count; all zero or the ledger is broken."""
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in COUNTS[1:])
    parameters = [next_hour(window.start), this_hour(window.end)] * 2
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT {', '.join(f'r.{name} - e.{name}' for name in COUNTS)} FROM
                (SELECT coalesce(sum(requests), 0)::bigint AS requests, {sums} FROM token_usage_hour
                 WHERE hour >= %s AND hour < %s) r,
                (SELECT count(*) AS requests, {sums} FROM token_event WHERE time >= %s AND time < %s) e""",
            parameters,
        )
        return dict(zip(COUNTS, cursor.fetchone(), strict=True))
