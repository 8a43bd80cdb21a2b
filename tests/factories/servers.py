"""The web process, as a process of its own over the test's database, or an application served in this one."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import uvicorn
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections

from billing.api.whole_requests import WholeRequests
from billing.invoices.models import Operation
from billing.local.embedded.binaries import valkey_server
from billing.local.process_list import BIN, free_port, server_argv
from billing.runtime.home import PROJECT
from billing.settings.serve import OPTIONS

STARTUP_SECONDS = 180


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


@contextmanager
def served_web() -> Iterator[int]:
    """The port of web in this process: pages, endpoints, and what gateways send for each request."""
    usual, database = connection.settings_dict["CONN_MAX_AGE"], connections.settings["default"]
    database["CONN_MAX_AGE"] = 0  # threads end without closing theirs
    with served(WholeRequests(get_wsgi_application(), threads=4)) as port:
        yield port
    database["CONN_MAX_AGE"] = usual


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for it, asking the more rarely the longer it takes."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < seconds, "it never came"
        time.sleep(min(0.01 + waited / 20, 0.2))


def environment() -> dict[str, str]:
    """That of a process which shall use the database of this test."""
    settings = connection.settings_dict
    user, password = quote(settings["USER"], safe=""), quote(settings["PASSWORD"], safe="")
    url = f"postgresql://{user}:{password}@{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"
    return {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "billing.settings.base"}


class WebProcess:
    """Web, as `up` starts it; a worker that dies is started again."""

    def __init__(self, workers: int, **settings: str) -> None:
        self.port, self._workers, self._settings = free_port(), workers, settings
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        own = {"MALLOC_ARENA_MAX": "2", "WEB_WORKERS": str(self._workers), **self._settings}
        bounded, silent = {**environment(), **own}, subprocess.DEVNULL
        self.process = subprocess.Popen(server_argv(self.port), env=bounded, cwd=PROJECT, stdout=silent, stderr=silent)
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
        """Process ids of the workers that live now; a single one is the process itself. The resource tracker is none."""
        assert self.process is not None
        if self._workers == 1:
            return [] if self.process.poll() is not None else [self.process.pid]
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
        for pid in {*self.workers(), self.process.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def web_process(workers: int = 1, **settings: str) -> Iterator[WebProcess]:
    """A started web process; killed at the end."""
    process = WebProcess(workers, **settings)
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


@contextmanager
def worker() -> Iterator["subprocess.Popen[bytes]"]:
    """A real Celery worker on the test database; killed with its pool at the end."""
    process = subprocess.Popen(
        [str(BIN / "celery"), "--quiet", "-A", "billing.settings.celery", "worker", "--pool", "solo", "--loglevel", "error"],
        env={**environment(), "PYTHONWARNINGS": "ignore"}, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def broker(port: int) -> Iterator[None]:
    """A Valkey that keeps nothing, until the block ends."""
    argv = [str(valkey_server()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def is_done(operation: Operation) -> bool:
    """Whether it is; it must not have been refused."""
    operation.refresh_from_db()
    assert operation.status != Operation.Status.REFUSED, operation.message
    return operation.status == Operation.Status.DONE
