"""Under which names usage was reported: whether something new came in can be seen without adding it all up."""

from collections.abc import Sequence
from typing import Any

from django.db import connection

from metering.intervals import Interval

DEVICES = """SELECT DISTINCT p.i, a.cluster, a.namespace, a.accelerator, a.resource
    FROM unnest(%s::timestamptz[], %s::timestamptz[]) WITH ORDINALITY AS p (lo, hi, i)
    JOIN usage_allocationspan s ON s.start < p.hi AND s.until > p.lo
    JOIN usage_gpuallocation a ON a.id = s.allocation_id"""
TOKENS = """SELECT DISTINCT p.i, t.dimension
    FROM unnest(%s::timestamptz[], %s::timestamptz[]) WITH ORDINALITY AS p (lo, hi, i)
    JOIN token_usage_hour t ON t.hour < p.hi AND t.hour >= date_trunc('hour', p.lo, 'UTC')"""

Names = tuple[frozenset[tuple[Any, ...]], frozenset[tuple[Any, ...]]]


def names_used(devices: Sequence[Interval], tokens: Sequence[Interval]) -> Names:
    """Every (piece, cluster, namespace, accelerator, resource) that was held in the first pieces, and every (piece,
    source, consumer and model by their number) with tokens in the hours of the second.
    """
    with connection.cursor() as cursor:
        found = []
        for statement, pieces in ((DEVICES, devices), (TOKENS, tokens)):
            cursor.execute(statement, [[piece.start for piece in pieces], [piece.end for piece in pieces]])
            found.append(frozenset(cursor.fetchall()))
    return found[0], found[1]
