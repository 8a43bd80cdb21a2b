"""Command `manage.py usage_restore 2026-10 --by USER`."""

from argparse import ArgumentParser
from typing import Any

from django.db import ProgrammingError

from billing.closing.management.commands.usage_drop import OWNER
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, operator, progress
from billing.tenancy.database_roles import as_owner
from billing.usage.archive.places import ArchiveError
from billing.usage.services.archiving import records_restore
from billing.usage.services.sealing import SealError


class Command(AppCommand):
    help = "Put the token records of a month that usage_drop removed back into the database as they were; 3 if one differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, by: str | None, json: bool, **_: Any) -> int:
        actor = operator(by, Right.CLOSE, Right.OPERATE)
        bar = progress(None, f"restoring {month}")
        try:
            with as_owner():
                records = records_restore(month=month, actor=actor, advance=bar)
        except (ArchiveError, SealError) as error:
            bar.close()
            self.say(f"FAIL {error}")
            return DECIDE
        except ProgrammingError as error:
            fail(f"usage_restore {OWNER} ({str(error).splitlines()[0]})")
        finally:
            bar.close()
        if json:
            self.print_json({"period": month, "records": records})
        else:
            self.say(f"{month}: {records:,} records are in the database again")
        return DONE
