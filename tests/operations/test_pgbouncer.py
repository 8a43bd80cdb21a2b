"""Behind a PgBouncer that pools transactions each statement may meet another session, and a month is billed as ever."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from billing.closing.services.operations import operation_request, operation_run
from billing.closing.tasks import operation_wake
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice, Operation
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, person, token_record
from tests.factories.servers import is_done, until, web_process, worker
from tests.operations.pgbouncer import POOL, pgbouncer

RECORDS, SENDERS = 160, 4
PAGES = ("/", "/teams/nlp/?month=2026-10", "/close/?month=2026-10", "/invoices/", "/spending/")
PER_CONNECTION = {"application_name", "client_encoding", "DateStyle", "standard_conforming_strings", "TimeZone"}
"""What PgBouncer follows from client to client."""
LEFT = """SELECT (SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM pg_settings
        WHERE source = 'session' AND name <> ALL (%s) AND name NOT LIKE 'transaction\\_%%'),
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors WHERE name <> ''),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"""


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[int]:
    """The port of a PgBouncer, through which this process and those that it starts reach the database of the test."""
    facts = connection.settings_dict
    with pgbouncer() as port, pytest.MonkeyPatch.context() as patch:
        patch.setitem(facts, "PORT", str(port))
        connection.close()
        yield port
        connection.close()


def sent(url: str, token: str, numbers: range) -> list[int]:
    """Accepted and duplicates of records reported one by one."""
    sums = [0, 0]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        for number in numbers:
            answer = client.post("/api/v1/usage/tokens", json=[token_record(number)])
            assert answer.status_code == 200, answer.text
            sums[0] += answer.json()["accepted"]
            sums[1] += answer.json()["duplicates"]
    return sums


@contextmanager
def others_at_work(url: str, token: str) -> Iterator[None]:
    """Senders repeat what is known, so that sessions change hands all the time."""
    over = threading.Event()

    def repeat() -> int:
        found = 0
        while not over.is_set():
            accepted, duplicates = sent(url, token, range(10))
            assert (accepted, duplicates) == (0, 10)
            found += 1
        return found

    with ThreadPoolExecutor(SENDERS) as pool:
        repeats = [pool.submit(repeat) for _ in range(SENDERS)]
        try:
            yield
        finally:
            over.set()
        assert all(repeated.result() for repeated in repeats)


def done(kind: str) -> Operation:
    """What a worker made of an operation."""
    operation = operation_request(kind=kind, month="2026-10", actor="ops", wake=operation_wake)
    until(lambda: is_done(operation))
    return operation


def left_in_sessions(port: int) -> list[tuple[Any, ...]]:
    """What the sessions of the pool keep from one client to the next."""
    facts = connection.settings_dict
    with ExitStack() as stack:
        clients = [
            stack.enter_context(psycopg.connect(host="127.0.0.1", port=port, user=facts["USER"], dbname=facts["NAME"]))
            for _ in range(POOL)
        ]
        rows = [client.execute(LEFT, [list(PER_CONNECTION)]).fetchone() for client in clients]  # each in a transaction
        assert len({client.execute("SELECT pg_backend_pid()").fetchone() for client in clients}) == POOL
    return [row for row in rows if row is not None]


def test_a_month_is_taken_closed_issued_and_shown_and_no_session_keeps_anything(pooled: int, tmp_path: Path) -> None:
    """160 records: 128,000 x 2 + 32,000 x 0.2 + 16,000 x 8 per million = 0.26 + 0.01 + 0.13, and 209.62 of GPU time."""
    apply(tmp_path)
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    finance = person("fin", "finance")
    with web_process() as web, ThreadPoolExecutor(SENDERS) as pool:
        share = RECORDS // SENDERS
        ranges = [range(first, first + share) for first in range(0, RECORDS, share)]
        twice = pool.map(lambda at: sent(web.url, token, ranges[at // 2]), range(2 * SENDERS))
        assert [sum(column) for column in zip(*twice, strict=True)] == [RECORDS, RECORDS]
        report = {"agent": {"name": "gpu-agent", "version": "1"}, "allocations": [allocation_record()]}
        answer = httpx.post(
            f"{web.url}/api/v1/usage/gpu-allocations", json=report, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        assert (answer.status_code, answer.json()["accepted"]) == (200, 1), answer.text
        with others_at_work(web.url, token), worker():
            done("close")
            done("issue")
            for _ in range(10):
                operation = operation_request(kind="assess", month="2026-10", actor="ops")
                assert operation_run(operation_id=operation.pk, wait=False).status == Operation.Status.DONE
            assert [proof for proof in period_verify(month="2026-10") if not proof.holds] == []
            portal = Client()
            portal.force_login(finance)
            invoice = Invoice.objects.get(team__code="nlp")
            for _ in range(3):
                for page in PAGES:
                    assert portal.get(page, follow=True).status_code == 200, page
    assert (invoice.total, json.loads(invoice.document)["total"]) == (Decimal("210.02"), "210.02")
    assert left_in_sessions(pooled) == [([], 0, 0, 0)] * POOL


def test_a_backup_through_a_pooler_is_refused_in_one_line(
    pooled: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        call_command("backup", "--out", str(tmp_path / "b.dump"))
    assert (stop.value.code, "DATABASE_URL leads to a pooler of connections" in capsys.readouterr().err) == (2, True)
    assert list(tmp_path.iterdir()) == []
