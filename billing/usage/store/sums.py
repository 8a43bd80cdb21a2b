"""Exact token sums of intervals: whole days and hours from the roll-ups, the rest from the records."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from billing.runtime.parallel_reads import rows_fetched
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.grid import hour_of, next_day, next_hour, this_day, this_hour
from billing.usage.scope import EpochFilter
from billing.usage.store.archived import IN_LEDGER, ArchivedMonth, archived_among
from billing.usage.store.clickhouse import token_servers
from billing.usage.store.dimensions import dimension_names
from billing.usage.store.sharded_reads import sharded_sums
from metering.intervals import EPOCH, Interval
from pricing.contexts import contexts_of, priced_class

NO_BUCKET: Final = -1
"""Bucket of a model without buckets in its piece, in sums from ClickHouse and archives."""
COUNTS = ("requests", *TOKEN_COUNTS)


class TokenSums(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one consumer and model in one piece; by UTC hour and site if the grain has them."""

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
        """Return tokens by disjoint priced class, in the bucket of prompt lengths if the model has buckets."""
        counts = {
            "input": self.input_tokens - self.cache_read_input_tokens - self.cache_creation_input_tokens,
            "cache_read": self.cache_read_input_tokens,
            "cache_creation": self.cache_creation_input_tokens,
            "output": self.output_tokens,
        }
        return {priced_class(name, self.context): count for name, count in counts.items()}


Bounds = Mapping[str, tuple[int, ...]]
"""Upper bounds of the buckets of prompt lengths, by model."""


Range = tuple[int, datetime, datetime]
"""Interval with the number of its piece."""


def token_sums(
    pieces: Sequence[Interval], epochs: EpochFilter, bounds: Sequence[Bounds] = (), *, hourly: bool = False,
    dimensions: Collection[int] | None = None,
) -> Iterator[TokenSums]:  # fmt: skip
    """Yield tokens per piece, source, consumer and model: whole days and hours from the roll-ups, cut hours from records.

    `bounds`: of each piece; models that it names are summed per bucket of prompt lengths, from records alone, since a
    roll-up has no lengths of requests. `hourly`: per hour and site, too. `dimensions`: only of these names.
    """
    if not pieces or (dimensions is not None and not dimensions):
        return
    hours, edges = _whole(((index, piece.start, piece.end) for index, piece in enumerate(pieces)), this_hour, next_hour)
    days, hours = ([], hours) if hourly else whole_days(hours)
    parts = [(index, piece.start, piece.end) for index, piece in enumerate(pieces) if any(bounds) and bounds[index]]
    # cut hours and buckets need records: those of archived months come from the archive
    left = archived_among([Interval(start, end) for _, start, end in (*edges, *parts)], epochs)
    grain = _Grain(hourly, dimensions is not None, bool(left))
    sources = (
        grain.source("token_usage_day", "day", "requests", "d", days),
        grain.source("token_usage_hour", "hour", "requests", "h", hours),
        grain.source("token_event", "time", "1", "e", edges),
    )
    given = {"first": epochs.first, "before": epochs.before, "dimensions": sorted(dimensions or ()), **bucketed(bounds)}
    ranges = {**ranged("d", days), **ranged("h", hours), **ranged("e", edges)}
    rows = rows_fetched(grain.statement(" UNION ALL ".join(sources), WITHOUT_BUCKETS), given | ranges)
    for row in _with_archived(rows, left, edges, epochs, bounds, grain, dimensions, of_buckets=False):
        yield TokenSums(*(*row[:10], "", _hour(row[10]), row[11]))
    if parts:
        events = grain.source("token_event", "time", "1", "b", parts)
        rows = rows_fetched(grain.statement(events, IN_BUCKETS, BUCKET), given | ranged("b", parts))
        for row in _with_archived(rows, left, parts, epochs, bounds, grain, dimensions, of_buckets=True):
            context = str(contexts_of(bounds[row[0]][row[3]])[row[12]])
            yield TokenSums(*(*row[:10], context, _hour(row[10]), row[11]))


def _with_archived(
    rows: Iterable[tuple[Any, ...]], left: Sequence[ArchivedMonth], ranges: Sequence[Range], epochs: EpochFilter,
    bounds: Sequence[Bounds], grain: "_Grain", dimensions: Collection[int] | None, *, of_buckets: bool,
) -> Iterable[tuple[Any, ...]]:  # fmt: skip
    """Return the rows merged with ClickHouse's and archived records of the same ranges."""
    servers = token_servers()
    if not ranges or not (left or servers):
        return rows
    beside: list[tuple[Any, ...]] = []
    if servers:
        beside += sharded_sums(servers, ranges, epochs, bounds, dimensions, of_buckets=of_buckets)
    if left:
        from billing.usage.archive.reading import archived_sums  # which reads sums of files

        names = None if dimensions is None else set(dimension_names(dimensions).values())
        beside += archived_sums(ranges, epochs, bounds, names)
    found = {(*row[:4], *row[10:]): row[4:10] for row in rows}
    for piece, source, consumer, model, site, hour, bucket, *counts in beside:
        if (bucket != NO_BUCKET) is of_buckets:
            place = (hour, site) if grain.hourly else (None, "")
            key = (piece, source, consumer, model, *place, *([bucket] if of_buckets else []))
            known = found.get(key, (0,) * len(COUNTS))
            found[key] = tuple(one + more for one, more in zip(known, counts, strict=True))
    return [(*key[:4], *found[key], *key[4:]) for key in sorted(found)]


def _hour(seconds: int | None) -> datetime | None:
    return None if seconds is None else hour_of(seconds)


BUCKETED = "unnest(%(bucket_i)s::int[], %(bucket_model)s::text[], %(bucket_firsts)s::text[]) AS c (i, model, firsts)"
"""SQL of models priced in buckets, each with its piece and the first length of every bucket but the first."""
WITHOUT_BUCKETS: Final = f"WHERE NOT EXISTS (SELECT 1 FROM {BUCKETED} WHERE c.i = s.i AND c.model = d.model)"
IN_BUCKETS: Final = f"JOIN {BUCKETED} ON c.i = s.i AND c.model = d.model"
BUCKET: Final = "width_bucket(s.input_tokens, string_to_array(c.firsts, ',')::bigint[])"


@dataclass(frozen=True, slots=True)
class _Grain:
    """Grain of sums beyond piece, source, consumer and model, and the filters of their rows."""

    hourly: bool
    of_some: bool
    without_archived: bool = False

    def source(self, table: str, instant: str, requests: str, prefix: str, ranges: Sequence[Range]) -> str:
        """Return SQL of the ranges' rows, each with its hour in seconds if the grain is hourly."""
        hour = f"extract(epoch FROM date_trunc('hour', t.{instant}, 'UTC'))::bigint AS hour, " if self.hourly else ""
        some = "t.dimension = ANY(%(dimensions)s::int[])" if self.of_some else "TRUE"
        some += f" AND {IN_LEDGER}" if self.without_archived and table == "token_event" else ""
        return token_source(table, instant, requests, prefix, ranges, more=hour, condition=some)

    def statement(self, rows: str, condition: str, bucket: str = "") -> str:
        """Return SQL of piece, names, counts, hour and site, then the bucket.

        Without a bucket, rows are summed before the names are looked up.
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
    """Split ranges of whole hours into whole UTC days, and the remaining hours."""
    return _whole(hours, this_day, next_day)


def _whole(
    ranges: Iterable[Range], floor: Callable[[datetime], datetime], ceiling: Callable[[datetime], datetime]
) -> tuple[list[Range], list[Range]]:
    """Split each range into the part between two bounds of a grid, and the parts before and after."""
    inside: list[Range] = []
    outside: list[Range] = []
    for index, start, end in ranges:
        first, last = ceiling(start), floor(end)
        cuts = [(start, first), (last, end)] if first < last else [(start, end)]
        inside += [(index, first, last)] if first < last else []
        outside += [(index, lo, hi) for lo, hi in cuts if lo < hi]
    return inside, outside


def bucketed(bounds: Sequence[Bounds]) -> dict[str, Any]:
    """Return the SQL parameters of BUCKETED."""
    rows = [(index, model, ends) for index, named in enumerate(bounds) for model, ends in sorted(named.items())]
    return {
        "bucket_i": [index for index, _, _ in rows], "bucket_model": [model for _, model, _ in rows],
        "bucket_firsts": [",".join(str(end + 1) for end in ends) for _, _, ends in rows],
    }  # fmt: skip


def _sums(table: str, cast: str = "") -> str:
    return ", ".join(f"sum({table}.{name}){cast} AS {name}" for name in COUNTS)


FEW: Final = 24
"""Largest number of ranges read one by one, each by its index, so that rows between them are not read."""


def token_source(
    table: str, instant: str, requests: str, prefix: str, ranges: Sequence[Range], *, more: str = "",
    condition: str = "TRUE",
) -> str:  # fmt: skip
    """Return SQL of the ranges' rows that meet a condition, with the piece's number; `more`: columns before the counts."""
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
    """Return SQL that finds the range of a row by bisection of the starts rather than by a join.

    The table is read once, in order, by as many workers as the database allows, regardless of the number of pieces.
    """
    return f"""SELECT (%({prefix}_i)s::int[])[t.w] AS i, {columns}
        FROM (SELECT t.*, width_bucket(t.{instant}, %({prefix}_lo)s::timestamptz[]) AS w FROM {table} t
              WHERE t.{instant} >= %({prefix}_first)s AND t.{instant} < %({prefix}_last)s AND {known}) t
        WHERE t.{instant} < (%({prefix}_hi)s::timestamptz[])[t.w]"""


def ranged(prefix: str, ranges: Iterable[Range]) -> dict[str, Any]:
    """Return SQL parameters of non-overlapping ranges, by start; without ranges, of one empty range."""
    ordered = sorted(ranges, key=lambda item: item[1]) or [(0, EPOCH, EPOCH)]
    numbers, starts, ends = (list(column) for column in zip(*ordered, strict=True))
    return {
        f"{prefix}_i": numbers, f"{prefix}_lo": starts, f"{prefix}_hi": ends, f"{prefix}_first": starts[0],
        f"{prefix}_last": ends[-1],
        **{f"{prefix}_i_{n}": number for n, number in enumerate(numbers)},
        **{f"{prefix}_lo_{n}": start for n, start in enumerate(starts)},
        **{f"{prefix}_hi_{n}": end for n, end in enumerate(ends)},
    }  # fmt: skip
