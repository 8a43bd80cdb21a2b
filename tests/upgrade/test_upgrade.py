"""A database that a release filled is brought up to date by this one: nothing of it changes, and it goes on."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from billing.backup.dump import digest_of
from billing.backup.ledger_facts import broken_documents, ledger_facts
from billing.backup.programs import run, server_connection, server_parameters
from billing.backup.restore import manifest_read, scratch_database
from tests.cli import PROJECT, Home
from tests.factories import token_record
from tests.factories.schema import schema_of
from tests.upgrade.__main__ import BACKUPS

RELEASES = sorted(path.stem for path in BACKUPS.glob("*.dump"))
CHANGES = {"django_migrations", "django_content_type", "auth_permission"}
"""Tables in which an upgrade adds rows."""


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def restored(transactional_db: None, release: str) -> Iterator[str]:
    """The name of a database as the release left it."""
    backup = BACKUPS / f"{release}.dump"
    assert digest_of(backup) == manifest_read(backup)["sha256"]
    with scratch_database() as name:
        run("pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", str(backup), database=name)
        yield name


@pytest.fixture
def manage(restored: str, tmp_path: Path) -> "Manage":
    return Manage(restored, tmp_path)


class Manage:
    """Runs commands of this release on the restored database."""

    def __init__(self, database: str, path: Path) -> None:
        facts = server_parameters(database)
        user = f"{quote(facts['user'])}:{quote(facts.get('password', ''))}"
        address = f"postgresql://{user}@{facts['host']}:{facts['port']}/{database}"
        self._environment = {**Home(path).environment, "DATABASE_URL": address}

    def __call__(self, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *arguments], env=self._environment, text=True,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stdout + done.stderr
        return done.stdout


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
    """PostgreSQL prints a condition otherwise once it was dumped, so the new one is dumped and restored too."""
    manage("migrate", "--no-input")
    run("pg_dump", "--schema-only", "--format=custom", f"--file={tmp_path / 'new.dump'}")
    with scratch_database() as new:
        run("pg_restore", "--exit-on-error", "--no-owner", str(tmp_path / "new.dump"), database=new)
        expected, found = schema(new), schema(restored)
    assert {name: found.get(name) for name in expected | found if found.get(name) != expected.get(name)} == {}


def schema(database: str) -> dict[str, str]:
    with closing(server_connection(database, autocommit=True)) as ledger:
        return schema_of(ledger.cursor())


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
