from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.management import CommandError
from django.db import DatabaseError, connection, connections
from django.db.models.signals import pre_migrate


class TenancyConfig(AppConfig):
    name = "billing.tenancy"
    label = "tenancy"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Watch for databases that no release made."""
        pre_migrate.connect(refuse_older_schema, sender=self)
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
