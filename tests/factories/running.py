"""A running installation under load, its processes, and what its gateway knows to be acknowledged."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from billing.local.process_list import free_port
from tests.cli import Home
from tests.factories import SET_UP, token_record

MENDED_SECONDS = 30.0
"""How soon all serves again after a kill, on a machine that does nothing else: `make kills` asserts it."""


class Running:
    """An installation under load: one gateway that reports record after record, and notes what was acknowledged."""

    def __init__(self, home: Home) -> None:
        self.home, self.port = home, free_port()
        self.process = home.start("up", "--port", str(self.port))
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.acknowledged: list[int] = []
        self.stopping = threading.Event()
        self.load = threading.Thread(target=self._report)

    def set_up(self, **changed: Any) -> None:
        self.await_ready(600)
        path = self.home.path / "set-up.yaml"
        path.write_text(yaml.safe_dump({**SET_UP, **changed}))
        self.home.run("apply", str(path))

    def starts(self) -> None:
        made = self.home.run("token_create", "gateway", "--scope", "usage:write", "--scope", "usage:read", "--by", "admin")
        self.headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        self.load.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.lines.extend(self.process.stdout)

    def _report(self) -> None:
        number = 0
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=self.headers, timeout=5) as client:
            while not self.stopping.wait(0.02):
                number += 1
                self.send(client, number)

    def send(self, client: httpx.Client, number: int) -> None:
        """As a gateway does: until it is acknowledged, so that at the end nobody asks what became of the last one."""
        deadline = time.monotonic() + 10 * MENDED_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                answer = client.post("/api/v1/usage/tokens", json=[token_record(number)])
                if answer.status_code == 200:
                    assert answer.json()["conflicts"] == 0
                    self.acknowledged.append(number)
                    return
            time.sleep(0.1)

    def await_ready(self, seconds: float) -> None:
        """Until it serves, and what is reported is acknowledged."""
        deadline, seen = time.monotonic() + seconds, len(self.acknowledged)
        while True:
            assert self.process.poll() is None, "".join(self.lines[-40:])
            with contextlib.suppress(httpx.TransportError):
                ready = httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2).status_code == 200
                if ready and (not self.load.is_alive() or len(self.acknowledged) > seen + 5):
                    return
            assert time.monotonic() < deadline, "".join(self.lines[-40:])
            time.sleep(0.1)

    def server(self, name: str) -> dict[str, Any]:
        """The pids of a server and of its keeper."""
        state: dict[str, Any] = json.loads((self.home.path / "home" / "run" / f"{name}.json").read_text())
        return state

    def part(self, words: str) -> psutil.Process:
        """The process of `up` whose command says so, not the guard in front of it."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                line = " ".join(process.cmdline())
                if words in line and "orphan_guard" not in line:
                    return process
        raise AssertionError(f"no process {words!r}")

    def process_of(self, words: str) -> psutil.Process:
        """The first process that a part has started itself: one that answers, or one that works."""
        for process in self.part(words).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "resource_tracker" not in " ".join(process.cmdline()):
                    return process
        raise AssertionError(f"no process of {words!r}")

    def ends(self) -> str:
        self.stopping.set()
        if self.load.ident:
            self.load.join()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.reader.join()
        return "".join(self.lines)


PROCESSES: dict[str, Callable[[Running], int]] = {
    "postgres": lambda running: running.server("postgres")["pid"],
    "broker": lambda running: running.server("broker")["pid"],
    "web": lambda running: running.part("billing.settings.serve").pid,
    "process of web": lambda running: running.process_of("billing.settings.serve").pid,
    "counter": lambda running: running.part("budget_counter --follow").pid,
    "worker": lambda running: running.part("worker --concurrency").pid,
    "process of the worker": lambda running: running.process_of("worker --concurrency").pid,
    "scheduler": lambda running: running.part(" beat ").pid,
    "keeper of postgres": lambda running: running.server("postgres")["keeper"],
    "keeper of the broker": lambda running: running.server("broker")["keeper"],
}


def kill_and_await(running: Running, name: str, *, limit: float = MENDED_SECONDS) -> float:
    """End a process at once, and wait until all serve and every process runs, another one in its place.

    Returns the seconds that it took; raises where that was more than `limit`. What has just ended because of the kill before
    is awaited first, no longer than that.
    """
    began = time.monotonic()
    while (pid := _pids(running).get(name)) is None:
        assert time.monotonic() < began + limit, f"{name} does not run"
        time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    running.await_ready(limit)
    while not _all_run(running, name, pid):
        assert time.monotonic() < killed + limit, f"{name} was not started again, or not all that ended with it"
        time.sleep(0.2)
    return time.monotonic() - killed


def _pids(running: Running) -> dict[str, int]:
    """Every process that runs now."""
    found = {}
    for part, of in PROCESSES.items():
        with contextlib.suppress(AssertionError, OSError, KeyError, ValueError, psutil.Error):
            found[part] = of(running)
    return found


def _all_run(running: Running, name: str, killed: int) -> bool:
    now = _pids(running)
    return now.keys() == PROCESSES.keys() and now[name] != killed and all(map(psutil.pid_exists, now.values()))


def records_lost_and_double(running: Running) -> tuple[int, int]:
    """How many acknowledged records are not there, and how many are there more than once; after the load has ended.

    Brought again, what is there is known; the summary then counts every record that there is.
    """
    sent = len(running.acknowledged)
    answered = running.home.run("import_usage", "tokens", str(acknowledged_file(running)), "--json").stdout
    (answer,) = json.loads(answered)["files"]
    assert (answer["duplicates"] + answer["accepted"], answer["conflicts"]) == (sent, 0), answer
    asked = f"http://127.0.0.1:{running.port}/api/v1/usage/summary?from=2026-10-15&until=2026-10-16"
    rows = httpx.get(asked, headers=running.headers, timeout=60).raise_for_status().json()["tokens"]
    counted = sum(row["requests"] for row in rows)
    assert sum(row["output_tokens"] for row in rows) == counted * token_record()["output_tokens"]
    return answer["accepted"], counted - sent


def acknowledged_file(running: Running) -> Path:
    """Everything that was acknowledged, once more: all of it is known."""
    fields = list(token_record(1))
    rows = [",".join(str(token_record(number)[name]) for name in fields) for number in sorted(running.acknowledged)]
    path = running.home.path / "again.csv"
    path.write_text("\n".join([",".join(fields), *rows]) + "\n")
    return path
