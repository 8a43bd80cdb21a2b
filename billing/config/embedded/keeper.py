"""The keeper of a home: owns the servers, stops them when their last user is gone.

`python -m billing.config.embedded.keeper HOME PARTS`, started detached by the first who attaches.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from billing.config.embedded.errors import EmbeddedError
from billing.config.embedded.servers import Postgres, Valkey, free_port, wait_ready

STOP_WITHIN_S = 20
SERVERS = {"postgres": Postgres, "broker": Valkey}
Running = dict[str, tuple[Postgres | Valkey, subprocess.Popen[bytes], int]]


def keep(home: Path, parts: list[str]) -> int:
    """Start the servers, tell the starter through `services.json`, and keep them while anybody uses them."""
    os.environ["SUANPAN_HOME"] = str(home)
    running: Running = {}
    try:
        for part in parts:
            running[part] = _start(home, part)
        _announce(home, running)
    except (EmbeddedError, OSError) as error:
        _write(home / "run" / "services.json", {"keeper": os.getpid(), "error": str(error)})
        _stop(running)
        return 1
    _watch(home, running)
    with (home / "run" / "users.lock").open("r+b") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        (home / "run" / "services.json").unlink(missing_ok=True)
        _stop(running)
    return 0


def _start(home: Path, part: str) -> tuple[Postgres | Valkey, subprocess.Popen[bytes], int]:
    server = SERVERS[part](home)
    server.prepare()
    remembered = home / "run" / f"{part}.port"
    port = free_port(int(remembered.read_text()) if remembered.exists() else None)
    process = server.start(port)
    try:
        wait_ready(server, process, port)
    except EmbeddedError:
        process.kill()
        raise
    remembered.write_text(str(port))
    return server, process, port


def _announce(home: Path, running: Running) -> None:
    services = {
        name: {"url": server.url(port), "pid": process.pid, "port": port}
        for name, (server, process, port) in running.items()
    }
    _write(home / "run" / "services.json", {"keeper": os.getpid(), "services": services})


def _watch(home: Path, running: Running) -> None:
    """If a server dies by itself, end the keeper: the others stop with it and the next to attach starts anew."""

    def wait(name: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        if (home / "run" / "services.json").exists():
            print(f"{name} ended by itself with status {status}", flush=True)  # noqa: T201 - the keeper's log
            (home / "run" / "services.json").unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGTERM)

    for name, (_, process, _) in running.items():
        threading.Thread(target=wait, args=(name, process), daemon=True).start()


def _stop(running: Running) -> None:
    for server, process, _ in running.values():
        if process.poll() is None:
            process.send_signal(server.stop_signal)
    for _, process, _ in running.values():
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _write(path: Path, value: object) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(value))
    draft.replace(path)


def main() -> int:
    """Detach from the starter's signals: Ctrl-C on a terminal ends the command, and through its lock the keeper."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return keep(Path(sys.argv[1]), sys.argv[2].split(","))


if __name__ == "__main__":
    sys.exit(main())
