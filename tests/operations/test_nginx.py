"""A real nginx with the shipped configuration before a real web process: what the proxy in front has to do, it does."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from billing.local.process_list import free_port
from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import api_token_create
from tests.factories import person, token_record
from tests.factories.servers import web_process
from tests.operations.nginx import nginx

PASSWORD = "a long enough passphrase"
FORGED = {"X-Forwarded-For": "203.0.113.9", "X_Forwarded_For": "203.0.113.9", "X-Real-IP": "203.0.113.9"}
IDLE, SLOW, SECONDS = 300, 100, 15


def client(url: str, address: str, **options: Any) -> httpx.Client:
    """Somebody at this address of the loopback network."""
    return httpx.Client(base_url=url, transport=httpx.HTTPTransport(local_address=address), timeout=30, **options)


@pytest.fixture
def front(transactional_db: None) -> Iterator[str]:
    with web_process(TRUSTED_PROXIES="1") as web, nginx(web.port) as url:
        yield url


def addresses(action: str) -> list[str]:
    return [entry.detail["address"] for entry in AuditEntry.objects.filter(action=action).order_by("pk")]


def sign_in(browser: httpx.Client) -> httpx.Response:
    browser.get("/login/")
    form = {"login": "ann", "password": PASSWORD, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    return browser.post("/login/", data=form, headers=FORGED)


def report(token: str, number: int) -> dict[str, Any]:
    return {"json": [token_record(number)], "headers": {"Authorization": f"Bearer {token}", **FORGED}}


def is_problem(answer: httpx.Response, status: int) -> bool:
    return (answer.status_code, answer.headers["Content-Type"], answer.json()["status"]) == (
        status, "application/problem+json", status,
    )  # fmt: skip


def test_people_and_gateways_pass_with_their_own_address_and_what_is_too_much_is_refused(front: str) -> None:
    person("ann", "finance", password=PASSWORD)
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    with client(front, "127.0.0.3") as browser:
        signed_in = sign_in(browser)
        assert (signed_in.status_code, signed_in.headers["Location"]) == (302, "/")
        assert browser.get("/invoices/").status_code == 200
    assert addresses("sign_in") == ["127.0.0.3"]
    with client(front, "127.0.0.4") as gateway:
        for number in range(300):  # more than strangers may send at a time
            answer = gateway.post("/api/v1/usage/tokens", **report(token, number))
            assert (answer.status_code, answer.json()["accepted"]) == (200, 1), answer.text
        large = {"content": b"[" * (16 * 1024 * 1024 + 1), "headers": {"Authorization": f"Bearer {token}"}}
        assert is_problem(gateway.post("/api/v1/usage/tokens", **large), 413)
        assert is_problem(gateway.post("/login/", content=b"x" * 65_537), 413)
    assert addresses("api_token_first_use") == ["127.0.0.4"]
    with client(front, "127.0.0.5") as stranger:
        answers = [stranger.get("/login/", headers={"X-Forwarded-For": f"203.0.113.{n}"}) for n in range(200)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert answers[0].status_code == answers[120].status_code == 200
        assert refused
        assert all(is_problem(answer, 429) and answer.headers["Retry-After"] == "1" for answer in refused)
        assert stranger.get("/healthz").status_code == stranger.get("/readyz").status_code == 200
    with client(front, "127.0.0.6") as somebody_else:
        assert somebody_else.get("/login/").status_code == 200


def test_a_token_has_a_limit_of_its_own_wherever_it_comes_from() -> None:
    """Nobody serves behind this proxy: what it lets through is a 502."""
    fewer = {"rate=5000r/s": "rate=1r/m", "zone=suanpan_token burst=5000": "zone=suanpan_token burst=2"}
    with nginx(free_port(), **fewer) as url:
        asked = [("a", 3), ("a", 4), ("a", 5), ("a", 6), ("b", 3)]
        statuses = []
        for token, host in asked:
            with client(url, f"127.0.0.{host}", headers={"Authorization": f"Bearer {token}"}) as gateway:
                statuses.append(gateway.post("/api/v1/usage/tokens", json=[]).status_code)
    assert statuses == [502, 502, 502, 429, 502]


@contextmanager
def slow_clients(url: str) -> Iterator[None]:
    """Of one address: IDLE connections without a byte, SLOW with a form or report of which a byte comes each two seconds."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    to, enough = (urlsplit(url).hostname, urlsplit(url).port), threading.Event()
    begun = [
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n[".encode()
        for path in ("/login/", "/api/v1/usage/tokens")
    ]

    def drip(channels: list[socket.socket]) -> None:
        while not enough.wait(2):
            for channel in channels:
                channel.sendall(b" ")

    with ExitStack() as stack:
        channels = [
            stack.enter_context(socket.create_connection(to, timeout=30, source_address=("127.0.0.7", 0)))
            for _ in range(IDLE + SLOW)
        ]
        for number, channel in enumerate(channels[:SLOW]):
            channel.sendall(begun[number % 2])
        dripping = threading.Thread(target=drip, args=[channels[:SLOW]])
        dripping.start()
        try:
            yield
        finally:
            enough.set()
            dripping.join()


def test_idle_and_slow_clients_stop_nobody_behind_the_proxy(front: str) -> None:
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    with client(front, "127.0.0.8") as other, slow_clients(front):
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            number += 1
            asked = time.monotonic()
            assert other.get("/healthz").status_code == other.get("/readyz").status_code == 200
            assert time.monotonic() - asked < 2, "two probes, each below a second"
            assert other.get("/login/").status_code == 200
            answer = other.post("/api/v1/usage/tokens", **report(token, number))
            assert (answer.status_code, answer.json()["accepted"]) == (200, 1), answer.text
            time.sleep(0.3)
    assert number > SECONDS / 2


def test_the_id_that_nginx_gives_a_request_is_that_of_the_answer_and_the_audit_log(transactional_db: None) -> None:
    token = api_token_create(name="reader", scopes=["invoices:read"], actor="tests")[1]
    passed = "proxy_set_header X-Request-ID $request_id;"
    shown = {passed: f"{passed} add_header X-Of-Nginx $request_id always;"}
    headers = {"Authorization": f"Bearer {token}", "X-Request-ID": "chosen-by-the-client"}
    with web_process(TRUSTED_PROXIES="1") as web, nginx(web.port, **shown) as url:
        answer = httpx.get(f"{url}/api/v1/teams", headers=headers, timeout=30)
    identifier = answer.headers["X-Of-Nginx"]
    assert (answer.status_code, len(identifier), answer.headers["X-Request-ID"]) == (200, 32, identifier)
    entry = AuditEntry.objects.get(action="api_token_first_use")
    assert entry.detail["request_id"] == identifier
