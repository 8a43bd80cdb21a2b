"""A Suanpan of its own for a trial: a fresh home, `manage.py up`, tokens, and the sums of its ledger."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.cli import PROJECT, Home

LEDGER = """
import json
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute('''SELECT d.source, d.consumer, coalesce(e.attributes->>'usage_source', 'provider'), d.status,
                             e.attributes->>'call_id', e.input_tokens, e.cache_read_input_tokens, e.output_tokens,
                             e.reasoning_output_tokens FROM token_event e JOIN token_dimension d ON d.id = e.dimension''')
    print(json.dumps(cursor.fetchall()))
    cursor.execute("SELECT door, reason, error FROM usage_quarantinedrecord")
    print(json.dumps(cursor.fetchall()))
"""

DETAILS = """
import json
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute('''SELECT d.consumer, d.model, coalesce(e.attributes->>'usage_source', 'provider'), e.input_tokens,
                             e.cache_read_input_tokens, e.output_tokens, x.service_tier, t.tags
                      FROM token_event e JOIN token_dimension d ON d.id = e.dimension
                      LEFT JOIN token_detail x ON x.key = e.key LEFT JOIN token_tag_set t ON t.id = x.tag_set
                      WHERE d.source = %s AND d.status = %s''', [SOURCE, "success"])
    print(json.dumps(cursor.fetchall()))
    cursor.execute("SELECT door, reason, error, record FROM usage_quarantinedrecord")
    print(json.dumps(cursor.fetchall()))
"""

RUNS = """
import json
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute('''SELECT source, sum(last - first + 1)::int, count(*) - count(DISTINCT (source, run))
                      FROM token_sequence_island GROUP BY source''')
    print(json.dumps(cursor.fetchall()))
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until(ready: Any, what: str, seconds: float) -> None:
    """Wait until something is so.  Raises RuntimeError when it takes too long."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} took more than {seconds} s")
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False


class Installation:
    """Started on entering, stopped with everything it started on leaving."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._home = Home(folder)
        self.port = free_port()

    def __enter__(self) -> "Installation":
        self._log = (self._home.path / "up.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), "up", "--port", str(self.port)], env=self._home.environment,
            stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        until(lambda: answers(f"http://127.0.0.1:{self.port}/readyz"), "the start of Suanpan", 180)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._log.close()

    def token(self, source: str) -> str:
        """A token that may report usage for one source."""
        made = self._home.run("token_create", source, "--scope", "usage:write", "--source", source, "--json")
        return str(json.loads(made.stdout)["token"])

    def ledger(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Every event (source, consumer, usage source, status, call id, input, cached, output, reasoning); quarantine."""
        lines = self._home.run("shell", "-v0", "-c", LEDGER).stdout.splitlines()
        return json.loads(lines[-2]), json.loads(lines[-1])

    def apply(self, setup: str) -> None:
        """Apply a set-up file."""
        path = self._home.path / "setup.yaml"
        path.write_text(setup, encoding="utf-8")
        self._home.run("apply", str(path))

    def details(self, source: str) -> tuple[list[list[Any]], list[list[Any]]]:
        """Successes of a source (consumer, model, usage source, input, cached, output, tier, tags); quarantine."""
        lines = self._home.run("shell", "-v0", "-c", f"SOURCE = {source!r}\n{DETAILS}").stdout.splitlines()
        return json.loads(lines[-2]), json.loads(lines[-1])

    def runs(self) -> list[list[Any]]:
        """Of every source that numbers its records: how many numbers arrived, and how many gaps are between them."""
        lines = self._home.run("shell", "-v0", "-c", RUNS).stdout.splitlines()
        runs: list[list[Any]] = json.loads(lines[-1])
        return runs
