"""Traces, as a collector gets them over OTLP: a request and the task that it asks for. Without a collector, nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from billing.invoices.models import Operation
from billing.local.process_list import BIN
from billing.runtime.home import PROJECT
from billing.settings.celery import app
from billing.tenancy.tokens import api_token_create
from tests import factories
from tests.factories import allocation_record, apply, ingest_allocations, token_record
from tests.factories.servers import environment, is_done, until, web_process, worker
from tests.factories.token_endpoint import body
from tests.http_servers import HttpServer, Request, serving

GIVEN = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER, CLIENT, PRODUCER, CONSUMER, ERROR = 2, 3, 4, 5, 2
"""Numbers of opentelemetry-proto: kinds of a span, and the status of one that failed."""
EXECUTE = "billing.closing.tasks.operation_execute"


class Collector(HttpServer):
    """Keeps every span, with the service that it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: set[str] = set()
        self.spans: list[tuple[str, Any]] = []

    def answer(self, request: Request) -> tuple[int, bytes]:
        self.paths.add(request.path)
        for sent in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            service = texts(sent.resource)["service.name"]
            self.spans += [(service, span) for scope in sent.scope_spans for span in scope.spans]
        return 200, b""

    def named(self, service: str, name: str) -> list[Any]:
        return [span for its, span in self.spans if (its, span.name) == (service, name)]


def texts(of: Any) -> dict[str, str]:
    """Its attributes that are texts."""
    return {each.key: each.value.string_value for each in of.attributes if each.value.HasField("string_value")}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    with serving(Collector()) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield collector


def person(name: str, role: str) -> dict[str, Any]:
    """What the browser of somebody who has signed in sends."""
    client = Client()
    client.force_login(factories.person(name, role))
    word = "a" * 32
    return {"cookies": {"sessionid": client.cookies["sessionid"].value, "csrftoken": word}, "headers": {"X-CSRFToken": word}}


@pytest.mark.django_db(transaction=True)
def test_a_request_is_a_span_and_the_task_that_it_asks_for_continues_its_trace(tmp_path: Path, collector: Collector) -> None:
    app.control.purge()  # what tests before asked of workers that they did not start
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    _, token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")
    head = {"Authorization": f"Bearer {token}", "X-Request-ID": GIVEN, "traceparent": f"00-{TRACE}-{PARENT}-01"}
    with web_process() as web, worker():
        reported = httpx.post(f"{web.url}/api/v1/usage/tokens", content=body(token_record(1)), headers=head, timeout=60)
        close_it = f"{web.url}/close/2026-10/operations/"
        asked = httpx.post(close_it, data={"kind": "close"}, timeout=60, **person("lin", "finance"))
        until(lambda: is_done(Operation.objects.get()))
        until(lambda: bool(collector.named("suanpan-worker", f"run {EXECUTE}")))
        app.send_task(EXECUTE, [987_654_321])  # there is no such operation
        until(lambda: len(collector.named("suanpan-worker", f"run {EXECUTE}")) == 2)
        until(lambda: bool(collector.named("suanpan-web", "POST /close/<str:month>/operations/")))
    assert (reported.status_code, asked.status_code, collector.paths) == (200, 302, {"/v1/traces"})
    assert {service for service, _ in collector.spans} == {"suanpan-web", "suanpan-worker"}

    (ingest,) = collector.named("suanpan-web", "POST /api/v1/usage/tokens")
    assert (ingest.kind, ingest.trace_id.hex(), ingest.parent_span_id.hex()) == (SERVER, TRACE, PARENT)
    assert texts(ingest) == {
        "http.request.method": "POST", "url.path": "/api/v1/usage/tokens", "http.route": "/api/v1/usage/tokens",
        "suanpan.request_id": GIVEN,
    }  # fmt: skip
    assert {each.key: each.value.int_value for each in ingest.attributes}["http.response.status_code"] == 200

    (close,) = collector.named("suanpan-web", "POST /close/<str:month>/operations/")
    (sent,) = collector.named("suanpan-web", f"send {EXECUTE}")
    executed, failed = collector.named("suanpan-worker", f"run {EXECUTE}")
    assert [span.kind for span in (close, sent, executed)] == [SERVER, PRODUCER, CONSUMER]
    assert (sent.parent_span_id, executed.parent_span_id, close.parent_span_id) == (close.span_id, sent.span_id, b"")
    assert close.trace_id == sent.trace_id == executed.trace_id
    identifier = asked.headers["X-Request-ID"]
    assert {texts(span)["suanpan.request_id"] for span in (close, sent, executed)} == {identifier}
    assert (executed.status.code, failed.status.code, failed.events[0].name) == (0, ERROR, "exception")
    assert failed.trace_id != executed.trace_id

    statements = [span for service, span in collector.spans if service == "suanpan-worker" and span.kind == CLIENT]
    assert {span.trace_id for span in statements} == {executed.trace_id, failed.trace_id}, "those of no task are left out"
    assert any(span.parent_span_id == executed.span_id and span.name == "SELECT" for span in statements)
    assert [span.name for _, span in collector.spans if "healthz" in span.name] == []


@pytest.mark.django_db(transaction=True)
def test_a_task_of_the_schedule_begins_a_trace_at_the_scheduler(tmp_path: Path, collector: Collector) -> None:
    """As containers start both: the worker with a pool of processes, each of which sends its spans."""
    app.control.purge()
    celery = [str(BIN / "celery"), "--quiet", "-A", "billing.settings.celery"]
    own = {**environment(), "PYTHONWARNINGS": "ignore"}
    beat = [*celery, "beat", "--pidfile=", "--loglevel", "error", "--schedule", str(tmp_path / "beat")]
    pool = [*celery, "worker", "--concurrency", "2", "--loglevel", "error"]
    processes = [subprocess.Popen(argv, env=own, cwd=PROJECT) for argv in (pool, beat)]
    try:
        until(lambda: bool(collector.named("suanpan-worker", "run billing.closing.tasks.operations_resume")))
        until(lambda: bool(collector.named("suanpan-scheduler", "send billing.closing.tasks.operations_resume")))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)
    sent = collector.named("suanpan-scheduler", "send billing.closing.tasks.operations_resume")
    executed = collector.named("suanpan-worker", "run billing.closing.tasks.operations_resume")
    assert executed[0].parent_span_id in {span.span_id for span in sent}
    assert len({span.trace_id for span in sent}) == len(sent), "each turn is a trace of its own"


LOADED = """import sys, billing.settings.web
traced = [module for name, module in sys.modules.items()
          if name.startswith("opentelemetry") and not name.startswith("opentelemetry.proto")]
print(any(getattr(module, "__file__", None) for module in traced))"""
"""Parents without a file of their own are folders, of which nothing was loaded; the messages of OTLP are reports."""


@pytest.mark.parametrize(("endpoint", "imported"), [("", "False"), ("http://127.0.0.1:9", "True")])
def test_nothing_is_imported_where_no_collector_is_named(endpoint: str, imported: str) -> None:
    done = started(LOADED, endpoint)
    assert (done.returncode, done.stdout.strip()) == (0, imported), done.stderr


def test_a_collector_without_the_packages_is_one_line() -> None:
    program = "import sys; sys.modules['opentelemetry.sdk'] = None; import billing.settings.base"
    done = started(program, "http://127.0.0.1:9")
    said = "OTEL_EXPORTER_OTLP_ENDPOINT is set: install the packages of suanpan[tracing] too"
    assert done.stderr.splitlines()[-1] == f"django.core.exceptions.ImproperlyConfigured: {said}"


def started(program: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, env=own, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120)
