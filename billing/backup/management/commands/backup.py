"""`manage.py backup --out FILE`"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from django.utils import timezone

from billing.backup.dump import STEPS, NoLedgerError, backup_take, manifest_path
from billing.backup.programs import ProgramError, ProgramFailedError
from billing.tenancy.app_command import DONE, AppCommand, fail, operator, progress
from billing.tenancy.audit import export_record
from billing.tenancy.database_roles import as_owner


class Command(AppCommand):
    help = "Write a consistent backup (PostgreSQL custom format) with a manifest beside it, while work goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the manifest becomes FILE.json")
        self.add_actor(parser)
        self.add_json(parser)

    def run(self, *, out: Path, json: bool, by: str | None, **_: Any) -> int:
        actor = operator(by, needed=False)
        try:
            with as_owner():
                manifest = backup_take(path=out, now=timezone.now(), advance=progress(STEPS, "backing up"))
                _note(actor, manifest)
        except (NoLedgerError, ProgramError, ProgramFailedError, psycopg.OperationalError) as error:
            fail(str(error))
        except OSError as error:
            fail(f"--out {error.filename or out}: {error.strerror or error}")
        if json:
            self.print_json({"file": str(out), "manifest": str(manifest_path(out)), **manifest})
        else:
            rows = sum(manifest["facts"]["rows"].values())
            self.say(f"{out}: {manifest['bytes']:,} bytes, {rows:,} rows, {len(manifest['facts']['periods'])} periods")
            self.say(f"  prove it with `manage.py restore_check {out}`")
        return DONE


def _note(actor: str, manifest: dict[str, Any]) -> None:
    """In the audit log; a standby server, of which a backup may be taken too, has none to write to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        (is_standby,) = cursor.fetchone()
    if not is_standby:
        export_record(actor=actor, what="backup", detail={"sha256": manifest["sha256"], "bytes": manifest["bytes"]})
