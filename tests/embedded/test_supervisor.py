"""All parts run, or none; and nothing is left of them, however the supervisor ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from billing.runtime.home import PROJECT

from .conftest import kill_all, survivors

SUPERVISED = Path(__file__).with_name("supervised.py")
Supervised = subprocess.Popen[str]

TREE = """
from celery import Celery
tasks = Celery("tree", broker="memory://")
async def web(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"here"})
"""


@pytest.fixture
def supervise() -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(*arguments: object) -> Supervised:
        command = [sys.executable, str(SUPERVISED), *map(str, arguments)]
        started.append(
            subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**os.environ, "PYTHONPATH": str(PROJECT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            kill_all([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
        process.wait()
        process.stdout.close()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree.py").write_text(TREE)
    return tmp_path


def parts_of(supervised: Supervised, at_least: int) -> list[psutil.Process]:
    """Every process below the supervisor, once there are as many as expected."""
    deadline = time.monotonic() + 60
    while len(found := psutil.Process(supervised.pid).children(recursive=True)) < at_least:
        assert time.monotonic() < deadline, [process.cmdline() for process in found]
        time.sleep(0.05)
    return found


def await_web(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert time.monotonic() < deadline, "the web part does not answer"
        time.sleep(0.05)


def said(supervised: Supervised) -> str:
    return supervised.communicate(timeout=20)[0]


def test_lines_carry_the_name_of_their_part(supervise):
    supervised = supervise("sleeping")
    assert {supervised.stdout.readline() for _ in range(2)} == {"one   | serving\n", "other | serving\n"}


def test_a_part_that_keeps_failing_is_reported_with_its_last_words_and_ends_everything(supervise):
    supervised = supervise("failing")
    text = said(supervised)
    assert supervised.returncode == 1
    report = "*      | frail failed: exit status 3. Its last lines:\n*      |     about to fail\n"
    assert text.count(report + "*      |     no such table: ledger\n") == 3
    assert text.count("starting frail again") == 2
    assert "frail failed 3 times within 60 s: stopping everything" in text


def test_a_program_that_does_not_exist_is_named(supervise):
    supervised = supervise("missing")
    text = said(supervised)
    assert supervised.returncode == 1
    assert "exit status 127, its program was not found" in text
    assert "cannot run /nonexistent/program: No such file or directory" in text


def test_a_part_that_does_not_get_ready_has_failed(supervise):
    supervised = supervise("late")
    assert "late failed: not ready after 0.3 s" in said(supervised)
    assert supervised.returncode == 1


def test_a_part_that_was_killed_is_started_again_without_its_old_processes(supervise):
    supervised = supervise("sleeping")
    parts = parts_of(supervised, 6)
    guard = next(part for part in parts if part.ppid() == supervised.pid)
    old = [guard, *guard.children(recursive=True)]
    old[1].kill()
    assert survivors(old, 5) == []
    assert not set(old) & set(parts_of(supervised, 6))
    assert survivors([psutil.Process(supervised.pid)], 0) != []


@pytest.mark.parametrize("request_to_stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_stop_stops_all_and_returns(supervise, request_to_stop):
    supervised = supervise("sleeping")
    parts = parts_of(supervised, 6)
    os.killpg(supervised.pid, request_to_stop)  # a terminal signals the whole foreground group
    assert supervised.wait(10) == 0
    assert survivors(parts, 0.5) == []


def test_a_part_that_ignores_the_request_is_killed_after_the_grace(supervise):
    supervised = supervise("deaf")
    assert supervised.stdout.readline() == "deaf | deaf\n"
    parts = parts_of(supervised, 2)
    begin = time.monotonic()
    supervised.terminate()
    assert supervised.wait(10) == 0
    assert 1.0 <= time.monotonic() - begin < 4
    assert survivors(parts, 0.5) == []


def test_nothing_of_a_part_outlives_its_guard(supervise):
    supervised = supervise("sleeping")
    parts = parts_of(supervised, 6)
    guard = next(part for part in parts if part.ppid() == supervised.pid)
    old = [guard, *guard.children(recursive=True)]
    guard.kill()
    assert survivors(old, 5) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_web_worker_and_scheduler(supervise, tree, port, ending):
    supervised = supervise("real", tree, port)
    parts = parts_of(supervised, 11)  # three guards, uvicorn, its tracker and two workers, celery and two of its pool, beat
    await_web(port)
    parts = parts_of(supervised, 11)
    supervised.send_signal(ending)
    supervised.wait(20)
    assert survivors(parts, 6) == []


def test_nothing_is_left_when_a_pool_is_orphaned_by_a_kill_of_its_parent(supervise, tree, port):
    supervised = supervise("real", tree, port)
    parts = parts_of(supervised, 11)
    mains = [part for part in parts if part.ppid() in {guard.pid for guard in parts if guard.ppid() == supervised.pid}]
    kill_all([*mains, psutil.Process(supervised.pid)])
    assert survivors(parts, 6) == []
