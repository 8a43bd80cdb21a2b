"""What token records are summed by, as numbers that never change once they are committed: each process remembers them."""

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
    """The numbers that this process remembers of the database at hand; nobody changes what is given.

    Who writes them says of which timeline they are, and the database refuses those of another (SerializationFailure).
    """
    return _remembered.get(_database(), NOTHING)


def dimensions_put(wanted: Sequence[Dimension]) -> DimensionNumbers:
    """Numbers of at least these dimensions, remembered or made now."""
    remembered = remembered_dimensions()
    if all(map(remembered.ids.__contains__, wanted)):
        return remembered
    with connection.cursor() as cursor:
        now = _timeline_now()
        known = remembered.ids if remembered.timeline == now else {}
        found = {dimension: known[dimension] for dimension in wanted if dimension in known}
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
    """Raise SerializationFailure where numbers of one of these timelines do not hold in the transaction at hand."""
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
    """As `dimension_names`, and from now on this process remembers them: after a restart it may get nothing but repeats."""
    now = _timeline_now()
    names = dimension_names(numbers)
    _remember_committed(DimensionNumbers(now, {dimension: number for number, dimension in names.items()}))
    return names


class TokenName(NamedTuple):
    """A source that reports tokens of one consumer and model, and the number of a dimension of it."""

    number: int
    source: str


def token_names(consumer: str, model: str) -> list[TokenName]:
    """Under which dimensions a consumer used a model."""
    used = "SELECT id, source FROM token_dimension WHERE consumer = %(consumer)s AND model = %(model)s"
    return [TokenName(*row) for row in rows_read(used, {"consumer": consumer, "model": model})]


def dimension_consumers() -> list[tuple[int, str, str]]:
    """(number, source, consumer) of every dimension, in order."""
    return rows_read("SELECT id, source, consumer FROM token_dimension ORDER BY 1", {})


def names_reported(column: Literal["source", "model"]) -> list[str]:
    """Every source, or every model, of which a token record was reported, in order."""
    return [name for (name,) in rows_read(f"SELECT DISTINCT {column} FROM token_dimension ORDER BY 1", {})]


def dimensions_forget() -> None:
    """For a database that was emptied, or where a remembered number does not hold."""
    with _lock:
        _remembered.clear()


def _database() -> str:
    """Its name, without asking for a connection: each callback of an event loop would be given one of its own."""
    return str(connections.settings[DEFAULT_DB_ALIAS]["NAME"])


def _timeline_now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT token_timeline()")
        return str(cursor.fetchone()[0])


def _remember_committed(found: DimensionNumbers) -> None:
    """Committed numbers only: what a rolled back transaction made does not exist. Names that break the rule of names are not
    remembered, so that what is remembered needs no second look.
    """
    database, ids = _database(), {name: number for name, number in found.ids.items() if is_named(name)}

    def remember() -> None:
        with _lock:
            kept = _remembered.get(database, NOTHING)
            stays = kept.timeline == found.timeline and len(kept.ids) < MAX_REMEMBERED
            # a new dictionary: others read the one that is there without taking the lock
            _remembered[database] = DimensionNumbers(found.timeline, {**kept.ids, **ids} if stays else ids)

    transaction.on_commit(remember)


def _digest(dimension: Dimension) -> bytes:
    return blake2b(msgspec.msgpack.encode(dimension), digest_size=16).digest()
