"""Functions, triggers and views of the database are what the `sql` folders of the packages say."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations import RunSQL
from django.db.migrations.loader import MigrationLoader

from tests.factories.schema import programs_of

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


def defined() -> dict[str, str]:
    with connection.cursor() as cursor:
        return programs_of(cursor)


def applied() -> list[str]:
    """The texts that migrations apply, in the order of a new installation."""
    loader = MigrationLoader(connection)
    plan = [node for leaf in loader.graph.leaf_nodes() for node in loader.graph.forwards_plan(leaf)]
    operations = [item for node in dict.fromkeys(plan) for item in loader.get_migration(*node).operations]
    return [str(item.sql) for item in operations if isinstance(item, RunSQL)]


def test_every_file_is_applied_by_a_migration_and_nothing_else_is() -> None:
    assert sorted(applied()) == sorted(path.read_text() for path in ROOT.glob("billing/*/sql/*.sql"))


def test_the_files_applied_again_give_what_the_database_has() -> None:
    before = defined()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for name, text in before.items():
            if text.startswith("CREATE TRIGGER") or text.startswith("CREATE CONSTRAINT TRIGGER"):
                cursor.execute(f"DROP TRIGGER {name}")
        for name, text in before.items():
            if text.startswith("CREATE OR REPLACE FUNCTION") and "RETURNS trigger" in text:
                cursor.execute(f"DROP FUNCTION {name}")
        assert len(defined()) < len(before) / 2
        for text in applied():
            cursor.execute(text)
    assert defined() == before


def test_a_database_from_before_the_first_release_is_refused_with_what_to_do() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE invoicing_billingperiod (id integer)")
    with pytest.raises(CommandError, match="filled by a version before 1"):
        call_command("migrate", verbosity=0, interactive=False)
