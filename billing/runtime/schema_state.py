"""Difference between the schema of the database and the migrations of the code."""

from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def migrations_pending() -> int:
    """Count the migrations of this code that the database does not have yet."""
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
