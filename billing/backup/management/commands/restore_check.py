"""Command `manage.py restore_check FILE`, or `--running` for a server that was restored by other means."""

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from billing.backup.programs import ProgramError, whole_number
from billing.backup.restore import STEPS, Checked, ManifestError, restore_check, running_check
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, number_of, operator, progress
from billing.tenancy.audit import audit_record
from billing.tenancy.database_roles import as_owner
from billing.tenancy.models import AuditEntry

TERMINATED = 128 + signal.SIGTERM


class Command(AppCommand):
    help = "Restore a backup into a scratch database, prove rows, totals and document hashes, drop it; 3 if one differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="as written by `manage.py backup`")
        parser.add_argument("--jobs", type=whole_number, default=1, help="tables to restore at a time")
        parser.add_argument("--running", action="store_true", help="restore nothing, prove the database of DATABASE_URL")
        self.take(parser, "json")

    def run(self, *, file: Path | None, jobs: int, running: bool, json: bool, **_: Any) -> int:
        if file is None and not running:
            fail("name a FILE, or --running")
        checked = self._check(file, jobs, running)
        if json:
            self.print_json(_as_json(file, checked))
        else:
            self._tell(file, checked)
        return DECIDE if checked.problems else DONE

    def _check(self, file: Path | None, jobs: int, running: bool) -> Checked:
        try:
            if running or file is None:
                with as_owner():
                    return running_check(path=file)
            with _ended_in_order(), as_owner():
                checked = restore_check(path=file, jobs=jobs, advance=progress(STEPS, "restoring"))
            _note(file, checked)
            return checked
        except (ManifestError, ProgramError) as error:
            fail(str(error))
        except psycopg.errors.InsufficientPrivilege:
            fail("this account of the database may not create a scratch database: ALTER ROLE ... CREATEDB, or use another")
        except psycopg.Error as error:
            fail(f"the server refused the scratch database: {error}")
        except OSError as error:
            fail(f"{error.filename or file}: {error.strerror or error}")

    def _tell(self, file: Path | None, checked: Checked) -> None:
        name = file or "this database"
        facts = checked.manifest["facts"]
        for month, period in facts["periods"].items():
            self.say(f"  {month} {period['status']:<8} {period['issued']:>6} issued {period['total']:>20}")
        for problem in checked.problems:
            self.say(f"  FAIL {problem}")
        rows, months = sum(facts["rows"].values()), number_of(len(facts["periods"]), "period")
        if checked.problems:
            self.stderr.write(f"{name}: {len(checked.problems)} things differ from the manifest of {_taken(checked)}")
        else:
            self.say(
                f"{name} holds: {rows:,} rows in {len(facts['rows'])} tables, "
                f"{months} and {number_of(checked.documents, 'document')} are those of {_taken(checked)}"
            )


def _note(file: Path, checked: Checked) -> None:
    """Record a proven backup in the audit log of the production ledger; a server used only for restores has none."""
    if not checked.problems and AuditEntry._meta.db_table in connection.introspection.table_names():
        proven = {"taken_at": checked.manifest.get("taken_at"), "sha256": checked.manifest["sha256"]}
        audit_record(actor=operator(None, needed=False), action="backup_prove", subject=file.name, detail=proven)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Turn SIGTERM into SystemExit in the block, so that the scratch database is dropped first."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _taken(checked: Checked) -> str:
    return str(checked.manifest.get("taken_at", "an unknown time"))


def _as_json(file: Path | None, checked: Checked) -> dict[str, Any]:
    facts = checked.manifest["facts"]
    return {
        "file": str(file) if file else None, "taken_at": checked.manifest.get("taken_at"), "holds": not checked.problems,
        "tables": len(facts["rows"]), "rows": sum(facts["rows"].values()), "periods": facts["periods"],
        "documents": checked.documents, "problems": checked.problems,
    }  # fmt: skip
