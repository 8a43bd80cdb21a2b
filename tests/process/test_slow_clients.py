"""Clients that connect and send nothing, or a byte now and then, keep nobody else from pages, reports and probes."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

import httpx
import pytest

from billing.tenancy.tokens import api_token_create
from tests.factories import token_record
from tests.factories.servers import web_process

SECONDS, SOON = 60, 5.0  # a probe of the chart waits as long
OFTEN = 1.0
"""Seconds within which most probes are answered; on a busy machine a single one may take longer."""
IDLE, SLOW = 1000, 200
NEW_CONNECTIONS = httpx.Limits(max_keepalive_connections=0)
FORM = (
    b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 5000\r\n\r\nusername="
)


def report(token: str) -> bytes:
    """The head of a report, and how it begins."""
    head = f"POST /api/v1/usage/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Length: 16000000\r\n\r\n[".encode()


@contextmanager
def slow_clients(port: int, begun: list[bytes]) -> Iterator[None]:
    """IDLE clients that send nothing, and SLOW of each kind that send one byte more every five seconds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    enough = threading.Event()

    def dialled(channels: ExitStack, sent: bytes) -> socket.socket:
        channel = channels.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        channel.sendall(sent)
        return channel

    def drip(channels: list[socket.socket]) -> None:
        while not enough.wait(5):
            for channel in channels:
                channel.sendall(b" ")

    with ExitStack() as channels:
        slow = [dialled(channels, sent) for sent in begun for _ in range(SLOW)]
        [dialled(channels, b"") for _ in range(IDLE)]
        dripping = threading.Thread(target=drip, args=[slow])
        dripping.start()
        try:
            yield
        finally:
            enough.set()
            dripping.join()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.django_db(transaction=True)
def test_idle_and_slow_clients_stop_neither_pages_nor_reports_nor_probes() -> None:
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    bearer = {"Authorization": f"Bearer {token}"}
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))  # web raises it
    with web_process() as web, httpx.Client(limits=NEW_CONNECTIONS) as client:
        probes, began = [f"{web.url}{path}" for path in ("/healthz", "/readyz")], web.workers()
        took = list[float]()
        with slow_clients(web.port, begun=[FORM, report(token)]):
            end, number = time.monotonic() + SECONDS, 0
            while time.monotonic() < end:
                for url in probes:
                    asked = time.monotonic()
                    assert client.get(url, timeout=SOON).status_code == 200
                    took.append(time.monotonic() - asked)
                assert client.get(f"{web.url}/login/", timeout=10).status_code == 200
                number += 1
                sent = [token_record(number)]
                answer = client.post(f"{web.url}/api/v1/usage/tokens", json=sent, headers=bearer, timeout=10)
                assert (answer.status_code, answer.json()["accepted"]) == (200, 1), answer.text
                time.sleep(0.5)
        assert web.workers() == began, "a process ended"
    print(f"{len(took)} probes: half within {median(took):.3f} s, the slowest {max(took):.3f} s")
    assert median(took) < OFTEN
    assert number > SECONDS / 2
