"""The migrations say what the models are, so that nobody has to make one first."""

from django.apps import apps
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState


def test_no_migration_is_missing_and_none_contradicts_another() -> None:
    """What `manage.py makemigrations --check --dry-run` says, without a database."""
    loader = MigrationLoader(None)
    assert loader.detect_conflicts() == {}
    changes = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps)).changes(graph=loader.graph)
    assert {app: [migration.operations for migration in missing] for app, missing in changes.items()} == {}
