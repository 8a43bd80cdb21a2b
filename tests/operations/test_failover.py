"""The primary is lost under ingest and in the middle of a close: what was acknowledged is there once, and work goes on; the
alert fires until the standby is promoted.

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
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import httpx
import psycopg
import pytest

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from billing.usage.epochs import USAGE_LOCK
from tests.factories.servers import until
from tests.operations.gateways import SET_UP, Sender, more_acknowledged, python
from tests.operations.postgres import Server, streaming_pair
from tests.prometheus.alerts import firing, scraped, watching

SENDERS = (0, 1_000_000)
"""The number of the first record of each."""
SERVES_AGAIN_S = 30
ALERT = "SuanpanDatabaseDown"
HOSTS = "target_session_attrs=read-write"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    with streaming_pair() as servers:
        yield servers


def environment(pair: tuple[Server, Server], home: Path) -> dict[str, str]:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in pair)
    return {
        **os.environ, "DATABASE_URL": f"postgresql://suanpan@{hosts}/suanpan?{HOSTS}", "BROKER_URL": "redis://127.0.0.1:1/0",
        "SUANPAN_HOME": str(home), "DJANGO_SETTINGS_MODULE": "billing.settings.base", "WEB_WORKERS": "1",
        "PYTHONPATH": str(PROJECT),
    }  # fmt: skip


def test_nothing_acknowledged_is_lost_or_doubled_and_it_serves_within_half_a_minute(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    primary, standby = pair
    where = environment(pair, tmp_path)
    token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
    port = free_port()
    web = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)
    url = f"http://127.0.0.1:{port}"
    senders = [Sender(url, token, first) for first in SENDERS]
    threads = [threading.Thread(target=sender.run) for sender in senders]
    try:
        for thread in threads:
            thread.start()
        more_acknowledged(senders, 50)
        with watching(tmp_path / "prometheus", url) as prometheus:
            until(lambda: scraped(prometheus))
            with close_that_waits(primary, where) as close:
                primary.end(signal.SIGQUIT)  # nothing more is written or answered
            until(lambda: ALERT in firing(prometheus))
            promoted_at = time.monotonic()
            standby.run("pg_ctl", "promote", "-D", str(standby.data))
            until(lambda: all(sender.last_answer > promoted_at for sender in senders), SERVES_AGAIN_S)
            assert httpx.get(f"{url}/readyz", timeout=30).status_code == httpx.codes.OK
            assert close.wait(timeout=60) != 0
            more_acknowledged(senders, 100)
            until(lambda: ALERT not in firing(prometheus))
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
