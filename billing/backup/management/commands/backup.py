"""Command `manage.py backup --out FILE`."""

from argparse import ArgumentParser
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from django.utils import timezone

from billing.backup.dump import STEPS, NoLedgerError, backup_take, backups_expire, manifest_path
from billing.backup.programs import ProgramError, ProgramFailedError, whole_number
from billing.tenancy.app_command import DONE, AppCommand, fail, number_of, operator, progress
from billing.tenancy.audit import audit_record
from billing.tenancy.database_roles import as_owner


class Command(AppCommand):
    help = "Write a consistent backup (PostgreSQL custom format) with a manifest beside it, while work goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the manifest becomes FILE.json")
        parser.add_argument("--jobs", type=whole_number, default=1, help="tables to read at a time; 2 or more make a folder")
        parser.add_argument("--keep-days", type=whole_number, help="afterwards, delete backups beside FILE that are older")
        self.take(parser, "by", "json")

    def run(self, *, out: Path, jobs: int, keep_days: int | None, by: str | None, json: bool, **_: Any) -> int:
        actor, now, gone = operator(by, needed=False), timezone.now(), list[Path]()
        try:
            with as_owner():
                manifest = backup_take(path=out, now=now, jobs=jobs, advance=progress(STEPS, "backing up"))
            if keep_days is not None:
                gone = backups_expire(beside=out, before=now - timedelta(days=keep_days))
        except (NoLedgerError, ProgramError, ProgramFailedError, psycopg.OperationalError) as error:
            fail(str(error))
        except OSError as error:
            fail(f"--out {error.filename or out}: {error.strerror or error}")
        _note(actor, out, manifest)
        if json:
            self.print_json({"file": str(out), "manifest": str(manifest_path(out)), **manifest})
        else:
            rows = sum(manifest["facts"]["rows"].values())
            months = number_of(len(manifest["facts"]["periods"]), "period")
            self.say(f"{out}: {manifest['bytes']:,} bytes, {rows:,} rows, {months}")
            for path in gone:
                self.say(f"  deleted {path}")
            self.say(f"  prove it with `manage.py restore_check {out}`")
        return DONE


def _note(actor: str, out: Path, manifest: dict[str, Any]) -> None:
    """Record a backup in the audit log; a standby server, which may be backed up too, cannot be written to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        (is_standby,) = cursor.fetchone()
    if not is_standby:
        kept = {name: manifest[name] for name in ("taken_at", "bytes", "sha256")}
        audit_record(actor=actor, action="backup_take", subject=out.name, detail=kept)
