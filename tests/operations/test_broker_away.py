"""The broker is away under ingest, and a close is asked for meanwhile: reports are taken, and the close follows by itself.

It is away for SUANPAN_TEST_BROKER_AWAY_SECONDS, 15 where nothing is said; ten minutes are tried by hand before a release,
and with the rules of alerts as they are installed.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from billing.local.process_list import BIN, free_port, server_argv
from billing.runtime.home import PROJECT
from tests.factories.servers import broker, until
from tests.operations.gateways import SET_UP, Sender, python
from tests.operations.postgres import installed, new_server
from tests.prometheus.alerts import firing, scraped, watching

AWAY_S = float(os.environ.get("SUANPAN_TEST_BROKER_AWAY_SECONDS", "15"))
DONE_AGAIN_S = 30
ALERT, LASTS_S = "SuanpanBrokerDown", 300
"""The alert, and how long the broker has to be away for it where rules are as they are installed."""
REQUEST = """
import django; django.setup()
from billing.closing.services.operations import operation_request
from billing.closing.tasks import operation_wake
print(operation_request(kind="close", month="2026-10", actor="finance", wake=operation_wake).status)
"""
STATUS = "SELECT status FROM invoices_operation"


@contextmanager
def started(where: dict[str, str], *argv: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(list(argv), env=where, cwd=PROJECT, start_new_session=True)
    try:
        yield process
        assert process.poll() is None, argv
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(AWAY_S + 600)
def test_reports_are_taken_while_the_broker_is_away_and_a_close_follows_when_it_is_back(tmp_path: Path) -> None:
    with new_server(installed()[15]) as server, ExitStack() as parts:
        server.command("CREATE DATABASE suanpan")
        port, place = free_port(), free_port()
        where = {
            **os.environ, "DATABASE_URL": server.url("suanpan"), "BROKER_URL": f"redis://127.0.0.1:{place}/0",
            "SUANPAN_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "billing.settings.base", "WEB_WORKERS": "1",
            "PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
        celery = (str(BIN / "celery"), "--quiet", "-A", "billing.settings.celery")
        url = f"http://127.0.0.1:{port}"
        sender = Sender(url, token, 0)
        with broker(place):
            parts.enter_context(started(where, *server_argv(port)))
            parts.enter_context(started(where, *celery, "worker", "--concurrency", "1", "--loglevel", "error"))
            beat = ("beat", "--schedule", str(tmp_path / "beat"), "--pidfile=", "--loglevel", "error")
            parts.enter_context(started(where, *celery, *beat))
            thread = threading.Thread(target=sender.run)
            thread.start()
            parts.callback(thread.join)
            parts.callback(sender.over.set)
            until(lambda: len(sender.acknowledged) >= 50)
            until(lambda: httpx.get(f"{url}/readyz", timeout=30).json()["broker"] == "ok")
            prometheus = parts.enter_context(watching(tmp_path / "prometheus", url, shortened=AWAY_S < LASTS_S))
            until(lambda: scraped(prometheus))
            assert ALERT not in firing(prometheus)
        back_at, longest, fired = time.monotonic() + AWAY_S, 0.0, False
        assert python(where, "-c", REQUEST).strip() == "pending"
        while time.monotonic() < back_at or not fired:
            longest = max(longest, time.monotonic() - sender.last_answer)
            fired = fired or ALERT in firing(prometheus)
            assert time.monotonic() < back_at + 60, firing(prometheus)
            time.sleep(0.05)
        ready = httpx.get(f"{url}/readyz", timeout=30)
        assert (ready.status_code, ready.json()["broker"], server.ask(STATUS, "suanpan")) == (
            200,
            "unreachable",
            [("pending",)],
        )
        assert longest < 5  # the broker takes nothing from a report
        with broker(place):
            until(lambda: server.ask(STATUS, "suanpan") == [("done",)], DONE_AGAIN_S)
            until(lambda: ALERT not in firing(prometheus))
            sender.over.set()
            thread.join()
        acknowledged = len(sender.acknowledged)
        stored = server.ask("SELECT count(*), count(DISTINCT id), sum(input_tokens)::bigint FROM token_entry", "suanpan")
        assert (stored, sender.repeated) == ([(acknowledged, acknowledged, 1000 * acknowledged)], 0)
        python(where, "manage.py", "period_verify", "2026-10")
