"""Command `manage.py export_journal 2026-10 --out FILE`."""

from argparse import ArgumentParser
from datetime import date
from pathlib import Path
from typing import Any

from django.utils import timezone

from billing.exports.journal import Chart, JournalError
from billing.exports.services.journal import Exported, chart_read, journal_export
from billing.invoices.issued import NotIssuedError
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, amount_text, fail, number_of, operator
from billing.tenancy.audit import export_record

OPTIONS = ("company_code", "consumer_account", "provider_account", "provider_cost_center", "posting_date")


class Command(AppCommand):
    help = "Write the balanced general-ledger journal of the month's issued invoices as CSV; 3 while drafts wait."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, metavar="FILE")
        parser.add_argument(
            "--accounts", type=Path, metavar="YAML",
            help="chart of accounts: the fields of the options below, cost_centers and internal_orders by team",
        )  # fmt: skip
        parser.add_argument("--company-code", help="default: the issuer")
        parser.add_argument("--consumer-account", help=f"debited; default: {Chart().consumer_account}")
        parser.add_argument("--provider-account", help=f"credited; default: {Chart().provider_account}")
        parser.add_argument("--provider-cost-center", help="default: the issuer")
        parser.add_argument(
            "--posting-date", type=date.fromisoformat, metavar="2026-10-31", help="default: the last day of the month"
        )
        parser.add_argument(
            "--accepted", action="store_true",
            help="only what is accepted; a disputed document is posted once its 5 business days are over",
        )  # fmt: skip
        parser.add_argument(
            "--spreadsheet", action="store_true",
            help="for people, not for a ledger: a byte order mark, and an apostrophe before text that begins like a formula",
        )  # fmt: skip
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, out: Path, accounts: Path | None, json: bool, by: str | None, **options: Any) -> int:
        now, actor = timezone.now(), operator(by, Right.CLOSE, needed=False)
        try:
            exported = journal_export(
                month=month, path=out, chart=_chart(accounts, options), exported_by=actor, now=now,
                accepted_at=now if options["accepted"] else None, spreadsheet=options["spreadsheet"],
            )  # fmt: skip
        except (NotIssuedError, JournalError) as error:
            self.stderr.write(f"refused: {error}")
            return DECIDE
        except OSError as error:
            fail(f"{error.filename or out}: {error.strerror or error}")
        detail = {"journals": len(exported.journals), "debit": str(exported.debit)}
        export_record(actor=actor, what=f"journal {month}", detail=detail)
        self._answer(month, out, exported, json)
        for reference in exported.posted_otherwise:
            self.stderr.write(
                f"the ledger has journals of this file as {reference} with another chart: under the same ids nothing is "
                "posted anew"
            )
        return DECIDE if exported.posted_otherwise else DONE

    def _answer(self, month: str, out: Path, exported: Exported, json: bool) -> None:
        if json:
            self.print_json(
                {
                    "period": month, "file": str(out), "journals": len(exported.journals),
                    "debit": amount_text(exported.debit), "credit": amount_text(exported.credit),
                    "posted_otherwise": exported.posted_otherwise,
                }
            )  # fmt: skip
        else:
            journals = number_of(len(exported.journals), "journal")
            self.say(f"{journals}, debit {exported.debit:,} = credit {exported.credit:,}, in {out}")


def _chart(accounts: Path | None, options: dict[str, Any]) -> Chart:
    """Build the chart from the fields of the file; options of the command line replace them."""
    facts = chart_read(accounts) if accounts else {}
    return Chart(**facts | {name: options[name] for name in OPTIONS if options[name] is not None})
