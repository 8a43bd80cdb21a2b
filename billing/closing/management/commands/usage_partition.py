"""Command `manage.py usage_partition --by USER`."""

from argparse import ArgumentParser
from typing import Any

from django.db import ProgrammingError

from billing.closing.management.commands.usage_drop import OWNER
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, operator, progress
from billing.tenancy.database_roles import as_owner
from billing.usage.store.parts import PartsError
from billing.usage.store.rebuild import ledger_rebuild


class Command(AppCommand):
    help = (
        "Divide the ledger of token records, where it is one table, into parts by month, while usage comes in; it may be "
        "interrupted and run again. 3 if it cannot be done now."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "by", "json")

    def run(self, *, by: str | None, json: bool, **_: Any) -> int:
        actor = operator(by, Right.CLOSE, Right.OPERATE)
        bar = progress(100, "per cent of the ledger")
        done = 0

        def advance(pages: int, of: int) -> None:
            nonlocal done
            percent = 100 * pages // of if of else 100
            bar(percent - done)
            done = percent

        try:
            with as_owner():
                records = ledger_rebuild(actor=actor, advance=advance)
        except PartsError as error:
            bar.close()
            self.say(f"FAIL {error}")
            return DECIDE
        except ProgrammingError as error:
            fail(f"usage_partition {OWNER} ({str(error).splitlines()[0]})")
        finally:
            bar.close()
        if json:
            self.print_json({"records": records})
        elif records is None:
            self.say("the ledger is in parts already")
        else:
            self.say(f"{records:,} records are in parts by month")
        return DONE
