"""Traces for an OpenTelemetry collector: requests of web, tasks from message to end, statements of the database.

Imported only where OTEL_EXPORTER_OTLP_ENDPOINT is set. Other OTEL_ variables have OpenTelemetry's meaning.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final

from celery import Task
from celery.signals import (
    beat_init,
    before_task_publish,
    task_postrun,
    task_prerun,
    worker_process_init,
    worker_process_shutdown,
)
from django.urls import Resolver404, resolve
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, get_tracer, set_span_in_context, set_tracer_provider

from billing.api.request_metrics import endpoint_class
from billing.runtime.request_id import HEADER, request_id

REQUEST_ID: Final = "suanpan.request_id"
UNTRACED: Final = ("probes", "static")
"""Classes of requests without information that come every few seconds."""

_tracer: Final = get_tracer("suanpan")  # a no-op before `begin`
_running: Final[dict[str, ExitStack]] = {}


class Spans(BatchSpanProcessor):
    """Exporter of spans that adds the request id. Statements of background threads are in no trace."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if identifier := request_id():
            span.set_attribute(REQUEST_ID, identifier)

    def on_end(self, span: ReadableSpan) -> None:
        """Export a finished span, except a statement that is a trace of its own."""
        if span.parent is not None or span.kind is not SpanKind.CLIENT:
            super().on_end(span)


def begin(part: str) -> TracerProvider:
    """Start exporting traces of this process, named after its part (web, worker, scheduler); the rest is sent at exit."""
    provider = TracerProvider(resource=Resource.create({"service.namespace": "suanpan", "service.name": f"suanpan-{part}"}))
    provider.add_span_processor(Spans(OTLPSpanExporter()))
    set_tracer_provider(provider)
    PsycopgInstrumentor().instrument()
    return provider


class TracedRequests:
    """ASGI application whose requests are spans, children of the `traceparent` of a proxy or client."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        if scope["type"] != "http" or endpoint_class(scope["path"]) in UNTRACED:
            return await self._application(scope, receive, send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, route = scope["method"], _route(scope["path"])
        attributes = {"http.request.method": method, "url.path": scope["path"], "http.route": route}
        with _tracer.start_as_current_span(
            f"{method} {route}".rstrip(), extract(headers), kind=SpanKind.SERVER, attributes=attributes
        ) as span:

            async def passed_on(message: dict[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    span.set_attribute(REQUEST_ID, dict(message["headers"])[HEADER.lower().encode()].decode())
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            return await self._application(scope, receive, passed_on)


def _route(path: str) -> str:
    """Return the URL pattern of a path, so that requests for several months or teams share a name; "" for unknown paths."""
    try:
        return f"/{resolve(path).route}"
    except Resolver404:
        return ""


@before_task_publish.connect(dispatch_uid="traces")
def _pass_on(sender: str, headers: dict[str, Any], **_: Any) -> None:
    """Add the trace of the publisher to a task's headers.

    The producer span ends at once: an unreachable broker leaves none open.
    """
    span = _tracer.start_span(f"send {sender}", kind=SpanKind.PRODUCER)
    inject(headers, set_span_in_context(span))
    span.end()


@task_prerun.connect(dispatch_uid="traces")
def _task_begins(task_id: str, task: Task, **_: Any) -> None:
    sent = {name: task.request.get(name) or "" for name in ("traceparent", "tracestate")}
    running = _running[task_id] = ExitStack()
    running.enter_context(_tracer.start_as_current_span(f"run {task.name}", extract(sent), kind=SpanKind.CONSUMER))


@task_postrun.connect(dispatch_uid="traces")
def _task_ends(task_id: str, state: str, retval: Any, **_: Any) -> None:
    """End the span of a task, with the error of a failed one."""
    running = _running.pop(task_id)
    if isinstance(retval, BaseException) and state == "FAILURE":
        running.__exit__(type(retval), retval, retval.__traceback__)
    else:
        running.close()


@worker_process_init.connect(dispatch_uid="traces")
def _worker_begins(**_: Any) -> None:
    """Start exporting in each process of the pool: exporter threads do not survive its fork."""
    provider = begin("worker")
    worker_process_shutdown.connect(lambda **_: provider.shutdown(), weak=False, dispatch_uid="traces")


@beat_init.connect(dispatch_uid="traces")
def _scheduler_begins(**_: Any) -> None:
    begin("scheduler")
