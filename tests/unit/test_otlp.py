"""Calls of models among spans and log records: which are, what is kept of them, and what they become."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from metering.gateways.otlp import UnreadableExportError, calls_of_logs, calls_of_traces, sampled, usage
from metering.record_checks import RecordError
from metering.records import TokenUsage

CONSUMERS = ("suanpan.consumer", "user.id", "enduser.id")
TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7", "b7ad6b7169203331"
STARTED = 1_795_996_800_123_456_789  # 2026-11-30T00:00:00.123456789Z
CHAT = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "qwen3", "gen_ai.provider.name": "vllm",
    "suanpan.consumer": "key-1", "gen_ai.usage.input_tokens": 1000, "gen_ai.usage.cache_read.input_tokens": 800,
    "gen_ai.usage.output_tokens": 50,
}  # fmt: skip
SECRET = "what the person asked"


def value(given: Any) -> dict[str, Any]:
    kinds = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}
    return {kinds[type(given)]: str(given) if type(given) is int else given}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": value(given)} for name, given in attributes.items()]


def span(attributes: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE, "spanId": SPAN, "name": "chat", "startTimeUnixNano": str(STARTED),
        "endTimeUnixNano": str(STARTED + 10**9), "attributes": pairs(attributes), **others,
    }  # fmt: skip


def traces(*spans: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"resourceSpans": [
        {"resource": {"attributes": pairs(resource or {})}, "scopeSpans": [{"spans": list(spans)}]}
    ]}).encode()  # fmt: skip


def calls(*spans: dict[str, Any], resource: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    found = calls_of_traces(traces(*spans, resource=resource), json=True, source="apps", consumers=CONSUMERS)
    return [msgspec.json.decode(call) for call in found]


def only(attributes: dict[str, Any], **others: Any) -> TokenUsage:
    (call,) = calls(span(attributes, **others))
    return usage(call, consumers=CONSUMERS)


def without(*names: str) -> dict[str, Any]:
    return {name: given for name, given in CHAT.items() if name not in names}


def test_a_span_of_a_chat_becomes_one_record() -> None:
    record = only(CHAT)
    assert (record.id, record.source, record.consumer, record.model) == (f"{TRACE}-{SPAN}", "apps", "key-1", "qwen3")
    assert record.time == datetime(2026, 11, 30, 0, 0, 0, 123456, UTC)
    assert record.counts == (1000, 800, 0, 50, 0)
    assert (record.provider, record.status) == ("vllm", "success")


def test_audio_of_a_span_is_kept_as_a_part() -> None:
    record = only({**CHAT, "gen_ai.usage.details.input_audio_tokens": 150, "openai.response.service_tier": "flex"})
    assert (record.audio_input_tokens, record.service_tier, record.counts) == (150, "flex", (1000, 800, 0, 50, 0))


def test_a_tier_among_the_numbers_of_usage_is_kept_and_a_text_that_counts_nothing_is_not() -> None:
    record = only({**CHAT, "gen_ai.usage.service_tier": "priority", "gen_ai.usage.currency": SECRET})
    assert record.service_tier == "priority"
    record = only({**CHAT, "openai.response.service_tier": "priority", "gen_ai.usage.speed": "fast"})
    assert record.service_tier == "priority-fast"
    assert SECRET.encode() not in msgspec.json.encode(calls(span({**CHAT, "gen_ai.usage.currency": SECRET})))


@pytest.mark.parametrize("text", ["ten", "10", "NaN"])
@pytest.mark.parametrize("name", [
    "gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.details.input_audio_tokens",
    "llm.token_count.prompt", "llm.usage.total_tokens",
])  # fmt: skip
def test_a_count_that_is_a_text_is_refused(name: str, text: str) -> None:
    with pytest.raises(RecordError):
        only({**CHAT, name: text})


def test_protobuf_and_json_say_the_same() -> None:
    request = ExportTraceServiceRequest()
    sent = request.resource_spans.add().scope_spans.add().spans.add()
    sent.trace_id, sent.span_id, sent.start_time_unix_nano = bytes.fromhex(TRACE), bytes.fromhex(SPAN), STARTED
    for name, given in CHAT.items():
        pair = sent.attributes.add(key=name)
        if isinstance(given, int):
            pair.value.int_value = given
        else:
            pair.value.string_value = str(given)
    (binary,) = calls_of_traces(request.SerializeToString(), json=False, source="apps", consumers=CONSUMERS)
    assert msgspec.json.decode(binary) == calls(span(CHAT))[0]


@pytest.mark.parametrize(
    ("attributes", "counts"),
    [
        ({"gen_ai.system": "openai", "llm.request.type": "chat", "gen_ai.usage.prompt_tokens": 70,
          "gen_ai.usage.completion_tokens": 7, "llm.usage.total_tokens": 77}, (70, 0, 0, 7, 0)),
        ({"gen_ai.usage.input_tokens": 70, "gen_ai.usage.output_tokens": 7, "gen_ai.usage.cache_creation.input_tokens": 20,
          "gen_ai.operation.name": "generate_content"}, (70, 0, 20, 7, 0)),
        ({"openinference.span.kind": "LLM", "llm.token_count.prompt": 70, "llm.token_count.completion": 7,
          "llm.token_count.prompt_details.cache_read": 64, "llm.token_count.completion_details.reasoning": 5,
          "llm.token_count.total": 77}, (70, 64, 0, 7, 5)),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 70}, (70, 0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_names_of_each_convention(attributes: dict[str, Any], counts: tuple[int, ...]) -> None:
    assert only({"gen_ai.request.model": "m", "user.id": "u", **attributes}).counts == counts


def test_the_consumer_is_the_first_attribute_that_is_there_of_the_span_else_of_its_resource() -> None:
    (call,) = calls(span(without("suanpan.consumer")), resource={"enduser.id": "e", "user.id": "u"})
    assert usage(call, consumers=CONSUMERS).consumer == "u"
    (call,) = calls(span({**without("suanpan.consumer"), "user.id": "own"}), resource={"user.id": "shared"})
    assert usage(call, consumers=CONSUMERS).consumer == "own"


@pytest.mark.parametrize(
    "attributes",
    [
        {"http.request.method": "POST", "cache.hits": 7},
        {**CHAT, "gen_ai.operation.name": "invoke_agent"},
        {**CHAT, "gen_ai.operation.name": "execute_tool"},
        {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 70, "llm.token_count.completion": 7},
        {"traceloop.span.kind": "workflow", "llm.usage.total_tokens": 77},
    ],
)
def test_sums_and_other_spans_are_passed_over(attributes: dict[str, Any]) -> None:
    assert calls(span(attributes)) == []


@pytest.mark.parametrize(
    ("attributes", "others", "said"),
    [
        (without("suanpan.consumer"), {}, "no attribute names the consumer: suanpan.consumer, user.id, enduser.id"),
        (without("gen_ai.request.model"), {}, "no attribute names the model"),
        (without("gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.output_tokens"), {},
         "a success that states no token counts"),
        ({**CHAT, "gen_ai.usage.video_tokens": 3}, {}, "gen_ai.usage.video_tokens 3 is not known"),
        ({**CHAT, "gen_ai.operation.name": "ponder"}, {}, "ponder is not known as a call of a model"),
        (CHAT, {"traceState": "ot=th:c"}, "the trace was sampled (tracestate th:c)"),
        (CHAT, {"droppedAttributesCount": 2}, "2 attributes of the call were dropped"),
        (CHAT, {"spanId": ""}, "trace and span id are missing"),
        (CHAT, {"traceId": "0" * 32}, "trace and span id are missing"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_refused(attributes: dict[str, Any], others: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError) as refused:
        only(attributes, **others)
    assert said in str(refused.value)


def test_a_failure_without_counts_is_a_record_of_no_tokens() -> None:
    failed = without("gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.output_tokens")
    record = only(failed, status={"code": 2})
    assert (record.status, record.counts) == ("failure", (0, 0, 0, 0, 0))


def test_of_two_spans_of_one_call_the_outer_one_is_refused() -> None:
    inner, outer = calls(span(CHAT, spanId=PARENT, parentSpanId=SPAN), span(CHAT))
    assert usage(inner, consumers=CONSUMERS).id == f"{TRACE}-{PARENT}"
    with pytest.raises(RecordError, match=f"the span {PARENT} within this one states the same call"):
        usage(outer, consumers=CONSUMERS)


def test_a_log_record_is_the_same_report_as_the_span_of_its_call() -> None:
    record = {
        "traceId": TRACE, "spanId": SPAN, "timeUnixNano": str(STARTED + 10**9), "attributes": pairs(CHAT),
        "eventName": "gen_ai.client.inference.operation.details", "body": {"stringValue": SECRET},
    }  # fmt: skip
    plain = {**record, "attributes": pairs({"cache.hits": 7}), "eventName": "other"}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record, plain]}]}]}).encode()
    (kept,) = calls_of_logs(body, json=True, source="apps", consumers=CONSUMERS)
    logged, traced = usage(msgspec.json.decode(kept), consumers=CONSUMERS), only(CHAT)
    assert logged.time != traced.time
    assert logged.key == traced.key
    assert logged.same_report(traced)


def test_prompts_and_other_texts_are_dropped() -> None:
    body = traces(
        span({**CHAT, "gen_ai.input.messages": SECRET, "llm.prompts.0.content": SECRET, "tokens.note": SECRET}, name=SECRET),
        resource={"service.name": SECRET},
    )
    (kept,) = calls_of_traces(body, json=True, source="apps", consumers=CONSUMERS)
    assert SECRET.encode() not in kept


@pytest.mark.parametrize(
    ("state", "said"),
    [("ot=th:0", ""), ("ot=rv:01;th:fd", "th:fd"), ("a=b,ot=p:2", "p:2"), ("ot=p:0", ""), ("th=1", "")],
)
def test_a_tracestate_says_whether_calls_are_missing(state: str, said: str) -> None:
    assert sampled(state) == said


@pytest.mark.parametrize(
    ("body", "is_json"), [(b"\xff\xff", False), (b"[1]", True), (b"{", True), (b'{"resourceSpans":1}', True)]
)
def test_a_body_that_is_no_export_is_refused(body: bytes, is_json: bool) -> None:
    with pytest.raises(UnreadableExportError, match="the body is no ExportTraceServiceRequest"):
        calls_of_traces(body, json=is_json, source="apps", consumers=CONSUMERS)
