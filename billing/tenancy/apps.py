from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.management import CommandError
from django.db import DatabaseError, connection, connections
from django.db.models.signals import post_migrate, pre_migrate

LOCK_SECONDS = 10
"""How long a migration waits for a lock: whoever comes after it waits too."""


class TenancyConfig(AppConfig):
    name = "billing.tenancy"

    def ready(self) -> None:
        """Watch for databases that no release made, and bound how long a migration keeps others waiting."""
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
    """`check --deploy` says where the application could change what is stored, because it works with the owner's role."""
    from billing.tenancy.database_roles import current_excess

    try:
        excess = current_excess(connection)
    except DatabaseError as error:
        return [checks.Warning(f"the database does not answer, so its role is not known: {error}", id="suanpan.W002")]
    hint = "Give the application a role of its own: docs/operations.md, Roles of the database."
    return [checks.Warning(f"the role of DATABASE_URL {text}", hint=hint, id="suanpan.W001") for text in excess]


def locks_bounded(*, using: str, **_: Any) -> None:
    """A migration that does not get a lock in time ends and is run again; else ingest would queue behind it."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")


def locks_unbounded(*, using: str, **_: Any) -> None:
    """The connection waits again as it did before."""
    with connections[using].cursor() as cursor:
        cursor.execute("RESET lock_timeout")
