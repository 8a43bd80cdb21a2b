"""`manage.py restore_check FILE`"""

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from billing.backup.programs import ProgramError
from billing.backup.restore import STEPS, Checked, ManifestError, restore_check
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, progress

TERMINATED = 128 + signal.SIGTERM


class Command(AppCommand):
    help = "Restore a backup into a scratch database, prove rows, totals and document hashes, drop it; 3 if one differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="as written by `manage.py backup`")
        self.add_json(parser)

    def run(self, *, file: Path, json: bool, **_: Any) -> int:
        try:
            with _ended_in_order():
                checked = restore_check(path=file, advance=progress(STEPS, "restoring"))
        except (ManifestError, ProgramError) as error:
            fail(str(error))
        except psycopg.errors.InsufficientPrivilege:
            fail("this account of the database may not create a scratch database: ALTER ROLE ... CREATEDB, or use another")
        except psycopg.Error as error:
            fail(f"the server refused the scratch database: {error}")
        except OSError as error:
            fail(f"{error.filename or file}: {error.strerror or error}")
        if json:
            self.print_json(_as_json(file, checked))
        else:
            self._print(file, checked)
        return DECIDE if checked.problems else DONE

    def _print(self, file: Path, checked: Checked) -> None:
        facts = checked.manifest["facts"]
        for month, period in facts["periods"].items():
            self.say(f"  {month} {period['status']:<8} {period['issued']:>6} issued {period['total']:>20}")
        for problem in checked.problems:
            self.say(f"  FAIL {problem}")
        rows, periods = sum(facts["rows"].values()), len(facts["periods"])
        months = f"{periods} period{'s' if periods != 1 else ''}"
        if checked.problems:
            self.stderr.write(f"{file}: {len(checked.problems)} things differ from the manifest of {_taken(checked)}")
        else:
            self.say(
                f"{file} holds: {rows:,} rows in {len(facts['rows'])} tables, "
                f"{months} and {checked.documents:,} documents are those of {_taken(checked)}"
            )


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """A request to end drops the scratch database first."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _taken(checked: Checked) -> str:
    return str(checked.manifest.get("taken_at", "an unknown time"))


def _as_json(file: Path, checked: Checked) -> dict[str, Any]:
    facts = checked.manifest["facts"]
    return {
        "file": str(file), "taken_at": checked.manifest.get("taken_at"), "holds": not checked.problems,
        "tables": len(facts["rows"]), "rows": sum(facts["rows"].values()), "periods": facts["periods"],
        "documents": checked.documents, "problems": checked.problems,
    }  # fmt: skip
