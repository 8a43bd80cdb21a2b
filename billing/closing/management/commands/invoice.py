"""Command `manage.py invoice preview|void|rebuild|settle|mode`."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.closing.services.showback import billing_mode_put
from billing.corrections.services.settlement import SettlementError, document_settle
from billing.invoices.services.invoices import invoice_rebuild, invoice_void, invoices_preview
from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.tenancy.models import BillingMode


class Command(AppCommand):
    help = "The states of invoices: show drafts to teams, void and rebuild one, record postings, shadow or charge a team."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="preview|void|rebuild|settle|mode")
        preview = actions.add_parser("preview", help="show the drafts of a closed month to their teams")
        preview.add_argument("month", metavar="2026-10")
        preview.add_argument("--team", help="only the draft of this team")
        for action, text in (("void", "drop a draft before issue"), ("rebuild", "build a voided draft again")):
            chosen = actions.add_parser(action, help=text)
            chosen.add_argument("month", metavar="2026-10")
            chosen.add_argument("--team", required=True)
            if action == "void":
                chosen.add_argument("--reason", required=True)
        settle = actions.add_parser("settle", help="record that the ledger posted documents")
        settle.add_argument("number", nargs="+")
        settle.add_argument("--reference", required=True, help="the posting in the ledger")
        mode = actions.add_parser("mode", help="show a team its invoices, or charge it, from an open month on")
        mode.add_argument("team")
        mode.add_argument("mode", choices=BillingMode.Mode.values)
        mode.add_argument("--from", dest="from_month", required=True, metavar="2026-11")
        mode.add_argument("--reason", required=True)
        for chosen in actions.choices.values():
            self.take(chosen, "by", "json")

    def run(self, *, action: str, by: str | None, json: bool, **options: Any) -> int:
        try:
            done = getattr(self, f"_{action}")(operator(by, Right.APPROVE if action == "mode" else Right.CLOSE), options)
        except SettlementError as error:
            fail(str(error))
        if json:
            self.print_json({"action": action, "done": done})
            return DONE
        for text in done:
            self.say(text)
        return DONE

    def _preview(self, actor: str, options: dict[str, Any]) -> list[str]:
        shown = invoices_preview(month=options["month"], team=options["team"], actor=actor)
        return [f"shown to {invoice.team.code}: {invoice.total} {invoice.currency}" for invoice in shown]

    def _void(self, actor: str, options: dict[str, Any]) -> list[str]:
        invoice = invoice_void(month=options["month"], team=options["team"], reason=options["reason"], actor=actor)
        return [f"void: {invoice.total} {invoice.currency} of {invoice.team.code}"]

    def _rebuild(self, actor: str, options: dict[str, Any]) -> list[str]:
        invoice = invoice_rebuild(month=options["month"], team=options["team"], actor=actor)
        return [f"built again: {invoice.total} {invoice.currency} of {invoice.team.code}"]

    def _settle(self, actor: str, options: dict[str, Any]) -> list[str]:
        facts: dict[str, Any] = {"reference": options["reference"], "actor": actor, "now": timezone.now()}
        done = [(number, document_settle(number=number, **facts)) for number in options["number"]]
        return [f"{number}: {'settled' if new else 'was settled already'}" for number, new in done]

    def _mode(self, actor: str, options: dict[str, Any]) -> list[str]:
        row = billing_mode_put(
            team=options["team"], from_month=options["from_month"], mode=options["mode"], reason=options["reason"],
            actor=actor, now=timezone.now(),
        )  # fmt: skip
        return [f"{row.team.code}: {row.mode} from {row.from_month}"]
