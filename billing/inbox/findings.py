"""Findings that block the close of open months, stored so that no page has to rate a month to count them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from billing.closing.due_credits import CARRIED_IN_CLOSED_TIME, DueCredit
from billing.closing.exception_kinds import ASKED
from billing.closing.report import Report
from billing.inbox.models import MonthFindings
from metering.messages import Message

NOT_ENDED = "period_not_ended"
"""Kind of the finding that only time resolves."""
CHECK = "check"
"""Kind of a reconciliation that does not agree; every other kind is in `billing.closing.exception_kinds`."""


CREDIT_DUE = "credit_due"
"""Kind of a draft of a credit note that a person is to submit; its subject is the number of the invoice."""


class Finding(msgspec.Struct, frozen=True):
    """Finding: an exception that blocks, or a reconciliation (`name`) that does not agree, first found at `since`."""

    kind: str
    subject: str
    since: datetime
    quantity: Decimal = Decimal(0)
    unit: str = ""
    amount: Decimal | None = None
    words: Message = Message("")
    name: Message = Message("")

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.subject


def findings_of(report: Report, now: datetime, before: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a report; findings in `before` keep their time."""
    since = {item.key: item.since for item in before}
    found = [
        Finding(item.kind, item.subject, now, item.quantity, item.unit, item.amount, item.action)
        for item in report.exceptions
        if item.kind != NOT_ENDED and (item.blocks or (item.kind in ASKED and not item.waived_by))
    ]
    kinds = {item.kind for item in report.blocking}
    found += [
        Finding(CHECK, str(check.name), now, words=check.detail, name=check.name)
        for check in report.checks
        if not check.ok and check.holds and check.decided_by not in kinds
    ]
    return [msgspec.structs.replace(item, since=since.get(item.key, now)) for item in found]


def with_drafts(
    found: Iterable[Finding], drafts: Sequence[DueCredit], now: datetime, before: Iterable[Finding]
) -> list[Finding]:
    """Return the findings with a draft of a credit note in the place of those that it solves."""
    since = {item.key: item.since for item in before}
    solved = {subject for draft in drafts for subject in draft.subjects}
    kept = [item for item in found if item.kind != CARRIED_IN_CLOSED_TIME or item.subject not in solved]
    return kept + [
        Finding(CREDIT_DUE, number, since.get((CREDIT_DUE, number), now), amount=draft.amount, words=draft.reason)
        for draft in drafts
        if (number := str(draft.invoice.number))
    ]


def stored(findings: Iterable[Finding]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(list(findings), enc_hook=Message.as_json))


def findings_in(row: MonthFindings) -> list[Finding]:
    return msgspec.convert(row.content, list[Finding], dec_hook=lambda _, value: Message.from_json(value))
