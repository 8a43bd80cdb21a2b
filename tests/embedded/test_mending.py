"""What `up` started it also mends: whichever process is killed, all serve again, and nothing acknowledged is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from billing.local.embedded import attach
from billing.local.embedded.layout import Layout, read_json
from billing.local.embedded.probes import valkey_answers
from billing.local.embedded.valkey import PASSWORD
from billing.runtime.home import secret
from tests.cli import PROJECT, Home
from tests.factories.running import PROCESSES, Running, kill_and_await, records_lost_and_double


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(Home(tmp_path))
    try:
        found.set_up()
        found.starts()
        yield found
    finally:
        if found.process.poll() is None:
            found.ends()


def test_whatever_is_killed_serves_again_and_no_acknowledged_record_is_lost_or_double(running: Running) -> None:
    for name in PROCESSES:
        kill_and_await(running, name)
    running.stopping.set()
    running.load.join()
    assert records_lost_and_double(running) == (0, 0)
    assert "the keeper of" in running.ends()
    assert running.process.returncode == 0


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
