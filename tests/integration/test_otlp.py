"""OpenTelemetry's own SDK exports to web; its calls of models are in the ledger, or in quarantine with a reason."""

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings

from billing.tenancy.tokens import api_token_create
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_replay
from tests.factories import apply
from tests.factories.api import problem, program
from tests.factories.servers import served_web
from tests.stored_rows import everything_stored, ledger, query

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "qwen3"}
COUNTED = {**CHAT, "user.id": "u", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
SECRET = "a-secret-of-nobody"
TAGS = [
    {"source": "apps", "key": "product", "from": "tags.app.product"},
    {"source": "apps", "key": "service", "from": "tags.service.name", "longest": "8"},
    {"source": "apps", "key": "customer", "from": "metadata.client"},
    {"source": "apps", "key": "branch", "from": "metadata.branch"},
    {"source": "apps", "key": "team", "from": "request_tags"},
    {"source": "other", "key": "user", "from": "tags.user.secret"},
]
STATED = {
    "app.product": "chat-bot", "metadata": json.dumps({"client": "acme", "note": SECRET}), "metadata.branch": "main",
    "user.secret": SECRET, "metadata.note": SECRET,
}  # fmt: skip
KEPT = {"product": "chat-bot", "service": "search", "customer": "acme", "branch": "main", "team": "nlp"}


@pytest.fixture(autouse=True)
def clock_of_the_calls() -> Any:
    """The calls are of November 2026: on a machine whose clock is behind they would lie in the future."""
    with override_settings(FUTURE_TOLERANCE_SECONDS=10**9):
        yield


EXPORTED = """
import sys
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

endpoint, token = sys.argv[1:]
kept, provider = InMemorySpanExporter(), TracerProvider(resource=Resource({"user.id": "team-a"}))
provider.add_span_processor(SimpleSpanProcessor(kept))
tracer = provider.get_tracer("apps")
with tracer.start_as_current_span("invoke_agent researcher") as agent:
    agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 300})
    for n, cached in ((100, 0), (200, 150)):
        with tracer.start_as_current_span("chat qwen3") as call:
            call.set_attributes({
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "qwen3", "gen_ai.usage.input_tokens": n,
                "gen_ai.usage.output_tokens": n // 10, "gen_ai.usage.cache_read.input_tokens": cached,
            })
exporter = OTLPSpanExporter(endpoint=endpoint, headers={"Authorization": f"Bearer {token}"}, compression=Compression.Gzip)
spans = kept.get_finished_spans()
print(len(spans), *(exporter.export(spans).name for _ in range(2)))
"""


@pytest.mark.django_db(transaction=True)
def test_an_exporter_needs_an_endpoint_and_a_token() -> None:
    _, token = api_token_create(name="apps", scopes=["usage:write"], actor="tests", source="apps")
    with served_web() as port:
        done = subprocess.run(
            [sys.executable, "-c", EXPORTED, f"http://127.0.0.1:{port}/v1/traces", token],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (done.stdout, done.stderr) == ("3 SUCCESS SUCCESS\n", "")
    assert ledger() == [("apps", "team-a", "qwen3", 2, 300, 150, 30)]
    assert QuarantinedRecord.objects.count() == 0


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue" if isinstance(value, int) else "stringValue": str(value)}}
        for name, value in attributes.items()
    ]


def sent(path: str, body: object, **facts: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body)
    return program("usage:write", **facts).post(path, content, content_type="application/json")


def tagged(path: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """A call with tags as span or log record, of a service with a name."""
    texts = [{"stringValue": text} for text in ("team:nlp", f"user:{SECRET}", SECRET)]
    call = {
        "traceId": "a" * 32, "spanId": "1" * 16, "startTimeUnixNano": "1795996800000000000",
        "attributes": [*pairs({**attributes, **STATED}), {"key": "tag.tags", "value": {"arrayValue": {"values": texts}}}],
    }  # fmt: skip
    resource = {"attributes": pairs({"service.name": "search", "host.name": SECRET})}
    if path == "/v1/traces":
        return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [call]}]}]}
    call["timeUnixNano"] = call.pop("startTimeUnixNano")
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [call]}]}]}


def stored_tags() -> list[Any]:
    rows = query("SELECT tags FROM token_detail JOIN token_tag_set ON token_tag_set.id = tag_set")
    return [json.loads(tags) if isinstance(tags, str) else tags for (tags,) in rows]


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "a" * 32, "startTimeUnixNano": "1795996800000000000", **span} for span in spans
    ]}]}]}  # fmt: skip


@pytest.mark.django_db
def test_a_bad_span_costs_no_other_one_and_is_corrected_in_quarantine() -> None:
    known = {**CHAT, "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
    named, nameless = {**known, "user.id": "u"}, {**known, "password": "not to be kept"}
    body = export({"spanId": "1" * 16, "attributes": pairs(named)}, {"spanId": "2" * 16, "attributes": pairs(nameless)})
    assert sent("/v1/traces", body).json() == {"partialSuccess": {
        "rejectedSpans": "1",
        "errorMessage": "no attribute names the consumer: suanpan.consumer, user.id, enduser.id",
    }}  # fmt: skip
    assert ledger() == [("opentelemetry", "u", "qwen3", 1, 10, 0, 2)]
    entry = QuarantinedRecord.objects.get()
    assert "not to be kept" not in entry.record
    fields = json.loads(entry.record)
    fields["attributes"]["user.id"] = "v"
    now = datetime(2026, 12, 1, tzinfo=UTC)
    quarantine_replay(record_id=entry.pk, actor="admin", reason="known", now=now, corrected=json.dumps(fields))
    assert ledger()[1] == ("opentelemetry", "v", "qwen3", 1, 10, 0, 2)


@pytest.mark.django_db
def test_the_same_span_with_other_counts_is_a_conflict() -> None:
    for tokens, rejected in ((10, {}), (10, {}), (11, {"rejectedSpans": "1"})):
        attributes = pairs({**CHAT, "user.id": "u", "gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": 2})
        answer = sent("/v1/traces", export({"spanId": "1" * 16, "attributes": attributes})).json()
        assert answer.get("partialSuccess", {}).get("rejectedSpans") == rejected.get("rejectedSpans")
    assert ledger() == [("opentelemetry", "u", "qwen3", 1, 10, 0, 2)]


@pytest.mark.django_db
def test_a_log_record_of_a_call_is_recorded() -> None:
    attributes = pairs({**CHAT, "user.id": "u", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2})
    record = {"traceId": "a" * 32, "spanId": "1" * 16, "timeUnixNano": "1795996800000000000", "attributes": attributes}
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, {"body": {"stringValue": "started"}}]}]}]}
    assert sent("/v1/logs", body).json() == {}
    assert ledger() == [("opentelemetry", "u", "qwen3", 1, 10, 0, 2)]


@pytest.mark.django_db
def test_what_is_no_export_is_refused() -> None:
    assert problem(sent("/v1/traces", b"[1]"), 400)["detail"].startswith("the body is no ExportTraceServiceRequest")
    refused = Client().post("/v1/traces", b"", content_type="application/x-protobuf")
    assert problem(refused, 401)["status"] == 401
    wrong = program("usage:write").post("/v1/logs", "x", content_type="text/plain")
    assert problem(wrong, 415)["status"] == 415


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
def test_listed_attributes_are_kept_as_tags_and_nothing_else_is(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply(tmp_path, tags=TAGS)
    with caplog.at_level(logging.DEBUG):
        answer = sent(path, tagged(path, COUNTED), source="apps")
    assert answer.json() == {}
    assert stored_tags() == [KEPT]
    assert SECRET not in everything_stored() + caplog.text + answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
def test_a_refused_call_keeps_its_listed_tags_for_the_correction(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apply(tmp_path, tags=TAGS)
    with caplog.at_level(logging.DEBUG):
        answer = sent(path, tagged(path, COUNTED | {"gen_ai.usage.output_tokens": -1}), source="apps")
    assert "partialSuccess" in answer.json()
    entry = QuarantinedRecord.objects.get()
    assert SECRET not in everything_stored() + caplog.text + answer.content.decode()
    now, corrected = datetime(2026, 12, 1, tzinfo=UTC), entry.record.replace('output_tokens":-1', 'output_tokens":2')
    quarantine_replay(record_id=entry.pk, actor="admin", reason="sign", now=now, corrected=corrected)
    assert ledger() == [("apps", "u", "qwen3", 1, 10, 0, 2)]
    assert stored_tags() == [KEPT]


@pytest.mark.django_db
def test_a_tag_beyond_its_limit_is_marked_and_one_of_another_source_is_not_kept(tmp_path: Path) -> None:
    apply(tmp_path, tags=[{**TAGS[1], "longest": "3"}, TAGS[5]])
    sent("/v1/traces", tagged("/v1/traces", COUNTED), source="apps")
    assert stored_tags() == [{"service": None}]
    assert not any(text in everything_stored() for text in (SECRET, "chat-bot"))


@pytest.mark.django_db
@pytest.mark.parametrize("value", [{"stringValue": "ten"}, {"stringValue": "10"}, {"doubleValue": "NaN"},
                                   {"doubleValue": "Infinity"}, {"boolValue": True}, {"doubleValue": 1.5}])  # fmt: skip
@pytest.mark.parametrize("name", ["gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens"])
def test_a_count_that_is_no_whole_number_waits_in_quarantine(name: str, value: dict[str, Any]) -> None:
    attributes = [*pairs({key: given for key, given in COUNTED.items() if key != name}), {"key": name, "value": value}]
    answer = sent("/v1/traces", export({"spanId": "1" * 16, "attributes": attributes})).json()
    assert answer["partialSuccess"]["rejectedSpans"] == "1"
    assert ledger() == []
    assert QuarantinedRecord.objects.count() == 1
