"""`manage.py backup --out FILE`"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import psycopg
from django.utils import timezone

from billing.backup.dump import STEPS, NoLedgerError, backup_take, manifest_path
from billing.backup.programs import ProgramError, ProgramFailedError
from billing.tenancy.app_command import DONE, AppCommand, fail, progress
from billing.tenancy.database_roles import as_owner


class Command(AppCommand):
    help = "Write a consistent backup (PostgreSQL custom format) with a manifest beside it, while work goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the manifest becomes FILE.json")
        self.add_json(parser)

    def run(self, *, out: Path, json: bool, **_: Any) -> int:
        try:
            with as_owner():
                manifest = backup_take(path=out, now=timezone.now(), advance=progress(STEPS, "backing up"))
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
