"""Command `manage.py period_close 2026-10`."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.closing.management.commands.period_report import print_report
from billing.closing.report import build_report
from billing.closing.services.operations import operation_request, operation_run
from billing.invoices.models import Operation
from billing.invoices.selectors import invoices_as_dict, invoices_of
from billing.invoices.services.periods import period_open
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, operator


class Command(AppCommand):
    help = "Rate the period and build its drafts; refuses (3) while exceptions are neither solved nor waived."

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "month", "by", "json")

    def run(self, *, month: str, by: str | None, json: bool, **_: Any) -> int:
        period = period_open(month=month)
        operation = operation_request(kind="close", month=month, actor=operator(by, Right.CLOSE, needed=False))
        operation = operation_run(operation_id=operation.pk, report_progress=self.progress())
        period.refresh_from_db()
        refused = operation.status != Operation.Status.DONE
        if json:
            report = build_report(period, now=timezone.now(), thorough=False).as_dict() if refused else {}
            self.print_json({**report, **invoices_as_dict(month), "status": period.status, "message": operation.message})
        elif refused:
            print_report(self, build_report(period, now=timezone.now(), thorough=False))
            self.stderr.write(f"refused: {operation.message}")
        else:
            self.say(f"Period {month} is closed: {operation.message}.")
            for invoice in invoices_of(month):
                self.say(f"  {invoice.team.code:<20} {invoice.total:>16} {invoice.currency}  {invoice.status}")
        return DECIDE if refused else DONE
