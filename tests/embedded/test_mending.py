"""What `up` started it also mends: whichever process is killed, all serve again, and nothing acknowledged is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from billing.local.embedded import attach
from billing.local.embedded.layout import Layout, read_json
from billing.local.embedded.probes import valkey_answers
from billing.local.embedded.valkey import PASSWORD
from billing.local.process_list import free_port
from billing.runtime.home import secret
from tests.cli import PROJECT, Home
from tests.factories import token_record

MENDED_SECONDS = 30.0


class Running:
    """An installation under load: one gateway that reports record after record, and notes what was acknowledged."""

    def __init__(self, home: Home) -> None:
        self.home, self.port = home, free_port()
        self.process = home.start("up", "--port", str(self.port))
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.acknowledged: list[int] = []
        self.stopping = threading.Event()
        self.load = threading.Thread(target=self._report)

    def starts(self) -> None:
        self.await_ready(120)
        made = self.home.run("token_create", "gateway", "--scope", "usage:write", "--scope", "usage:read", "--by", "admin")
        self.headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        self.load.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.lines.extend(self.process.stdout)

    def _report(self) -> None:
        number = 0
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=self.headers, timeout=5) as client:
            while not self.stopping.wait(0.02):
                number += 1
                self.send(client, number)

    def send(self, client: httpx.Client, number: int) -> None:
        """As a gateway does: until it is acknowledged."""
        while not self.stopping.is_set():
            with contextlib.suppress(httpx.TransportError):
                answer = client.post("/api/v1/usage/tokens", json=[token_record(number)])
                if answer.status_code == 200:
                    assert answer.json()["conflicts"] == 0
                    self.acknowledged.append(number)
                    return
            time.sleep(0.1)

    def await_ready(self, seconds: float) -> None:
        """Until it serves, and what is reported is acknowledged."""
        deadline, seen = time.monotonic() + seconds, len(self.acknowledged)
        while True:
            assert self.process.poll() is None, "".join(self.lines[-40:])
            with contextlib.suppress(httpx.TransportError):
                ready = httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2).status_code == 200
                if ready and (not self.load.is_alive() or len(self.acknowledged) > seen + 5):
                    return
            assert time.monotonic() < deadline, "".join(self.lines[-40:])
            time.sleep(0.1)

    def services(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.home.path / "home" / "run" / "services.json").read_text())
        return state

    def part(self, words: str) -> psutil.Process:
        """The process of `up` whose command says so, not the guard in front of it."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                line = " ".join(process.cmdline())
                if words in line and "orphan_guard" not in line:
                    return process
        raise AssertionError(f"no process {words!r}")

    def ends(self) -> str:
        self.stopping.set()
        if self.load.ident:
            self.load.join()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.reader.join()
        return "".join(self.lines)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(Home(tmp_path))
    try:
        found.starts()
        yield found
    finally:
        if found.process.poll() is None:
            found.ends()


KILLED: dict[str, Callable[[Running], int]] = {
    "postgres": lambda running: running.services()["pids"]["postgres"],
    "broker": lambda running: running.services()["pids"]["broker"],
    "web": lambda running: running.part("billing.settings.serve").pid,
    "worker": lambda running: running.part("worker --concurrency").pid,
    "scheduler": lambda running: running.part(" beat ").pid,
    "keeper": lambda running: running.services()["keeper"],
}


def test_whatever_is_killed_serves_again_and_no_acknowledged_record_is_lost(running: Running) -> None:
    for name, pid_of in KILLED.items():
        pid = pid_of(running)
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + MENDED_SECONDS
        running.await_ready(MENDED_SECONDS)
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError, OSError, KeyError, ValueError):
                if pid_of(running) != pid:
                    break
            time.sleep(0.2)
        else:
            raise AssertionError(f"{name} was not started again")
    running.stopping.set()
    running.load.join()
    told = running.home.run("import_usage", "tokens", str(_file(running)), "--json").stdout
    (answer,) = json.loads(told)["files"]
    assert (answer["accepted"], answer["duplicates"], answer["conflicts"]) == (0, len(running.acknowledged), 0)
    assert "the keeper of" in running.ends()
    assert running.process.returncode == 0


def _file(running: Running) -> Path:
    """Everything that was acknowledged, once more: all of it is known."""
    fields = list(token_record(1))
    rows = [",".join(str(token_record(number)[name]) for name in fields) for number in sorted(running.acknowledged)]
    path = running.home.path / "again.csv"
    path.write_text("\n".join([",".join(fields), *rows]) + "\n")
    return path


def test_a_server_that_keeps_ending_is_started_again_later_and_later(tmp_path: Path) -> None:
    """Six times within a minute: the keeper says so, and goes on."""
    layout = Layout(tmp_path / "home")
    with attach(tmp_path / "home", need=["broker"]) as services:
        seen, deadline = set[int](), time.monotonic() + 60
        while len(seen) < 6:
            pid = (read_json(layout.services) or {})["pids"]["broker"]
            if pid not in seen and psutil.pid_exists(pid):
                seen.add(pid)
                os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        port = int(services.broker_url.rpartition(":")[2].partition("/")[0])
        while not valkey_answers(port, secret(PASSWORD, tmp_path / "home")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    log = layout.log("keeper").read_text()
    waits = [line.rpartition(" in ")[2] for line in log.splitlines() if " starts again in " in line]
    assert waits == ["2 s", "4 s", "8 s"]
    assert "giving up" not in log


def test_two_commands_on_a_fresh_home_at_once_both_find_the_schema(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = [
        subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), *command], env=home.environment, cwd=home.path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for command in (["migrate", "--no-input"], ["role", "list"], ["migrate", "--no-input"])
    ]  # fmt: skip
    said = [process.communicate(timeout=300)[0] for process in first]
    assert [process.returncode for process in first] == [0, 0, 0], said
    assert "already exists" not in "".join(said)
