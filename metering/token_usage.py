"""Usage objects of the model APIs -> the token classes of the contract.

Every API counts differently: OpenAI's details are parts of its totals, Anthropic's input leaves both cache classes out,
vLLM and SGLang say nothing of the cache unless they are started so. Here they all become one shape, in which
`input_tokens` is all input and `output_tokens` is all output.

What was not told is kept apart from zero: input whose cached part is unknown is priced as uncached, and the record
says so (`cache_counts: unknown`), so that a flag forgotten on an inference server can be found in the ledger.

Source: reference/METERING_FACTS.md, B1.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from metering.records import MAX_COUNT, RecordError

UsageSource = Literal["provider", "gateway_estimate", "none"]

READ_IN_DETAILS: Final = ("cached_tokens",)
READ_ON_TOP: Final = ("cache_read_input_tokens", "prompt_cache_hit_tokens")
WRITTEN_IN_DETAILS: Final = ("cache_write_tokens", "cache_creation_tokens")
WRITTEN_ON_TOP: Final = ("cache_creation_input_tokens",)


class TokenClasses(msgspec.Struct, frozen=True):
    """Token counts of one request; `input_tokens` contains both cache classes, `output_tokens` contains reasoning."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int
    cache_known: bool
    usage_source: UsageSource

    def __post_init__(self) -> None:
        cached = self.cache_read_input_tokens + self.cache_creation_input_tokens
        if cached > self.input_tokens:
            raise RecordError(f"{cached} cached tokens are more than the {self.input_tokens} of all input")
        if self.reasoning_output_tokens > self.output_tokens:
            raise RecordError(
                f"{self.reasoning_output_tokens} reasoning tokens are more than the {self.output_tokens} of all output"
            )

    @property
    def uncached_input_tokens(self) -> int:
        """Input that was neither read from nor written to the cache, as far as the API told."""
        return self.input_tokens - self.cache_read_input_tokens - self.cache_creation_input_tokens

    @property
    def counts(self) -> dict[str, int]:
        """The five counts by the names of `TokenUsage`."""
        return {
            "input_tokens": self.input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "output_tokens": self.output_tokens,
            "reasoning_output_tokens": self.reasoning_output_tokens,
        }

    @property
    def remarks(self) -> dict[str, str]:
        """What `TokenUsage.attributes` says of these counts; nothing where a provider told everything."""
        remarks = {} if self.cache_known else {"cache_counts": "unknown"}
        return remarks if self.usage_source == "provider" else {**remarks, "usage_source": self.usage_source}

    def as_estimate(self) -> "TokenClasses":
        """The same counts, told by a gateway that guessed them: what it says of the cache is no knowledge."""
        return msgspec.structs.replace(self, cache_known=False, usage_source="gateway_estimate")


NOTHING: Final = TokenClasses(0, 0, 0, 0, 0, cache_known=False, usage_source="none")
"""Of a request that told no usage: no tokens, and the remark that nobody counted."""


def token_classes(usage: Mapping[str, Any] | None) -> TokenClasses:
    """Classes of a usage object of any known API, recognised by the names of its fields.

    Raises RecordError where a count is no count, or where the counts contradict each other.

    >>> vllm = token_classes({"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": None})
    >>> vllm.input_tokens, vllm.output_tokens, vllm.cache_known
    (100, 30, False)
    >>> anthropic = token_classes({"input_tokens": 10, "cache_read_input_tokens": 80,
    ...                            "cache_creation_input_tokens": 10, "output_tokens": 5})
    >>> anthropic.input_tokens, anthropic.uncached_input_tokens
    (100, 10)
    """
    if not usage:
        return NOTHING
    if _told(usage, "prompt_tokens") is not None:
        return openai_chat(usage)
    if _told(usage, "input_tokens") is not None:
        return anthropic(usage) if _leaves_cache_out(usage) else openai_responses(usage)
    return rerank(usage)


def openai_chat(usage: Mapping[str, Any]) -> TokenClasses:
    """OpenAI chat, completions and embeddings; also vLLM, SGLang and what LiteLLM makes of any provider.

    The details are parts of the totals. SGLang has `reasoning_tokens` at the top; LiteLLM repeats the cache classes there.

    >>> openai_chat({"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
    ...              "prompt_tokens_details": {"cached_tokens": 1920},
    ...              "completion_tokens_details": {"reasoning_tokens": 192}}).uncached_input_tokens
    86
    """
    details = _details(usage, "prompt_tokens_details")
    read = _agreed(details, READ_IN_DETAILS, usage, READ_ON_TOP)
    written = _agreed(details, WRITTEN_IN_DETAILS, usage, WRITTEN_ON_TOP)
    inner = _details(usage, "completion_tokens_details")
    reasoning = _agreed(inner, ("reasoning_tokens",), usage, ("reasoning_tokens",))
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    return TokenClasses(
        prompt, read or 0, written or 0, _all_output(usage, prompt, completion, reasoning or 0), reasoning or 0,
        cache_known=read is not None, usage_source="provider",
    )  # fmt: skip


def openai_responses(usage: Mapping[str, Any]) -> TokenClasses:
    """OpenAI Responses API: other names, the same inclusion as chat.

    >>> openai_responses({"input_tokens": 36, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 87,
    ...                   "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 123}).cache_known
    True
    """
    details = _details(usage, "input_tokens_details")
    read = _agreed(details, READ_IN_DETAILS, usage, READ_ON_TOP)
    written = _agreed(details, WRITTEN_IN_DETAILS, usage, WRITTEN_ON_TOP)
    reasoning = _told(_details(usage, "output_tokens_details"), "reasoning_tokens") or 0
    prompt, completion = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    return TokenClasses(
        prompt, read or 0, written or 0, _all_output(usage, prompt, completion, reasoning), reasoning,
        cache_known=read is not None, usage_source="provider",
    )  # fmt: skip


def anthropic(usage: Mapping[str, Any]) -> TokenClasses:
    """Anthropic Messages: `input_tokens` leaves both cache classes out, so all input is the sum of the three.

    >>> classes = anthropic({"input_tokens": 21, "cache_creation_input_tokens": 188086, "cache_read_input_tokens": 0,
    ...                      "output_tokens": 393})
    >>> classes.input_tokens, classes.cache_known
    (188107, True)
    """
    read, written = _told(usage, "cache_read_input_tokens"), _told(usage, "cache_creation_input_tokens")
    lifetimes = _details(usage, "cache_creation")
    if written is None and lifetimes:
        written = _count(lifetimes, "ephemeral_5m_input_tokens") + _count(lifetimes, "ephemeral_1h_input_tokens")
    return TokenClasses(
        _count(usage, "input_tokens") + (read or 0) + (written or 0), read or 0, written or 0,
        _count(usage, "output_tokens"), 0, cache_known=read is not None and written is not None, usage_source="provider",
    )  # fmt: skip


def rerank(usage: Mapping[str, Any]) -> TokenClasses:
    """Rerankers: `total_tokens` (vLLM, Jina) or Cohere's `meta`; search units are no tokens and are not turned into any.

    >>> rerank({"total_tokens": 56}).input_tokens
    56
    >>> rerank({"billed_units": {"search_units": 1}}).usage_source
    'none'
    """
    for part in (_details(usage, "tokens"), _details(usage, "billed_units")):
        if _told(part, "input_tokens") is not None or _told(part, "output_tokens") is not None:
            return _uncounted_cache(_count(part, "input_tokens"), _count(part, "output_tokens"))
    total = _told(usage, "total_tokens")
    return NOTHING if total is None else _uncounted_cache(total, 0)


def rerank_documents(documents: Iterable[Mapping[str, Any]]) -> TokenClasses:
    """SGLang's reranker, which counts per document in `meta_info`: the request is their sum.

    >>> rerank_documents([{"meta_info": {"prompt_tokens": 30}}, {"meta_info": {"prompt_tokens": 12}}]).input_tokens
    42
    """
    counted = [_told(_details(document, "meta_info"), "prompt_tokens") for document in documents]
    told = [count for count in counted if count is not None]
    return _uncounted_cache(sum(told), 0) if told else NOTHING


def last_of_stream(usages: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """The usage object of a stream: of each field the last that was told, for all of them count from the start.

    Adding the chunks up would bill a stream of ten chunks ten times (langfuse#8808).

    >>> last_of_stream([{"input_tokens": 25, "output_tokens": 1}, None, {"output_tokens": 15}])
    {'input_tokens': 25, 'output_tokens': 15}
    """
    last: dict[str, Any] = {}
    for usage in usages:
        last.update({name: value for name, value in (usage or {}).items() if value is not None})
    return last


def _uncounted_cache(given: int, produced: int) -> TokenClasses:
    return TokenClasses(given, 0, 0, produced, 0, cache_known=False, usage_source="provider")


def _leaves_cache_out(usage: Mapping[str, Any]) -> bool:
    """Whether this is Anthropic's way of counting. Where a total is told, the total decides."""
    if "input_tokens_details" in usage or "output_tokens_details" in usage:
        return False
    total = _told(usage, "total_tokens")
    if total is None:
        return True
    cached = _count(usage, "cache_read_input_tokens") + _count(usage, "cache_creation_input_tokens")
    inclusive = _count(usage, "input_tokens") + _count(usage, "output_tokens")
    if cached and total not in (inclusive, inclusive + cached):
        raise RecordError(f"total_tokens {total} tells neither that input_tokens contains the cached ones nor that not")
    return total == inclusive + cached and cached > 0


def _all_output(usage: Mapping[str, Any], given: int, completion: int, reasoning: int) -> int:
    """All output. Some servers count reasoning beside the completion; only a total that proves it is believed."""
    beside = _told(usage, "total_tokens") == given + completion + reasoning
    return completion + reasoning if beside else completion


def _agreed(
    details: Mapping[str, Any], inner: tuple[str, ...], usage: Mapping[str, Any], top: tuple[str, ...]
) -> int | None:
    """A count that may be told in more than one place; None where it is nowhere.  Raises RecordError if they differ."""
    places = [(details, name) for name in inner] + [(usage, name) for name in top]
    told = {name: count for place, name in places if (count := _told(place, name)) is not None}
    if len(set(told.values())) > 1:
        raise RecordError(" and ".join(f"{name} {count}" for name, count in told.items()) + " contradict each other")
    return next(iter(told.values()), None)


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = usage.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(usage: Mapping[str, Any], name: str) -> int:
    return _told(usage, name) or 0


def _told(usage: Mapping[str, Any], name: str) -> int | None:
    """The count, None where it is absent or null.  Raises RecordError for what is no count."""
    value = usage.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise RecordError(f"{name} must be a whole number from 0 to {MAX_COUNT}", name)
    return value
