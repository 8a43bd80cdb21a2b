"""Under which names usage was reported: whether it all has an owner and a price, and whether something new came in, can
be seen without adding it all up.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from django.db import connection

from billing.usage.selectors import EpochFilter
from billing.usage.token_sums import next_hour, ranged, this_hour, token_source, whole_days
from metering.intervals import Interval

LATELY = 10_000
"""Allocations among which one may appear late: their numbers are given before they are committed."""
AT_ONCE = 8
"""Of how many pieces holds are looked at in one reading: as columns, since most holds lie in one of few pieces."""


@dataclass(frozen=True, slots=True)
class UsageKeys:
    """(piece, cluster, namespace, accelerator, resource) of what was held, (instant, dimension) of tokens.

    The instant is the start of the stretch of whole hours in which there were tokens. An hour that a piece begins in is a
    stretch of its own: what was used in it may belong to that piece or to the one before.
    """

    devices: frozenset[tuple[int, str, str, str, str]]
    tokens: frozenset[tuple[datetime, int]]


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """How far usage had come: the number of the last allocation, and how many names of tokens there were."""

    allocation: int
    dimensions: int


def high_water_mark() -> HighWaterMark:
    """How far usage has come."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT (SELECT coalesce(max(id), 0) FROM usage_gpuallocation), (SELECT count(*) FROM token_dimension)"""
        )
        return HighWaterMark(*cursor.fetchone())


def only_known(
    devices: Sequence[Interval], tokens: Sequence[Interval], known: UsageKeys, since: HighWaterMark
) -> bool:
    """Whether nothing was used under a name that `known` does not have: asked of what came in after the mark alone.

    A name that it has, now also in another piece of time, is not noticed here.
    """
    if not known.devices.issuperset(_held(devices, EpochFilter(), after=since.allocation - LATELY)):
        return False
    return high_water_mark().dimensions == since.dimensions or known.tokens.issuperset(_reported(tokens, EpochFilter()))


def usage_keys_used(devices: Sequence[Interval], tokens: Sequence[Interval], epochs: EpochFilter) -> UsageKeys:
    """The names of what was held in the first pieces, and of the tokens in the hours of the second."""
    return UsageKeys(frozenset(_held(devices, epochs)), frozenset(_reported(tokens, epochs)))


def _held(pieces: Sequence[Interval], epochs: EpochFilter, after: int = 0) -> list[tuple[int, str, str, str, str]]:
    found = []
    for first in range(0, len(pieces), AT_ONCE):
        some = pieces[first : first + AT_ONCE]
        columns = ", ".join("bool_or(s.start < %s AND s.until > %s)" for _ in some)
        bounds = [at for piece in some for at in (piece.end, piece.start)]
        with connection.cursor() as cursor:
            cursor.execute(
                f"""SELECT a.cluster, a.namespace, a.accelerator, a.resource, {columns}
                    FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id
                    WHERE s.start < %s AND s.until > %s AND s.epoch >= %s AND s.epoch < %s AND a.id > %s
                    GROUP BY 1, 2, 3, 4""",
                [*bounds, some[-1].end, some[0].start, epochs.first, epochs.before, after],
            )
            found += [
                (first + number, *row[:4]) for row in cursor.fetchall() for number, there in enumerate(row[4:]) if there
            ]
    return found


def _reported(pieces: Sequence[Interval], epochs: EpochFilter) -> Collection[tuple[datetime, int]]:
    if not pieces:
        return []
    starts = stretches(pieces)
    bounds = [*starts, next_hour(pieces[-1].end)]
    days, hours = whole_days([(number, *span) for number, span in enumerate(pairwise(bounds))])
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT DISTINCT i, dimension FROM ({token_source('token_usage_day', 'day', '1', 'd', days)} UNION ALL
                                                   {token_source('token_usage_hour', 'hour', '1', 'h', hours)}) u""",
            {**ranged("d", days), **ranged("h", hours), "first": epochs.first, "before": epochs.before},
        )
        return [(starts[number], dimension) for number, dimension in cursor.fetchall()]


def stretches(pieces: Sequence[Interval]) -> list[datetime]:
    """Where the stretches of whole hours begin that `UsageKeys` tells tokens in."""
    return sorted({at for piece in pieces for at in (this_hour(piece.start), next_hour(piece.start))})


def dimensions(numbers: Collection[int]) -> dict[int, tuple[str, str, str]]:
    """Source, consumer and model by number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, source, consumer, model FROM token_dimension WHERE id = ANY(%s)", [sorted(numbers)])
        return {number: (source, consumer, model) for number, source, consumer, model in cursor.fetchall()}
