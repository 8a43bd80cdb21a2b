"""Command `manage.py invoice_issue 2026-10`."""

from argparse import ArgumentParser
from typing import Any

from billing.closing.services.operations import operation_request, operation_run
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.selectors import invoices_as_dict, invoices_of, unbuilt_drafts
from billing.invoices.services.invoices import billed
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, fail, operator


class Command(AppCommand):
    help = "Number and issue all approved drafts, once; a second run changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, by: str | None, json: bool, **_: Any) -> int:
        period = BillingPeriod.objects.filter(month=month).first()
        if period is None:
            fail(f"month {month!r}: no such period; close it first with `manage.py period_close {month}`")
        if not billed(period):
            self.stderr.write(f"refused: period {month} is {period.status}; close it first")
            return DECIDE
        operation = operation_request(kind="issue", month=month, actor=operator(by, Right.CLOSE, needed=False))
        operation_run(operation_id=operation.pk, report_progress=self.progress())
        if json:
            self.print_json(invoices_as_dict(month))
        else:
            for invoice in invoices_of(month):
                name = invoice.number or f"({'shadow' if invoice.shadow else invoice.status})"
                self.say(f"  {name:<24} {invoice.team.code:<20} {invoice.total:>16} {invoice.currency}")
        unapproved = (Invoice.Status.DRAFT, Invoice.Status.PREVIEW)
        waiting = invoices_of(month).filter(status__in=unapproved, shadow=False).count()
        if waiting:
            self.stderr.write(f"{waiting} drafts wait for approval: `manage.py invoice_approve {month} --by USER`")
        unbuilt = [invoice.team.code for invoice in unbuilt_drafts(period)]
        for team in unbuilt:
            again = f"build it again with `manage.py invoice rebuild {month} --team {team}`"
            self.stderr.write(f"the draft of {team} was voided: {again}")
        return DECIDE if waiting or unbuilt else DONE
