"""The primary is lost under ingest and in the middle of a close: what was acknowledged is there once, and work goes on.

Two servers of Debian, the second follows synchronously; nobody of ours is started again or configured anew.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import httpx
import psycopg
import pytest

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from billing.usage.epochs import USAGE_LOCK
from tests.factories import token_record
from tests.factories.servers import until
from tests.operations.peers import home_of
from tests.operations.postgres import ACCOUNT, Server, installed

SENDERS = (0, 1_000_000)
"""The number of the first record of each."""
SERVES_AGAIN_S = 30
HOSTS = "target_session_attrs=read-write&connect_timeout=3&tcp_user_timeout=10000"


@dataclass
class Sender:
    """Reports one record after another until told to end; one without an answer is sent again, as gateways do."""

    url: str
    token: str
    first: int
    over: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[int] = field(default_factory=list)
    repeated: int = 0
    last_answer: float = 0.0

    def run(self) -> None:
        number = self.first
        with httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=20) as client:
            while not self.over.is_set():
                with suppress(httpx.TransportError):
                    answer = client.post(f"{self.url}/api/v1/usage/tokens", json=[token_record(number)])
                    if answer.status_code == httpx.codes.OK:
                        self.acknowledged.append(number)
                        self.repeated += answer.json()["duplicates"]
                        self.last_answer = time.monotonic()
                        number += 1
                        continue
                time.sleep(0.1)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary that acknowledges what its standby has on disk, and that standby."""
    with home_of(ACCOUNT) as home:
        primary = Server(installed()[15], home, "primary")
        standby = Server(installed()[15], home, "standby")
        primary.create()
        primary.start()
        try:
            primary.command("CREATE DATABASE suanpan")
            primary.run(
                "pg_basebackup", "--pgdata", str(standby.data), "--write-recovery-conf", "--checkpoint=fast",
                "--dbname", f"host=127.0.0.1 port={primary.port} user=suanpan application_name=standby",
            )  # fmt: skip
            standby.start()
            primary.command("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            primary.command("SELECT pg_reload_conf()")
            until(lambda: primary.ask("SELECT sync_state FROM pg_stat_replication") == [("sync",)], 60)
            yield primary, standby
        finally:
            standby.end()
            primary.end()


def environment(pair: tuple[Server, Server], home: Path) -> dict[str, str]:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in pair)
    return {
        **os.environ, "DATABASE_URL": f"postgresql://suanpan@{hosts}/suanpan?{HOSTS}", "BROKER_URL": "redis://127.0.0.1:1/0",
        "SUANPAN_HOME": str(home), "DJANGO_SETTINGS_MODULE": "billing.settings.base", "WEB_WORKERS": "1",
        "PYTHONPATH": str(PROJECT),
    }  # fmt: skip


SET_UP = """
import sys, django; django.setup()
from pathlib import Path
from django.core.management import call_command
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, ingest_allocations
call_command("migrate", verbosity=0, interactive=False)
apply(Path(sys.argv[1]))
ingest_allocations(allocation_record())
print(api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1])
"""


def python(where: dict[str, str], *arguments: str, status: int | None = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments], cwd=PROJECT, env=where, capture_output=True, text=True, timeout=240, check=False
    )
    assert status is None or done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_nothing_acknowledged_is_lost_or_doubled_and_it_serves_within_half_a_minute(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    primary, standby = pair
    where = environment(pair, tmp_path)
    token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
    port = free_port()
    web = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)
    senders = [Sender(f"http://127.0.0.1:{port}", token, first) for first in SENDERS]
    threads = [threading.Thread(target=sender.run) for sender in senders]
    try:
        for thread in threads:
            thread.start()
        until(lambda: all(len(sender.acknowledged) >= 50 for sender in senders))
        with close_that_waits(primary, where) as close:
            primary.end(signal.SIGQUIT)  # nothing more is written or answered
        lost_at = time.monotonic()
        standby.run("pg_ctl", "promote", "-D", str(standby.data))
        until(lambda: all(sender.last_answer > lost_at for sender in senders), SERVES_AGAIN_S)
        assert close.wait(timeout=60) != 0
        until(lambda: all(len(sender.acknowledged) >= 150 for sender in senders))
    finally:
        for sender in senders:
            sender.over.set()
        for thread in threads:
            thread.join()
        web.kill()
        web.wait()
    acknowledged = sum(len(sender.acknowledged) for sender in senders)
    stored = standby.ask("SELECT count(*), count(DISTINCT id), sum(input_tokens)::bigint FROM token_entry", "suanpan")
    assert stored == [(acknowledged, acknowledged, 1000 * acknowledged)]
    python(where, "manage.py", "period_close", "2026-10")
    (invoice,) = json.loads(python(where, "manage.py", "invoice_issue", "2026-10", "--json"))["invoices"]
    amounts = {line["token_class"] or "gpu": line["quantity"] for line in invoice["lines"]}
    assert amounts["gpu"] == "20.962222"
    assert amounts["output"] == str(Decimal(acknowledged * 100).scaleb(-6))


@contextmanager
def close_that_waits(primary: Server, where: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A close that is under way: its cut-off waits for an ingest, which ends with the primary."""
    blocker = psycopg.connect(primary.url("suanpan"), autocommit=True)
    blocker.execute("SELECT pg_advisory_lock_shared(%s)", [USAGE_LOCK])
    close = subprocess.Popen(
        [sys.executable, "-P", "manage.py", "period_close", "2026-10"], env=where, cwd=PROJECT, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    waiting = f"""SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND objid = {USAGE_LOCK} AND mode = 'ExclusiveLock' AND NOT granted"""
    until(lambda: primary.ask(waiting) == [(1,)])
    yield close
    blocker.close()
