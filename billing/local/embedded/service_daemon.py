"""Keeper: owns the servers of a home for as long as a process uses them.

The first process that attaches runs `python -m billing.local.embedded.service_daemon HOME`; the keeper reports the result
of the start on stdout, as one line of JSON. It ends when it gets the users' lock, that is when the last user has gone, and
holds that lock until it has ended: a process that attaches meanwhile waits, and then starts another keeper.
"""

import enum
import fcntl
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from billing.local.embedded import postgres
from billing.local.embedded.account import server_account
from billing.local.embedded.binaries import postgres_directory, valkey_server
from billing.local.embedded.errors import EmbeddedError, log_since
from billing.local.embedded.layout import Layout, read_json, write_json
from billing.local.embedded.locks import acquire, open_lock
from billing.local.embedded.postgres import Postgres
from billing.local.embedded.server import Server
from billing.local.embedded.valkey import Valkey
from billing.runtime.home import HomeError, explain

_PREDECESSOR_SECONDS = 30.0
_AT_ONCE, _WINDOW_SECONDS = 3, 60.0
_LONGEST_BACK_OFF_SECONDS = 10.0


class Event(enum.Enum):
    """Events that a keeper waits for."""

    UNUSED = "the last user has gone"
    STOP = "asked to stop"
    CHILD = "a child has changed"
    WANTED = "another service is wanted"


_SIGNALS = {
    signal.SIGCHLD: Event.CHILD,
    signal.SIGHUP: Event.WANTED,
    signal.SIGTERM: Event.STOP,
    signal.SIGINT: Event.STOP,
}


class Keeper:
    """Keeper that starts, restarts and stops the servers of one home."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.servers: dict[str, Server] = {}
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()  # its put may be called from a signal handler
        self.restarts: list[float] = []
        self.due: dict[str, float] = {}

    def run(self) -> int:
        """Keep the servers until no process uses them; return 1 if they could not be kept."""
        for number in _SIGNALS:
            signal.signal(number, lambda received, _frame: self.events.put(_SIGNALS[signal.Signals(received)]))
        lock = open_lock(self.layout.lock("keeper"))
        if not acquire(lock, fcntl.LOCK_EX, _PREDECESSOR_SECONDS):
            _answer_starter(f"another daemon of {self.layout.home} does not end")
            return 1
        try:
            if failure := self._answer_wanted():
                self._stop()
                _answer_starter(failure)
                return 1
            threading.Thread(target=self._await_unused, daemon=True).start()
            _answer_starter("")
            return self._serve()
        finally:
            self._stop()
            os.close(lock)  # before the users' lock, which ends with the process: its next holder finds no keeper

    def _serve(self) -> int:
        while True:
            event = self.events.get()
            if event in (Event.UNUSED, Event.STOP):
                _note(event.value)
                return 0
            if event is Event.WANTED:
                self._answer_wanted()
            else:
                self._mend()

    def _await_unused(self) -> None:
        """Wait for the exclusive users' lock, and hold it to the end of the process."""
        fcntl.flock(open_lock(self.layout.lock("users")), fcntl.LOCK_EX)
        self.events.put(Event.UNUSED)

    def _answer_wanted(self) -> str:
        """Start the wanted servers that do not run; return the reason if that failed."""
        wanted = read_json(self.layout.wanted) or {"need": [], "request": ""}
        failure = ""
        try:
            for name in [name for name in wanted["need"] if name not in self.servers]:
                server = self._server(name)
                server.start()
                self.servers[name] = server
                _note(f"{name} serves on port {server.port}")
        except HomeError as error:
            failure = str(error)
        except OSError as error:
            failure = explain(error, self.layout.home)
        if failure:
            _note(failure)
        self._publish(wanted["request"], failure)
        return failure

    def _server(self, name: str) -> Server:
        if name == postgres.NAME:
            programs, version = postgres_directory(self.layout.data)
            account = server_account(self.layout.data, (programs / "initdb", programs / "postgres"))
            return Postgres(self.layout, account, programs, version)
        program = valkey_server()
        return Valkey(self.layout, server_account(self.layout.data, (program,)), program)

    def _mend(self) -> None:
        """Restart the servers that ended by themselves: at once, and with growing delay if they keep ending."""
        for server in self.servers.values():
            if server.process is not None and server.process.poll() is None:
                continue
            if server.name not in self.due:
                _note(f"{server.name} ended by itself. Last lines of {server.log}:\n{log_since(server.log, 0)}")
                self._plan(server)
            if time.monotonic() >= self.due[server.name]:
                self._restart(server)

    def _plan(self, server: Server, least: float = 0.0) -> None:
        """Plan the next start of a server."""
        now = time.monotonic()
        self.restarts = [*(at for at in self.restarts if at > now - _WINDOW_SECONDS), now]
        too_often = len(self.restarts) - _AT_ONCE
        delay = max(least, min(2.0**too_often, _LONGEST_BACK_OFF_SECONDS) if too_often > 0 else 0.0)
        self.due[server.name] = now + delay
        if delay:
            _note(f"{len(self.restarts)} ends within {_WINDOW_SECONDS:.0f} s: {server.name} starts again in {delay:.0f} s")
            later = threading.Timer(delay, self.events.put, [Event.CHILD])
            later.daemon = True
            later.start()

    def _restart(self, server: Server) -> None:
        failure = ""
        del self.due[server.name]
        try:
            server.start()
        except (HomeError, OSError) as error:
            failure = f"{server.name} does not start again: {error}"
            _note(failure)
            self._plan(server, least=1.0)
        self._publish("", failure)

    def _publish(self, request: str, failure: str) -> None:
        """Write the ports for clients, and the request that this answers."""
        state: dict[str, Any] = {
            "keeper": os.getpid(),
            "ports": {name: server.port for name, server in self.servers.items()},
            "pids": {name: server.process.pid for name, server in self.servers.items() if server.process},
            "request": request,
            "failure": failure,
        }
        write_json(self.layout.services, state)

    def _stop(self) -> None:
        self.layout.services.unlink(missing_ok=True)
        while self.servers:
            name, server = self.servers.popitem()
            server.stop()
            _note(f"{name} has stopped")


def _answer_starter(failure: str) -> None:
    """Write one line on stdout and close it, so that the starter stops waiting."""
    line = json.dumps({"failure": failure}).encode() + b"\n"
    try:
        os.write(1, line)
    except BrokenPipeError:
        _note("the process that started this daemon has gone")
    os.dup2(2, 1)


def _note(text: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} keeper[{os.getpid()}] {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Detach from the starter, which does not wait for this process's end, and run the keeper."""
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    # the mask is inherited, and a starter may have blocked signals
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        return Keeper(Layout(Path(arguments[0]))).run()
    except EmbeddedError as error:
        _answer_starter(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
