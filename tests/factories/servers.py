"""Web process and receiver: as processes of their own over the test's database, or an application served in this one."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import uvicorn
from django.db import connection

from billing.local.process_list import free_port, server_argv
from billing.runtime.home import PROJECT
from billing.settings.serve import OPTIONS

STARTUP_SECONDS = 180
Process = TypeVar("Process", bound="WebProcess")


@contextmanager
def served(application: Any) -> Iterator[int]:
    """The port at which it listens."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="error", **OPTIONS))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    yield port
    server.should_exit = True
    thread.join(timeout=30)
    assert not thread.is_alive()


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def environment() -> dict[str, str]:
    """That of a process which shall use the database of this test."""
    settings = connection.settings_dict
    user, password = quote(settings["USER"], safe=""), quote(settings["PASSWORD"], safe="")
    url = f"postgresql://{user}:{password}@{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"
    return {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "billing.settings.base"}


class WebProcess:
    """The web part with two workers, as `up` starts it; workers that die are started again."""

    part = "web"

    def __init__(self) -> None:
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        bounded, silent = {**environment(), "MALLOC_ARENA_MAX": "2"}, subprocess.DEVNULL
        argv = server_argv(self.part, self.port)
        self.process = subprocess.Popen(argv, env=bounded, cwd=PROJECT, stdout=silent, stderr=silent)
        until(self.answers, STARTUP_SECONDS)

    def answers(self) -> bool:
        """Whether it does; it may just be starting."""
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/healthz", timeout=10).status_code == httpx.codes.OK
        return False

    def keep(self) -> None:
        """Start it if it ended, as its supervisor does."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.start()

    def workers(self) -> list[int]:
        """Process ids of the workers that live now; Python's tracker of resources is none."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]

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
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class ReceiverProcess(WebProcess):
    """The receiver of token records, which is one process."""

    part = "receiver"

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


def heard_until_closed(channel: socket.socket) -> bytes:
    heard = b""
    while (part := channel.recv(65_536)):
        heard += part
    return heard
