"""What `up` started it also mends: whichever process is killed, all serve again, and nothing acknowledged is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from billing.local.embedded import attach, client
from billing.local.embedded.layout import Layout, read_state
from tests.cli import PROJECT, Home
from tests.factories.running import PROCESSES, Running, kill_and_await, records_lost_and_double
from tests.factories.servers import until


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


@pytest.mark.timeout(1800)
def test_whatever_is_killed_serves_again_and_no_acknowledged_record_is_lost_or_double(running: Running) -> None:
    for name in PROCESSES:
        kill_and_await(running, name, limit=300)  # other tests run beside this one
    running.stopping.set()
    running.load.join()
    assert records_lost_and_double(running) == (0, 0)
    assert "postgres of" in running.ends()
    assert running.process.returncode == 0


def test_a_server_that_keeps_ending_is_started_again_later_and_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six times within a minute: whoever is attached says so, and goes on."""
    monkeypatch.setattr(client, "_LONGEST_BACK_OFF_SECONDS", 3.0)
    layout = Layout(tmp_path / "home")
    with attach(tmp_path / "home", need=["broker"]) as services:
        services.keep_up()
        seen = set[int]()

        def runs_anew() -> bool:
            return read_state(layout.state("broker")).get("pid") not in {None, *seen}

        for _ in range(6):
            until(runs_anew, 120)
            seen.add(pid := read_state(layout.state("broker"))["pid"])
            os.kill(pid, signal.SIGKILL)
        until(runs_anew, 120)
        with redis.Redis.from_url(services.broker_url) as broker:
            assert broker.ping()
    said = f"broker of {tmp_path / 'home'} has ended: starting it again"
    assert capfd.readouterr().err.splitlines() == [*[said] * 3, *(f"{said} in {pause} s" for pause in (2, 3, 3))]


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
