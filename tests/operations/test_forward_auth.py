"""A budget that stops at a real nginx as docs/budget-gateways.md sets it up; addresses, source and token are the test's."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from django.utils import timezone

from billing.budgets.services import standings_refresh
from billing.local.process_list import free_port
from billing.runtime.home import PROJECT
from billing.tenancy.tokens import api_token_create
from tests.factories import SET_UP, apply
from tests.factories.servers import WebProcess, until, web_process
from tests.operations.nginx import main_configuration
from tests.operations.peers import home_of, program, running_as

SINCE = "2024-01-01T00:00:00+08:00"
KEY = {"Authorization": "Bearer sk-nlp-1"}
OPEN_WHILE_AWAY = "error_page 502 503 504 = @away;"


class Models(BaseHTTPRequestHandler):
    """A model server that remembers who came through."""

    passed: list[dict[str, str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.passed.append(dict(self.headers))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def gateway(web: WebProcess, token: str, *, closed_while_away: bool = False) -> Iterator[str]:
    """The documented nginx before a model server, asking this web process."""
    text = (PROJECT / "docs" / "budget-gateways.md").read_text(encoding="utf-8")
    block = text.split("```nginx\n")[1].split("```")[0]
    models = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    threading.Thread(target=models.serve_forever, daemon=True).start()
    port = free_port()
    changed = {"listen 80;": f"listen 127.0.0.1:{port};", "127.0.0.1:9000": f"127.0.0.1:{models.server_port}",
               "127.0.0.1:8000": f"127.0.0.1:{web.port}", "Bearer TOKEN": f"Bearer {token}", "nginx-hq": "litellm-hq",
               "proxy_read_timeout 2s;": "proxy_read_timeout 60s;"}  # fmt: skip
    if closed_while_away:
        changed[OPEN_WHILE_AWAY] = ""
    for before, after in changed.items():
        assert block.count(before) == 1, before
        block = block.replace(before, after)
    with home_of("nobody") as home:
        (home / "suanpan.conf").write_text(block, encoding="utf-8")
        (home / "nginx.conf").write_text(main_configuration(home), encoding="utf-8")
        command = [program("nginx"), "-p", str(home), "-e", str(home / "error.log"), "-c", str(home / "nginx.conf")]
        process = subprocess.Popen(command, **running_as("nobody"))
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}"), 30)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)
            models.shutdown()
            models.server_close()


def answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=5)
    except httpx.TransportError:
        return False
    return True


@pytest.fixture
def web(transactional_db: None, services: None, tmp_path: Path) -> Iterator[WebProcess]:
    consumers = [{**SET_UP["consumers"][0], "valid_from": SINCE}]
    apply(tmp_path, consumers=consumers, budgets=[{"team": "nlp", "amount": "10.00", "reservation": "5.0000"}])
    standings_refresh(now=timezone.now())
    with web_process() as process:
        yield process


def ask(url: str, **headers: str) -> httpx.Response:
    sent = {**KEY, **{f"X-Suanpan-{name}": value for name, value in headers.items()}}
    return httpx.post(f"{url}/v1/chat/completions", json={"prompt": "x" * 50_000}, headers=sent, timeout=30)


def test_nginx_passes_requests_until_the_budget_is_reserved(web: WebProcess) -> None:
    Models.passed.clear()
    token = api_token_create(name="nginx", scopes=["budgets:read"], source="litellm-hq", actor="tests")[1]
    with gateway(web, token) as url:
        first = ask(url)
        assert (first.status_code, first.text, first.headers["X-Budget-Remaining"]) == (200, "ok", "10.00")
        assert ask(url, Reserve="0", Consumer="somebody-else").status_code == 200, "5.00 more are reserved all the same"
        third = ask(url)
        assert (third.status_code, third.headers["Retry-After"], third.headers["X-Budget-Remaining"]) == (429, "5", "10.00")
        assert len(Models.passed) == 2
        assert token not in str(Models.passed), "the models do not see the token"
        web.kill()
        assert ask(url).status_code == 200, "open while Suanpan is away"


def test_nginx_refuses_while_suanpan_is_away_where_it_is_told_so(web: WebProcess) -> None:
    token = api_token_create(name="nginx", scopes=["budgets:read"], source="litellm-hq", actor="tests")[1]
    with gateway(web, token, closed_while_away=True) as url:
        assert ask(url).status_code == 200
        web.kill()
        assert ask(url).status_code == 500
