"""Findings that block the close of open months, stored so that no page has to rate a month to count them."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from billing.closing.exception_kinds import ASKED
from billing.closing.report import Report
from billing.inbox.models import MonthFindings
from metering.messages import Message

NOT_ENDED = "period_not_ended"
"""Kind of the finding that only time resolves."""
CHECK = "check"
"""Kind of a reconciliation that does not agree; every other kind is in `billing.closing.exception_kinds`."""


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


def stored(findings: Iterable[Finding]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(list(findings), enc_hook=Message.as_json))


def findings_in(row: MonthFindings) -> list[Finding]:
    return msgspec.convert(row.content, list[Finding], dec_hook=lambda _, value: Message.from_json(value))
