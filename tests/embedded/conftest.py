"""Homes that vanish, processes that attach to them, and waiting until processes have gone.

Only processes that a test started, or that a home of a test names as its own, are ever signalled.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from billing.local.embedded.layout import Layout, acquire, open_lock, read_state
from billing.local.embedded.servers import BROKER, POSTGRES
from billing.runtime.home import PROJECT

CLIENT = Path(__file__).with_name("client.py")
ANSWER_SECONDS = 120


class Client:
    """A process that is attached to a home."""

    def __init__(self, home: Path, *arguments: str, **how: object) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, str(CLIENT), str(home), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            **{"env": {**os.environ, "PYTHONPATH": str(PROJECT)}, **how},
        )
        self.attached = self._answer()

    def ask(self, word: str) -> object:
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def leave(self) -> int:
        """Let it release and end as a command does; its exit status."""
        self.process.stdin.close()
        return self.process.wait(ANSWER_SECONDS)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _answer(self) -> object:
        assert select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0], "the client does not answer"
        line = self.process.stdout.readline()
        assert line, f"the client ended with {self.process.wait()}"
        return json.loads(line)


@pytest.fixture
def attached() -> Iterator[Callable[..., Client]]:
    """Start processes that attach; whatever a test leaves running is killed at its end."""
    clients: list[Client] = []

    def start(home: Path, *arguments: str, **how: object) -> Client:
        clients.append(Client(home, *arguments, **how))
        return clients[-1]

    yield start
    for client in clients:
        client.end()


@pytest.fixture
def new_home() -> Iterator[Callable[[], Path]]:
    """Homes that do not exist yet, below directories closed to others; gone with their processes afterwards."""
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="suanpan-embedded-")))
        return made[-1] / "home"

    yield make
    for directory in made:
        await_silence(directory / "home")
        shutil.rmtree(directory)


@pytest.fixture
def empty_home(new_home: Callable[[], Path]) -> Path:
    return new_home()


@pytest.fixture(scope="session")
def shared_home() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="suanpan-embedded-"))
    yield directory / "home"
    shutil.rmtree(directory)


@pytest.fixture
def home(shared_home: Path) -> Iterator[Path]:
    """A home where nothing runs, for tests that leave it usable; making a cluster takes longer than most of them."""
    yield shared_home
    await_silence(shared_home)


def family(home: Path) -> list[psutil.Process]:
    """The keepers of a home, their servers and all their processes."""
    members = []
    for name in (POSTGRES, BROKER):
        if state := read_state(Layout(home).state(name)):
            keeper = psutil.Process(state["keeper"])
            members += [keeper, *keeper.children(recursive=True)]
            assert state["pid"] in {member.pid for member in members}
    assert members
    return members


def member(home: Path, name: str) -> psutil.Process:
    """The main process of `postgres` or `broker`, or `keeper of` one."""
    of, _, server = name.rpartition(" of ")
    return psutil.Process(read_state(Layout(home).state(server))[of or "pid"])


def kill_all(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def survivors(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Which of the processes still run after at most `seconds`; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while left := [process for process in processes if is_running(process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []


def is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def await_silence(home: Path) -> None:
    """Wait until nothing of a home runs, seen by the locks that its processes hold while they live."""
    for lock in sorted((home / "run").glob("*.lock")):
        descriptor = open_lock(lock)
        try:
            assert acquire(descriptor, fcntl.LOCK_EX, 60), f"something still holds {lock}"
        finally:
            os.close(descriptor)
