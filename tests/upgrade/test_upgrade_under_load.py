"""A database of a release is brought up to date while gateways report: what was acknowledged is there once."""

from collections import Counter

import httpx

from tests.factories.servers import WebProcess, until
from tests.upgrade.conftest import Manage
from tests.upgrade.load import ANSWERS, BATCH, Sender, new_token, sending, stored

SENDERS = (1_000_000, 2_000_000)
"""The number of the first record of each."""


def test_an_upgrade_under_load_loses_nothing_and_refuses_only_with_a_time_to_come_again(
    restored: str, manage: Manage
) -> None:
    records, tokens = stored(restored)
    web = WebProcess(1, DATABASE_URL=manage.environment["DATABASE_URL"])
    senders = [Sender(web.url, new_token(restored), first) for first in SENDERS]
    web.start()
    try:
        with sending(senders):
            until(lambda: all(sender.answers.total() >= 3 for sender in senders))
            manage("migrate", "--no-input")
            until(lambda: httpx.get(f"{web.url}/readyz", timeout=30).status_code == httpx.codes.OK, 30)
            before = [sender.acknowledged for sender in senders]
            until(
                lambda: all(sender.acknowledged >= done + 10 * BATCH for sender, done in zip(senders, before, strict=True))
            )
    finally:
        web.kill()
    answers = sum((sender.answers for sender in senders), Counter[tuple[int, bool]]())
    assert answers.keys() <= ANSWERS, answers
    acknowledged = sum(sender.acknowledged for sender in senders)
    assert stored(restored) == (records + acknowledged, tokens + 1000 * acknowledged)
    assert sum(sender.duplicates for sender in senders) == 0
    manage("period_verify", "--all")
    manage("audit_verify")
