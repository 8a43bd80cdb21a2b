"""A part that cannot start ends, with one line that says why; a broker that comes and goes ends nobody."""

import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError

from billing.local.process_list import children, free_port, server_argv
from billing.runtime.home import PROJECT
from billing.tenancy.tokens import api_token_create
from tests.factories import token_record
from tests.factories.servers import broker, environment, until, web_process

PARTS = {child.name: list(child.argv) for child in children(8000)}
WRONG = {
    "DATABASE_URL=mysql://x": "error: DATABASE_URL has scheme 'mysql'; Suanpan keeps its ledger in postgresql",
    "WEB_THREADS=0": "error: WEB_THREADS='0' must be a whole number, 1 or more",
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("part", PARTS)
def test_a_setting_that_is_wrong_is_one_line(part: str, wrong: str) -> None:
    name, value = wrong.split("=")
    done = subprocess.run(
        PARTS[part], env={**os.environ, name: value}, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode != 0, done.stdout + done.stderr) == (True, f"{WRONG[wrong]}\n")


def test_a_port_that_somebody_has_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        argv = server_argv(taken.getsockname()[1])
        done = subprocess.run(argv, env=os.environ, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    assert (done.returncode != 0, len(lines), "ddress already in use" in lines[0]) == (True, 1, True), lines


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_the_portal_is_ready_and_serves_pages_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    port = free_port()
    monkeypatch.setenv("BROKER_URL", f"redis://127.0.0.1:{port}/0")
    with web_process() as web, httpx.Client(base_url=web.url, timeout=30) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()) == (
            200, {"status": "ok", "database": "ok", "migrations": "ok", "broker": "unreachable"},
        )  # fmt: skip
        assert "suanpan_broker_up 0.0" in client.get("/metrics").text
        assert client.get("/login/").status_code == 200
        sent = client.post("/api/v1/usage/tokens", json=[token_record()], headers={"Authorization": f"Bearer {token}"})
        assert (sent.status_code, sent.json()["accepted"]) == (200, 1)
        with broker(port):
            until(lambda: client.get("/readyz").json()["broker"] == "ok")


@pytest.mark.django_db(transaction=True)
def test_a_worker_outlives_its_broker_twice(tmp_path: Path) -> None:
    port, said = free_port(), tmp_path / "said"
    url = f"redis://127.0.0.1:{port}/0"
    with said.open("wb") as log:
        worker = subprocess.Popen(
            PARTS["worker"], env={**environment(), "BROKER_URL": url}, cwd=PROJECT, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        for _ in range(3):
            with broker(port):
                until(lambda: answers(url) or worker.poll() is not None, 120)
                assert worker.poll() is None, said.read_text()
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def answers(url: str) -> bool:
    """Whether a worker of this broker does."""
    with Celery(broker=url, set_as_current=False) as celery, suppress(ConnectionError, OperationalError):
        return bool(celery.control.ping(timeout=2))
    return False
