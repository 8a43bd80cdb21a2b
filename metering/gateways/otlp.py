"""Format of OpenTelemetry spans and log records of model calls, by all versions of GenAI conventions and OpenInference.

**Identity.** Trace and span. A log record about the same call has the same two ids, so that a call that is exported as both
is counted once.

**Time.** The start of the span; a log record has its own time, which differs. So the time is no part of the content.

**Calls.** A span is a call if its operation is a model call, or if it states usage. Spans of agents, chains, workflows and
tools state sums of the calls below them and are ignored; a span that states usage and whose operation is unknown is refused.
A span around another one of the same body that states the same call (two instrumentations at work) is refused.

**Traces are no ledger.** A sender that samples, drops or loses spans sends less than was used, and the rest does not show
how much. A span that says that it was sampled, or that attributes of it were dropped, is refused for quarantine.

**Tags.** `tags.NAME` is the attribute NAME of the span, else of its resource; `metadata.KEY` is the attribute of that name,
or a member of the JSON object in the attribute `metadata`; `request_tags` are texts `key:value` in a list of tags. Only the
tags that the caller chooses are read.

Sources: https://opentelemetry.io/docs/specs/semconv/gen-ai/ (names), https://opentelemetry.io/docs/specs/otlp/ (form),
https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/ (sampling),
https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Final

import msgspec
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Body
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from metering.gateways.translation import Fields, UndatedUsage, from_epoch, text
from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import TokenUsage, from_row
from metering.request_tags import METADATA, TagChoice, chosen_tags
from metering.token_usage import (
    NOTHING,
    NUMBER_TEXT,
    TokenClasses,
    json_object,
    may_be_usage,
    numbers_of_usage,
    token_classes,
)
from metering.usage_parts import ONE_WORD, TEXTS, refined_tier

MODELS: Final = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "embedding.model_name")
PROVIDERS: Final = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
TIERS: Final = (
    "openai.response.service_tier", "gen_ai.openai.response.service_tier",
    "openai.request.service_tier", "gen_ai.openai.request.service_tier",
)  # fmt: skip
OPERATION: Final = "gen_ai.operation.name"
KIND: Final = "openinference.span.kind"
REQUEST: Final = "llm.request.type"
TRACELOOP: Final = "traceloop.span.kind"
EVENT: Final = "event.name"
NAMES: Final = (*MODELS, *PROVIDERS, *TIERS, OPERATION, KIND, REQUEST, TRACELOOP, EVENT)
"""Names of texts that are read; of all other attributes only the consumer and numbers that may be usage survive."""
USAGE: Final = ("gen_ai.usage.", "llm.usage.", "llm.token_count.")
CALLS: Final = frozenset({
    "chat", "text_completion", "generate_content", "embeddings", "completion", "embedding", "rerank", "LLM", "EMBEDDING",
    "RERANKER", "responses",
})  # fmt: skip
INPUT_ONLY: Final = frozenset({"embeddings", "embedding", "rerank", "EMBEDDING", "RERANKER"})
SUMS: Final = frozenset({
    "invoke_agent", "create_agent", "invoke_workflow", "execute_tool", "plan", "AGENT", "CHAIN", "TOOL", "RETRIEVER",
    "GUARDRAIL", "EVALUATOR", "PROMPT", "workflow", "task", "agent", "tool",
})  # fmt: skip
"""Kinds of spans that contain calls, or are none: their usage is that of calls with spans of their own."""
TAG_LISTS: Final = ("tag.tags", "request_tags")
"""Lists of tags, by OpenInference and by LiteLLM."""
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
ERROR: Final = 2
"""Value of a span's status code for an error (STATUS_CODE_ERROR)."""


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """Facts of a call that are kept. `time`: nanoseconds since 1970.  `sampled`: the tracestate's entry on sampling, empty
    if no trace is missing.  `dropped`: number of attributes that were dropped.  `within`: the id of a call within this span.
    `tags`: those that the caller chose.
    """

    source: str
    trace: str
    span: str
    time: Annotated[int, msgspec.Meta(ge=0)]
    error: bool
    attributes: Fields
    sampled: str = ""
    dropped: int = 0
    within: str = ""
    tags: Fields = {}


class UnreadableExportError(ValueError):
    """Error of a body that is no export request of OTLP."""


def calls_of_traces(
    body: bytes, *, json: bool, source: str, consumers: Sequence[str], tags: Sequence[TagChoice] = ()
) -> list[bytes]:
    """Return the facts of each span that is a model call, as JSON, with the chosen tags; drop everything else of the body.

    Raises UnreadableExportError.
    """
    request, name = ExportTraceServiceRequest(), bytes_as_base64 if json else bytes_as_hex
    _read(body, request, json)
    found: list[tuple[Call, str]] = []
    for resource in request.resource_spans:
        shared = attributes_of(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                own = attributes_of(span.attributes)
                if is_call(own):
                    call = Call(
                        source=source, trace=name(span.trace_id), span=name(span.span_id), time=span.start_time_unix_nano,
                        error=span.status.code == ERROR, attributes=_cut(own, shared, consumers),
                        sampled=sampled(span.trace_state), dropped=span.dropped_attributes_count,
                        tags=_tags(own, shared, tags),
                    )  # fmt: skip
                    found.append((call, name(span.parent_span_id)))
    calls = {(call.trace, call.span): call for call, _ in found}
    for call, parent in found:
        if (call.trace, parent) in calls:
            calls[call.trace, parent].within = call.span
    return [msgspec.json.encode(call) for call, _ in found]


def calls_of_logs(
    body: bytes, *, json: bool, source: str, consumers: Sequence[str], tags: Sequence[TagChoice] = ()
) -> list[bytes]:
    """Return the facts of log records that state usage, and of the conventions' event that describes a call, as JSON.

    Raises UnreadableExportError.
    """
    request, name = ExportLogsServiceRequest(), bytes_as_base64 if json else bytes_as_hex
    _read(body, request, json)
    found: list[Call] = []
    for resource in request.resource_logs:
        shared = attributes_of(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                own = attributes_of(record.attributes)
                event = record.event_name or own.get(EVENT)
                if (_states_usage(own) or event == DETAILS_EVENT) and not _kinds(own) & SUMS:
                    found.append(Call(
                        source=source, trace=name(record.trace_id), span=name(record.span_id),
                        time=record.time_unix_nano or record.observed_time_unix_nano, error="error.type" in own,
                        attributes=_cut(own, shared, consumers), dropped=record.dropped_attributes_count,
                        tags=_tags(own, shared, tags),
                    ))  # fmt: skip
    return [msgspec.json.encode(call) for call in found]


def usage(fields: Fields, *, consumers: Sequence[str]) -> TokenUsage:
    """Return the usage of a call from `calls_of_traces` or `calls_of_logs`.  Raises RecordError or ValidationError."""
    call = msgspec.convert(fields, Call)
    if not (call.trace and call.span):
        raise RecordError(Message("trace and span id are missing: nothing else identifies the call"), "span")
    if call.sampled:
        raise RecordError(Message(
            "the trace was sampled (tracestate %(state)s): the calls that were not are missing, so nothing can be billed",
            state=call.sampled,
        ), "sampled")  # fmt: skip
    if call.within:
        raise RecordError(Message(
            "the span %(span)s within this one states the same call: let one instrumentation report it", span=call.within
        ), "within")  # fmt: skip
    if call.dropped:
        raise RecordError(Message(
            "%(n)s attributes of the call were dropped, and a count may be one of them", n=call.dropped
        ), "dropped")  # fmt: skip
    counted, attributes = _classes(call, consumers), call.attributes
    tier = _optional(attributes, TIERS)
    refined = {"service_tier": refined_tier(tier, {name: [value] for name, value in attributes.items()})} if tier else {}
    # Whole seconds and microseconds apart: a float of both would not be exact.
    seconds, nanoseconds = divmod(call.time, 1_000_000_000)
    instant = from_epoch(seconds, "time")
    return from_row(UndatedUsage, {
        "id": identity(call.trace, call.span), "source": call.source,
        "time": f"{instant[:19]}.{nanoseconds // 1000:06}{instant[19:]}",
        "consumer": _first(attributes, consumers, "consumer"), "model": _first(attributes, MODELS, "model"),
        "provider": _optional(attributes, PROVIDERS),
        "status": "failure" if call.error else "success", "attributes": counted.remarks or None, "tags": call.tags or None,
        **counted.counts, **counted.details, **refined,
    })  # fmt: skip


def identity(trace: str, span: str) -> str:
    """Return the id of a call's record."""
    return f"{trace}-{span}"


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Return True if a span with these attributes is a model call, or states the usage of one."""
    kinds = _kinds(attributes)
    return not kinds & SUMS and bool(kinds & CALLS or _states_usage(attributes))


def sampled(trace_state: str) -> str:
    """Return the tracestate's entry on sampling, "" if every trace was kept, or if it says nothing.

    >>> sampled("vendor=1,ot=th:8;rv:aabbccddeeff00"), sampled("ot=th:0"), sampled("ot=p:3"), sampled("")
    ('th:8', '', 'p:3', '')
    """
    for member in trace_state.split(","):
        vendor, _, value = member.strip().partition("=")
        if vendor == "ot":
            for part in value.split(";"):
                key, _, given = part.partition(":")
                if key in ("th", "p") and given.strip("0"):
                    return part[:80]
    return ""


def attributes_of(pairs: Iterable[Any]) -> Fields:
    """Return attributes by name, with nested objects and lists as such; bytes are dropped."""
    return {pair.key: _value(pair.value) for pair in pairs}


def bytes_as_hex(identity: bytes) -> str:
    """Return an id of a binary body; "" if it is missing or all zeros, which OTLP calls invalid."""
    return identity.hex() if any(identity) else ""


def bytes_as_base64(identity: bytes) -> str:
    """Return an id of a JSON body: OTLP writes hexadecimal digits, which the JSON reader takes for base64."""
    # Encoding the misread bytes as base64 again gives the digits back.
    written = b64encode(identity).decode().lower()
    return written if written.strip("0") else ""


def _read(body: bytes, request: Body, json: bool) -> None:
    try:
        if json:
            Parse(body, request, ignore_unknown_fields=True)
        else:
            request.ParseFromString(body)
    except (ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableExportError(f"the body is no {request.DESCRIPTOR.name}: {str(error)[:200]}") from error


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return None if kind in (None, "bytes_value") else getattr(value, kind)


def _kinds(attributes: Mapping[str, Any]) -> set[str]:
    return {str(attributes[name]) for name in (OPERATION, KIND, REQUEST, TRACELOOP) if attributes.get(name)}


def _states_usage(attributes: Mapping[str, Any]) -> bool:
    return any(name.startswith(USAGE) for name in attributes)


def _cut(own: Fields, shared: Fields, consumers: Sequence[str]) -> Fields:
    """Return the texts that are read, the attributes that may name the consumer, and every number that may be usage."""
    texts = {name: own[name] for name in NAMES if isinstance(own.get(name), str)}
    named = {name: given for name in consumers if (given := own.get(name) or shared.get(name))}
    stated = {name: value for name in own if name.startswith(USAGE) and (value := _stated(name, own[name])) is not None}
    kept = {**texts, **{name: value for name, value in named.items() if isinstance(value, str | int)}}
    return {
        **numbers_of_usage(own, known=stated), **stated,
        # One character more than a name may have: a longer text is refused, and not cut into a valid name.
        **{name: value[:513] if isinstance(value, str) else value for name, value in kept.items()},
    }  # fmt: skip


def _stated(name: str, value: Any) -> Any:
    """Return a number of usage, or the word of a tier; -1 for another text of a count, None for what is no usage."""
    if isinstance(value, str):
        own_name = name.removeprefix("gen_ai.usage.").removeprefix("llm.usage.")
        if NUMBER_TEXT.match(value) or (own_name in TEXTS and ONE_WORD.match(value)):
            return value
        return -1 if value and may_be_usage(own_name) else None
    if not isinstance(value, int | float):
        return None
    # JSON has no NaN: as null it would pass for a count that nobody stated.
    return value if isfinite(value) else -1


def _tags(own: Fields, shared: Fields, choices: Sequence[TagChoice]) -> Fields:
    """Return the chosen tags among the attributes of a span or log record, else of its resource."""
    if not choices:
        return {}
    given = {**shared, **own}
    metadata = {name.removeprefix(METADATA): value for name, value in given.items() if name.startswith(METADATA)}
    return chosen_tags(
        choices, tags=given, metadata=[metadata, json_object(given.get("metadata"))],
        request_tags=next((given[name] for name in TAG_LISTS if name in given), None),
    )  # fmt: skip


def _classes(call: Call, consumers: Sequence[str]) -> TokenClasses:
    """Return the classes of a call.  Raises RecordError if its counts are not certain, also for a count written as text."""
    kinds = _kinds(call.attributes)
    stated = {name: value for name, value in call.attributes.items() if name not in NAMES and name not in consumers}
    counted = token_classes(stated, input_only=bool(kinds & INPUT_ONLY)) if _states_usage(stated) else NOTHING
    if kinds and not kinds & CALLS:
        raise RecordError(Message(
            "%(kinds)s is not known as a call of a model, so this may be a sum of others", kinds=", ".join(sorted(kinds))
        ), OPERATION)  # fmt: skip
    if counted is NOTHING and not call.error:
        raise RecordError(Message("a success that states no token counts"), "gen_ai.usage.input_tokens")
    return counted


def _first(attributes: Fields, names: Sequence[str], what: str) -> str:
    for name in names:
        if (given := text(attributes, name)) is not None:
            return given
    raise RecordError(Message("no attribute names the %(what)s: %(names)s", what=what, names=", ".join(names)), names[0])


def _optional(attributes: Fields, names: Sequence[str]) -> str | None:
    return next((given for name in names if (given := text(attributes, name)) is not None), None)
