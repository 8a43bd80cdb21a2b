"""Keeper: `python -m billing.local.embedded.keeper HOME SERVER` runs one server for as long as a process uses it.

It is a detached process, started by the first user, to whom it answers on stdout: `ready`, `another` where another keeper
was faster, else why the server did not start. It ends with its server, or when it gets the users' lock: then the last user
has gone, however it ended. It holds that lock until it has ended, so whoever comes meanwhile waits and starts another one.
"""

import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from billing.local.embedded.errors import log_since
from billing.local.embedded.layout import ANOTHER, READY, Layout, acquire, open_lock, write_whole
from billing.local.embedded.servers import Server, server_of
from billing.runtime.home import HomeError, explain

_AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
_RACE_SECONDS = 0.2


def keep(layout: Layout, name: str) -> None:
    """Start the server, answer the starter, wait until it is not needed or has ended, and stop all of it."""
    lock = open_lock(layout.lock(f"{name}.keeper"))
    if not acquire(lock, fcntl.LOCK_EX, _RACE_SECONDS):  # others look at the lock for an instant
        return _answer(ANOTHER)
    server: Server | None = None
    try:
        layout.state(name).unlink(missing_ok=True)
        server = server_of(layout, name)
        process = server.start()
        state = {"keeper": os.getpid(), "pid": process.pid, "port": server.port}
        write_whole(layout.state(name), json.dumps(state))
        _note(f"{name} serves on port {server.port}")
        _answer(READY)
        threading.Thread(target=_await_unused, args=(layout.lock(f"{name}.users"),), daemon=True).start()
        while (received := signal.sigwait(_AWAITED)) == signal.SIGCHLD and process.poll() is None:
            continue
        if received == signal.SIGCHLD:
            _note(f"{name} ended by itself. Last lines of {server.log}: {'; '.join(log_since(server.log, 0))}")
    except (HomeError, OSError) as error:
        failure = explain(error, layout.home) if isinstance(error, OSError) else str(error)
        _note(failure)
        _answer(failure)
    finally:
        layout.state(name).unlink(missing_ok=True)
        if server is not None:
            server.stop()
        _note(f"{name} has stopped")
        os.close(lock)  # before the users' lock, which ends with the process: its next holder finds no keeper


def _await_unused(users: Path) -> None:
    """Wait for the exclusive users' lock, and hold it to the end of the process."""
    fcntl.flock(open_lock(users), fcntl.LOCK_EX)
    os.kill(os.getpid(), signal.SIGUSR1)


def _answer(text: str) -> None:
    """Tell the starter, and close stdout so that it stops waiting."""
    try:
        os.write(1, text.encode())
    except BrokenPipeError:
        _note("the process that started this keeper has gone")
    os.dup2(2, 1)


def _note(text: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} keeper[{os.getpid()}] {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> None:
    if os.fork():
        os._exit(0)  # the starter waits for no end
    os.chdir("/")
    os.umask(0o077)
    # blocked, so that none is lost before `sigwait`; a starter may have blocked others
    signal.pthread_sigmask(signal.SIG_SETMASK, _AWAITED)
    home, name = arguments
    keep(Layout(Path(home)), name)


if __name__ == "__main__":
    main(sys.argv[1:])
