from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.management import CommandError
from django.db import DatabaseError, connection, connections
from django.db.models.signals import post_migrate, pre_migrate

LOCK_SECONDS = 10
"""Seconds that a migration waits for a lock: later transactions queue behind it."""


class TenancyConfig(AppConfig):
    name = "billing.tenancy"

    def ready(self) -> None:
        """Register the check of the database's release, the bounded lock waits of migrations, and the check of its role."""
        pre_migrate.connect(refuse_older_schema, sender=self)
        pre_migrate.connect(locks_bounded, sender=self)
        post_migrate.connect(locks_unbounded, sender=self)
        checks.register(role_is_restricted, deploy=True)


def refuse_older_schema(*, using: str, **_: Any) -> None:
    """Raise CommandError for a database of a version before 1.0.0, which no migration upgrades."""
    if "invoicing_billingperiod" in connections[using].introspection.table_names():
        raise CommandError(
            "this database was filled by a version before 1.0.0 and cannot be upgraded: export with that version what you "
            "need, then begin with an empty database (DATABASE_URL, or another SUANPAN_HOME)"
        )


def role_is_restricted(**_: Any) -> list[checks.CheckMessage]:
    """Return warnings of `check --deploy` if the role of the application could change stored evidence unseen."""
    from billing.tenancy.database_roles import current_excess

    try:
        excess = current_excess(connection)
    except DatabaseError as error:
        return [checks.Warning(f"the database does not answer, so its role is not known: {error}", id="suanpan.W002")]
    hint = "Give the application a role of its own: docs/operations.md, Roles of the database."
    return [checks.Warning(f"the role of DATABASE_URL {text}", hint=hint, id="suanpan.W001") for text in excess]


def locks_bounded(*, using: str, **_: Any) -> None:
    """Set a lock timeout for migrations, which then end and are run again; else ingest would queue behind them."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")


def locks_unbounded(*, using: str, **_: Any) -> None:
    """Reset the lock timeout of the connection."""
    with connections[using].cursor() as cursor:
        cursor.execute("RESET lock_timeout")
