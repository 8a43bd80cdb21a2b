"""Command `manage.py period_reopen request|approve|reject 2026-10 --by USER`."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from billing.closing.models import PeriodReopening
from billing.closing.selectors import reopening_as_dict, reopenings_of
from billing.closing.services.reopening import reopening_step
from billing.invoices.selectors import period_of
from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, approver, operator


class Command(AppCommand):
    help = "Open a closed month of which nothing was issued: one person asks, another one approves."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="request|approve|reject|list")
        for action, text in (
            ("request", "ask that a closed month be opened again"), ("approve", "open it, as a second person"),
            ("reject", "turn the request down"), ("list", "who asked and who decided, the oldest first"),
        ):  # fmt: skip
            chosen = actions.add_parser(action, help=text)
            chosen.add_argument("month", metavar="2026-10")
            if action in ("request", "reject"):
                chosen.add_argument("--reason", required=True)
            if action != "list":
                self.take(chosen, "by")
            self.take(chosen, "json")

    def run(self, *, action: str, month: str, json: bool, **options: Any) -> int:
        found = reopenings_of(period_of(month)) if action == "list" else [_taken(action, month, options)]
        if json:
            self.print_json({"period": month, "reopenings": [reopening_as_dict(item) for item in found]})
            return DONE
        for item in found:
            decided = f", {item.status} by {item.decided_by}" if item.decided_by else ", waits for a second person"
            drafts = "" if item.drafts is None else f", {item.drafts} drafts voided"
            self.say(f"reopening {item.pk} of {month}: {item.reason} (asked by {item.requested_by}{decided}{drafts})")
        return DONE


def _taken(step: str, month: str, options: dict[str, Any]) -> PeriodReopening:
    actor = (approver if step == "approve" else operator)(options["by"], Right.CLOSE, Right.APPROVE)
    return reopening_step(step=step, month=month, reason=options.get("reason", ""), actor=actor, now=timezone.now())
