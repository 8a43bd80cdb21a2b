"""Tags of token records: numbered sets, and the number of distinct values of a tag per day."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from hashlib import blake2b
from typing import Final

import msgspec
from django.db import connection

TAG_LOCK: Final = 0x54414753
Tags = Mapping[str, str | None]
TagValue = tuple[str, str, date, str]
"""Source, key, UTC day, value."""

_json = msgspec.json.Encoder(order="deterministic").encode
KNOWN: Final = """SELECT v.source, v.key, v.day, v.value FROM token_tag_value v
    JOIN unnest(%s::text[], %s::text[], %s::date[], %s::text[]) AS w (source, key, day, value)
    USING (source, key, day, value)"""
COUNTED: Final = """SELECT v.source, v.key, v.day, count(*) FROM token_tag_value v
    JOIN (SELECT DISTINCT * FROM unnest(%s::text[], %s::text[], %s::date[]) AS w (source, key, day)) w
    USING (source, key, day)
    GROUP BY 1, 2, 3"""


def values_kept(seen: Iterable[TagValue], limits: Mapping[tuple[str, str], int]) -> set[TagValue]:
    """Return those values that are among the first of their day, up to the limit of (source, key); store new ones.

    Runs in the caller's transaction; one writer of new values at a time.
    """
    wanted = sorted(set(seen))
    kept = _known(wanted)
    if len(kept) == len(wanted):
        return kept
    with connection.cursor() as cursor:
        # the count per day needs one writer at a time; values are looked up again under the lock
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [TAG_LOCK])
        kept = _known(wanted)
        new = [item for item in wanted if item not in kept]
        cursor.execute(COUNTED, [list(column) for column in zip(*(item[:3] for item in new), strict=True)] or [[], [], []])
        counted = {(source, key, day): number for source, key, day, number in cursor.fetchall()}
        noted = list[TagValue]()
        for item in new:
            source, key, day, _ = item
            if counted.get((source, key, day), 0) < limits.get((source, key), 0):
                counted[source, key, day] = counted.get((source, key, day), 0) + 1
                noted.append(item)
        if noted:
            cursor.execute(
                "INSERT INTO token_tag_value (source, key, day, value) SELECT * FROM"
                " unnest(%s::text[], %s::text[], %s::date[], %s::text[])",
                [list(column) for column in zip(*noted, strict=True)],
            )
    return kept | set(noted)


def _known(wanted: Sequence[TagValue]) -> set[TagValue]:
    with connection.cursor() as cursor:
        cursor.execute(KNOWN, [list(column) for column in zip(*wanted, strict=True)])
        return set(cursor.fetchall())


def tag_sets_put(sets: Iterable[Tags]) -> dict[bytes, int]:
    """Return the numbers of these sets by `tag_set_digest`; new sets are inserted."""
    wanted = {tag_set_digest(tags): _json(tags).decode() for tags in sets}
    with connection.cursor() as cursor:
        digests = sorted(wanted)
        cursor.execute(
            "INSERT INTO token_tag_set (digest, tags) SELECT * FROM unnest(%s::bytea[], %s::jsonb[])"
            " ON CONFLICT (digest) DO NOTHING",
            [digests, [wanted[digest] for digest in digests]],
        )
        cursor.execute("SELECT digest, id FROM token_tag_set WHERE digest = ANY (%s::bytea[])", [digests])
        return {bytes(digest): number for digest, number in cursor.fetchall()}


def tag_set_digest(tags: Tags) -> bytes:
    return blake2b(_json(tags), digest_size=16).digest()
