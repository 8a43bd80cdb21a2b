"""`/metrics` costs one scrape a second however many ask, keeps nobody from `/readyz`, and is not for the public."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.test import Client

from billing.api import metrics
from tests.factories.servers import served_web, until

ASKING = 20


class Scrape:
    """In place of the real one: counts, and waits while a test holds it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.made, self.may_end = 0, threading.Event()
        self.may_end.set()
        monkeypatch.setattr(metrics, "scrape", self)
        monkeypatch.setattr(metrics, "SCRAPE_SECONDS", seconds)

    def __call__(self) -> bytes:
        self.made += 1
        self.may_end.wait()
        return b"made %d\n" % self.made


@pytest.mark.django_db(transaction=True)
def test_readyz_and_pages_are_answered_while_many_wait_for_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    scrape = Scrape(monkeypatch, seconds=3600)
    scrape.may_end.clear()
    with served_web() as port, ThreadPoolExecutor(ASKING) as clients:
        url = f"http://127.0.0.1:{port}"
        asked = [clients.submit(httpx.get, f"{url}/metrics", timeout=60) for _ in range(ASKING)]
        until(lambda: scrape.made == 1)
        assert httpx.get(f"{url}/readyz", timeout=30).json()["database"] == "ok"
        assert httpx.get(f"{url}/login/", timeout=30).status_code == 200
        scrape.may_end.set()
        answers = [one.result() for one in asked]
        assert {(one.status_code, one.text) for one in answers} == {(200, "made 1\n")}
        assert answers[0].headers["Content-Type"].startswith("text/plain; version=")
        assert httpx.head(f"{url}/metrics").status_code == 200
    assert scrape.made == 1


@pytest.mark.django_db(transaction=True)
def test_a_scrape_that_is_too_old_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Scrape(monkeypatch, seconds=0)
    with served_web() as port:
        assert [httpx.get(f"http://127.0.0.1:{port}/metrics").text for _ in range(3)] == ["made 1\n", "made 2\n", "made 3\n"]


@pytest.mark.django_db(transaction=True)
def test_a_scrape_that_failed_is_an_error_and_no_connection_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "scrape", lambda: 1 // 0)
    with served_web() as port:
        assert httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 500


@pytest.mark.parametrize(("host", "more", "status"), [
    ("10.1.2.3:8000", {}, 200),
    ("[fd00::1]:8000", {}, 200),
    ("web:8000", {}, 200),
    ("suanpan-web.billing.svc", {}, 200),
    ("billing.example.com", {}, 404),
    ("10.1.2.3:8000", {"X-Forwarded-For": "203.0.113.7"}, 404),
    ("10.1.2.3:8000", {"Forwarded": "for=203.0.113.7"}, 404),
    ("metrics.example.com", {"X-Forwarded-For": "203.0.113.7"}, 200),
    ("elsewhere.example.org", {}, 400),
])  # fmt: skip
@pytest.mark.django_db(transaction=True)
def test_a_public_host_serves_no_metrics_unless_it_is_asked_to(
    host: str, more: dict[str, str], status: int, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ALLOWED_HOSTS = ["10.1.2.3", "[fd00::1]", "web", ".billing.svc", ".example.com"]
    settings.METRICS_HOSTS = ["metrics.example.com"]
    Scrape(monkeypatch, seconds=0)
    with served_web() as port:
        heard = httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": host, **more})
    of_django = Client(headers=more).get("/metrics", SERVER_NAME=host.partition(":8000")[0])
    assert (heard.status_code, of_django.status_code) == (status, status)
    if status == 404:
        assert "METRICS_HOSTS" in heard.json()["detail"]
