"""`manage.py migrate`: Django's, run as the owner of the tables, then the grant of the application's rights."""

from typing import Any

from django.conf import settings
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, connections

from billing.tenancy.database_roles import application_prepare, as_owner


class Command(migrate.Command):
    help = f"{migrate.Command.help} With DATABASE_OWNER_URL as that role; then the role of DATABASE_URL gets its rights."

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute everything as the owner, also the checks before: the application's role may not exist yet."""
        with as_owner(options["database"]):
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        only_looks = options["plan"] or options["check_unapplied"]
        if settings.DATABASE_OWNER is not None and options["database"] == DEFAULT_DB_ALIAS and not only_looks:
            application_prepare(connections[DEFAULT_DB_ALIAS])
