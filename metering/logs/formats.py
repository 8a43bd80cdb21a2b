"""PURE: known log formats of gateways, each with the meaning of its fields.

Identity: `id` is the gateway's name of the request, joined with its start time where a client can set that name itself
(Envoy keeps an `x-request-id` from outside), so that no request can be hidden behind another. The consumer's field can be
chosen for each format, since the name that pays is the operator's decision.

Source: reference/METERING_FACTS.md, B2.3.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from metering.gateways import litellm
from metering.logs.mapping import (
    NO_COUNTS,
    Fields,
    Incomplete,
    LineMapping,
    LineReader,
    LogRecord,
    path,
    read_mapping,
)
from metering.record_checks import RecordError
from metering.records import TokenUsage, paid_by_call
from metering.request_tags import Choice, read_choices
from metering.token_usage import json_object
from metering.usage_dialects import OTEL

Translate = Callable[[Fields, str], list[LogRecord]]
"""Function (fields of a line or row, id to use if it has none) -> its records.  Raises RecordError."""

ENVOY: Final = LineMapping(
    id=("x-request-id | request_id | x_request_id", "start_time"),
    time="start_time",
    consumer="consumer | x-consumer | user_id | x-user-id",
    model="gen_ai.request.model | genai_model_name | x-ai-eg-model | request_model | model",
    input_tokens="gen_ai.usage.input_tokens | genai_tokens_input | llm_input_token | input_tokens",
    output_tokens="gen_ai.usage.output_tokens | genai_tokens_output | llm_output_token | output_tokens",
    cache_read_input_tokens=(
        f"{OTEL.cache_read} | genai_tokens_cached_input | llm_cached_input_token | cached_input_tokens"
    ),
    cache_creation_input_tokens=(
        f"{OTEL.cache_creation} | genai_tokens_cache_creation_input | llm_cache_creation_input_token"
    ),
    reasoning_output_tokens=f"{OTEL.reasoning} | genai_tokens_reasoning | llm_reasoning_token | reasoning_tokens",
    total_tokens="gen_ai.usage.total_tokens | genai_tokens_total | llm_total_token | total_tokens",
    other_numbers=(*OTEL.within_input, *OTEL.within_output),
    service_tier=(
        "openai.response.service_tier | gen_ai.openai.response.service_tier | gen_ai.response.service_tier"
        " | openai.request.service_tier | gen_ai.openai.request.service_tier | service_tier"
    ),
    audio_input_tokens="gen_ai.usage.details.input_audio_tokens | gen_ai.usage.details.audio_prompt_tokens",
    image_input_tokens="gen_ai.usage.details.image_prompt_tokens",
    audio_output_tokens="gen_ai.usage.details.output_audio_tokens | gen_ai.usage.details.audio_tokens",
    deployment="deployment",
    hardware="hardware",
    provider="gen_ai.provider.name | genai_backend_name | backend_name",
    status="response_code",
)
HIGRESS: Final = LineMapping(
    id=("request_id", "start_time"),
    time="start_time",
    consumer="ai_log.consumer | ai_log.x-mse-consumer | consumer | x_mse_consumer | x-mse-consumer",
    model="ai_log.model",
    input_tokens="ai_log.input_token",
    output_tokens="ai_log.output_token",
    cache_read_input_tokens=(
        "ai_log.input_token_details.cache_read_input_tokens | ai_log.input_token_details.cached_content_token_count"
        " | ai_log.input_token_details.cached_tokens | ai_log.cached_tokens"
    ),
    cache_creation_input_tokens=(
        "ai_log.input_token_details.cache_creation_input_tokens | ai_log.input_token_details.cache_write_tokens"
    ),
    reasoning_output_tokens=(
        "ai_log.output_token_details.thoughts_token_count | ai_log.output_token_details.reasoning_tokens"
        " | ai_log.reasoning_tokens"
    ),
    tool_use_input_tokens="ai_log.input_token_details.tool_use_prompt_token_count",
    total_tokens="ai_log.total_token",
    gateway_cache="ai_log.cache_status",
    status="response_code",
    service_tier="ai_log.service_tier | service_tier",
    audio_input_tokens="ai_log.input_token_details.audio_tokens",
    image_input_tokens="ai_log.input_token_details.image_tokens",
    audio_output_tokens="ai_log.output_token_details.audio_tokens",
    image_output_tokens="ai_log.output_token_details.image_tokens",
    deployment="deployment",
    hardware="hardware",
)
APISIX: Final = LineMapping(
    id=("request_id | apisix_request_id | response.headers.x-request-id | request.headers.x-request-id", "start_time"),
    time="start_time",
    time_unit="ms",
    consumer="consumer.username | consumer_name | consumer.consumer_name",
    model="llm_summary.request_model | llm_summary.model",
    input_tokens="llm_summary.prompt_tokens",
    output_tokens="llm_summary.completion_tokens",
    cache_read_input_tokens="llm_summary.cache_read_input_tokens",
    cache_creation_input_tokens="llm_summary.cache_creation_input_tokens",
    reasoning_output_tokens="llm_summary.reasoning_tokens",
    total_tokens="llm_summary.total_tokens",
    provider="llm_summary.provider",
    gateway_cache="response.headers.x-ai-cache-status",
    status="response.status | status",
    service_tier="llm_summary.service_tier | service_tier",
    deployment="deployment",
    hardware="hardware",
)
KONG: Final = LineMapping(
    id=("request.id | request.headers.x-kong-request-id", "started_at"),
    time="started_at",
    time_unit="ms",
    consumer="consumer.username | consumer.custom_id | consumer.id | authenticated_entity.id",
    model="plugin.meta.request_model | plugin.meta.response_model",
    usage="plugin.usage",
    provider="plugin.meta.provider_name",
    gateway_cache="plugin.cache.cache_status",
    status="response.status",
    service_tier="service_tier",
    deployment="deployment",
    hardware="hardware",
)
ONE_API: Final = LineMapping(
    id=("id", "created_at"),
    time="created_at",
    consumer="username | user_id",
    model="model_name",
    input_tokens="prompt_tokens",
    output_tokens="completion_tokens",
    cache_read_input_tokens="other.cache_tokens",
    cache_creation_input_tokens="other.cache_write_tokens | other.cache_creation_tokens",
    estimated="other.admin_info.local_count_tokens",
    service_tier="other.service_tier",
    cache_creation_1h_input_tokens="other.cache_creation_tokens_1h",
    audio_input_tokens="other.audio_input | other.audio_input_token_count",
    audio_output_tokens="other.audio_output",
    image_output_tokens="other.image_output",
    searches="other.web_search_call_count",
    tool_calls="other.file_search_call_count",
    attributes={"channel": "channel | channel_id"},
    other_numbers=(
        "other.text_input", "other.text_output", "other.cache_creation_tokens_5m", "other.input_tokens_total",
    ),
)
CONSUME, REFUND = "2", "6"
RAG: Final = "rag-inject"

LOGS: Final[Mapping[str, LineMapping]] = {"envoy": ENVOY, "higress": HIGRESS, "apisix": APISIX, "kong": KONG}
TABLES: Final = ("one-api", "new-api", "litellm-spend")
"""Formats of database tables: exports as CSV, JSON or an SQL dump, or the SQLite file itself."""
PLAIN: Final = "json"
FORMATS: Final = (*LOGS, *TABLES, PLAIN)


def translator(
    name: str, *, source: str, mapping: Fields | None = None, consumer: str = "", tags: str = ""
) -> Translate:
    """Return the function that makes records of a format's lines.

    `mapping`: the content of a mapping file, on top of the format's own. `tags`: the tags that are forwarded, `key=path`
    with commas between; for spend logs, in the form of `read_choices`.

    Raises RecordError if the mapping is wrong, or if the format needs one.
    """
    if name == "litellm-spend":
        order = litellm.read_consumer(consumer)
        return partial(spend_log, source=source, consumer=order, tags=read_choices(tags))
    base = ONE_API if name in TABLES else LOGS.get(name)
    if base is None and mapping is None:
        raise RecordError(f"format {name} needs --mapping FILE, which says what its fields are called")
    parts = [part.partition("=") for part in tags.split(",") if part.strip()]
    named = {key.strip(): where.strip() for key, _, where in parts}
    if not all(named.values()):
        raise RecordError(f"tags: {tags} must be KEY=PATH with commas between")
    given = {**({"consumer": consumer} if consumer else {}), **({"tags": named} if named else {})}
    chosen = read_mapping({**(mapping or {}), **given}, base)
    if name in TABLES:
        return OneApi(chosen, source)
    return KongPlugins(chosen, source) if name == "kong" else LineReader(chosen, source)


class KongPlugins:
    """Reader of Kong's lines: one record for each AI plugin that called a model, since each call is paid."""

    def __init__(self, mapping: LineMapping, source: str) -> None:
        self._read = LineReader(mapping, source, left_out=("ai", RAG))

    def __call__(self, fields: Fields, derived_id: str) -> list[LogRecord]:
        """Return records of `ai.<plugin>`; those after the first have the plugin in their id.  Raises RecordError."""
        plugins = fields.get("ai")
        found: list[LogRecord] = []
        for name, plugin in sorted(plugins.items()) if isinstance(plugins, Mapping) else ():
            for called, call in _calls(name, plugin):
                records = self._read({**fields, "plugin": call}, derived_id)
                found += [_suffixed(record, called) for record in records] if found else records
        return found


def _calls(name: str, plugin: Any) -> Iterator[tuple[str, Fields]]:
    """Yield the model calls in an entry of Kong's log: its own, and that of the RAG injector for its embeddings."""
    if not isinstance(plugin, Mapping):
        return
    if plugin.get("usage") or plugin.get("meta"):
        yield name, plugin
    injected = plugin.get(RAG)
    tokens = injected.get("embeddings_tokens") if isinstance(injected, Mapping) else None
    if tokens and isinstance(injected, Mapping):
        meta = {"request_model": injected.get("embeddings_model"), "provider_name": injected.get("embeddings_provider")}
        yield f"{name}:{RAG}", {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}, "meta": meta}


class OneApi:
    """Reader of rows of the table `logs` of one-api or new-api; only consumption (type 2) is billed."""

    def __init__(self, mapping: LineMapping, source: str) -> None:
        included = LineReader(mapping, source)
        excluded = LineReader(msgspec.structs.replace(mapping, input_excludes_cache=True), source)
        self._read = {False: included, True: excluded}
        self._kind = path("type")
        self._claude = path("other.claude")
        self._semantic = path("other.usage_semantic")

    def __call__(self, fields: Fields, derived_id: str) -> list[LogRecord]:
        """Return the record of a row of consumption.  Raises RecordError for a refund that takes tokens back."""
        if "type" not in fields:
            raise RecordError("no column `type`: this is no row of the table `logs`", "type")
        kind = str(self._kind(fields))
        if kind == REFUND and (_count(fields, "prompt_tokens") or _count(fields, "completion_tokens")):
            raise RecordError("a refund of tokens: write a credit note for it", "type")
        if kind != CONSUME:
            return []
        anthropic = self._claude(fields) in (True, "true", 1) or self._semantic(fields) == "anthropic"
        return [_named_by_call(record, _count(fields, "quota") or 0) for record in self._read[anthropic](fields, derived_id)]


def _named_by_call(record: LogRecord, quota: int) -> LogRecord:
    """Mark a request without tokens as paid by the call if the gateway charged `quota`; for lost counts it charges 0."""
    if isinstance(record, TokenUsage) or quota <= 0 or not record.reason.startswith(NO_COUNTS):
        return record
    return Incomplete(record.fields, paid_by_call(record.fields["model"]), {**(record.usage or {}), "quota": quota})


def spend_log(
    fields: Fields, derived_id: str, *, source: str, consumer: tuple[str, ...], tags: tuple[Choice, ...] = ()
) -> list[LogRecord]:
    """Return the record of a row of `LiteLLM_SpendLogs`, read as a payload of its callbacks; the id is the table's key."""
    metadata = json_object(fields.get("metadata"))
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    beside = metadata.get("additional_usage_values")
    counts = {name: _count(fields, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    usage = metadata.get("usage_object") or {**(beside if isinstance(beside, Mapping) else {}), **counts}
    who = {"hash": fields.get("api_key"), "team_id": fields.get("team_id"), "user_id": fields.get("user"),
           "org_id": fields.get("organization_id"), "end_user_id": fields.get("end_user")}  # fmt: skip
    named = {f"user_api_key_{name}": value for name, value in who.items() if value not in (None, "")}
    payload: dict[str, Any] = {
        **fields, **counts, "id": fields.get("request_id"), "startTime": _utc(fields.get("startTime")),
        "status": fields.get("status") or metadata.get("status") or "success",
        "metadata": {**metadata, **named, "usage_object": usage},
        "error_information": metadata.get("error_information") or {}, "cost_breakdown": metadata.get("cost_breakdown"),
        "response": json_object(fields.get("response")), "request_tags": _list(fields.get("request_tags")),
    }  # fmt: skip
    record = litellm.redacted(payload, source=source, tags=tags)
    request = {**litellm.request(record, consumer=consumer), "id": str(fields["request_id"])}
    try:
        classes = litellm.classes(record)
    except RecordError as error:
        return [Incomplete(request, str(error), litellm.stated(record))]
    return [litellm.counted_request(request, classes)]


def _suffixed(record: LogRecord, plugin: str) -> LogRecord:
    if isinstance(record, TokenUsage):
        return msgspec.structs.replace(record, id=f"{record.id}:{plugin}")
    return msgspec.structs.replace(record, fields={**record.fields, "id": f"{record.fields['id']}:{plugin}"})


def _count(fields: Fields, name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:
        return int(value)
    return value if isinstance(value, int) else None


def _list(value: Any) -> Any:
    """Decode a text that holds a JSON list; return anything else as it is."""
    if not isinstance(value, str) or not value.startswith("["):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _utc(time: Any) -> Any:
    """Add the offset that LiteLLM's exports omit: its database keeps instants in UTC."""
    if not isinstance(time, str) or time.endswith("Z") or "+" in time or "-" in time[10:]:
        return time
    return f"{time}Z"
