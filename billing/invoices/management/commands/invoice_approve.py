"""`manage.py invoice_approve 2026-10 [--team T] --by USER`"""

from argparse import ArgumentParser
from typing import Any

from billing.invoices.services.invoices import invoices_approve
from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, approver, number_of


class Command(AppCommand):
    help = "Approve the drafts of a closed month, where the set-up says `review: four-eyes`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--team", help="only the draft of this team")
        named = "who approves, with a token of theirs in SUANPAN_TOKEN; not who closed"
        parser.add_argument("--by", required=True, metavar="USER", help=named)
        self.take(parser, "month", "json")

    def run(self, *, month: str, team: str | None, by: str, json: bool, **_: Any) -> int:
        invoices = invoices_approve(month=month, actor=approver(by, Right.APPROVE), team=team)
        if json:
            self.print_json({"period": month, "approved": [invoice.team.code for invoice in invoices], "by": by})
            return DONE
        for invoice in invoices:
            self.say(f"approved {invoice.team.code}: {invoice.total} {invoice.currency}")
        self.say(f"{number_of(len(invoices), 'draft')} approved by {by}")
        return DONE
