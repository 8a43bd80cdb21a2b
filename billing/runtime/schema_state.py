"""How far the schema of the database is behind the code."""

from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def migrations_pending() -> int:
    """Migrations of this code that the database does not have yet."""
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
