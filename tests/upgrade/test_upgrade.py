"""A database that a release filled is brought up to date by this one: nothing of it changes, and it goes on."""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from billing.backup.ledger_facts import broken_documents, ledger_facts
from billing.backup.programs import run, server_connection
from billing.backup.restore import manifest_read, scratch_database
from tests.factories import token_record
from tests.factories.schema import schema_of
from tests.upgrade.__main__ import BACKUPS
from tests.upgrade.conftest import OPERATOR, RELEASES, Manage

OF_A_MONTH = r"\btoken_entry_\d{4}_"
CHANGES = {"django_migrations", "django_content_type", "auth_permission"}
"""Tables in which an upgrade adds rows."""


def test_there_is_a_release_to_come_from() -> None:
    assert RELEASES[0] == "1.0.0"


def test_an_upgrade_keeps_every_row_document_and_proof(restored: str, release: str, manage: Manage) -> None:
    before = manifest_read(BACKUPS / f"{release}.dump")["facts"]
    manage("migrate", "--no-input")
    with closing(server_connection(restored, autocommit=True)) as ledger:
        after = ledger_facts(ledger)
        documents, broken = broken_documents(ledger)
    rows = {table: count for table, count in before.pop("rows").items() if table not in CHANGES}
    assert rows == {table: count for table, count in after.pop("rows").items() if table in rows}
    assert (documents > 0, broken, after) == (True, [], before)
    manage("period_verify", "--all")
    manage("audit_verify")


def test_an_upgraded_database_has_the_schema_of_a_new_one(restored: str, manage: Manage, tmp_path: Path) -> None:
    """PostgreSQL prints a condition otherwise once it was dumped, so the new one is dumped and restored too.

    The filled ledger has parts for months of its own.
    """
    manage("migrate", "--no-input")
    manage("usage_partition", "--by", OPERATOR)
    run("pg_dump", "--schema-only", "--format=custom", f"--file={tmp_path / 'new.dump'}")
    with scratch_database() as new:
        run("pg_restore", "--exit-on-error", "--no-owner", str(tmp_path / "new.dump"), database=new)
        expected, found = schema(new), schema(restored)
    assert {name: found.get(name) for name in expected | found if found.get(name) != expected.get(name)} == {}


def schema(database: str) -> dict[str, str]:
    with closing(server_connection(database, autocommit=True)) as ledger:
        return {name: text for name, text in schema_of(ledger.cursor()).items() if not re.search(OF_A_MONTH, name)}


def test_an_upgraded_ledger_knows_every_key_and_takes_late_usage_once(manage: Manage, tmp_path: Path) -> None:
    """Of a closed month: a request that it has, the same with other tokens, and one that it never saw."""
    manage("migrate", "--no-input")
    seen = token_record(1, input_tokens=2_000_000, output_tokens=500_000)
    assert imported(manage, tmp_path, seen) == (0, 1, 0)
    assert imported(manage, tmp_path, {**seen, "output_tokens": 500_001}, status=3) == (0, 0, 1)
    assert imported(manage, tmp_path, token_record(99)) == (1, 0, 0)
    assert imported(manage, tmp_path, token_record(99)) == (0, 1, 0)
    manage("period_verify", "--all")


def imported(manage: Manage, directory: Path, record: dict[str, Any], status: int = 0) -> tuple[int, int, int]:
    """Accepted, duplicates, conflicts of a file with one token record."""
    path = directory / "tokens.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(record))
        writer.writeheader()
        writer.writerow(record)
    (answer,) = json.loads(manage("import_usage", "tokens", str(path), "--json", status=status))["files"]
    return answer["accepted"], answer["duplicates"], answer["conflicts"]


OWNER, APPLICATION = "upgrade_owner", "upgrade_app"


@pytest.fixture
def owned(transactional_db: None, release: str) -> Iterator[str]:
    """The same, owned by a role that is no superuser and may make no roles."""
    with closing(server_connection(autocommit=True)) as server, scratch_database() as name:
        server.execute(f"CREATE ROLE {OWNER} LOGIN CREATEDB PASSWORD '{OWNER}'")
        server.execute(f"ALTER DATABASE {name} OWNER TO {OWNER}")
        try:
            backup = str(BACKUPS / f"{release}.dump")
            run("pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", f"--role={OWNER}", backup, database=name)
            yield name
        finally:
            server.execute(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")
            with closing(server_connection(name, autocommit=True)) as ledger:
                for role in (OWNER, APPLICATION):
                    if ledger.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
                        ledger.execute(f"DROP OWNED BY {role} CASCADE")
                        ledger.execute(f"DROP ROLE {role}")


def test_an_installation_with_one_role_goes_on_with_two(owned: str, tmp_path: Path) -> None:
    """And a backup by the application is proven with the owner, restored by it, and worked with by the application."""
    manage, dump = Manage(owned, tmp_path), tmp_path / "by-the-application.dump"
    manage.works_as(APPLICATION, owner=OWNER)
    done = manage.ended("migrate", "--no-input")
    assert (done.returncode, f"the role {APPLICATION} of DATABASE_URL does not exist" in done.stderr) == (1, True)
    with closing(server_connection(owned, autocommit=True)) as server:
        server.execute(f"CREATE ROLE {APPLICATION} LOGIN PASSWORD '{APPLICATION}'")
    manage("migrate", "--no-input")
    warned = manage.ended("check", "--deploy").stderr
    assert ("security.W" in warned, "suanpan.W" in warned) == (True, False)
    assert imported(manage, tmp_path, token_record(99)) == (1, 0, 0)
    manage("usage_partition", "--by", OPERATOR)
    assert imported(manage, tmp_path, token_record(99)) == (0, 1, 0)
    assert imported(manage, tmp_path, token_record(97)) == (1, 0, 0)
    with psycopg.connect(manage.environment["DATABASE_URL"], autocommit=True) as application:
        for refused in (
            "UPDATE tenancy_auditentry SET actor = 'x'", "DELETE FROM tenancy_auditlink", "TRUNCATE token_entry",
            "ALTER TABLE tenancy_auditentry DISABLE TRIGGER ALL", "DROP TABLE invoices_invoice CASCADE",
            "SET session_replication_role = replica", "CREATE TEMPORARY TABLE usage_close (close_seq integer)",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                application.execute(refused)
    owner = manage.environment.pop("DATABASE_OWNER_URL")
    manage("backup", "--out", str(dump))
    assert "may not create a scratch database" in manage.ended("restore_check", str(dump)).stderr
    manage.environment["DATABASE_OWNER_URL"] = owner
    manage("restore_check", str(dump))
    with scratch_database() as name:
        with closing(server_connection(name, autocommit=True)) as server:
            server.execute(f"ALTER DATABASE {name} OWNER TO {OWNER}")
        run("pg_restore", "--exit-on-error", "--no-owner", f"--role={OWNER}", str(dump), database=name)
        restored = Manage(name, tmp_path)
        restored.works_as(APPLICATION, owner=OWNER)
        restored("migrate", "--no-input")
        assert imported(restored, tmp_path, token_record(98)) == (1, 0, 0)
        restored("audit_verify")
