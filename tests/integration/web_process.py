"""The web part as a real process over the test's own database, to be talked to over HTTP, and killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx
from django.db import connection

from billing.local.process_list import server_argv

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
STARTUP_SECONDS = 180
Process = TypeVar("Process", bound="WebProcess")


def environment() -> dict[str, str]:
    """That of a process which shall use the database of this test."""
    settings = connection.settings_dict
    user, password = quote(settings["USER"], safe=""), quote(settings["PASSWORD"], safe="")
    url = f"postgresql://{user}:{password}@{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"
    return {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "billing.settings.base"}


class WebProcess:
    """Granian with two workers, as in production; workers that die are started again."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def argv(self) -> list[str]:
        """As `up` starts it."""
        return server_argv("web", self.port)

    def start(self) -> None:
        bounded, silent = {**environment(), "MALLOC_ARENA_MAX": "2"}, subprocess.DEVNULL
        self.process = subprocess.Popen(self.argv(), env=bounded, cwd=ROOT, stdout=silent, stderr=silent)
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/healthz", timeout=10).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the web process does not answer")

    def keep(self) -> None:
        """Start it if it ended, as its supervisor does: Granian gives up on workers that die again and again."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.start()

    def workers(self) -> list[int]:
        """Process ids of the workers that live now."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children]

    def memory(self) -> int:
        """Bytes of resident memory of all workers."""
        total = 0
        for pid in self.workers():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
        return total

    def kill(self) -> None:
        """At once and all of it, workers included."""
        assert self.process is not None
        if self.process.poll() is not None:
            return
        os.kill(self.process.pid, signal.SIGSTOP)  # it makes no new worker while the old ones are killed
        for pid in [*self.workers(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


class ReceiverProcess(WebProcess):
    """The receiver of token records, which is one process."""

    def argv(self) -> list[str]:
        """As `up` starts it."""
        return server_argv("receiver", self.port)

    def workers(self) -> list[int]:
        """It alone."""
        assert self.process is not None
        return [] if self.process.poll() is not None else [self.process.pid]


@contextmanager
def web_process() -> Iterator[WebProcess]:
    """A started web process; killed at the end."""
    yield from _living(WebProcess())


@contextmanager
def receiver_process() -> Iterator[ReceiverProcess]:
    """A started receiver; killed at the end."""
    yield from _living(ReceiverProcess())


def _living(process: Process) -> Iterator[Process]:
    process.start()
    try:
        yield process
    finally:
        process.kill()
