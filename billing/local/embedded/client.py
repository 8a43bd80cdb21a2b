"""Client of the services of a home: `attach`, which commands call."""

import atexit
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from billing.local.embedded import servers
from billing.local.embedded.errors import EmbeddedError, log_since
from billing.local.embedded.layout import ANOTHER, READY, Layout, acquire, available, open_lock, read_state
from billing.local.embedded.servers import BROKER, LOOPBACK, POSTGRES
from billing.runtime.home import PROJECT, HomeError, explain, home_dir, secret

_START_SECONDS = 660.0  # a little more than the recovery of a server may take
_STOPPING_SECONDS = 90.0
_RELEASE_SECONDS = 10.0
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.5
_AT_ONCE, _WINDOW_SECONDS = 3, 60.0
_LONGEST_BACK_OFF_SECONDS = 10.0


class Services:
    """Services of one home, kept alive by this process for as long as this attachment lasts."""

    def __init__(self, layout: Layout, users: dict[str, int], ports: dict[str, int], *, started: bool) -> None:
        self.home = layout.home
        self.started = started
        """True if this attachment started the services."""
        self._layout = layout
        self._users, self._ports = users, ports
        self._owner = os.getpid()
        self._released = threading.Event()
        atexit.register(self.release)

    @property
    def has_database(self) -> bool:
        """Return True if the database is one of the services."""
        return POSTGRES in self._ports

    @property
    def database_url(self) -> str:
        """Return postgresql://... of the home's database with the application's role, whose rights `migrate` grants."""
        return self._database(servers.APPLICATION, servers.APPLICATION_PASSWORD)

    @property
    def database_owner_url(self) -> str:
        """Return postgresql://... of the home's database with the role that owns the tables."""
        return self._database(servers.USER, servers.PASSWORD)

    def _database(self, user: str, password: str) -> str:
        return f"postgresql://{user}:{secret(password, self.home)}@{LOOPBACK}:{self._port(POSTGRES)}/{servers.DATABASE}"

    @property
    def broker_url(self) -> str:
        """Return redis://... of the home's broker."""
        return f"redis://:{secret(servers.BROKER_PASSWORD, self.home)}@{LOOPBACK}:{self._port(BROKER)}/0"

    def _port(self, name: str) -> int:
        if name not in self._ports:
            raise EmbeddedError(f"this attachment to {self.home} did not ask for {name!r}, only for {sorted(self._ports)}")
        return self._ports[name]

    def keep_up(self) -> None:
        """Start a thread that starts again what ended: three times a minute at once, then later and later."""
        threading.Thread(target=self._keep_up, daemon=True).start()

    def _keep_up(self) -> None:
        ends: list[float] = []
        while not self._released.wait(_LOOK_SECONDS):
            for name in self._ports:
                if not available(self._layout.lock(f"{name}.keeper"), fcntl.LOCK_SH):
                    continue
                now = time.monotonic()
                ends = [*(at for at in ends if at > now - _WINDOW_SECONDS), now]
                too_often = len(ends) - _AT_ONCE
                pause = min(2.0**too_often, _LONGEST_BACK_OFF_SECONDS) if too_often > 0 else 0.0
                _say(f"{name} of {self.home} has ended: starting it again" + (f" in {pause:.0f} s" if pause else ""))
                if self._released.wait(pause):
                    return
                try:
                    port, _ = _ensure(self._layout, name, None)
                except (HomeError, OSError) as error:
                    _say(f"{name} does not start: {error}")
                    continue
                if port != self._ports[name]:
                    _say(f"another program has taken the port of {name}: stopping, start this command again")
                    os.kill(self._owner, signal.SIGTERM)
                    return

    def release(self) -> None:
        """Release the services. The last user waits (at most 10 s) until they have stopped, so that no process remains."""
        if self._released.is_set() or os.getpid() != self._owner:
            return  # a forked child shares the locks, and must not end its parent's use
        self._released.set()
        for lock in self._users.values():
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)
        atexit.unregister(self.release)
        deadline = time.monotonic() + _RELEASE_SECONDS
        while any(_is_ending(self._layout, name) for name in self._users) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def attach(home: Path | None = None, *, need: Collection[str] = (POSTGRES, BROKER)) -> Services:
    """Attach to the services of a home, starting those that do not run yet. Also a context manager.

    home: default `home_dir()`. need: "postgres", "broker" or both.
    The services live exactly as long as one attached process does, however it ends.
    Raises EmbeddedError, with the reason and the remedy, if they cannot be started.
    """
    if unknown := set(need) - {POSTGRES, BROKER}:
        raise ValueError(f"no such service: {sorted(unknown)}")
    layout = Layout((home or home_dir()).expanduser().absolute())
    users: dict[str, int] = {}
    try:
        layout.make()
        if (earlier := layout.lock("keeper")).exists() and not available(earlier, fcntl.LOCK_SH):
            raise EmbeddedError(f"{layout.home} is in use by release 1.0: end what runs of it, then try again")
        for name in need:
            users[name] = open_lock(layout.lock(f"{name}.users"))
            if not acquire(users[name], fcntl.LOCK_SH, _STOPPING_SECONDS):
                raise EmbeddedError(f"{name} of {layout.home} is stopping and does not end; see {layout.log('keeper')}")
        with contextlib.ExitStack() as stack:
            idle = [name for name in need if available(layout.lock(f"{name}.keeper"), fcntl.LOCK_SH)]
            keepers = {name: stack.enter_context(_spawn_keeper(layout, name)) for name in idle}  # both at once
            found = {name: _ensure(layout, name, keepers.get(name)) for name in need}
    except BaseException as error:
        for lock in users.values():
            os.close(lock)
        if isinstance(error, OSError):
            raise EmbeddedError(explain(error, layout.home)) from error
        if isinstance(error, HomeError):
            raise EmbeddedError(str(error)) from error
        raise
    ports = {name: port for name, (port, _) in found.items()}
    return Services(layout, users, ports, started=any(started for _, started in found.values()))


def _ensure(layout: Layout, name: str, keeper: "subprocess.Popen[str] | None") -> tuple[int, bool]:
    """Wait until the server answers; return its port, and True if a keeper of ours started it.

    keeper: one that is starting it. Where it has none, another one is spawned.
    """
    deadline = time.monotonic() + _START_SECONDS
    started = False
    while time.monotonic() < deadline:
        if keeper is not None:
            started, keeper = _started_by(keeper, layout), None
        elif available(layout.lock(f"{name}.keeper"), fcntl.LOCK_SH):
            if started:
                raise EmbeddedError(f"{name} of {layout.home} ended right after its start; see {layout.log(name)}")
            keeper = _spawn_keeper(layout, name)
        elif (port := read_state(layout.state(name)).get("port")) and servers.answers(layout, name, port):
            return int(port), started
        else:
            time.sleep(_POLL_SECONDS)
    raise EmbeddedError(f"{name} of {layout.home} does not get ready; see {layout.log(name)}")


def _spawn_keeper(layout: Layout, name: str) -> "subprocess.Popen[str]":
    """Spawn a keeper in a session of its own, so that our Ctrl-C does not reach it."""
    with layout.log("keeper").open("ab") as errors:
        return subprocess.Popen(  # noqa: S603 -- our own module
            [sys.executable, "-m", "billing.local.embedded.keeper", str(layout.home), name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=PROJECT,
            start_new_session=True,
            text=True,
        )


def _started_by(keeper: "subprocess.Popen[str]", layout: Layout) -> bool:
    """Wait for the keeper's answer: True if its server serves, False if another keeper was faster; else raise it."""
    with keeper:
        said, _ = keeper.communicate()
    if not said:
        log = layout.log("keeper")
        raise EmbeddedError(f"a keeper of {layout.home} ended without a word; {log}: {'; '.join(log_since(log, 0))}")
    if said not in (READY, ANOTHER):
        raise EmbeddedError(said)
    return said == READY


def _is_ending(layout: Layout, name: str) -> bool:
    """Return True if the keeper still runs although no process uses its server."""
    with contextlib.suppress(FileNotFoundError):  # the home itself may have been removed meanwhile
        if available(layout.lock(f"{name}.keeper"), fcntl.LOCK_SH):
            return False
        users = layout.lock(f"{name}.users")
        return available(users, fcntl.LOCK_EX) or not available(users, fcntl.LOCK_SH)
    return False


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
