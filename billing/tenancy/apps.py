from typing import Any

from django.apps import AppConfig
from django.core.management import CommandError
from django.db import connections
from django.db.models.signals import pre_migrate


class TenancyConfig(AppConfig):
    name = "billing.tenancy"
    label = "tenancy"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Watch for databases that no release made."""
        pre_migrate.connect(refuse_older_schema, sender=self)


def refuse_older_schema(*, using: str, **_: Any) -> None:
    """Raise CommandError for a database of a version before 1.0.0, which no migration upgrades."""
    if "invoicing_billingperiod" in connections[using].introspection.table_names():
        raise CommandError(
            "this database was filled by a version before 1.0.0 and cannot be upgraded: export with that version what you "
            "need, then begin with an empty database (DATABASE_URL, or another SUANPAN_HOME)"
        )
