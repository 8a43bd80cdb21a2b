"""Proofs of stored token records: comparison of counts kept in two places, and checksums that any changed row changes.

A checksum of roll-ups adds each count up, plain and weighted by a hash of its hour and dimension: tokens that moved to
another hour or consumer give another weighted sum, regardless of how many rows an hour has until its deltas are folded.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connection
from psycopg import Connection

from billing.runtime.parallel_reads import rows_read
from billing.usage.contents import TOKEN_COUNTS
from billing.usage.grid import DAY, next_day, next_hour, this_day, this_hour
from billing.usage.scope import EpochFilter
from billing.usage.store.archived import IN_LEDGER, archived_among
from billing.usage.store.clickhouse import token_servers
from billing.usage.store.sharded_reads import lines_given, sharded_checksum, sharded_hours
from billing.usage.store.sums import COUNTS, ranged, token_source
from metering.intervals import Interval

HOURS_GIVEN: Final = lines_given({
    "at": "to_timestamp({}::bigint)", "dimension": "{}::int", "epoch": "{}::int", **dict.fromkeys(COUNTS, "{}::bigint")
})  # fmt: skip
WEIGHED: Final = " + ".join(f"{weight} * t.{name}" for weight, name in zip((1, 2, 3, 5, 7, 11), COUNTS, strict=True))
"""SQL of a weighted sum: together with the plain sum of each count, it reveals every change within an hour."""
EVENTS: Final = f"""SELECT
    sum(hash_record_extended(ROW(t.time, t.dimension, {', '.join(f't.{name}' for name in TOKEN_COUNTS)}), 0)), count(*)
    FROM token_event t WHERE t.epoch < %(before)s AND t.time >= %(start)s AND t.time < %(end)s"""


def rollup_checksum(days: Sequence[Interval], hours: Sequence[Interval], epochs: EpochFilter) -> Sequence[Any]:
    """Return the sum of each count over whole days and whole hours, then their weighted sum."""
    by_day, by_hour = ([(0, part.start, part.end) for part in parts if part.start < part.end] for parts in (days, hours))
    rows = f"""{token_source("token_usage_day", "day", "requests", "d", by_day, more="t.day AS at, ")}
               UNION ALL {token_source("token_usage_hour", "hour", "requests", "h", by_hour, more="t.hour AS at, ")}"""
    (row,) = rows_read(
        f"""SELECT {', '.join(f'sum(t.{name})' for name in COUNTS)},
                   sum((hash_record_extended(ROW(t.at, t.dimension), 0) & 65535)::numeric * ({WEIGHED})) FROM ({rows}) t""",
        {"first": epochs.first, "before": epochs.before, **ranged("d", by_day), **ranged("h", by_hour)},
    )
    return row


def records_checksum(window: Interval, before: int) -> Sequence[Any]:
    """Return a sum of hashes and the number of the window's records known before close `before`.

    An archived month is represented by its folder: nothing is added to it.
    """
    left = archived_among([window], EpochFilter(before))
    statement = EVENTS + (f" AND {IN_LEDGER}" if left else "")
    (row,) = rows_read(statement, {"before": before, "start": window.start, "end": window.end})
    found = [*row, *(item.folder for item in left)]
    if servers := token_servers():
        checksum, number = sharded_checksum(servers, window, before)
        found += [checksum, number] if number else []
    return found


def tokens_stored(ledger: Connection[Any]) -> tuple[int, int]:
    """Return input and output tokens of all records, on a given connection."""
    row = ledger.execute("SELECT sum(input_tokens), sum(output_tokens) FROM token_event").fetchone()
    return (int(row[0] or 0), int(row[1] or 0)) if row else (0, 0)


def rollup_difference(window: Interval) -> dict[str, int]:
    """Return differences per count: roll-up minus records by hour, and daily minus hourly roll-up, for a window.

    "sums" is the number of hour or day sums that differ: tokens moved between consumers leave every count unchanged. All
    zero unless the ledger is broken. Hours of archived records are not compared.
    """
    hours, days = Interval(this_hour(window.start), next_hour(window.end)), (this_day(window.start), next_day(window.end))
    midnights = (next_day(window.start) + number * DAY for number in range((window.end - window.start).days + 1))
    by_hour = dict.fromkeys((*COUNTS, "sums"), 0)
    for part in hours.cut(midnights) if token_servers() else [hours]:  # a month of ClickHouse is too much at once
        summed, events = ("token_usage_hour", "hour", "sum(requests)"), ("token_event", "time", "count(*)")
        found = _difference(summed, events, "hour", (part.start, part.end))
        by_hour = {name: count + found[name] for name, count in by_hour.items()}
    by_day = _difference(
        ("token_usage_day", "day", "sum(requests)"), ("token_usage_hour", "hour", "sum(requests)"), "day", days
    )
    return by_hour | {f"{name} by day": count for name, count in by_day.items()}


def _difference(
    summed: tuple[str, str, str], parts: tuple[str, str, str], unit: str, bounds: tuple[datetime, datetime]
) -> dict[str, int]:
    """Return the counts of one table minus those of another between two instants, and the number of differing sums."""
    left = unit == "hour" and archived_among([Interval(*bounds)], EpochFilter())
    tables = [
        f"""(SELECT date_trunc('{unit}', {instant}, 'UTC') AS at, dimension, epoch, {requests}::bigint AS requests,
                    {', '.join(f'sum({name})::bigint AS {name}' for name in TOKEN_COUNTS)}
             FROM {table} t WHERE {instant} >= %s AND {instant} < %s
                  {f"AND {IN_LEDGER.replace('t.time', instant)}" if left else ""} GROUP BY 1, 2, 3)"""
        for table, instant, requests in (summed, parts)
    ]  # fmt: skip
    differences = [f"coalesce(sum(r.{name}), 0)::bigint - coalesce(sum(e.{name}), 0)::bigint" for name in COUNTS]
    rows = [f"({', '.join(f'{table}.{name}' for name in COUNTS)})" for table in ("r", "e")]
    beside: list[Any] = []
    if unit == "hour" and (servers := token_servers()):
        beside = [sharded_hours(servers, Interval(*bounds))]
        both = f"SELECT * FROM {tables[1]} here UNION ALL SELECT * FROM {HOURS_GIVEN} beside"
        tables[1] = f"""(SELECT at, dimension, epoch, {', '.join(f'sum({name})::bigint AS {name}' for name in COUNTS)}
                         FROM ({both}) both_stores GROUP BY 1, 2, 3)"""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT {', '.join(differences)}, count(*) FILTER (WHERE {' IS DISTINCT FROM '.join(rows)})
                FROM {tables[0]} r FULL JOIN {tables[1]} e USING (at, dimension, epoch)""",
            [*bounds, *bounds, *beside],
        )
        return dict(zip((*COUNTS, "sums"), cursor.fetchone(), strict=True))
