"""PURE: details of a usage object besides the five counts of a record: service tier, finer counts, searches, tool calls.

The finer counts are parts of the counts that `metering.token_usage` reads; searches and tool calls are those that the
provider itself made and counted. A zero states nothing here: gateways fill in names that they do not know.

Audio and images are counted as parts of the uncached input. For an API whose audio count includes cached audio, its cache
details are subtracted. If the details are missing, and the parts exceed the count that contains them, they are unknown.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import STANDARD_TIER, canonical_tier
from metering.usage_dialects import COMPACTED, GIVEN, PRODUCED

Values = Mapping[str, list[Any]]
"""Values of a usage object by path; all items of a list under one path."""

TIERS: Final = ("service_tier", "serviceTier", "trafficType", "traffic_type")
REFINEMENTS: Final = (
    ("speed", "", frozenset({"standard"})),
    ("inference_geo", "geo-", frozenset({"global", "not_available"})),
)
"""Texts of an Anthropic usage object that change its price: name, prefix in the tier, values that change nothing.

Source: https://platform.claude.com/docs/en/about-claude/pricing (fast mode, data residency).
"""
TEXTS: Final = frozenset({*TIERS, *(name for name, *_ in REFINEMENTS), "modality", "ttl"})
"""Last names of texts of a usage object that are read, if they are one word."""
ONE_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
OTHER_TIER: Final = "(other)"
"""Tier that stands for a stated tier that is not one word."""
SPEAKS_OF_PARTS: Final = re.compile(r"audio|image|1h|modality|ttl|_calls|_requests|queries|tools_used", re.IGNORECASE)
UNKNOWN: Final = "unknown"
PART_COUNTS: Final = "part_counts"
"""Attribute of a record: `unknown` if finer counts are stated that cannot be parts of its counts."""

_PREFIXES: Final = ("", "meta_info.", "usageMetadata.", "usage_metadata.")
_GEN_AI: Final = "gen_ai.usage.details"
_CACHED: Final = tuple(f"{place}.cached_tokens_details" for place in GIVEN)


def _under(places: Iterable[str], *names: str) -> list[str]:
    return [f"{place}.{name}" for place in places for name in names]


_ONE_HOUR: Final = _under(
    ("cache_creation", "iterations[].cache_creation",
     *(f"{place}.{inner}" for place in GIVEN for inner in ("cache_creation", "cache_creation_token_details"))),
    "ephemeral_1h_input_tokens",
)  # fmt: skip
_AUDIO_IN: Final = [
    *_under(GIVEN, "audio_tokens"), "audio_tokens", "input_token_details.audio", f"{_GEN_AI}.input_audio_tokens",
    f"{_GEN_AI}.audio_prompt_tokens", "llm.token_count.prompt_details.audio", "billed_units.audio_tokens",
]  # fmt: skip
_AUDIO_READ: Final = [*_under(_CACHED, "audio_tokens"), f"{_GEN_AI}.cache_audio_read_tokens"]
_IMAGE_IN: Final = [
    *_under(GIVEN, "image_tokens"), "image_tokens", f"{_GEN_AI}.image_prompt_tokens", "billed_units.image_tokens"
]  # fmt: skip
_IMAGE_READ: Final = _under(_CACHED, "image_tokens")
_AUDIO_OUT: Final = [
    *_under(PRODUCED, "audio_tokens"), "output_token_details.audio", f"{_GEN_AI}.output_audio_tokens",
    f"{_GEN_AI}.audio_tokens", "llm.token_count.completion_details.audio",
]  # fmt: skip
_IMAGE_OUT: Final = _under(PRODUCED, "image_tokens")
_SEARCHES: Final = ("web_search_requests", "num_search_queries", "web_search_calls", "x_search_calls")
_TOOL_CALLS: Final = (
    "web_fetch_requests", "tool_search_requests", "browser_open_requests", "google_maps_grounding_requests",
    "code_interpreter_calls", "file_search_calls", "mcp_calls", "document_search_calls", "image_generation_calls",
)  # fmt: skip
_ALL_TOOLS: Final = "num_server_side_tools_used"
_MODALITIES: Final = {
    "given": (
        "promptTokensDetails", "toolUsePromptTokensDetails", "prompt_tokens_details", "tool_use_prompt_tokens_details",
    ),
    "read": ("cacheTokensDetails", "cache_tokens_details"),
    "produced": (
        "candidatesTokensDetails", "responseTokensDetails", "candidates_tokens_details", "response_tokens_details"
    ),
}  # fmt: skip
"""Names of Gemini's lists of counts by modality."""


def stated_tier(values: Values) -> str | None:
    """Return the service tier that a usage object states, refined by speed and place; None if it states none of these."""
    stated = (word for name in TIERS for value in _everywhere(values, name) if (word := tier_word(value)) is not None)
    return refined_tier(next(stated, None), values)


def refined_tier(tier: str | None, values: Values) -> str | None:
    """Return the tier with the speed and the place of inference that a usage object states, where these cost more.

    >>> refined_tier("standard", {"speed": ["fast"], "inference_geo": ["us"]}), refined_tier("batch", {"speed": ["fast"]})
    ('fast-geo-us', 'batch-fast')
    """
    words = []
    for name, prefix, ordinary in REFINEMENTS:
        word = next((word for value in _everywhere(values, name) if (word := tier_word(value)) is not None), None)
        if word == OTHER_TIER:
            return OTHER_TIER
        if word is not None and word.lower() not in ordinary:
            words.append(prefix + word.lower())
    if not words or tier == OTHER_TIER:
        return tier
    own = [] if tier is None or canonical_tier(tier) == STANDARD_TIER else [tier]
    refined = "-".join([*own, *words])
    return refined if ONE_WORD.match(refined) else OTHER_TIER


def _everywhere(values: Values, name: str) -> list[Any]:
    return [value for prefix in (*_PREFIXES, "gen_ai.usage.", "llm.usage.") for value in values.get(prefix + name, ())]


def tier_word(value: object) -> str | None:
    """Return a stated tier as a record may have it; None if none is stated.

    >>> tier_word("Flex"), tier_word(None), tier_word("what I asked for")
    ('Flex', None, '(other)')
    """
    if not isinstance(value, str) or not value:
        return None
    return value if ONE_WORD.match(value) or value == OTHER_TIER else OTHER_TIER


def fitting_parts(parts: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the stated parts, with -1 for each part that is larger than the count that contains it.

    `counts`: by the names of `TokenUsage`.

    >>> counts = {"input_tokens": 100, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 0, "output_tokens": 9}
    >>> fitting_parts({"audio_input_tokens": 60, "image_input_tokens": 0, "audio_output_tokens": 9, "searches": 2}, counts)
    {'audio_input_tokens': -1, 'audio_output_tokens': 9, 'searches': 2}
    """
    written = counts["cache_creation_input_tokens"]
    uncached = counts["input_tokens"] - counts["cache_read_input_tokens"] - written
    found = {name: count for name, count in parts.items() if count}
    for names, whole in (
        (("cache_creation_1h_input_tokens",), written),
        (("audio_input_tokens", "image_input_tokens"), uncached),
        (("audio_output_tokens", "image_output_tokens"), counts["output_tokens"]),
    ):
        if sum(found.get(name, 0) for name in names) > whole:
            found |= {name: -1 for name in names if name in found}
    return found


def usage_parts(values: Values) -> dict[str, int]:
    """Return the counts of `metering.records.DETAIL_COUNTS` that a usage object states.

    Raises RecordError if two names of one count contradict each other.
    """
    if not _speak_of_parts(frozenset(values)):
        return {}
    audio = _kind(values, "AUDIO", _AUDIO_IN, "given")
    image = _kind(values, "IMAGE", _IMAGE_IN, "given")
    audio = max(audio - _kind(values, "AUDIO", _AUDIO_READ, "read"), 0)
    image = max(image - _kind(values, "IMAGE", _IMAGE_READ, "read"), 0)
    searches, calls = _by_last_name(values, _SEARCHES), _by_last_name(values, _TOOL_CALLS)
    if not (searches or calls):
        # The number of all tools counts only where no kind is stated, since it contains them.
        calls = _by_last_name(values, (_ALL_TOOLS,))
    return {
        "cache_creation_1h_input_tokens": _one_hour(values),
        "audio_input_tokens": audio, "image_input_tokens": image,
        "audio_output_tokens": _kind(values, "AUDIO", _AUDIO_OUT, "produced"),
        "image_output_tokens": _kind(values, "IMAGE", _IMAGE_OUT, "produced"),
        "searches": searches, "tool_calls": calls,
    }  # fmt: skip


@lru_cache(maxsize=512)
def _speak_of_parts(paths: frozenset[str]) -> bool:
    """Return True if an object of these paths may state parts, cached: a gateway sends the same few shapes over and over."""
    return any(SPEAKS_OF_PARTS.search(path) for path in paths)


def _one_hour(values: Values) -> int:
    """Return the tokens written to a cache of one hour, from Anthropic's names or Bedrock's list by lifetime."""
    compacted = sum(_whole(value) for value in values.get(f"{COMPACTED}.cache_creation.ephemeral_1h_input_tokens", ()))
    lifetimes, written = values.get("cacheDetails[].ttl", ()), values.get("cacheDetails[].inputTokens", ())
    listed = (
        sum(_whole(count) for ttl, count in zip(lifetimes, written, strict=True) if ttl == "1h")
        if len(lifetimes) == len(written) else 0
    )  # fmt: skip
    return (_agreed(values, _ONE_HOUR) or listed) + compacted


def _kind(values: Values, modality: str, names: Iterable[str], side: str) -> int:
    """Return the tokens of a modality, by their names or from Gemini's lists."""
    listed = 0
    for place in (prefix + name for prefix in _PREFIXES for name in _MODALITIES[side]):
        kinds = values.get(f"{place}[].modality", ())
        counts = values.get(f"{place}[].tokenCount") or values.get(f"{place}[].token_count") or []
        if len(kinds) == len(counts):
            listed += sum(_whole(count) for kind, count in zip(kinds, counts, strict=True) if str(kind).upper() == modality)
    return _agreed(values, names) or listed


def _agreed(values: Values, names: Iterable[str]) -> int:
    """Return the one count that these names state, 0 if none does.  Raises RecordError if they contradict each other."""
    stated: dict[str, int] = {}
    for path in (prefix + name for name in names for prefix in _PREFIXES):
        count = sum(_whole(value) for value in values.get(path, ()))
        if count:
            stated[path] = count
    if len(set(stated.values())) > 1:
        raise RecordError(Message(
            "%(counts)s contradict each other", counts=" and ".join(f"{name} {count}" for name, count in stated.items())
        ))
    return next(iter(stated.values()), 0)


def _by_last_name(values: Values, names: Iterable[str]) -> int:
    """Sum the counts of these names; a name that occurs at several places is counted once, and must be the same there."""
    total = 0
    for name in names:
        paths = [path for path in values if path.rpartition(".")[2] == name]
        total += _agreed(values, paths) if paths else 0
    return total


def _whole(value: Any) -> int:
    """Return a count; 0 for an invalid one, which the reader of the token classes refuses."""
    is_count = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and value >= 0
    return int(value) if is_count else 0
