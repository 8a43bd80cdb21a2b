"""Dimensions of token records as numbers, which never change once committed; each process caches them."""

import threading
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

import msgspec
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from psycopg.errors import SerializationFailure

from billing.runtime.parallel_reads import rows_read
from billing.usage.store.checks import is_named
from billing.usage.store.columns import DimensionNumbers
from metering.records import Dimension

MAX_REMEMBERED = 100_000
NOTHING: Final = DimensionNumbers("", {})
_remembered: dict[str, DimensionNumbers] = {}
_lock = threading.Lock()


def remembered_dimensions() -> DimensionNumbers:
    """Return the cached numbers of the current database; do not modify them.

    A writer passes their timeline, and the database refuses numbers of another timeline (SerializationFailure).
    """
    return _remembered.get(_database(), NOTHING)


def dimensions_put(wanted: Sequence[Dimension]) -> DimensionNumbers:
    """Return the numbers of at least these dimensions, from the cache or inserted now."""
    remembered = remembered_dimensions()
    if all(map(remembered.ids.__contains__, wanted)):
        return remembered
    with connection.cursor() as cursor:
        now = _timeline_now()
        # numbers of another timeline may belong to other dimensions there
        known = remembered.ids if remembered.timeline == now else {}
        found = {dimension: known[dimension] for dimension in wanted if dimension in known}
        # sorted by digest: two transactions that insert the same dimensions do not deadlock
        for digest, dimension in sorted((_digest(dimension), dimension) for dimension in set(wanted) - found.keys()):
            cursor.execute(
                """INSERT INTO token_dimension (digest, source, consumer, model, site, provider, status)
                   VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (digest) DO NOTHING""",
                [digest, *dimension],
            )
            cursor.execute("SELECT id FROM token_dimension WHERE digest = %s", [digest])
            found[dimension] = int(cursor.fetchone()[0])
    _remember_committed(DimensionNumbers(now, found))
    return DimensionNumbers(now, found)


def timelines_hold(timelines: Iterable[str]) -> None:
    """Raise SerializationFailure if numbers of one of these timelines are not valid in the current transaction."""
    now = _timeline_now()
    if others := set(timelines) - {now}:
        raise SerializationFailure(f"numbers of timeline {', '.join(sorted(others))}, but this is {now}")


def dimension_names(numbers: Iterable[int]) -> dict[int, Dimension]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, source, consumer, model, site, provider, status FROM token_dimension WHERE id = ANY(%s)",
            [sorted(numbers)],
        )
        return {number: tuple(dimension) for number, *dimension in cursor.fetchall()}


def dimensions_learn(numbers: Iterable[int]) -> dict[int, Dimension]:
    """Return the names of these numbers and cache them: after a restart a process may receive repeats only."""
    now = _timeline_now()
    names = dimension_names(numbers)
    _remember_committed(DimensionNumbers(now, {dimension: number for number, dimension in names.items()}))
    return names


class TokenName(NamedTuple):
    """Source that reports tokens of a consumer and model, with the number of the dimension."""

    number: int
    source: str


def token_names(consumer: str, model: str) -> list[TokenName]:
    """Return the dimensions under which a consumer used a model."""
    used = "SELECT id, source FROM token_dimension WHERE consumer = %(consumer)s AND model = %(model)s"
    return [TokenName(*row) for row in rows_read(used, {"consumer": consumer, "model": model})]


def dimension_consumers() -> list[tuple[int, str, str]]:
    """Return (number, source, consumer) of every dimension, in order."""
    return rows_read("SELECT id, source, consumer FROM token_dimension ORDER BY 1", {})


def names_reported(column: Literal["source", "model"]) -> list[str]:
    """Return every source, or every model, of stored token records, in order."""
    return [name for (name,) in rows_read(f"SELECT DISTINCT {column} FROM token_dimension ORDER BY 1", {})]


def dimensions_forget() -> None:
    """Clear the cache, if the database was emptied or a cached number is not valid."""
    with _lock:
        _remembered.clear()


def _database() -> str:
    """Return the database's name from the settings, since opening a connection in an event loop costs one per callback."""
    return str(connections.settings[DEFAULT_DB_ALIAS]["NAME"])


def _timeline_now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT token_timeline()")
        return str(cursor.fetchone()[0])


def _remember_committed(found: DimensionNumbers) -> None:
    """Cache numbers once they are committed: numbers of a rolled-back transaction do not exist.

    Names that break the rule of names are not cached, so that cached ones need no second check.
    """
    database, ids = _database(), {name: number for name, number in found.ids.items() if is_named(name)}

    def remember() -> None:
        with _lock:
            kept = _remembered.get(database, NOTHING)
            stays = kept.timeline == found.timeline and len(kept.ids) < MAX_REMEMBERED
            # a new dictionary: others read the old one without the lock
            _remembered[database] = DimensionNumbers(found.timeline, {**kept.ids, **ids} if stays else ids)

    transaction.on_commit(remember)


def _digest(dimension: Dimension) -> bytes:
    return blake2b(msgspec.msgpack.encode(dimension), digest_size=16).digest()
