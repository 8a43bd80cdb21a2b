"""Clocks that are 5 minutes off, one of which is set back under ingest: nothing is lost or doubled, a close cuts by the
database, and metric, alert and banner say so. libfaketime gives a process its clock.
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from tests.factories import token_record
from tests.factories.servers import until
from tests.operations.gateways import SET_UP, Sender, more_acknowledged, python
from tests.operations.postgres import installed, new_server
from tests.prometheus.alerts import firing, watching

OFF_S = 300
ALERT = "SuanpanClockDiffers"
CLOCK = """
import django; django.setup()
from django.utils import timezone
from billing.monitoring.degraded import degraded
print(["%s %+d" % (one.kind, round(one.seconds)) for one in degraded(timezone.now()) if one.kind == "clock"])
"""
STORED = "SELECT count(*), count(DISTINCT id), sum(input_tokens)::bigint FROM token_entry"


class Clock:
    """A clock that is ahead by some seconds, for processes of ours; it can be set while they run."""

    def __init__(self, file: Path, ahead: int) -> None:
        self.file = file
        self.set(ahead)
        libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not libraries:
            pytest.fail("no libfaketime on this machine: apt-get install faketime")
        self.environment = {
            "LD_PRELOAD": str(libraries[0]), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # what measures durations is left as it is
        }  # fmt: skip

    def set(self, ahead: int) -> None:
        """Within a second."""
        self.file.write_text(f"{ahead:+d}s\n")


@contextmanager
def web(where: dict[str, str]) -> Iterator[str]:
    """The address of a web process."""
    port = free_port()
    process = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(url))
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=10).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def clock_ahead_seconds(url: str) -> float:
    found = re.search(r"(?m)^suanpan_clock_ahead_seconds (\S+)$", httpx.get(f"{url}/metrics", timeout=60).text)
    assert found is not None
    return float(found[1])


def test_web_processes_with_clocks_that_are_off_lose_and_double_nothing_and_the_close_cuts_by_the_database(
    tmp_path: Path,
) -> None:
    with new_server(installed()[15]) as server, ExitStack() as parts:
        server.command("CREATE DATABASE suanpan")
        where = {
            **os.environ, "DATABASE_URL": server.url("suanpan"), "BROKER_URL": "redis://127.0.0.1:1/0",
            "SUANPAN_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "billing.settings.base", "WEB_WORKERS": "1",
            "PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
        clocks = [Clock(tmp_path / name, seconds) for name, seconds in (("ahead", OFF_S), ("behind", -OFF_S))]
        ahead, behind = (parts.enter_context(web(where | clock.environment)) for clock in clocks)
        assert abs(clock_ahead_seconds(ahead) - OFF_S) < 5
        assert abs(clock_ahead_seconds(behind) + OFF_S) < 5
        assert re.fullmatch(r"\['clock \+(299|300|301)'\]\n", python(where | clocks[0].environment, "-c", CLOCK))
        assert python(where, "-c", CLOCK) == "[]\n"
        prometheus = parts.enter_context(watching(tmp_path / "prometheus", ahead, behind))
        until(lambda: ALERT in firing(prometheus))

        senders = [Sender(url, token, first) for url, first in ((ahead, 0), (behind, 1_000_000))]
        threads = [threading.Thread(target=sender.run) for sender in senders]
        for thread in threads:
            thread.start()
        more_acknowledged(senders, 100)
        clocks[0].set(0)  # it is set back under ingest
        until(lambda: abs(clock_ahead_seconds(ahead)) < 5)
        assert ALERT in firing(prometheus)  # the other is still off
        more_acknowledged(senders, 50)
        for sender in senders:
            sender.over.set()
        for thread in threads:
            thread.join()
        both = [token_record(number) for number in range(2_000_000, 2_000_050)]  # sent again at the other process
        assert [report(url, token, both) for url in (ahead, behind)] == [(50, 0), (0, 50)]
        taken = sum(len(sender.acknowledged) for sender in senders) + 50
        assert server.ask(STORED, "suanpan") == [(taken, taken, 1000 * taken)]
        assert sum(sender.repeated for sender in senders) == 0

        # By the clock of the close, what `ahead` took at first is ten minutes in the future.
        python(where | clocks[1].environment, "manage.py", "period_close", "2026-10")
        late = [token_record(number) for number in range(3_000_000, 3_000_007)]
        assert report(behind, token, late) == (7, 0)
        epochs = server.ask("SELECT epoch, count(*) FROM token_entry GROUP BY 1 ORDER BY 1", "suanpan")
        assert epochs == [(0, taken), (1, 7)]
        (invoice,) = json.loads(python(where, "manage.py", "invoice_issue", "2026-10", "--json"))["invoices"]
        amounts = {line["token_class"] or "gpu": line["quantity"] for line in invoice["lines"]}
        assert amounts["gpu"] == "20.962222"
        assert amounts["output"] == str(Decimal(taken * 100).scaleb(-6))
        python(where, "manage.py", "period_verify", "2026-10")
        clocks[1].set(0)
        until(lambda: ALERT not in firing(prometheus))


def report(url: str, token: str, records: list[dict[str, object]]) -> tuple[int, int]:
    """How many were new, and how many were there."""
    head = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{url}/api/v1/usage/tokens", json=records, headers=head, timeout=60)
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()["accepted"], answer.json()["duplicates"]
