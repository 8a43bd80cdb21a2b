"""A database of a release is brought up to date while gateways report: what was acknowledged is there once."""

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import httpx
from psycopg import Connection

from billing.backup.programs import server_connection
from tests.factories import token_record, uuid7
from tests.factories.servers import WebProcess, until
from tests.upgrade.conftest import OPERATOR, Manage
from tests.upgrade.load import ANSWERS, BATCH, Sender, new_token, sending, stored

SENDERS = (1_000_000, 2_000_000)
"""The number of the first record of each."""
KINDS: tuple[Callable[[int], dict[str, Any]], ...] = (
    token_record, lambda number: token_record(number, id=uuid7("2026-10-15T04:00:00+00:00", number)),
)  # fmt: skip
MANY = """INSERT INTO token_entry
    SELECT md5(n::text)::uuid, '2019-06-01', (SELECT min(id) FROM token_dimension), 1000, 0, 0, 1, 0, 0, '', ''
    FROM generate_series(1, 300000) AS n"""
"""Something to copy, of no month that anybody looks at."""
LEFT = """SELECT relkind::text, to_regclass('token_entry_new')::text, to_regclass('token_entry_before')::text,
    to_regclass('token_rebuild')::text FROM pg_class WHERE oid = 'token_entry'::regclass"""


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


def test_a_ledger_is_put_in_parts_under_load_however_often_the_command_is_killed(restored: str, manage: Manage) -> None:
    """`kill -9` amid the copies, three times; then a reader holds its transaction for a while."""
    manage("migrate", "--no-input")
    with (
        closing(server_connection(restored, autocommit=True)) as ledger,
        closing(server_connection(restored, autocommit=False)) as reader,
    ):
        ledger.execute(MANY)
        records, tokens = stored(restored)
        web = WebProcess(1, DATABASE_URL=manage.environment["DATABASE_URL"])
        senders = [Sender(web.url, new_token(restored), *more) for more in zip(SENDERS, KINDS, strict=True)]
        web.start()
        try:
            with sending(senders):
                until(lambda: all(sender.answers.total() >= 3 for sender in senders))
                for _ in range(3):
                    killed_further(manage, ledger)
                reader.execute("SELECT count(*) FROM token_entry")
                last = manage.begun("usage_partition", "--by", OPERATOR)
                until(lambda: ledger.execute("SELECT page >= pages FROM token_rebuild").fetchone() == (True,))
                more_acknowledged(senders)
                assert last.poll() is None
                reader.rollback()
                assert last.wait(timeout=120) == 0
                more_acknowledged(senders)
        finally:
            web.kill()
        assert ledger.execute(LEFT).fetchone() == ("p", None, None, None)
    answers = sum((sender.answers for sender in senders), Counter[tuple[int, bool]]())
    assert answers.keys() <= ANSWERS, answers
    acknowledged = sum(sender.acknowledged for sender in senders)
    assert stored(restored) == (records + acknowledged, tokens + 1000 * acknowledged)
    assert sum(sender.duplicates for sender in senders) == 0
    manage("period_verify", "--all")
    manage("audit_verify")


def killed_further(manage: Manage, ledger: Connection[Any]) -> None:
    """`kill -9` once it copied further than whoever was killed before."""
    before, process = copied(ledger), manage.begun("usage_partition", "--by", OPERATOR)
    until(lambda: copied(ledger) > before)
    process.kill()
    assert process.wait(timeout=30) == -signal.SIGKILL


def copied(ledger: Connection[Any]) -> int:
    """Pages."""
    if ledger.execute("SELECT to_regclass('token_rebuild')").fetchone() == (None,):
        return 0
    (pages,) = ledger.execute("SELECT page FROM token_rebuild").fetchone() or (0,)
    return int(pages)


def more_acknowledged(senders: Sequence[Sender]) -> None:
    before = [sender.acknowledged for sender in senders]
    until(lambda: all(sender.acknowledged > done + BATCH for sender, done in zip(senders, before, strict=True)))
