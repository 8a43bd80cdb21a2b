"""Command `manage.py accrual 2026-10 --out FILE`."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.utils import timezone

from billing.closing.services.accrual import AccrualError, Accrued, accrual_make
from billing.exports.journal import Chart, JournalError
from billing.exports.services.journal import chart_read
from billing.runtime.atomic_file import atomic_file
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, operator
from billing.tenancy.audit import export_record


class Command(AppCommand):
    help = (
        "Write an estimated accrual of a month that is not closed, with its reversal, for an early book close. The same "
        "estimate is written again until --again asks for another; 3 where the month is closed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="FILE")
        parser.add_argument("--accounts", type=Path, metavar="YAML", help="chart of accounts, as for export_journal")
        parser.add_argument("--again", action="store_true", help="estimate anew; the file takes back the revision before it")
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, out: Path, accounts: Path | None, again: bool, by: str | None, json: bool, **_: Any) -> int:
        try:
            chart = Chart(**(chart_read(accounts) if accounts else {}))
            actor = operator(by, Right.CLOSE)
            made = accrual_make(month=month, chart=chart, actor=actor, now=timezone.now(), again=again)
            with atomic_file(out) as draft:
                draft.write_bytes(made.csv)
            export_record(actor=actor, what=f"accrual {month}", detail={"sha256": made.accrual.sha256})
        except (AccrualError, JournalError) as error:
            self.stderr.write(f"refused: {error}")
            return DECIDE
        except OSError as error:
            fail(f"{error.filename or out}: {error.strerror or error}")
        self._answer(made, out, json)
        return DONE

    def _answer(self, made: Accrued, out: Path, json: bool) -> None:
        if json:
            self.print_json({"file": str(out), "sha256": made.accrual.sha256, "created": made.created, **made.document})
            return
        teams = made.document["journals"]
        state = "estimated" if made.created else "was estimated"
        self.say(f"{made.accrual.name}: {len(teams)} journals {state} as of {made.document['as_of']}, in {out}")
        for item in made.document["left_out"]:
            if "team" in item:
                self.say(f"  not in it: team {item['team']}, which cannot be rated: {item['problem']}")
                continue
            self.say(f"  not in it: {item['exceptions']} x {item['kind']}, {item['quantity']} {item['unit']}")
