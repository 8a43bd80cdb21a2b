"""Command `manage.py export_focus 2026-10 --out DIR`."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from billing.exports.focus.conformance import ConformanceError
from billing.exports.services.focus import UnexplainedError, focus_export
from billing.invoices.issued import NotIssuedError
from billing.invoices.selectors import invoices_of
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, amount_text, fail, number_of, operator, progress
from billing.tenancy.audit import export_record


class Command(AppCommand):
    help = "Write the month's issued invoices as FOCUS 1.4 (CSV and Parquet), checked; 3 while drafts wait."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="DIR")
        parser.add_argument("--with-1.0", dest="with_1_0", action="store_true", help="also Cost and Usage as FOCUS 1.0")
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, out: Path, with_1_0: bool, json: bool, by: str | None, **_: Any) -> int:
        actor = operator(by, needed=False)
        advance = progress(invoices_of(month).count(), "writing FOCUS")
        try:
            exported = focus_export(month=month, directory=out, with_1_0=with_1_0, advance=advance)
        except (NotIssuedError, UnexplainedError, ConformanceError) as error:
            self.stderr.write(f"refused: {error}")
            return DECIDE
        except OSError as error:
            fail(f"--out {error.filename or out}: {error.strerror or error}")
        export_record(actor=actor, what=f"focus {month}", detail={"rows": exported.rows, "files": len(exported.files)})
        if json:
            self.print_json(
                {
                    "period": month, "files": [str(path) for path in exported.files], "rows": exported.rows,
                    "invoices": exported.invoices, "billed_cost": amount_text(exported.billed_cost),
                }
            )  # fmt: skip
        else:
            invoices = number_of(exported.invoices, "invoice")
            self.say(f"{exported.rows:,} rows of {invoices}, {exported.billed_cost:,}, in {out}")
            for path in exported.files:
                self.say(f"  {path.name}")
        return DONE
