"""A migration may run while the release before works: each after the first of its app adds, and waits for no large table.

`django-migration-linter` asks a database for the SQL of each and judges all tables alike; it misses tables outside of
models, and fields that Django fills once and leaves without a default. So the rules are our own, over the operations.

Where a rule does not apply, the class of the migration says why: `online = {"RemoveField Team.code": "unused since 1.1.0"}`.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.db import models
from django.db.migrations import (
    AddConstraint,
    AddField,
    AddIndex,
    AlterField,
    AlterModelTable,
    CreateModel,
    DeleteModel,
    Migration,
    RemoveField,
    RenameField,
    RenameModel,
    RunSQL,
)
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from billing.runtime.sql_files import sql_file

LARGE = re.compile(r"^(token_\w+|usage_(?!close$)\w+|rating_charge|rating_verdict|invoices_invoiceline|tenancy_audit\w+)$")
"""Tables that grow with usage: nobody may wait for a scan of one."""
RELEASED = "token_entry_time|token_day_epoch"
"""Indexes of the SQL files that 1.0.0 made: a file that is applied again makes none of them."""
SCANS = re.compile(
    rf"create\s+(unique\s+)?index\s+(?!concurrently|if not exists ({RELEASED})\b)"
    r"|set\s+not\s+null|alter\s+(column\s+)?\w+\s+(set\s+data\s+)?type", re.I
)
TABLE_OF_SQL = re.compile(r"\bon\s+(?:only\s+)?(\w+)|\balter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?(\w+)", re.I)
MADE_BY_SQL = re.compile(r"\bcreate\s+table\s+(?:if\s+not\s+exists\s+)?(\w+)", re.I)
WITHOUT_WAITING = (AddIndexConcurrently, AddConstraintNotValid)
REMOVES = (DeleteModel, RemoveField, RenameField, RenameModel, AlterModelTable)


def faults(migration: Migration, before: ProjectState) -> list[str]:
    """What of a migration stops the release before, or makes it wait; `before`: the models as the migration finds them."""
    state, new, found = before.clone(), set[str](), []
    for operation in migration.operations:
        found += [f"{title(operation)}: {fault}" for fault in _faults(operation, migration.app_label, state, new)]
        if isinstance(operation, CreateModel):
            new.add(operation.name_lower)
        operation.state_forwards(migration.app_label, state)
    excused = getattr(migration, "online", {})
    return [fault for fault in found if fault.partition(": ")[0] not in excused]


def title(operation: Operation) -> str:
    """Kind, model and field, index or constraint."""
    model = getattr(operation, "model_name", getattr(operation, "name", ""))
    part = getattr(operation, "name", "") if hasattr(operation, "model_name") else ""
    thing = getattr(operation, "index", getattr(operation, "constraint", None))
    return f"{type(operation).__name__} {'.'.join(filter(None, (model, part or getattr(thing, 'name', ''))))}".strip()


def _faults(operation: Any, app: str, state: ProjectState, new: set[str]) -> Iterator[str]:
    if isinstance(operation, RunSQL):
        yield from _faults_of_sql(str(operation.sql))
    elif isinstance(operation, REMOVES):
        yield "the release before still uses it; remove it one release later"
    elif getattr(operation, "model_name", "").lower() in new:
        return
    elif isinstance(operation, AddField):
        yield from _faults_of_new_field(operation.field)
    elif isinstance(operation, AlterField):
        before = state.models[app, operation.model_name_lower].get_field(operation.name)
        yield from _faults_of_changed_field(before, operation.field)
    elif isinstance(operation, AddIndex | AddConstraint) and not isinstance(operation, WITHOUT_WAITING):
        table = state.apps.get_model(app, operation.model_name)._meta.db_table
        if LARGE.match(table):
            yield f"{table} is large: AddIndexConcurrently, or AddConstraintNotValid and ValidateConstraint"


def _faults_of_new_field(field: Any) -> Iterator[str]:
    generated = isinstance(field, models.GeneratedField)
    if generated:
        yield "a stored column rewrites its table"
    elif not (field.null or field.many_to_many or field.has_db_default()):
        yield "the release before inserts rows without it: null=True or db_default"


def _faults_of_changed_field(old: Any, new: Any) -> Iterator[str]:
    if old.null and not new.null:
        yield "NOT NULL scans its table under a lock: a CHECK that is not valid yet, then validated"
    if type(old) is not type(new) or (old.max_length or 0) > (new.max_length or 0) > 0:
        yield "another type rewrites its table, and the release before writes the old one"


def _faults_of_sql(text: str) -> Iterator[str]:
    made = {name.lower() for name in MADE_BY_SQL.findall(text)}
    for statement in text.split(";"):
        tables = {name for found in TABLE_OF_SQL.findall(statement) for name in found if name and name.lower() not in made}
        if SCANS.search(statement) and any(LARGE.match(table) for table in tables):
            yield f"scans {', '.join(sorted(tables))} under a lock"


def later_migrations() -> Iterator[tuple[Migration, ProjectState]]:
    loader = MigrationLoader(None)
    ours = {config.label for config in apps.get_app_configs() if config.name.startswith("billing.")}
    for key, migration in loader.disk_migrations.items():
        if key[0] in ours and not migration.initial:
            before = sorted(parent.key for parent in loader.graph.node_map[key].parents)
            yield migration, loader.project_state(before, at_end=True)


def test_every_migration_after_the_first_may_run_beside_the_release_before() -> None:
    assert {str(migration): found for migration, before in later_migrations() if (found := faults(migration, before))} == {}


USAGE, TENANCY = "usage", "tenancy"
UNSAFE = [
    (TENANCY, AddField("team", "color", models.TextField(default=""))),
    (TENANCY, RemoveField("team", "name")),
    (TENANCY, RenameField("team", "name", "title")),
    (TENANCY, DeleteModel("team")),
    (TENANCY, AlterField("team", "name", models.IntegerField())),
    (TENANCY, AlterField("team", "name", models.CharField(max_length=3))),
    (USAGE, AddIndex("gpuallocation", models.Index(fields=["cluster"], name="slow"))),
    (USAGE, AddConstraint("gpuallocation", models.UniqueConstraint(fields=["cluster"], name="slow"))),
    (USAGE, RunSQL("CREATE INDEX slow ON token_entry (time)")),
    (USAGE, RunSQL("SELECT 1; ALTER TABLE token_entry ALTER COLUMN rest SET NOT NULL")),
    (USAGE, RunSQL("ALTER TABLE usage_gpuallocation ALTER COLUMN cluster TYPE varchar(9)")),
]
SAFE = [
    (TENANCY, AddField("team", "color", models.TextField(null=True))),
    (TENANCY, AddField("team", "color", models.TextField(db_default=""))),
    (TENANCY, AddIndex("team", models.Index(fields=["name"], name="quick"))),
    (TENANCY, CreateModel("Color", [("id", models.BigAutoField(primary_key=True)), ("name", models.TextField())])),
    (USAGE, AddIndexConcurrently("gpuallocation", models.Index(fields=["cluster"], name="quick"))),
    (USAGE, RunSQL(sql_file("billing.usage", "tokens"))),
    (USAGE, RunSQL("CREATE INDEX CONCURRENTLY quick ON token_entry (time)")),
    (USAGE, RunSQL("CREATE TABLE token_new (time date); CREATE INDEX quick ON token_new (time)")),
    (USAGE, RunSQL("CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")),
]


def made(app: str, *operations: Operation) -> Migration:
    return type("Migration", (Migration,), {"operations": list(operations)})("0002_x", app)


@pytest.fixture(scope="module")
def today() -> ProjectState:
    return MigrationLoader(None).project_state()


@pytest.mark.parametrize(("app", "operation"), UNSAFE, ids=lambda value: value if isinstance(value, str) else title(value))
def test_what_stops_the_release_before_is_refused_by_name(today: ProjectState, app: str, operation: Operation) -> None:
    (found,) = faults(made(app, operation), today)
    assert found.startswith(f"{title(operation)}: ")


@pytest.mark.parametrize(("app", "operation"), SAFE, ids=lambda value: value if isinstance(value, str) else title(value))
def test_what_only_adds_is_taken(today: ProjectState, app: str, operation: Operation) -> None:
    assert faults(made(app, operation), today) == []


def test_who_says_why_may_remove(today: ProjectState) -> None:
    class Excused(Migration):
        operations: ClassVar[list[Operation]] = [RemoveField("team", "name")]
        online: ClassVar[dict[str, str]] = {"RemoveField team.name": "nobody reads it since 1.1.0"}

    assert faults(Excused("0002_x", TENANCY), today) == []
