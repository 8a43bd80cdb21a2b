"""One id from the proxy through web, its log and the audit log to the worker that does what was asked for."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from billing.local.process_list import BIN, free_port, server_argv
from billing.runtime.home import PROJECT
from billing.runtime.request_id import request_id_of
from billing.settings.celery import app
from billing.tenancy.models import AuditEntry
from billing.tenancy.tokens import api_token_create
from tests.factories.servers import environment, until

GIVEN = "4bf92f3577b34da6a3ce929d0e0e4736"
JSON = {"LOG_FORMAT": "json", "PYTHONWARNINGS": "ignore"}


@contextmanager
def logging_to(file: Path, *argv: str, **settings: str) -> Iterator[None]:
    with file.open("wb") as log:
        process = subprocess.Popen(argv, env={**environment(), **JSON, **settings}, cwd=PROJECT, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=10).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@pytest.mark.django_db(transaction=True)
def test_web_takes_the_id_of_the_proxy_into_its_answer_log_and_audit_log(tmp_path: Path) -> None:
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path / "web.log"
    _, token = api_token_create(name="reader", scopes=["invoices:read"], actor="ada")
    before = AuditEntry.objects.count()
    with logging_to(log, *server_argv(port), WEB_WORKERS="1"):
        until(lambda: answers(url))
        headers = {"X-Request-ID": GIVEN, "Authorization": f"Bearer {token}"}
        known = httpx.get(f"{url}/api/v1/teams", headers=headers, timeout=60)
        missing = httpx.get(f"{url}/api/v1/no-such-page", headers=headers, timeout=60)
        reported = httpx.post(f"{url}/api/v1/usage/tokens", headers=headers, json=[], timeout=60)
        forged = httpx.get(f"{url}/healthz", headers={"X-Request-ID": "a b\tc{}"}, timeout=60)
    assert [answer.status_code for answer in (known, missing, reported)] == [200, 404, 403]
    assert {answer.headers["X-Request-ID"] for answer in (known, missing, reported)} == {GIVEN}
    made = forged.headers["X-Request-ID"]
    assert (len(made), made == GIVEN, made.isalnum()) == (32, False, True)
    (entry,) = AuditEntry.objects.all()[before:]
    assert (entry.action, entry.detail["request_id"]) == ("api_token_first_use", GIVEN)
    (line,) = [line for line in lines(log) if "no-such-page" in line["message"]]
    assert (line["level"], line["logger"], line["request_id"]) == ("WARNING", "django.request", GIVEN)


@pytest.mark.django_db(transaction=True)
def test_a_task_belongs_to_the_request_that_started_it_and_the_next_to_none(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    argv = ["-A", "billing.settings.celery", "worker", "--pool", "solo", "--loglevel", "info"]

    def ended() -> list[dict[str, Any]]:
        whole = [line for line in log.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        done = [line for line in map(json.loads, whole) if "succeeded" in line["message"]]
        return [line for line in done if any(task.id in line["message"] for task in sent)]

    with logging_to(log, str(BIN / "celery"), "--quiet", *argv):
        with request_id_of(GIVEN):
            sent = [app.send_task("billing.usage.tasks.rollups_fold")]
        sent.append(app.send_task("billing.usage.tasks.rollups_fold"))
        until(lambda: len(ended()) == 2)
        assert [line.get("request_id") for line in ended()] == [GIVEN, None]
