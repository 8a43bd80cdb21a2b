"""Command `manage.py period_report 2026-10 [--json]`."""

from argparse import ArgumentParser
from decimal import Decimal
from typing import Any

from django.utils import timezone

from billing.closing.exceptions import shown
from billing.closing.report import Report, build_report
from billing.invoices.selectors import period_of
from billing.tenancy.app_command import DECIDE, DONE, AppCommand
from pricing.number_text import grouped_amount


class Command(AppCommand):
    help = '"Can we close this month?": every reconciliation and every exception, with amounts; 3 if something blocks.'

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "month", "json")

    def run(self, *, month: str, json: bool, **_: Any) -> int:
        report = build_report(period_of(month), now=timezone.now())
        if json:
            self.print_json(report.as_dict())
        else:
            print_report(self, report)
        return DONE if report.closable else DECIDE


def print_report(command: AppCommand, report: Report) -> None:
    verdict = "can be closed" if report.closable else "cannot be closed yet"
    command.say(f"Period {report.period}: {report.status}; {verdict if report.status != 'closed' else 'is closed'}")
    for asked in report.reopenings:
        decided = f"{asked.status} by {asked.decided_by}" if asked.decided_by else "waits for a second person"
        word = "reopening" if asked.drafts is None else "reopened"
        command.say(f"  {word}: asked by {asked.requested_by}, {decided}: {asked.reason}")
    if report.acceptance:
        counts = ", ".join(f"{count} {state}" for state, count in report.acceptance.items())
        command.say(f"  acceptance of invoices (silence for 5 business days): {counts}")
    for row in report.rounded:
        command.say(
            f"  rounding of lines: {row['team']} {row['month']}: exact {row['exact']}, lines {row['lines']}, "
            f"rounding {row['rounding']}"
        )
    for check in report.checks:
        mark = "FAIL" if not check.ok else "ok  " if check.compared else "--  "
        command.say(f"  {mark} {check.name}: {check.detail}")
    for item in report.exceptions:
        until = f" until {item.waived_until.isoformat()}" if item.waived_until else ""
        mark = f"waived by {item.waived_by}{until}" if item.waived_by else "BLOCKS" if item.blocks else "note"
        command.say(f"  {mark}: {item.kind} {item.subject}: {shown(item.quantity)} {item.unit} - {item.action}")
        at_risk = "unknown" if item.amount is None else grouped_amount(item.amount)
        where = f"{item.facts.owner.value}: {item.facts.solution} ({item.facts.link(report.period)})"
        command.say(f"      at risk: {at_risk}; {where}")
    for one in report.reached:
        command.say(f"  {one.kind} {one.name}: {'files' if one.from_file else 'reported'} through {one.through.isoformat()}")
    for rule in report.unmatched:
        command.say(f"  note: {rule.kind} {rule.subject}: matched nothing of this month")
    figures = ", ".join(
        f"{name} {'unknown' if value is None else shown(value)}" for name, value in report.gpu_seconds.items()
    )
    command.say(f"  GPU-seconds: {figures}")
    for pool in report.pools:
        used = ", ".join(f"{name} {shown(Decimal(pool[name]))}" for name in ("charged", "platform", "unowned", "unpriced"))
        free = "idle and capacity unknown" if pool["capacity"] is None else (
            f"idle {shown(Decimal(pool['idle']))} of {shown(Decimal(pool['capacity']))}"
        )  # fmt: skip
        command.say(f"    {pool['cluster']}/{pool['accelerator']}: {used}, {free}")
    command.say(f"  tokens: {', '.join(f'{name} {count:,}' for name, count in report.tokens.items()) or 'none'}")
