"""Schema of the database, migrated by one process at a time: several commands may meet an empty home at once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from billing.tenancy.database_roles import application_exists, as_owner

_LOCK, _PAUSE_SECONDS = 0x5A4E, 0.2


def schema_bring() -> None:
    """Migrate a database that is behind the code, or that does not have the application's role yet."""
    with schema_lock(), as_owner() as connection:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()) or not application_exists(connection):
            call_command("migrate", verbosity=0, interactive=False)


@contextmanager
def schema_lock() -> Iterator[None]:
    """Lock out other migrations. The lock has a connection of its own, since commands close theirs when they end."""
    with as_owner() as connection:
        own = connection.copy()
        own.ensure_connection()  # Django's set-up queries of a new connection use the first one, which is still the owner's
    try:
        # polled: a statement that waits would block the concurrent build of an index, which waits for it
        while not _is_taken(own):
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        own.close()


def _is_taken(own: BaseDatabaseWrapper) -> bool:
    with own.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])
