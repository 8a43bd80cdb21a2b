"""PURE: dialects of token counts: how each model API and gateway names and adds them, as data for `metering.token_usage`.

A count is written as paths into the usage object: `a | b` is one count under two names, which must agree if both are
stated; `a + b` is a sum; `list[].field` adds over a list. `input` and `output` are disjoint parts: where an API leaves
cached tokens or reasoning out of its main count, they are parts of their own here. A count that is only a share of a part is
in `within_input` or `within_output`. A stated total must be the sum of the parts.

An API with two known ways of adding has a dialect for each. The second one `needs` the total that proves it.

Sources: the table of tests/usage_shapes.py, which names one for every shape.
"""

import re
from typing import Final

import msgspec
from msgspec.structs import replace


class Dialect(msgspec.Struct, frozen=True):
    """Names of the counts of one API. `needs`: the counts without which a usage object is not of this dialect.

    `prefixes`: what may precede every path. `open`: the object holds other attributes too, and a
    number is usage only if its name speaks of it. `not_tokens`: numbers of this dialect that count no tokens.
    """

    name: str
    needs: tuple[str, ...]
    input: tuple[str, ...]
    output: tuple[str, ...]
    cache_read: str = ""
    cache_creation: str = ""
    reasoning: str = ""
    total: str = ""
    within_input: tuple[str, ...] = ()
    within_output: tuple[str, ...] = ()
    not_tokens: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("",)
    open: bool = False


def _any(*names: str) -> str:
    return " | ".join(name for name in names if name)


def _each(places: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(f"{place}.{name}" for place in places for name in names)


def _lifetimes(place: str) -> str:
    return f"{place}.ephemeral_5m_input_tokens + {place}.ephemeral_1h_input_tokens"


NOT_TOKENS: Final = frozenset({
    # amounts of money and what explains them
    "cost", "cost_in_usd_ticks", "upstream_inference_cost", "upstream_inference_prompt_cost",
    "upstream_inference_completions_cost", "input_tokens_cost", "output_tokens_cost", "request_cost", "total_cost",
    "citation_tokens_cost", "reasoning_tokens_cost", "search_queries_cost",
    # times and rates
    "queue_time", "prompt_time", "completion_time", "total_time", "time_per_token", "time_to_first_token", "latency",
    "latencyMs", "e2e_latency", "invocationLatency", "firstByteLatency", "total_duration", "load_duration",
    "prompt_eval_duration", "eval_duration", "created", "created_at", "seconds", "prompt_audio_seconds", "tokens_per_second",
    "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_ms", "predicted_per_token_ms",
    "predicted_per_second", "video_length_seconds", "audio_length_seconds",
    # requests, searches, pictures, characters
    "num_sources_used", "num_server_side_tools_used", "num_search_queries", "search_units", "classifications", "images",
    "web_search_requests", "web_fetch_requests", "tool_search_requests", "web_search_calls", "x_search_calls",
    "code_interpreter_calls", "file_search_calls", "mcp_calls", "document_search_calls", "image_generation_calls",
    "generated_images", "total_characters", "character_count", "image_count", "output_image_count", "query_count",
    "google_maps_grounding_requests", "browser_open_requests",
    # what speculative decoding tried
    "draft_n", "draft_n_accepted", "spec_verify_ct", "spec_accept_length", "spec_accept_rate",
})  # fmt: skip
"""Last names of numbers that count no tokens, in any API."""

KINDS: Final = ("text_tokens", "audio_tokens", "image_tokens", "video_tokens")
PARTS: Final = (
    *KINDS, "accepted_prediction_tokens", "rejected_prediction_tokens", "tool_use_tokens", "tool_output_tokens",
)  # fmt: skip
"""Details of a count that are parts of it and have its price."""
MIXED: Final = ("x_details[].prompt_tokens_details", "x_details[].input_tokens_details")
GIVEN: Final = ("prompt_tokens_details", "prompt_token_details", "input_tokens_details", "input_token_details", *MIXED)
PRODUCED: Final = (
    "completion_tokens_details", "output_tokens_details", "output_token_details", "x_details[].output_tokens_details",
)  # fmt: skip
READ: Final = _any(
    *_each(GIVEN, "cached_tokens", "cached_read_tokens"), "input_token_details.cache_read", "cached_tokens",
    "num_cached_tokens",
)
WRITTEN: Final = _any(
    *_each(
        GIVEN, "cache_write_tokens", "cached_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens",
        "cache_creation.cache_creation_input_tokens",
    ),
    *(_lifetimes(place) for place in _each(GIVEN, "cache_creation", "cache_creation_token_details")),
    "input_token_details.cache_creation",
)  # fmt: skip
REASONING: Final = _any(*_each(PRODUCED, "reasoning_tokens"), "output_token_details.reasoning", "reasoning_tokens")
READ_ON_TOP: Final = "cache_read_input_tokens | prompt_cache_hit_tokens"
WRITTEN_ON_TOP: Final = f"cache_creation_input_tokens | {_lifetimes('cache_creation')}"
WITHIN_INPUT: Final = (
    *_each(GIVEN, *KINDS, "tool_use_tokens", "input_tokens_per_turn[]", "cached_tokens_per_turn[]"),
    "input_token_details.audio",
    *_each(_each(GIVEN, "cached_tokens_details"), *KINDS), "cached_tokens_details.device", "cached_tokens_details.host",
)  # fmt: skip
WITHIN_OUTPUT: Final = (
    *_each(
        PRODUCED, *KINDS, "accepted_prediction_tokens", "rejected_prediction_tokens", "tool_output_tokens",
        "output_tokens_per_turn[]", "tool_output_tokens_per_turn[]",
    ),
    "output_token_details.audio",
)  # fmt: skip

CHAT: Final = Dialect(
    "OpenAI chat", needs=("prompt_tokens",), input=("prompt_tokens",), output=("completion_tokens",),
    cache_read=_any(READ, READ_ON_TOP), cache_creation=_any(WRITTEN, WRITTEN_ON_TOP), reasoning=REASONING,
    total="total_tokens", within_input=WITHIN_INPUT, within_output=WITHIN_OUTPUT,
    not_tokens=("finish_reason.length",), prefixes=("", "meta_info."),
)  # fmt: skip
"""Dialect of completions, embeddings too; vLLM, SGLang, TensorRT-LLM, Mistral, Kimi, Zhipu, MiniMax, OpenRouter, LiteLLM."""
CHAT_CACHE_BESIDE: Final = replace(
    CHAT, name="OpenAI chat with the cache beside the prompt", needs=("prompt_tokens", "total_tokens"),
    input=("prompt_tokens", CHAT.cache_read, CHAT.cache_creation),
)  # fmt: skip
CHAT_REASONING_BESIDE: Final = replace(
    CHAT, name="OpenAI chat with reasoning beside the completion", needs=("prompt_tokens", "total_tokens"),
    output=("completion_tokens", REASONING),
)  # fmt: skip
"""Dialect of xAI."""
CHAT_TOOLS_BESIDE: Final = replace(
    CHAT, name="OpenAI chat with tool use beside the prompt",
    needs=("prompt_tokens", "total_tokens", "prompt_tokens_details.tool_use_tokens"),
    input=("prompt_tokens", "prompt_tokens_details.tool_use_tokens"),
)  # fmt: skip
"""Dialect of LiteLLM for a Gemini that searched."""
DEEPSEEK: Final = replace(
    CHAT, name="DeepSeek", needs=("prompt_tokens", "prompt_cache_miss_tokens"),
    input=("prompt_tokens | prompt_cache_hit_tokens + prompt_cache_miss_tokens",),
)  # fmt: skip

RESPONSES: Final = Dialect(
    "OpenAI Responses", needs=("input_tokens",), input=("input_tokens | x_details[].input_tokens",),
    output=("output_tokens | x_details[].output_tokens",), cache_read=READ, cache_creation=WRITTEN, reasoning=REASONING,
    total="total_tokens | x_details[].total_tokens", within_input=(*WITHIN_INPUT, *KINDS[1:]), within_output=WITHIN_OUTPUT,
)  # fmt: skip
"""Dialect of images and Realtime too; DashScope."""
RESPONSES_CACHE_ON_TOP: Final = replace(
    RESPONSES, name="Anthropic's names with the cache inside the input", needs=("input_tokens", "total_tokens"),
    cache_read=_any(READ, READ_ON_TOP), cache_creation=_any(WRITTEN, WRITTEN_ON_TOP),
)  # fmt: skip

COMPACTED: Final = "compactions[]"
"""Path of Anthropic's iterations that shortened the context: billed, and in none of the counts beside them."""
_ANTHROPIC_READ: Final = "cache_read_input_tokens | iterations[].cache_read_input_tokens"
_ANTHROPIC_WRITTEN: Final = _any(
    WRITTEN_ON_TOP, "iterations[].cache_creation_input_tokens", _lifetimes("iterations[].cache_creation")
)
ANTHROPIC: Final = Dialect(
    "Anthropic", needs=("input_tokens",),
    input=("input_tokens | iterations[].input_tokens", _ANTHROPIC_READ, _ANTHROPIC_WRITTEN),
    output=("output_tokens | iterations[].output_tokens",), cache_read=_ANTHROPIC_READ, cache_creation=_ANTHROPIC_WRITTEN,
    reasoning="output_tokens_details.thinking_tokens", total="total_tokens",
)  # fmt: skip

_LIFETIMES: Final = _each(
    ("cache_creation", "iterations[].cache_creation", f"{COMPACTED}.cache_creation"),
    "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens",
)


def _with_compactions(name: str) -> str:
    return f"{name} + {COMPACTED}.{name}"


ANTHROPIC_COMPACTED: Final = Dialect(
    "Anthropic with compaction", needs=("input_tokens", f"{COMPACTED}.input_tokens", f"{COMPACTED}.output_tokens"),
    input=tuple(
        _with_compactions(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ),
    output=(_with_compactions("output_tokens"),), cache_read=_with_compactions("cache_read_input_tokens"),
    cache_creation=_with_compactions("cache_creation_input_tokens"), reasoning="output_tokens_details.thinking_tokens",
    within_input=(
        *_each(("iterations[]",), "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), *_LIFETIMES,
    ),
    within_output=("iterations[].output_tokens",),
)  # fmt: skip

GEMINI: Final = Dialect(
    "Gemini", needs=("promptTokenCount",), input=("promptTokenCount", "toolUsePromptTokenCount"),
    output=("candidatesTokenCount | responseTokenCount", "thoughtsTokenCount"), cache_read="cachedContentTokenCount",
    reasoning="thoughtsTokenCount", total="totalTokenCount",
    within_input=(
        "promptTokensDetails[].tokenCount", "cacheTokensDetails[].tokenCount", "toolUsePromptTokensDetails[].tokenCount",
    ),
    within_output=("candidatesTokensDetails[].tokenCount", "responseTokensDetails[].tokenCount"),
    prefixes=("", "usageMetadata."),
)  # fmt: skip
GEMINI_THOUGHTS_INSIDE: Final = replace(
    GEMINI, name="Gemini with thoughts inside the candidates", needs=("promptTokenCount", "totalTokenCount"),
    output=("candidatesTokenCount | responseTokenCount",),
)  # fmt: skip

CONVERSE: Final = Dialect(
    "Bedrock Converse", needs=("inputTokens", "outputTokens"),
    input=("inputTokens", "cacheReadInputTokens | cacheReadInputTokenCount",
           "cacheWriteInputTokens | cacheWriteInputTokenCount | cacheDetails[].inputTokens"),
    output=("outputTokens",), cache_read="cacheReadInputTokens | cacheReadInputTokenCount",
    cache_creation="cacheWriteInputTokens | cacheWriteInputTokenCount | cacheDetails[].inputTokens", total="totalTokens",
)  # fmt: skip
_PARTS: Final = _each(("inputTokenDetails",), "noCacheTokens", "cacheReadTokens", "cacheWriteTokens")
VERCEL: Final = Dialect(
    "Vercel's AI SDK", needs=("inputTokens", "outputTokens", f"{_PARTS[0]} | {_PARTS[1]}"),
    input=(f"inputTokens | {' + '.join(_PARTS)}",),
    output=("outputTokens | outputTokenDetails.textTokens + outputTokenDetails.reasoningTokens",),
    cache_read=f"{_PARTS[1]} | cachedInputTokens", cache_creation=_PARTS[2],
    reasoning="outputTokenDetails.reasoningTokens | reasoningTokens", total="totalTokens",
)  # fmt: skip
"""Dialect since version 6; before, cached tokens were inside the input of some providers and outside that of others."""

INVOKE: Final = Dialect(
    "Bedrock InvokeModel", needs=("inputTokenCount", "outputTokenCount"),
    input=("inputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount"), output=("outputTokenCount",),
    cache_read="cacheReadInputTokenCount", cache_creation="cacheWriteInputTokenCount",
    prefixes=("", "amazon-bedrock-invocationMetrics."),
)  # fmt: skip
INVOKE_LLAMA: Final = Dialect(
    "Llama on Bedrock", needs=("prompt_token_count", "generation_token_count"), input=("prompt_token_count",),
    output=("generation_token_count",),
)  # fmt: skip
INVOKE_TITAN: Final = Dialect(
    "Titan on Bedrock", needs=("inputTextTokenCount",), input=("inputTextTokenCount",), output=("results[].tokenCount",)
)

OLLAMA: Final = Dialect(
    "Ollama", needs=("prompt_eval_count",), input=("prompt_eval_count",), output=("eval_count",), not_tokens=("context[]",)
)
TGI: Final = Dialect(
    "TGI", needs=("generated_tokens",), input=("input_length",), output=("generated_tokens",), prefixes=("", "details."),
    not_tokens=("seed", *_each(("tokens[]", "prefill[]"), "id", "logprob")),
)  # fmt: skip
LLAMA_CPP: Final = Dialect(
    "llama.cpp", needs=("tokens_evaluated", "tokens_predicted"),
    input=("tokens_evaluated | timings.prompt_n + timings.cache_n",), output=("tokens_predicted | timings.predicted_n",),
    cache_read="timings.cache_n", not_tokens=("tokens_cached", "tokens[]", "id_slot", "index"),
)  # fmt: skip
"""Dialect without `tokens_cached`, which is what the slot holds afterwards, prompt and answer, not cached input."""
LLAMA_CPP_WITHOUT_CACHE: Final = replace(
    LLAMA_CPP, name="llama.cpp without cache_n", input=("tokens_evaluated",), cache_read="",
    within_input=("timings.prompt_n",),
)  # fmt: skip
LLAMA_CPP_TIMINGS: Final = Dialect(
    "timings of llama.cpp", needs=("prompt_n", "cache_n", "predicted_n"), input=("prompt_n", "cache_n"),
    output=("predicted_n",), cache_read="cache_n", prefixes=("", "timings."),
)  # fmt: skip

COHERE: Final = Dialect(
    "Cohere", needs=("tokens.input_tokens",), input=("tokens.input_tokens",), output=("tokens.output_tokens",),
    cache_read="cached_tokens", within_input=("billed_units.input_tokens", "billed_units.image_tokens"),
    within_output=("billed_units.output_tokens",), not_tokens=("api_version.version",), prefixes=("", "meta."),
)  # fmt: skip
COHERE_BILLED: Final = Dialect(
    "Cohere's billed units", needs=("billed_units.input_tokens",), input=("billed_units.input_tokens",),
    output=("billed_units.output_tokens",), not_tokens=("api_version.version",), prefixes=("", "meta."),
)  # fmt: skip

_GEN_AI: Final = "gen_ai.usage"
OTEL: Final = Dialect(
    "OpenTelemetry", needs=(f"{_GEN_AI}.input_tokens | {_GEN_AI}.prompt_tokens | llm.usage.prompt_tokens",),
    input=(f"{_GEN_AI}.input_tokens | {_GEN_AI}.prompt_tokens | llm.usage.prompt_tokens",),
    output=(f"{_GEN_AI}.output_tokens | {_GEN_AI}.completion_tokens | llm.usage.completion_tokens",),
    cache_read=_any(*_each(
        (_GEN_AI,), "cache_read.input_tokens", "cache_read_input_tokens", "cached_input_tokens", "cached_tokens",
        "details.cache_read_tokens", "details.cache_read_input_tokens", "details.cached_tokens", "input_tokens.cached",
    )),
    cache_creation=_any(*_each(
        (_GEN_AI,), "cache_creation.input_tokens", "cache_write.input_tokens", "cache_creation_input_tokens",
        "cache_write_input_tokens", "details.cache_write_tokens", "details.cache_creation_input_tokens",
        "input_tokens.cache_write",
    )),
    reasoning=_any(*_each(
        (_GEN_AI,), "reasoning.output_tokens", "reasoning_tokens", "reasoning_output_tokens", "details.reasoning_tokens",
        "output_tokens.reasoning",
    )),
    within_input=_each(
        (f"{_GEN_AI}.details",), "input_tokens", "input_audio_tokens", "cache_audio_read_tokens", "text_prompt_tokens",
        "image_prompt_tokens", "audio_prompt_tokens",
    ),
    within_output=_each(
        (f"{_GEN_AI}.details",), "output_tokens", "output_audio_tokens", "accepted_prediction_tokens",
        "rejected_prediction_tokens", "audio_tokens", "text_completion_tokens",
    ),
    total=f"{_GEN_AI}.total_tokens | llm.usage.total_tokens", open=True,
    not_tokens=("gen_ai.request.max_tokens", "gen_ai.request.max_output_tokens", "llm.request.max_tokens"),
)  # fmt: skip
OTEL_CACHE_BESIDE: Final = replace(
    OTEL, name="OpenTelemetry with the cache beside the input", needs=(*OTEL.needs, OTEL.total),
    input=(*OTEL.input, OTEL.cache_read, OTEL.cache_creation),
)  # fmt: skip

_COUNTED: Final = "llm.token_count"
OPENINFERENCE: Final = Dialect(
    "OpenInference", needs=(f"{_COUNTED}.prompt",), input=(f"{_COUNTED}.prompt",), output=(f"{_COUNTED}.completion",),
    cache_read=_any(*_each((f"{_COUNTED}.prompt_details",), "cache_read", "cache_input")),
    cache_creation=f"{_COUNTED}.prompt_details.cache_write", reasoning=f"{_COUNTED}.completion_details.reasoning",
    total=f"{_COUNTED}.total", within_input=(f"{_COUNTED}.prompt_details.audio",),
    within_output=(f"{_COUNTED}.completion_details.audio",), open=True,
    not_tokens=OTEL.not_tokens,
)  # fmt: skip
OPENINFERENCE_CACHE_BESIDE: Final = replace(
    OPENINFERENCE, name="OpenInference with the cache beside the prompt", needs=(*OPENINFERENCE.needs, OPENINFERENCE.total),
    input=(*OPENINFERENCE.input, OPENINFERENCE.cache_read, OPENINFERENCE.cache_creation),
)  # fmt: skip

KONG_BEFORE_3_8: Final = Dialect(
    "Kong 3.6 and 3.7", needs=("prompt_token", "completion_token"), input=("prompt_token",), output=("completion_token",),
    total="total_tokens",
)  # fmt: skip
HUNYUAN: Final = Dialect(
    "Tencent Hunyuan", needs=("PromptTokens", "CompletionTokens"), input=("PromptTokens",), output=("CompletionTokens",),
    total="TotalTokens",
)  # fmt: skip


def _snake(dialect: Dialect) -> Dialect:
    """Return the dialect as Python libraries write it: `prompt_token_count` for `promptTokenCount`."""
    written = re.sub(rb"([a-z])([A-Z])", lambda found: found[1] + b"_" + found[2].lower(), msgspec.json.encode(dialect))
    return replace(msgspec.json.decode(written, type=Dialect), name=f"{dialect.name} in snake_case")


DIALECTS: Final = (
    CHAT, CHAT_CACHE_BESIDE, CHAT_REASONING_BESIDE, CHAT_TOOLS_BESIDE, DEEPSEEK, ANTHROPIC, ANTHROPIC_COMPACTED, RESPONSES,
    RESPONSES_CACHE_ON_TOP, GEMINI, GEMINI_THOUGHTS_INSIDE, _snake(GEMINI), _snake(GEMINI_THOUGHTS_INSIDE), CONVERSE,
    VERCEL, INVOKE, INVOKE_LLAMA, INVOKE_TITAN, OLLAMA, TGI, LLAMA_CPP, LLAMA_CPP_WITHOUT_CACHE, LLAMA_CPP_TIMINGS, COHERE,
    COHERE_BILLED, OTEL, OTEL_CACHE_BESIDE, OPENINFERENCE, OPENINFERENCE_CACHE_BESIDE, KONG_BEFORE_3_8, HUNYUAN,
)  # fmt: skip

NAMED: Final = Dialect(
    "counts by name", needs=("input_tokens",), input=("input_tokens", "tool_use_input_tokens"), output=("output_tokens",),
    cache_read="cache_read_input_tokens", cache_creation="cache_creation_input_tokens", reasoning="reasoning_output_tokens",
    total="total_tokens",
)  # fmt: skip
NAMED_CACHE_BESIDE: Final = replace(
    NAMED, name="counts by name with the cache beside the input",
    input=(*NAMED.input, NAMED.cache_read, NAMED.cache_creation),
)  # fmt: skip
NAMED_REASONING_BESIDE: Final = replace(
    NAMED, name="counts by name with reasoning beside the output", output=(*NAMED.output, NAMED.reasoning)
)
_PROVED: Final = tuple(
    replace(dialect, needs=("input_tokens", "total_tokens"))
    for dialect in (NAMED, NAMED_CACHE_BESIDE, NAMED_REASONING_BESIDE)
)
CACHE_INSIDE: Final = (NAMED, *_PROVED)
CACHE_BESIDE: Final = (NAMED_CACHE_BESIDE, *_PROVED)
"""Dialects of counts that a mapping names one by one; a stated total overrules the mapping's claim about the cache."""
