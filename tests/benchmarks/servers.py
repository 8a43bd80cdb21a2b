"""Web servers of the benchmarks, started as an installation starts its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    """Where a server listens, which token opens its endpoints, and the process that started its workers."""

    port: int
    token: str
    pid: int


@contextmanager
def installation_server(workers: int = 1) -> Iterator[Server]:
    """The portal and the API; in one worker the database and the senders have the other core."""
    from billing.local.process_list import free_port, server_argv

    port = free_port()
    with _started(port, server_argv(port), {"MALLOC_ARENA_MAX": "2", "WEB_WORKERS": str(workers)}) as server:
        yield server


@contextmanager
def plain_server() -> Iterator[Server]:
    """The endpoints that ingest is compared with, in the same server with two workers."""
    from billing.local.process_list import free_port

    port = free_port()
    environment = {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.plain", "PYTHONPATH": str(ROOT)}
    with _started(port, serving("tests.benchmarks.plain_server:application", port, workers=2), environment) as server:
        yield server


def serving(application: str, port: int, *, workers: int = 1) -> list[str]:
    """What serves another application as the product's own are served."""
    call = f"serve({application!r}, port={port}, workers={workers})"
    return [sys.executable, "-c", f"from billing.settings.serve import serve; {call}"]


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
