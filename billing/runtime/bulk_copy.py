"""Writing many rows of one table at once with COPY: what a close stores is tens of thousands of rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from django.db import connection, models
from psycopg.types.json import Jsonb

from metering.messages import as_text

Instance = TypeVar("Instance", bound=models.Model)


def rows_copy(model: type[models.Model], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows (values in the order of `columns`) in the current transaction; constraints and triggers hold as ever.

    Raises what Django raises for the database's refusals.

    What Django fills in elsewhere (defaults, `auto_now`) is not filled in here: `columns` are all that have no default
    in the database.
    """
    table, names = (connection.ops.quote_name(model._meta.db_table), map(connection.ops.quote_name, columns))
    statement = f"COPY {table} ({', '.join(names)}) FROM STDIN"
    with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def instances_copy(model: type[Instance], number: int, instances: Iterable[Instance]) -> list[Instance]:
    """Insert so many new objects of a model, with every field as `save` would write it; each has its primary key then.

    They may be made while they are asked for: the database stores one while the next is made. What makes them asks the
    database for nothing.

    A JSON field of some size takes many times longer through `bulk_create`, which passes columns as arrays of text.
    """
    fields, made = model._meta.concrete_fields, list[Instance]()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)", [model._meta.db_table, number]
        )
        keys = cursor.fetchall()

    def rows() -> Iterator[list[Any]]:
        for instance, (key,) in zip(instances, keys, strict=True):
            instance.pk = key
            made.append(instance)
            yield [_as_stored(field.get_db_prep_save(field.pre_save(instance, True), connection)) for field in fields]

    rows_copy(model, [field.column for field in fields], rows())
    for instance in made:
        instance._state.adding, instance._state.db = False, connection.alias
    return made


_encode = msgspec.json.Encoder(enc_hook=as_text).encode


def _as_stored(value: Any) -> Any:
    """JSON is encoded many times faster than by Django, to the same value: the database keeps neither spaces nor order."""
    return Jsonb(value.obj, dumps=_encode) if isinstance(value, Jsonb) else value
