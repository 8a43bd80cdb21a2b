"""Attaching to the services of a home, starting them if nobody has."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from billing.config.embedded.errors import EmbeddedError, last_lines
from billing.config.embedded.processes import alive
from billing.config.home import PROJECT, home_dir

PARTS = ("postgres", "broker")
START_WITHIN_S = 90
STOP_WITHIN_S = 25


class Services(contextlib.AbstractContextManager["Services"]):
    """Running services of a home, for as long as this is held."""

    def __init__(self, home: Path, state: dict[str, Any], users: IO[bytes], *, started: bool) -> None:
        self.home, self.started = home, started
        self.keeper_pid: int = state["keeper"]
        self.pids: dict[str, int] = {name: part["pid"] for name, part in state["services"].items()}
        self._urls = {name: part["url"] for name, part in state["services"].items()}
        self._users: IO[bytes] | None = users

    @property
    def database_url(self) -> str:
        """URL of the private PostgreSQL."""
        return str(self._urls["postgres"])

    @property
    def broker_url(self) -> str:
        """URL of the private broker."""
        return str(self._urls["broker"])

    def release(self) -> None:
        """Stop using them; the last user waits until they have stopped, so that a command leaves nothing behind."""
        if self._users is None:
            return
        last = _is_last(self._users)
        self._users.close()
        self._users = None
        deadline = time.monotonic() + STOP_WITHIN_S
        while last and alive(self.keeper_pid) and time.monotonic() < deadline:
            time.sleep(0.02)

    def __exit__(self, *exception: object) -> None:
        self.release()


def attach(home: Path | None = None, *, need: tuple[str, ...] = PARTS) -> Services:
    """Use the services of `home`, starting them if they do not run.  Raises EmbeddedError."""
    home = (home or home_dir()).absolute()
    try:
        for directory in (home, home / "run", home / "log"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        users = (home / "run" / "users.lock").open("a+b")
        start = (home / "run" / "start.lock").open("a+b")
    except OSError as error:
        raise EmbeddedError(f"SUANPAN_HOME {home} cannot be used: {error.strerror}") from error
    fcntl.flock(users, fcntl.LOCK_SH)  # waits while a keeper is stopping
    try:
        with start:
            fcntl.flock(start, fcntl.LOCK_EX)
            state = _running(home)
            if state is not None:
                return Services(home, state, users, started=False)
            return Services(home, _start(home), users, started=True)
    except EmbeddedError:
        users.close()
        raise


def _running(home: Path) -> dict[str, Any] | None:
    """What runs, or None where nothing does. Remains of a crash are ended first."""
    try:
        state: dict[str, Any] = json.loads((home / "run" / "services.json").read_text())
    except (OSError, ValueError):
        return None
    pids = [state["keeper"], *(part["pid"] for part in state.get("services", {}).values())]
    if "error" not in state and all(alive(pid) for pid in pids):
        return state
    deadline = time.monotonic() + STOP_WITHIN_S
    while any(alive(pid) and _ours(pid, home) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)  # children of a killed keeper get their signal from the kernel and stop by themselves
    return None


def _ours(pid: int, home: Path) -> bool:
    """Whether `pid` still is a process of this home and not one that got its number later."""
    try:
        return str(home).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _start(home: Path) -> dict[str, Any]:
    """Start a keeper and wait for its word."""
    told = home / "run" / "services.json"
    told.unlink(missing_ok=True)
    log = home / "log" / "keeper.log"
    with log.open("ab") as output:
        keeper = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "billing.config.embedded.keeper", str(home), ",".join(PARTS)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )  # fmt: skip
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        if told.exists():
            state: dict[str, Any] = json.loads(told.read_text())
            if "error" in state:
                keeper.wait()
                raise EmbeddedError(state["error"])
            return state
        if keeper.poll() is not None:
            raise EmbeddedError(f"the keeper of {home} ended with status {keeper.returncode}: {last_lines(log)}")
        time.sleep(0.01)
    raise EmbeddedError(f"the services of {home} did not start within {START_WITHIN_S} s: {last_lines(log)}")


def _is_last(users: IO[bytes]) -> bool:
    """Whether nobody else holds the lock: asked through another descriptor, our own shared lock released first."""
    fcntl.flock(users, fcntl.LOCK_UN)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # others use it, or the keeper was faster: either way the keeper decides
        return _stopping(users)
    fcntl.flock(users, fcntl.LOCK_UN)
    return True


def _stopping(users: IO[bytes]) -> bool:
    """True where the keeper holds the lock alone, that is, where we were the last."""
    try:
        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(users, fcntl.LOCK_UN)
    return False
