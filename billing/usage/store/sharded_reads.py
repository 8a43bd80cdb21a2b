"""Reads of token records in ClickHouse by time: sums, checksums, requests behind a line, and all records of a month."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from billing.runtime.parallel_reads import rows_read
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.scope import EpochFilter
from billing.usage.store.clickhouse import Servers, literals
from billing.usage.store.dimensions import dimension_names
from billing.usage.store.sharded import RECORD, Shard, cut, identity_of, record_read, shards_state
from metering.intervals import EPOCH, MICROSECOND, Interval
from metering.record_checks import EARLIEST
from metering.records import microseconds
from pricing.meters import MICROSECONDS_PER_HOUR

SINCE_1970: Final = int((EARLIEST - EPOCH).total_seconds())
HOUR: Final = f"intDiv(time, {MICROSECONDS_PER_HOUR}) * 3600 + {SINCE_1970}"
"""SQL of the hour in seconds since 1970."""
SORTED: Final = 4_000_000
"""Approximate number of records sorted at a time."""
PARTS: Final = 40
"""Intervals per statement."""
SUMS: Final = ", ".join(f"sum(toDecimal128({name}, 0))" for name in TOKEN_COUNTS)


def _within(window: Interval, epochs: EpochFilter) -> str:
    first, end = microseconds(window.start), microseconds(window.end)
    return f"time >= {first} AND time < {end} AND epoch >= {epochs.first} AND epoch < {epochs.before}"


def sharded_sums(
    servers: Servers, ranges: Sequence[tuple[int, datetime, datetime]], epochs: EpochFilter,
    bounds: Sequence[Mapping[str, tuple[int, ...]]], dimensions: Collection[int] | None, *, of_buckets: bool,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Yield sums of records in ranges: piece, source, consumer, model, site, hour in seconds, bucket, requests and counts.

    of_buckets: True for models with buckets in their piece, False for the others, whose bucket is -1.
    """
    models = sorted({model for named in bounds for model in named})
    numbers = _numbers_of(models) if models else {}
    parts = list[tuple[str, str]]()
    for piece, start, end in ranges:
        within = f"{_within(Interval(start, end), epochs)}" + ("" if dimensions is None else _among(dimensions))
        bucketed = {model: ends for model, ends in (bounds[piece] if bounds else {}).items() if numbers.get(model)}
        if not of_buckets:
            others = {number for model in bucketed for number in numbers[model]}
            parts.append((f"toInt32({piece}), toInt32(-1)", f"{within}{_among(others, 'NOT IN')}" if others else within))
            continue
        for model, ends in sorted(bucketed.items()):
            longer = " + ".join(f"(input_tokens > {end})" for end in ends)
            parts.append((f"toInt32({piece}), toInt32({longer})", within + _among(numbers[model])))
    asked = [(shard, part) for shard in shards_state(servers) for part in cut(parts, PARTS)] if parts else []
    answers = servers.each(lambda item: _sums_asked(servers, *item), asked)
    rows = [tuple(map(int, row)) for answer in answers for row in answer]
    names = dimension_names({row[2] for row in rows}) if rows else {}
    for place, bucket, dimension, hour, *counts in rows:
        source, consumer, model, site, *_ = names[dimension]
        yield (place, source, consumer, model, site or "", hour, bucket, *counts)


def _among(dimensions: Collection[int], word: str = "IN") -> str:
    return f" AND dimension {word} ({literals(sorted(dimensions)) or '-1'})"


def _numbers_of(models: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    named = "SELECT model, id FROM token_dimension WHERE model = ANY(%(models)s)"
    for model, number in rows_read(named, {"models": models}):
        found.setdefault(model, []).append(number)
    return found


def _sums_asked(servers: Servers, shard: Shard, parts: Sequence[tuple[str, str]]) -> list[list[str]]:
    return servers.rows(shard.number, " UNION ALL ".join(
        f"""SELECT {of} AS bucket, dimension, {HOUR} AS hour, toInt64(count()), {SUMS}
            FROM {servers.database}.token_entry_{shard.number} WHERE {where} AND {shard.counted}
            GROUP BY bucket, dimension, hour"""
        for of, where in parts
    ))  # fmt: skip


def sharded_hours(servers: Servers, window: Interval) -> str:
    """Return the sums of a window's records by hour, dimension and epoch, as lines of HOURS_GIVEN."""
    select = f"{HOUR} AS hour, dimension, epoch, toInt64(count()), {SUMS}"
    found = _of_each(servers, select, _within(window, EpochFilter()), "GROUP BY hour, dimension, epoch")
    return "\n".join("\t".join(row) for row in found)


def _of_each(servers: Servers, select: str, where: str, more: str = "") -> list[list[str]]:
    def asked(shard: Shard) -> list[list[str]]:
        table = f"{servers.database}.token_entry_{shard.number}"
        return servers.rows(shard.number, f"SELECT {select} FROM {table} WHERE {where} AND {shard.counted} {more}")

    return [row for rows in servers.each(asked, shards_state(servers)) for row in rows]


def sharded_checksum(servers: Servers, window: Interval, before: int) -> list[int]:
    """Return a sum of hashes and the number of the window's records known before a close."""
    mixed = "toUInt64(0)"
    for column in ("reinterpretAsUInt64(substring(key, 1, 8))", "reinterpretAsUInt64(substring(key, 9, 8))", "time",
                   "dimension", *TOKEN_COUNTS):  # fmt: skip
        mixed = f"intHash64({mixed} + toUInt64({column}))"
    found = _of_each(servers, f"sum({mixed}), count()", _within(window, EpochFilter(before)))
    return [sum(int(row[0]) for row in found) % 2**64, sum(int(row[1]) for row in found)]


def sharded_number(servers: Servers, window: Interval, before: int) -> int:
    """Return the number of the window's records known before a close."""
    return sum(int(row[0]) for row in _of_each(servers, "count()", _within(window, EpochFilter(before))))


def sharded_requests(
    servers: Servers, ranges: Sequence[tuple[str, Interval]], names: Mapping[int, str], epochs: EpochFilter, usage: str,
    prompts: tuple[int, int | None], most: int,
) -> list[list[dict[str, Any]]]:  # fmt: skip
    """Return the first requests of a line, one list per shard, in the form of `records.requests_of`.

    `names`: source by dimension. `usage`: SQL of the quantity.
    """
    sources: dict[str, list[int]] = {}
    for number, source in names.items():
        sources.setdefault(source, []).append(number)
    wanted = " OR ".join(
        f"({_within(window, epochs)}{_among(sources[source])})" for source, window in ranges if source in sources
    )
    if not wanted:
        return []
    usage = usage.replace("t.", "")
    longest = "" if prompts[1] is None else f" AND input_tokens <= {prompts[1]}"
    where = f"({wanted}) AND {usage} > 0 AND input_tokens >= {prompts[0]}{longest}"
    found = servers.each(lambda shard: _requests_asked(servers, shard, usage, where, most), shards_state(servers))
    dimensions = dimension_names(names)
    return [_requests(head, rows, dimensions) for head, rows in found]


def _requests_asked(
    servers: Servers, shard: Shard, usage: str, where: str, most: int
) -> tuple[list[str], list[list[str]]]:
    """Return sum and number of all requests, and the first ones, with all of the last one's time: time alone orders them."""
    rows = f"FROM {servers.database}.token_entry_{shard.number} WHERE {where} AND {shard.counted}"
    (head,) = servers.rows(shard.number, f"SELECT sum(toDecimal128({usage}, 0)), count() {rows}")
    if head[1] == "0":
        return head, []
    ((last,),) = servers.rows(shard.number, f"SELECT max(time) FROM (SELECT time {rows} ORDER BY time LIMIT {most})")
    return head, servers.rows(shard.number, f"SELECT {RECORD}, {usage} {rows} AND time <= {last}")


def _requests(head: Sequence[str], rows: Iterable[Sequence[str]], names: Mapping[int, Any]) -> list[dict[str, Any]]:
    of_all, number = Decimal(head[0]), int(head[1])
    found = []
    for *row, used in rows:
        record = record_read(row)
        source, *_, status = names[record.dimension]
        found.append({
            "time": EARLIEST + record.time * MICROSECOND, "id": identity_of(record, source), "source": source,
            "status": status, "usage": Decimal(used), "usage_of_all": of_all, "number": number,
        })  # fmt: skip
    return found


def sharded_lines(servers: Servers, window: Interval, before: int) -> Iterator[str]:
    """Return an iterator of a window's records known before a close, as lines of RECORD.

    They come interval by interval, sorted by key within an interval and a shard, so that no server has to sort a whole large
    month. The counted batches are read now, in the current transaction; any thread may consume the lines.
    """
    state, stretches = shards_state(servers), _stretches(window, sharded_number(servers, window, before) // SORTED + 1)
    asked = [
        (shard.number, f"""SELECT {RECORD} FROM {servers.database}.token_entry_{shard.number}
            WHERE {_within(stretch, EpochFilter(before))} AND {shard.counted} ORDER BY key""")
        for stretch in stretches for shard in state
    ]  # fmt: skip
    return (line for item in asked for line in servers.stream(*item))


def _stretches(window: Interval, number: int) -> list[Interval]:
    # intervals of equal length: records need not be spread evenly, SORTED is only an estimate
    length = (window.end - window.start) / number
    return window.cut(window.start + place * length for place in range(1, number))


def lines_given(columns: Mapping[str, str]) -> str:
    """Return SQL of a table from a server's lines, passed as one text; `columns`: SQL by name, with {} for the text.

    Each line is split once, below OFFSET 0.
    """
    values = ", ".join(f"{sql.format(f'l.v[{place}]')} AS {name}" for place, (name, sql) in enumerate(columns.items(), 1))
    split = "SELECT string_to_array(line, chr(9)) AS v FROM string_to_table(%s, chr(10)) AS line OFFSET 0"
    return f"(SELECT {values} FROM ({split}) l)"
