"""Client of the services of a home: `attach`, which commands call."""

import atexit
import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from billing.local.embedded import postgres, valkey
from billing.local.embedded.errors import EmbeddedError, log_since, log_size
from billing.local.embedded.layout import Layout, read_json, write_json
from billing.local.embedded.locks import acquire, available, open_lock
from billing.local.embedded.ports import LOOPBACK
from billing.local.embedded.probes import postgres_answers, valkey_answers
from billing.runtime.home import PROJECT, HomeError, explain, home_dir, secret

_START_SECONDS = 660.0  # a little more than the recovery of a server may take
_STOPPING_SECONDS = 90.0
_RELEASE_SECONDS = 10.0
_POLL_SECONDS = 0.02
_KEEPERS_TRIED = 2
_LOOK_SECONDS = 1.0
_LONGEST_BACK_OFF_SECONDS = 10.0


class Services:
    """Services of one home, kept alive by this process for as long as this attachment lasts."""

    def __init__(self, layout: Layout, need: Collection[str], users: int, started: bool) -> None:
        self.home = layout.home
        self.started = started
        """True if this attachment started the services."""
        self._layout = layout
        self._need = frozenset(need)
        self._users: int | None = users
        self._owner = os.getpid()
        self._released = threading.Event()
        atexit.register(self.release)

    @property
    def database_url(self) -> str:
        """Return postgresql://... of the home's database with the application's role, whose rights `migrate` grants."""
        return self._database(postgres.APPLICATION, postgres.APPLICATION_PASSWORD)

    @property
    def database_owner_url(self) -> str:
        """Return postgresql://... of the home's database with the role that owns the tables."""
        return self._database(postgres.USER, postgres.PASSWORD)

    def _database(self, user: str, password: str) -> str:
        address = f"{LOOPBACK}:{self._port(postgres.NAME)}/{postgres.DATABASE}"
        return f"postgresql://{user}:{secret(password, self.home)}@{address}"

    @property
    def broker_url(self) -> str:
        """Return redis://... of the home's broker."""
        return f"redis://:{secret(valkey.PASSWORD, self.home)}@{LOOPBACK}:{self._port(valkey.NAME)}/0"

    def keep_up(self) -> None:
        """Start a thread that spawns another keeper if the current one was killed."""
        threading.Thread(target=self._keep_up, daemon=True).start()

    def _keep_up(self) -> None:
        ports, pause = self._ports(), _LOOK_SECONDS
        while not self._released.wait(pause):
            pause = _LOOK_SECONDS
            if not available(self._layout.lock("keeper"), fcntl.LOCK_SH):
                continue
            _say(f"the keeper of {self.home} has ended: starting its services again")
            try:
                _started(self._layout, self._need)
            except (HomeError, OSError) as error:
                pause = _LONGEST_BACK_OFF_SECONDS
                _say(f"they do not start, trying again in {pause:.0f} s: {error}")
                continue
            if self._ports() != ports:
                _say("another program has taken a port of theirs: stopping, start this command again")
                os.kill(self._owner, signal.SIGTERM)
                return

    def _ports(self) -> dict[str, int]:
        return {name: self._port(name) for name in self._need}

    def release(self) -> None:
        """Release the services. The last user waits (at most 10 s) until they have stopped, so that no process remains."""
        if self._users is None or os.getpid() != self._owner:
            return  # a forked child shares the lock, and must not end its parent's use
        self._released.set()
        fcntl.flock(self._users, fcntl.LOCK_UN)
        os.close(self._users)
        self._users = None
        atexit.unregister(self.release)
        deadline = time.monotonic() + _RELEASE_SECONDS
        while _is_ending(self._layout) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _port(self, name: str) -> int:
        if name not in self._need:
            raise EmbeddedError(f"this attachment to {self.home} did not ask for {name!r}, only for {sorted(self._need)}")
        state = read_json(self._layout.services) or {}
        port = state.get("ports", {}).get(name) or (read_json(self._layout.ports) or {}).get(name)
        if port is None:
            raise EmbeddedError(f"the embedded {name} of {self.home} has gone; run the command again")
        return int(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def attach(home: Path | None = None, *, need: Collection[str] = (postgres.NAME, valkey.NAME)) -> Services:
    """Attach to the services of a home, starting those that do not run yet. Also a context manager.

    home: default `home_dir()`. need: "postgres", "broker" or both.
    The services live exactly as long as one attached process does, however it ends.
    Raises EmbeddedError, with the reason and the remedy, if they cannot be started.
    """
    if unknown := set(need) - {postgres.NAME, valkey.NAME}:
        raise ValueError(f"no such service: {sorted(unknown)}")
    layout = Layout((home or home_dir()).expanduser().absolute())
    try:
        layout.make()
        return _attach(layout, need)
    except OSError as error:
        raise EmbeddedError(explain(error, layout.home)) from error
    except HomeError as error:
        raise error if isinstance(error, EmbeddedError) else EmbeddedError(str(error)) from error


def _attach(layout: Layout, need: Collection[str]) -> Services:
    users = open_lock(layout.lock("users"))
    try:
        if not acquire(users, fcntl.LOCK_SH, _STOPPING_SECONDS):
            raise EmbeddedError(f"the services of {layout.home} are stopping and do not end; see {layout.log('keeper')}")
        return Services(layout, need, users, _started(layout, need))
    except BaseException:
        os.close(users)
        raise


def _started(layout: Layout, need: Collection[str]) -> bool:
    """Start the needed services that do not run, one process at a time; return True if that took a new keeper."""
    start = open_lock(layout.lock("start"))
    try:
        if not acquire(start, fcntl.LOCK_EX, _START_SECONDS):
            raise EmbeddedError(f"the services of {layout.home} are starting and do not get ready")
        return _ensure_running(layout, need)
    finally:
        os.close(start)


def _ensure_running(layout: Layout, need: Collection[str]) -> bool:
    """Wait until every needed service answers; return True if that took a new keeper. The start lock is held."""
    deadline = time.monotonic() + _START_SECONDS
    spawned = 0
    request = ""
    while time.monotonic() < deadline:
        state = read_json(layout.services)
        if available(layout.lock("keeper"), fcntl.LOCK_SH):
            if spawned == _KEEPERS_TRIED:
                raise EmbeddedError(f"the services of {layout.home} end right after their start; see {layout.log('keeper')}")
            _spawn_keeper(layout, need)
            spawned += 1
        elif state is not None and all(name in state["ports"] for name in need):
            if all(_answers(layout, name, state["ports"][name]) for name in need):
                return spawned > 0
            if state["failure"]:
                raise EmbeddedError(state["failure"])
        elif state is not None and not request:
            request = _ask_for(layout, {*need, *state["ports"]})
            # the keeper may end between the check of its lock and the signal
            with contextlib.suppress(ProcessLookupError):
                os.kill(state["keeper"], signal.SIGHUP)
        elif state is not None and state["request"] == request:
            raise EmbeddedError(state["failure"])
        time.sleep(_POLL_SECONDS)
    raise EmbeddedError(f"the services of {layout.home} do not get ready; see the logs in {layout.log('keeper').parent}")


def _ask_for(layout: Layout, need: Collection[str]) -> str:
    """Write the keeper's task; the keeper repeats the name of the request once it has answered it."""
    request = secrets.token_hex(8)
    write_json(layout.wanted, {"need": sorted(need), "request": request})
    return request


def _spawn_keeper(layout: Layout, need: Collection[str]) -> None:
    """Start a keeper and wait for its answer. The keeper has a session of its own, so that our Ctrl-C does not reach it."""
    layout.services.unlink(missing_ok=True)  # left by a keeper that was killed; its pids are stale
    _ask_for(layout, need)
    log = layout.log("keeper")
    offset = log_size(log)
    command = [sys.executable, "-m", "billing.local.embedded.service_daemon", str(layout.home)]
    with log.open("ab") as errors:
        starter = subprocess.Popen(  # noqa: S603 -- our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=PROJECT,
            start_new_session=True,
        )
    with starter:
        word = _first_line(starter.stdout.fileno() if starter.stdout else -1)
    if not word:
        raise EmbeddedError(
            f"the keeper of {layout.home} ended without a word. Last lines of {log}:\n{log_since(log, offset)}"
        )
    if failure := json.loads(word)["failure"]:
        raise EmbeddedError(failure)


def _first_line(descriptor: int) -> bytes:
    word = b""
    deadline = time.monotonic() + _START_SECONDS
    while not word.endswith(b"\n") and select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(descriptor, 65_536)
        if not part:
            break
        word += part
    return word


def _answers(layout: Layout, name: str, port: int) -> bool:
    if name == postgres.NAME:
        return postgres_answers(port)
    return valkey_answers(port, secret(valkey.PASSWORD, layout.home))


def _is_ending(layout: Layout) -> bool:
    """Return True if the keeper still runs although no process uses the services."""
    with contextlib.suppress(FileNotFoundError):  # the home itself may have been removed meanwhile
        if available(layout.lock("keeper"), fcntl.LOCK_SH):
            return False
        users = layout.lock("users")
        return available(users, fcntl.LOCK_EX) or not available(users, fcntl.LOCK_SH)
    return False


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
