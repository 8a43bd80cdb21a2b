"""Command `manage.py exception_waive 2026-10 KIND SUBJECT --reason ... --by USER`."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.closing.exception_kinds import WAIVABLE
from billing.closing.services.waivers import exception_waive, last_day
from billing.invoices.services.periods import period_open
from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, operator


class Command(AppCommand):
    help = "Answer for an exception that cannot be solved, so that it no longer blocks the close."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("month", metavar="2026-10")
        parser.add_argument("kind", help=", ".join(WAIVABLE))
        parser.add_argument("subject", help="as the period report names it")
        parser.add_argument("--reason", required=True)
        parser.add_argument("--until", metavar="2026-11-30", help="last local day, then it holds again (31 days on)")
        self.take(parser, "by", "json")

    def run(self, *, month: str, kind: str, subject: str, reason: str, until: str | None, by: str | None,
            json: bool, **_: Any) -> int:  # fmt: skip
        waiver = exception_waive(
            period=period_open(month=month), kind=kind, subject=subject, reason=reason, actor=operator(by, Right.CLOSE),
            now=timezone.now(), until=last_day(until),
        )  # fmt: skip
        if json:
            self.print_json(
                {
                    "period": month, "kind": kind, "subject": subject, "waived_by": waiver.waived_by,
                    "reason": waiver.reason, "expires_at": waiver.expires_at,
                }
            )  # fmt: skip
            return DONE
        self.say(f"waived by {waiver.waived_by}: {kind} {subject}")
        return DONE
