"""A backup is worth what its restore proves: rows, totals, hashes, chain. What was altered is named, nothing is left."""

import json
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from billing.backup import programs, restore
from billing.backup.dump import backup_take, manifest_path
from billing.backup.ledger_facts import differences
from billing.backup.restore import SCRATCH, restore_check
from billing.tenancy.models import AuditEntry
from tests.cli import Home
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.commands import Manage
from tests.factories.corrections import bill
from tests.stored_rows import rewrite

NOW = datetime(2026, 11, 4, 12, tzinfo=UTC)


@pytest.fixture
def issued(transactional_db: None, tmp_path: Path) -> None:
    """October 2026: two teams, 209.62 each, issued."""
    apply(tmp_path)
    ingest_allocations(allocation_record(), allocation_record(2, namespace="cv"))
    bill("2026-10", NOW)


@pytest.fixture
def taken(issued: None, tmp_path: Path) -> Path:
    path = tmp_path / "backups" / "suanpan.dump"
    backup_take(path=path, now=NOW)
    return path


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """However a check ends, no scratch database stays."""
    yield
    if "issued" in request.fixturenames:
        assert scratch_databases() == []


def scratch_databases() -> list[str]:
    with closing(psycopg.connect(**programs.server_parameters("postgres"), autocommit=True)) as server:
        rows = server.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"{SCRATCH}%"]).fetchall()
    return [name for (name,) in rows]


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    done = Manage(capsys)(*arguments)
    return done.status, done.out, done.err


def altered(taken: Path, *path: str, value: Any) -> None:
    """Change one fact of the manifest."""
    manifest = json.loads(manifest_path(taken).read_text())
    facts = manifest["facts"]
    for name in path[:-1]:
        facts = facts[name]
    facts[path[-1]] = value
    manifest_path(taken).write_text(json.dumps(manifest))


def test_a_backup_states_rows_totals_and_chain_heads(taken: Path) -> None:
    manifest = json.loads(manifest_path(taken).read_text())
    facts = manifest["facts"]
    assert facts["periods"] == {
        "2026-10": {
            "status": "closed", "close_seq": 1, "start": "2026-09-30T16:00:00+00:00", "end": "2026-10-31T16:00:00+00:00",
            "invoices": 2, "issued": 2, "total": "419.24", "charges": 2,
        }
    }  # fmt: skip
    assert facts["chains"]["invoice AI-INFRA 2026"]["last_number"] == 2
    assert (facts["rows"]["usage_gpuallocation"], facts["rows"]["invoices_invoice"]) == (2, 2)
    assert facts["usage"]["held_microseconds"] == str(2 * 9433 * 10**6)
    assert (manifest["taken_at"], manifest["bytes"]) == (NOW.isoformat(), taken.stat().st_size)


def test_a_backup_is_for_its_owner_only_and_nothing_else_lies_there(taken: Path) -> None:
    assert sorted(path.name for path in taken.parent.iterdir()) == ["suanpan.dump", "suanpan.dump.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in taken.parent.iterdir()} == {0o600}


def test_a_good_backup_holds(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = command(capsys, "restore_check", taken)
    assert (status, err) == (0, "")
    assert "2026-10 closed" in out
    assert "419.24" in out
    assert "1 period and 2 documents are those of 2026-11-04T12:00:00+00:00" in out
    status, out, _ = command(capsys, "restore_check", taken, "--json")
    assert (status, json.loads(out)["holds"], json.loads(out)["documents"]) == (0, True, 2)


def test_a_backup_of_several_readers_is_a_folder_that_is_proven_alike(issued: None, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    manifest = backup_take(path=folder, now=NOW, jobs=2)
    assert (stat.S_IMODE(folder.stat().st_mode), manifest["facts"]["periods"]["2026-10"]["total"]) == (0o700, "419.24")
    assert manifest["bytes"] == sum(file.stat().st_size for file in folder.iterdir())
    assert sorted(path.name for path in tmp_path.glob("*b*")) == ["b", "b.json"]
    checked = restore_check(path=folder, jobs=2)
    assert (checked.documents, checked.problems) == (2, [])
    with pytest.raises(FileExistsError):
        backup_take(path=folder, now=NOW, jobs=2)
    (folder / "toc.dat").write_bytes((folder / "toc.dat").read_bytes() + b"x")
    assert restore_check(path=folder).problems == ["b is not the file that its manifest describes: its SHA-256 differs"]


def test_a_database_that_was_restored_by_other_means_is_proven_where_it_runs(
    taken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here the living one: it is what the backup says, until a later allocation, or a document that was altered."""
    assert command(capsys, "restore_check", "--running", taken)[0] == 0
    ingest_allocations(allocation_record(3))
    status, out, _ = command(capsys, "restore_check", "--running", taken)
    assert (status, "FAIL rows.usage_gpuallocation: 2 in the backup, 3 restored" in out) == (3, True)
    status, out, _ = command(capsys, "restore_check", "--running")
    assert (status, "this database holds: " in out) == (0, True)
    rewrite("UPDATE invoices_invoice SET document = replace(document, '209.62', '109.62') WHERE sequence = 1")
    status, out, _ = command(capsys, "restore_check", "--running")
    assert (status, "FAIL AI-INFRA-2026-000001: the hash is not that of the document" in out) == (3, True)
    assert command(capsys, "restore_check")[0] == 2


def test_a_close_that_was_altered_is_named_in_the_restored_and_in_the_living_database(
    issued: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite("UPDATE usage_close SET withdrawn_at = '2026-11-03T00:00:00Z' WHERE close_seq = 1")
    path = tmp_path / "altered.dump"
    backup_take(path=path, now=NOW)
    named = "FAIL closes of 2026-10: close 1 stands expected, found taken back at 2026-11-03T00:00:00+00:00"
    for arguments in ((path,), ("--running",)):
        status, out, _ = command(capsys, "restore_check", *arguments)
        assert (status, named in out) == (3, True)


def test_old_backups_go_once_a_new_one_is_there_and_nothing_else_goes(
    taken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`taken` is of 4 November 2026; a folder without a manifest and a file of somebody else stay."""
    others = {"notes.json": "{}", "list.json": "[1]", "broken.json": "{", "alone.dump": ""}
    for name, text in others.items():
        (taken.parent / name).write_text(text)
    backup_take(path=taken.parent / "folder", now=NOW, jobs=2)
    status, out, _ = command(capsys, "backup", "--out", taken.parent / "new.dump", "--keep-days", "1")
    assert (status, out.count("  deleted ")) == (0, 2)
    assert sorted(path.name for path in taken.parent.iterdir()) == sorted([*others, "new.dump", "new.dump.json"])


def test_the_ledger_notes_backups_and_proofs_and_metrics_show_the_last(
    issued: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("suanpan_last_backup_timestamp_seconds", "suanpan_last_restore_check_timestamp_seconds")
    assert [shown(name) for name in names] == [0, 0]
    since = datetime.now(UTC).timestamp()
    assert command(capsys, "backup", "--out", tmp_path / "b.dump")[0] == 0
    assert (shown(names[0]) >= since, shown(names[1])) == (True, 0)
    assert command(capsys, "restore_check", tmp_path / "b.dump")[0] == 0
    assert shown(names[1]) > shown(names[0])
    noted = AuditEntry.objects.filter(action__startswith="backup_").order_by("id").values_list("action", "subject")
    assert list(noted) == [("backup_take", "b.dump"), ("backup_prove", "b.dump")]


def shown(metric: str) -> float:
    (line,) = (line for line in Client().get("/metrics").content.decode().splitlines() if line.startswith(f"{metric} "))
    return float(line.split()[1])


def test_what_is_written_after_the_backup_does_not_matter(taken: Path, tmp_path: Path) -> None:
    ingest_allocations(allocation_record(3))
    assert restore_check(path=taken).problems == []


def test_a_total_that_differs_is_named(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    altered(taken, "periods", "2026-10", "total", value="419.25")
    status, out, err = command(capsys, "restore_check", taken)
    assert (status, "1 things differ" in err) == (3, True)
    assert "FAIL periods.2026-10.total: 419.25 in the backup, 419.24 restored" in out


def test_a_document_changed_behind_the_application_breaks_its_hash(issued: None, tmp_path: Path) -> None:
    rewrite("UPDATE invoices_invoice SET document = replace(document, '209.62', '109.62') WHERE sequence = 1")
    backup_take(path=tmp_path / "b.dump", now=NOW)
    assert restore_check(path=tmp_path / "b.dump").problems == [
        "AI-INFRA-2026-000001: the hash is not that of the document",
        "AI-INFRA-2026-000001: the total is not that of the document",
    ]


def test_a_document_rewritten_with_its_hash_breaks_the_chain(issued: None, tmp_path: Path) -> None:
    rewrite("UPDATE invoices_invoice SET document = replace(document, 'NLP', 'ABC') WHERE sequence = 2")
    rewrite("UPDATE invoices_invoice SET document = replace(document, 'Vision', 'Fiction') WHERE sequence = 1")
    rewrite("UPDATE invoices_invoice SET sha256 = encode(sha256(convert_to(document, 'UTF8')), 'hex')")
    backup_take(path=tmp_path / "b.dump", now=NOW)
    assert restore_check(path=tmp_path / "b.dump").problems == [
        "AI-INFRA-2026-000002: the chain does not lead to the document before",
        "AI-INFRA-2026-000002: the document names another predecessor",
        "invoice AI-INFRA 2026: the series does not end with its last document",
    ]


def test_a_document_that_vanished_leaves_a_gap(issued: None, tmp_path: Path) -> None:
    for table in ("invoices_invoiceline", "invoices_invoicesums"):
        rewrite(f"DELETE FROM {table} WHERE invoice_id = (SELECT id FROM invoices_invoice WHERE sequence = 1)")
    rewrite("DELETE FROM invoices_invoice WHERE sequence = 1")
    backup_take(path=tmp_path / "b.dump", now=NOW)
    assert "AI-INFRA-2026-000002: a number before it is missing" in restore_check(path=tmp_path / "b.dump").problems


def test_a_file_with_one_other_byte_is_not_restored_at_all(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytearray(taken.read_bytes())
    body[len(body) // 2] ^= 1
    taken.write_bytes(body)
    monkeypatch.setattr(restore, "run", lambda *_, **__: pytest.fail("a broken file was restored"))
    assert "its SHA-256 differs" in restore_check(path=taken).problems[0]


def test_a_dump_that_does_not_restore_is_a_finding_and_leaves_no_database(taken: Path) -> None:
    taken.write_bytes(taken.read_bytes()[:5_000])
    manifest = json.loads(manifest_path(taken).read_text())
    manifest_path(taken).write_text(json.dumps(manifest | {"sha256": restore.digest_of(taken)}))
    (problem,) = restore_check(path=taken).problems
    assert problem.startswith("pg_restore ended with 1:")


def test_the_scratch_database_goes_when_the_check_dies(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "ledger_facts", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        restore_check(path=taken)
    assert scratch_databases() == []


def test_a_missing_manifest_or_file_is_bad_input(taken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest_path(taken).write_text("{}")
    assert command(capsys, "restore_check", taken)[0] == 2
    manifest_path(taken).unlink()
    status, _, err = command(capsys, "restore_check", taken)
    assert (status, "the manifest of the backup is missing" in err) == (2, True)
    status, _, err = command(capsys, "restore_check", taken.with_name("nothing"))
    assert (status, "no such file" in err) == (2, True)


def test_a_backup_that_fails_leaves_the_one_before(
    taken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = taken.read_bytes(), manifest_path(taken).read_bytes()
    monkeypatch.setattr(programs, "find", lambda _: Path("/bin/false"))
    status, _, err = command(capsys, "backup", "--out", taken)
    assert (status, "pg_dump ended with 1" in err) == (2, True)
    assert (taken.read_bytes(), manifest_path(taken).read_bytes()) == before
    assert len(list(taken.parent.iterdir())) == 2


def test_the_password_is_in_no_command_line(issued: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], dict[str, str]]] = []
    real = subprocess.run

    def spy(argv: Any, **how: Any) -> Any:
        seen.append(([str(word) for word in argv], how.get("env") or {}))
        return real(argv, **how)

    monkeypatch.setattr(subprocess, "run", spy)
    backup_take(path=tmp_path / "b.dump", now=NOW)
    assert restore_check(path=tmp_path / "b.dump").problems == []
    password = connection.settings_dict["PASSWORD"]
    called = [(argv, environment) for argv, environment in seen if "--no-password" in argv]
    assert len(called) == 2
    assert all(environment["PGPASSWORD"] == password for _, environment in called)
    assert not [word for argv, _ in seen for word in argv if password in word]


def test_differences_name_the_path_of_each_leaf() -> None:
    expected, found = {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "d": 3}}
    assert differences(expected, found) == ["a.c: 2 in the backup, None restored", "a.d: None in the backup, 3 restored"]


def test_a_home_of_its_own_is_backed_up_and_checked_as_a_user_does_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = home.run("backup", "--out", "early.dump", status=2)
    assert "has no ledger" in before.stderr
    home.run("period_report", "2026-10", status=2)  # any other command brings the schema
    taken = json.loads(home.run("backup", "--out", "b.dump", "--json").stdout)
    assert (taken["file"], taken["facts"]["periods"]) == ("b.dump", {})
    assert "b.dump holds" in home.run("restore_check", "b.dump").stdout
