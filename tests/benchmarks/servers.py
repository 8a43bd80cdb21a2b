"""Web servers of the benchmarks, started as the house starts its own."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    """Where a server listens, which token opens its doors, and the process that started its workers."""

    port: int
    token: str
    pid: int


@contextmanager
def house_server() -> Iterator[Server]:
    """The house's own web part."""
    with _served({}) as server:
        yield server


@contextmanager
def plain_server() -> Iterator[Server]:
    """The doors that ingest is compared with, in the same server with the same workers."""
    environment = {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.plain", "PYTHONPATH": str(ROOT)}
    with _served(environment, "tests.benchmarks.plain_wsgi:application") as server:
        yield server


@contextmanager
def receiver_server() -> Iterator[Server]:
    """The receiver, as `up` starts it."""
    from billing.local.process_list import free_port, receiver_argv

    port = free_port()
    with _started(port, receiver_argv(port), {}) as server:
        yield server


@contextmanager
def _served(environment: dict[str, str], application: str = "") -> Iterator[Server]:
    from billing.local.process_list import children, free_port

    port = free_port()
    web = children(port)[0]
    with _started(port, [*web.argv[:-1], application or web.argv[-1]], {**(web.env or {}), **environment}) as server:
        yield server


@contextmanager
def _started(port: int, argv: list[str], environment: dict[str, str]) -> Iterator[Server]:
    from billing.tenancy.tokens import api_token_create

    _, token = api_token_create(name=f"bench {port}", scopes=["usage:write"], actor="bench")
    process = subprocess.Popen(argv, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        _until_listening(port, process)
        yield Server(port, token, process.pid)
    finally:
        process.terminate()
        process.wait()


def _until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"no web server on port {port}")
