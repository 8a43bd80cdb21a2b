"""A standby is promoted that lacks names of consumers whose numbers web processes remember."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from tests.factories import token_record
from tests.factories.servers import until
from tests.operations.gateways import SET_UP, python
from tests.operations.postgres import Server, streaming_pair

LOST = 40
"""Consumers; PostgreSQL notes the numbers that it gives 32 at a time, and goes on behind them."""
MANY = 100
"""Records that go by COPY; a few go with one statement."""
BY_CONSUMER = """SELECT d.consumer, count(*), sum(e.input_tokens)::bigint
    FROM token_entry e LEFT JOIN token_dimension d ON d.id = e.dimension GROUP BY 1 ORDER BY 1"""


def record(number: int, consumer: str) -> dict[str, Any]:
    return token_record(number, consumer=consumer)


def of_lost(first: int, number: int) -> list[dict[str, Any]]:
    return [record(first + place, f"lost-{place % LOST:02}") for place in range(number)]


def test_tokens_stay_with_their_consumers_when_a_promoted_server_lacks_their_names(tmp_path: Path) -> None:
    with streaming_pair() as (primary, standby):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, standby))
        where = {
            **os.environ, "DATABASE_URL": f"postgresql://suanpan@{hosts}/suanpan?target_session_attrs=read-write",
            "BROKER_URL": "redis://127.0.0.1:1/0", "SUANPAN_HOME": str(tmp_path), "WEB_WORKERS": "1",
            "DJANGO_SETTINGS_MODULE": "billing.settings.base", "PYTHONPATH": str(PROJECT),
        }  # fmt: skip
        token = python(where, "-c", SET_UP, str(tmp_path)).splitlines()[-1]
        fresh, remembers = Web(where, token), Web(where, token)
        try:
            remembers.report([record(1, "known")])
            cut_off(primary, standby)
            remembers.report(of_lost(1000, LOST))
            primary.end(signal.SIGQUIT)
            standby.run("pg_ctl", "promote", "-D", str(standby.data))
            until(lambda: standby.ask("SELECT pg_is_in_recovery()") == [(False,)])
            fresh.report([record(2000 + place, f"new-{place:02}") for place in range(LOST)])
            remembers.report([record(3000, "lost-39")])
            remembers.report(of_lost(4000, MANY))
        finally:
            fresh.end()
            remembers.end()
        expected = {"known": 1, **{f"new-{place:02}": 1 for place in range(LOST)}}
        expected |= {f"lost-{place:02}": 3 if place < MANY - 2 * LOST else 2 for place in range(LOST)}
        expected["lost-39"] += 1
        stored = {consumer: (number, tokens) for consumer, number, tokens in standby.ask(BY_CONSUMER, "suanpan")}
        assert stored == {consumer: (number, 1000 * number) for consumer, number in expected.items()}


def cut_off(primary: Server, standby: Server) -> None:
    """From here on the standby gets nothing, and the primary acknowledges without it."""
    standby.command("ALTER SYSTEM SET primary_conninfo = ''")
    standby.command("SELECT pg_reload_conf()")
    until(lambda: standby.ask("SELECT count(*) FROM pg_stat_wal_receiver") == [(0,)])
    primary.command("ALTER SYSTEM SET synchronous_standby_names = ''")
    primary.command("SELECT pg_reload_conf()")


class Web:
    """A web process of its own, with one worker."""

    def __init__(self, where: dict[str, str], token: str) -> None:
        port = free_port()
        self.url, self._headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}
        self._process = subprocess.Popen(server_argv(port), env=where, cwd=PROJECT)

    def report(self, records: list[dict[str, Any]]) -> None:
        """Until it is acknowledged, as gateways do."""
        until(lambda: self._accepted(records) == len(records))

    def _accepted(self, records: list[dict[str, Any]]) -> int:
        try:
            answer = httpx.post(f"{self.url}/api/v1/usage/tokens", json=records, headers=self._headers, timeout=20)
        except httpx.TransportError:
            return 0
        return int(answer.json()["accepted"]) if answer.status_code == httpx.codes.OK else 0

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
