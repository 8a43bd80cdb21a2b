"""The budget check over HTTP: what it answers to whom, and that bursts, kills and restarts never pass the limit."""

import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import uvicorn
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from billing.api.budget_check import MOST_BODY, BudgetCheck
from billing.api.report_connection import ReportConnection
from billing.budgets.models import BudgetStatus
from billing.budgets.services import standings_refresh
from billing.local.process_list import check_argv, free_port
from billing.tenancy.models import ApiToken, Team
from billing.tenancy.tokens import api_token_create, api_token_revoke
from tests.cli import PROJECT
from tests.factories import SET_UP, apply, ingest_tokens, token_record

pytestmark = pytest.mark.django_db(transaction=True)
SINCE = "2024-01-01T00:00:00+08:00"
PRICE = {
    "name": "p", "valid_from": SINCE, "gpu": [],
    "tokens": [{"model": "llama-3-8b", "input": "1000.0000", "cache_read": "0.2000", "output": "8.0000"}],
}  # fmt: skip
ASK = {"source": "litellm-hq", "consumer": "nlp-key-1", "model": "llama-3-8b"}
ADDRESS = "/api/v1/budgets/"


def set_up(directory: Path, amount: str = "50.00", **budget: Any) -> None:
    consumers = [{**SET_UP["consumers"][0], "valid_from": SINCE}]
    apply(directory, price_versions=[PRICE], consumers=consumers, budgets=[{"team": "nlp", "amount": amount, **budget}])


def report(number: int | str, tokens: int = 1000) -> None:
    """One request of now: 1,000 tokens cost 1.00."""
    now = timezone.now()
    record = token_record(1, id=f"req-{number}", time=now.isoformat(), input_tokens=tokens, cache_read_input_tokens=0,
                          output_tokens=0, reasoning_output_tokens=0)  # fmt: skip
    assert ingest_tokens(record, now=now).accepted == 1


def token(*scopes: str, **bound: Any) -> str:
    return api_token_create(name="gw", scopes=list(scopes or ("budgets:read",)), actor="tests", **bound)[1]


class Asked:
    """The application in this process, served as the house serves it, following the test's database."""

    def __init__(self, directory: Path) -> None:
        environment = {**os.environ, "DATABASE_URL": _database_url(), "PYTHONWARNINGS": "ignore"}
        self.app = BudgetCheck(directory / "holds", project=PROJECT, environment=environment)
        self.presented, self.port = token(), free_port()
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=self.port, http=ReportConnection, loop="uvloop", ws="none", log_level="error"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)

    def __enter__(self) -> "Asked":
        self.thread.start()
        self.until(lambda: self.server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=30)
        assert not self.thread.is_alive()

    def request(self, method: str, path: str, presented: str, **sent: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {presented}"} if presented else {}
        url = f"http://127.0.0.1:{self.port}{ADDRESS}{path}"
        return httpx.request(method, url, headers={**headers, **sent.pop("headers", {})}, timeout=30, **sent)

    def until(self, ready: Callable[[], bool], seconds: float = 20) -> None:
        """Wait for something that the following thread will bring about."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.02)

    def check(self, presented: str, **fields: Any) -> dict[str, Any]:
        answer = self.request("GET", "check", presented, params={**ASK, **fields})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    set_up(tmp_path)
    report("before", 2000)
    standings_refresh(now=timezone.now())
    with Asked(tmp_path) as found:
        found.until(lambda: found.app._counter is not None and found.app._counter.snapshot is not None)
        yield found


def test_the_answer_of_the_contract(asked: Asked) -> None:
    presented = asked.presented
    answer = asked.check(presented, reserve="0")
    standing = BudgetStatus.objects.get()
    assert {name: answer[name] for name in ("allowed", "reason", "budget", "spent", "remaining")} == {
        "allowed": True, "reason": "within_budget", "budget": "50.00", "spent": "2.00", "remaining": "48.00",
    }  # fmt: skip
    assert answer["as_of"] == standing.as_of.isoformat()
    assert answer["period"] == standing.period
    assert (answer["currency"], answer["team"], answer["reservation"]) == ("CNY", "nlp", None)


def test_a_reservation_is_stated_counted_and_can_be_released(asked: Asked) -> None:
    presented = asked.presented
    before = Decimal(asked.check(presented, reserve="0")["held"])
    made = asked.request("POST", "reservations", presented, json={**ASK, "reserve": "5.5", "seconds": 600}).json()
    assert made["reservation"]["amount"] == "5.5"
    assert Decimal(made["held"]) - before == Decimal("5.5")
    assert asked.request("DELETE", f"reservations/{made['reservation']['id']}", presented).status_code == 204
    assert asked.request("DELETE", f"reservations/{made['reservation']['id']}", presented).status_code == 404
    assert Decimal(asked.check(presented, reserve="0")["held"]) == before


def test_a_named_reservation_ends_when_its_record_is_counted(asked: Asked) -> None:
    presented = asked.presented
    before = Decimal(asked.check(presented, reserve="0")["held"])
    asked.check(presented, id="req-77", reserve="9")
    assert Decimal(asked.check(presented, reserve="0")["held"]) == before + 9
    report(77)
    asked.until(lambda: asked.app._counter is not None and not asked.app._counter.waiting_keys())
    assert Decimal(asked.check(presented, reserve="0")["held"]) >= 9, "in the ledger, not yet in the counter"
    standings_refresh(now=timezone.now())
    asked.until(lambda: asked.check(presented, reserve="0")["spent"] == "3.00")
    assert Decimal(asked.check(presented, reserve="0")["held"]) < 9


WRONG: list[tuple[dict[str, str], str]] = [
    ({"source": ""}, "source"), ({"consumer": ""}, "consumer"), ({"reserve": "-1"}, "reserve"),
    ({"reserve": "NaN"}, "reserve"), ({"reserve": "1e99"}, "reserve"), ({"reserve": "0.00001"}, "reserve"),
    ({"input_tokens": "x"}, "input_tokens"), ({"output_tokens": "²"}, "output_tokens"), ({"seconds": "3601"}, "seconds"),
    ({"model": "m" * 513}, "model"), ({"consumer": "a\0b"}, "consumer"),
]  # fmt: skip


def test_a_bad_field_is_named(asked: Asked) -> None:
    for changed, field in WRONG:
        answer = asked.request("GET", "check", asked.presented, params={**ASK, **changed})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), changed
        assert answer.json()["detail"].startswith(f"{field}: "), changed


def test_who_may_ask_what(asked: Asked) -> None:
    anyone, nlp, cv = asked.presented, token(team=Team.objects.get(code="nlp")), token(team=Team.objects.get(code="cv"))
    other_source, wrong_scope = token(source="elsewhere"), token("usage:write")

    def status(presented: str) -> int:
        return asked.request("GET", "check", presented, params=ASK).status_code

    asked.until(lambda: status(other_source) == 403)
    found = [status(presented) for presented in (anyone, nlp, cv, wrong_scope, "nonsense", "")]
    assert found == [200, 200, 404, 401, 401, 401]
    assert asked.request("PUT", "check", anyone).status_code == 405
    assert asked.request("GET", "else", anyone).status_code == 404
    assert asked.request("POST", "reservations", anyone, content=b"[1]").status_code == 400
    assert asked.request("POST", "reservations", anyone, content=b"{" * 10_000).status_code == 400
    assert asked.request("POST", "reservations", anyone, content=b" " * 20_000).status_code == 413


def test_what_the_connection_says_of_each_answer(asked: Asked) -> None:
    gone = asked.request("DELETE", "reservations/unknown", asked.presented)
    assert (gone.status_code, gone.headers["content-type"]) == (404, "application/problem+json")
    made = asked.request("POST", "reservations", asked.presented, json={**ASK, "reserve": "1"}).json()["reservation"]["id"]
    ended = asked.request("DELETE", f"reservations/{made}", asked.presented)
    assert (ended.status_code, ended.content) == (204, b"")
    assert {"content-type", "content-length"}.isdisjoint(ended.headers)
    head = asked.request("HEAD", "check", asked.presented, params=ASK)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 100
    nobody = asked.request("GET", "check", "", params=ASK)
    assert (nobody.status_code, nobody.headers["www-authenticate"], nobody.headers["cache-control"]) == (
        401, "Bearer", "no-store",
    )  # fmt: skip
    assert asked.request("GET", "%63heck", asked.presented, params=ASK).status_code == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(asked: Asked) -> None:
    for content in (b" " * (MOST_BODY + 1), iter([b" " * MOST_BODY, b" "])):
        assert asked.request("POST", "reservations", asked.presented, content=content).status_code == 413
    with socket.create_connection(("127.0.0.1", asked.port), timeout=30) as channel:
        lines = [f"POST {ADDRESS}reservations HTTP/1.1", "Host: x", "Content-Length: 99999999", "Expect: 100-continue"]
        channel.sendall("\r\n".join([*lines, "", ""]).encode())
        assert channel.makefile("rb").readline().startswith(b"HTTP/1.1 413")


def test_an_error_of_ours_is_a_500_and_the_next_question_is_answered(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(asked.app, "_check", broken)
        answer = asked.request("GET", "check", asked.presented, params=ASK)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "broken" in caplog.text
    assert asked.check(asked.presented, reserve="0")["allowed"]


def test_a_revoked_token_and_a_raised_budget_are_noticed(asked: Asked, tmp_path: Path) -> None:
    made = ApiToken.objects.get()
    presented = asked.presented
    set_up(tmp_path, "60.00")
    standings_refresh(now=timezone.now())
    asked.until(lambda: asked.check(presented, reserve="0")["budget"] == "60.00")
    api_token_revoke(token=made, actor="tests", now=timezone.now())
    asked.until(lambda: asked.request("GET", "check", presented, params=ASK).status_code == 401)


def test_the_web_process_passes_the_question_on(asked: Asked, settings, client: Client) -> None:
    headers = {"Authorization": f"Bearer {asked.presented}"}
    settings.BUDGET_CHECK_URL = ""
    assert client.get(f"{ADDRESS}check", ASK, headers=headers).status_code == 503
    settings.BUDGET_CHECK_URL = f"http://127.0.0.1:{free_port()}"
    refused = client.get(f"{ADDRESS}check", ASK, headers=headers)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    with _answering(b'{"allowed": true}') as url:
        settings.BUDGET_CHECK_URL = url
        answer = client.get(f"{ADDRESS}check", {**ASK, "id": "a b"}, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"allowed": True})
    assert client.get(f"{ADDRESS}check", ASK).status_code == 401
    assert client.get(f"{ADDRESS}check", ASK, headers={"Authorization": f"Bearer {token('usage:read')}"}).status_code == 403


def test_the_list_shows_where_budgets_stand_and_only_to_whom_they_belong(tmp_path: Path, client: Client) -> None:
    set_up(tmp_path)
    report("one", 2000)
    standings_refresh(now=timezone.now())

    def listed(**bound: Any) -> list[dict[str, Any]]:
        answer = client.get("/api/v1/budgets", headers={"Authorization": f"Bearer {token(**bound)}"})
        assert answer.status_code == 200
        return list(answer.json()["results"])

    (row,) = listed()
    assert (row["team"], row["amount"], row["thresholds"]) == ("nlp", "50.00", [50, 80, 100])
    standing = row["standing"]
    assert (standing["spent"], standing["remaining"], standing["forecast_p50"]) == ("2.00", "48.00", None)
    assert len(listed(team=Team.objects.get(code="nlp"))) == 1
    assert listed(team=Team.objects.get(code="cv")) == []
    headers = {"Authorization": f"Bearer {token('usage:read')}"}
    assert client.get("/api/v1/budgets", headers=headers).status_code == 403


@contextmanager
def _answering(body: bytes) -> Iterator[str]:
    """A server that answers the question as the web process should have passed it on, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fields = parse_qs(urlsplit(self.path).query)
            right = urlsplit(self.path).path == f"{ADDRESS}check" and fields["id"] == ["a b"]
            self.send_response(200 if right and self.headers["Authorization"] else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _database_url() -> str:
    facts = connection.settings_dict
    return f"postgresql://{facts['USER']}:{facts['PASSWORD']}@{facts['HOST']}:{facts['PORT']}/{facts['NAME']}"


class RealProcess:
    """The budget check as the house starts it, and the command that follows the ledger."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.environment = {
            **os.environ, "DATABASE_URL": _database_url(), "BUDGET_RESERVATION_DIR": str(directory / "holds"),
            "DJANGO_SETTINGS_MODULE": "billing.settings.base", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        self.server = self._serve()
        follow = [sys.executable, str(PROJECT / "manage.py"), "budget_counter", "--follow"]
        self.counter = subprocess.Popen(follow, env=self.environment)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(check_argv(self.port), env=self.environment, cwd=PROJECT, start_new_session=True)

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while not self.ready():
            assert time.monotonic() < deadline, "the budget check never served"
            time.sleep(0.1)

    def kill_and_restart(self) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()
        self.server = self._serve()

    def stop(self) -> None:
        self.server.terminate()
        self.counter.terminate()
        assert self.counter.wait(timeout=30) == 0
        self.server.wait(timeout=30)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealProcess]:
    set_up(tmp_path)
    standings_refresh(now=timezone.now())
    process = RealProcess(tmp_path)
    try:
        process.wait()
        yield process
    finally:
        process.stop()


def _gateway(url: str, presented: str, number: int, most: int) -> None:
    """Asks, and reports what it was let through for a little later; gives up once it is refused for good."""
    connections.close_all()
    dice = random.Random(number)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {presented}"}, timeout=5) as client:
        refused = 0
        for turn in range(most):
            identity = f"{number}-{turn}"
            answer = _ask_until_answered(client, f"req-{identity}")
            if answer["allowed"]:
                time.sleep(dice.random() * 0.05)
                report(identity)
                refused = 0
            else:
                refused += 1
                time.sleep(0.05)
            if refused >= 20 and answer["reason"] == "budget_used_up":
                break
    os._exit(0)


def _ask_until_answered(client: httpx.Client, identity: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            answer = client.get(f"{ADDRESS}check", params={**ASK, "id": identity, "reserve": "1.00"})
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if answer.status_code == 200:
            return dict(answer.json())
        time.sleep(0.05)
    raise AssertionError("no answer")


def test_gateways_in_a_burst_stay_within_the_limit_while_the_check_is_killed(real: RealProcess) -> None:
    presented = token()
    time.sleep(0.1)
    context = multiprocessing.get_context("fork")
    connections.close_all()
    gateways = [context.Process(target=_gateway, args=(real.url, presented, number, 400)) for number in range(4)]
    for gateway in gateways:
        gateway.start()
    for _ in range(2):
        time.sleep(0.7)
        real.kill_and_restart()
    for gateway in gateways:
        gateway.join(timeout=120)
        assert gateway.exitcode == 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(input_tokens) FROM token_event")
        requests, tokens = cursor.fetchone()
    assert requests == 50, "each costs what it reserved: exactly the budget, and all of it"
    call_command("budget_counter")
    standing = BudgetStatus.objects.get()
    assert standing.spent == Decimal(int(tokens)) / 1000


def test_the_counter_equals_the_ledger_after_any_interleaving(real: RealProcess, capsys: pytest.CaptureFixture[str]) -> None:
    context = multiprocessing.get_context("fork")
    connections.close_all()
    writers = [context.Process(target=_writer, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(10):
        standings_refresh(now=timezone.now())
    for writer in writers:
        writer.join(timeout=120)
        assert writer.exitcode == 0
    call_command("budget_counter", "--json")
    rows = json.loads(capsys.readouterr().out)["budgets"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(input_tokens) FROM token_event")
        tokens = int(cursor.fetchone()[0])
    assert tokens == 4 * sum(range(1, 41)) * 1000
    assert Decimal(rows[0]["spent"]) == Decimal(tokens) / 1000 == BudgetStatus.objects.get().spent
    later = timezone.now() + timedelta(seconds=1)
    assert standings_refresh(now=later)[0].spent == Decimal(tokens) / 1000


def _writer(number: int) -> None:
    connections.close_all()
    for turn in range(1, 41):
        report(f"{number}-{turn}", turn * 1000)
    os._exit(0)
