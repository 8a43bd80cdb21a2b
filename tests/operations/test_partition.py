"""The network to the database fails without a word, under ingest and in the middle of a close: what was acknowledged is
there once, the alert fires until it is back, and nobody waits for a lock of what was cut off.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path

import httpx

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from tests.factories.servers import until
from tests.operations.gateways import SET_UP, Sender, more_acknowledged, python
from tests.operations.network import Cable, cable
from tests.operations.peers import home_of
from tests.operations.postgres import ACCOUNT, Server, installed
from tests.prometheus.alerts import firing, scraped, watching

ALERT = "SuanpanDatabaseDown"
SERVES_AGAIN_S = 30
LIVENESS = {
    "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3", "tcp_user_timeout": "20000",
}  # fmt: skip
"""As docs/operations/scale.md says: the server ends connections to a host that vanished, an answer under way or not."""
STORED = "SELECT count(*), count(DISTINCT id), sum(input_tokens)::bigint FROM token_entry"
CUT_OFF = """
import django; django.setup()
from billing.usage.epochs import ingest_lock_exclusive
from django.db import transaction
with transaction.atomic():
    ingest_lock_exclusive()
    print("locked", flush=True)
    input()
"""
"""A close that has the lock which reports wait for, and is cut off with it. Its kernel may never tell the server."""


@contextmanager
def server(link: Cable) -> Iterator[Server]:
    """A server at the other end, which trusts this host."""
    with home_of(ACCOUNT) as home:
        found = Server(installed()[15], home)
        found.create()
        with (found.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {link.here}/32 trust\n")
        found.host, found.prefix = link.there, link.inside()
        found.start(**LIVENESS)
        try:
            found.command("CREATE DATABASE suanpan")
            yield found
        finally:
            found.end()


def test_nothing_is_lost_or_doubled_and_reports_are_taken_half_a_minute_after_the_network_is_back(tmp_path: Path) -> None:
    with cable() as link, server(link) as database, ExitStack() as parts:
        where = {
            **os.environ, "DATABASE_URL": database.url("suanpan"), "BROKER_URL": "redis://127.0.0.1:1/0",
            "SUANPAN_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "billing.settings.base", "WEB_WORKERS": "1",
            "PYTHONPATH": str(PROJECT),
        }  # fmt: skip
        token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
        url = f"http://127.0.0.1:{(port := free_port())}"
        web = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)
        senders = [Sender(url, token, first) for first in (0, 1_000_000)]
        threads = [threading.Thread(target=sender.run) for sender in senders]
        try:
            for thread in threads:
                thread.start()
            more_acknowledged(senders, 50)
            prometheus = parts.enter_context(watching(tmp_path / "prometheus", url))
            until(lambda: scraped(prometheus))
            close = locked(where)
            link.pull()
            until(lambda: ALERT in firing(prometheus))
            assert httpx.get(f"{url}/readyz", timeout=60).status_code == httpx.codes.SERVICE_UNAVAILABLE
            close.kill()  # whose end the server does not see
            close.communicate()
            link.plug_in()
            back_at = time.monotonic()
            until(lambda: all(sender.last_answer > back_at for sender in senders), SERVES_AGAIN_S)
            assert httpx.get(f"{url}/readyz", timeout=60).status_code == httpx.codes.OK
            more_acknowledged(senders, 50)
            until(lambda: ALERT not in firing(prometheus))
        finally:
            parts.close()
            for sender in senders:
                sender.over.set()
            for thread in threads:
                thread.join()
            web.kill()
            web.wait()
        acknowledged = sum(len(sender.acknowledged) for sender in senders)
        assert database.ask(STORED, "suanpan") == [(acknowledged, acknowledged, 1000 * acknowledged)]
        python(where, "manage.py", "period_close", "2026-10")
        (invoice,) = json.loads(python(where, "manage.py", "invoice_issue", "2026-10", "--json"))["invoices"]
        amounts = {line["token_class"] or "gpu": line["quantity"] for line in invoice["lines"]}
        assert (amounts["gpu"], amounts["output"]) == ("20.962222", str(Decimal(acknowledged * 100).scaleb(-6)))


def locked(where: dict[str, str]) -> "subprocess.Popen[str]":
    """A process that has the lock of a close."""
    argv = [sys.executable, "-P", "-c", CUT_OFF]
    close = subprocess.Popen(argv, env=where, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert close.stdout is not None
    assert close.stdout.readline() == "locked\n"
    return close
