"""Usage objects of every API become the same classes; the expected counts are computed by hand."""

from typing import Any

import pytest

from metering.records import RecordError
from metering.token_usage import (
    NOTHING,
    TokenClasses,
    anthropic,
    last_of_stream,
    openai_chat,
    rerank,
    rerank_documents,
    token_classes,
)

# name, usage object, (all input, cache read, cache creation, output, reasoning), cache known
KNOWN: list[tuple[str, dict[str, Any], tuple[int, int, int, int, int], bool]] = [
    ("openai chat without a word of the cache",
     {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}, (10, 0, 0, 20, 0), False),
    ("openai chat with nothing cached",
     {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "prompt_tokens_details": {"cached_tokens": 0}},
     (10, 0, 0, 20, 0), True),
    ("openai chat with cache and reasoning, both parts of the totals",
     {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
      "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
      "completion_tokens_details": {"reasoning_tokens": 192, "rejected_prediction_tokens": 8}},
     (2006, 1920, 0, 300, 192), True),
    ("openai chat with tokens written to the cache",
     {"prompt_tokens": 1000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 300,
      "cache_write_tokens": 600}}, (1000, 300, 600, 1, 0), True),
    ("openai responses",
     {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 87,
      "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 123}, (36, 4, 0, 87, 64), True),
    ("openai responses of a server that leaves details out",
     {"input_tokens": 36, "output_tokens": 87, "total_tokens": 123}, (36, 0, 0, 87, 0), False),
    ("anthropic leaves both cache classes out of its input",
     {"input_tokens": 50, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1800, "output_tokens": 503},
     (2098, 1800, 248, 503, 0), True),
    ("anthropic with lifetimes only",
     {"input_tokens": 50, "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
      "cache_read_input_tokens": 0, "output_tokens": 5}, (298, 0, 248, 5, 0), True),
    ("anthropic that says null of the cache",
     {"input_tokens": 2095, "cache_creation_input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 503},
     (2095, 0, 0, 503, 0), False),
    ("anthropic with a total that proves the cache stands beside the input",
     {"input_tokens": 10, "cache_read_input_tokens": 80, "output_tokens": 5, "total_tokens": 95}, (90, 80, 0, 5, 0), False),
    ("the same names, and a total that proves it contained",
     {"input_tokens": 100, "cache_read_input_tokens": 80, "output_tokens": 5, "total_tokens": 105},
     (100, 80, 0, 5, 0), True),
    ("litellm of an anthropic model: contained, and told twice",
     {"prompt_tokens": 2098, "completion_tokens": 503, "total_tokens": 2601, "cache_read_input_tokens": 1800,
      "cache_creation_input_tokens": 248, "prompt_tokens_details": {"cached_tokens": 1800, "cache_creation_tokens": 248}},
     (2098, 1800, 248, 503, 0), True),
    ("vllm without --enable-prompt-tokens-details",
     {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130, "prompt_tokens_details": None},
     (100, 0, 0, 30, 0), False),
    ("vllm with it", {"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 64}},
     (100, 64, 0, 30, 0), True),
    ("sglang with reasoning at the top and no cache report",
     {"prompt_tokens": 12, "completion_tokens": 90, "total_tokens": 102, "reasoning_tokens": 70},
     (12, 0, 0, 90, 70), False),
    ("sglang with --enable-cache-report",
     {"prompt_tokens": 12, "completion_tokens": 90, "reasoning_tokens": 0, "prompt_tokens_details": {"cached_tokens": 8}},
     (12, 8, 0, 90, 0), True),
    ("reasoning beside the completion, proved by the total",
     {"prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 102,
      "completion_tokens_details": {"reasoning_tokens": 70}}, (12, 0, 0, 90, 70), False),
    ("embeddings", {"prompt_tokens": 8, "total_tokens": 8}, (8, 0, 0, 0, 0), False),
    ("rerank of vllm and jina", {"total_tokens": 56}, (56, 0, 0, 0, 0), False),
    ("rerank of cohere with tokens",
     {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 41, "output_tokens": 0}}, (41, 0, 0, 0, 0), False),
    ("whole numbers written as decimals", {"prompt_tokens": 10.0, "completion_tokens": 2.0}, (10, 0, 0, 2, 0), False),
]  # fmt: skip


@pytest.mark.parametrize(("usage", "counts", "cache_known"), [case[1:] for case in KNOWN], ids=[case[0] for case in KNOWN])
def test_the_classes_of(usage: dict[str, Any], counts: tuple[int, ...], cache_known: bool) -> None:
    classes = token_classes(usage)
    assert tuple(classes.counts.values()) == counts
    assert (classes.cache_known, classes.usage_source) == (cache_known, "provider")
    assert classes.remarks == ({} if cache_known else {"cache_counts": "unknown"})


@pytest.mark.parametrize("usage", [None, {}, {"billed_units": {"search_units": 1}}, {"prompt_tokens": None}, {"other": 1}])
def test_what_tells_no_tokens_is_not_a_provider_that_counted_zero(usage: dict[str, Any] | None) -> None:
    assert token_classes(usage) == NOTHING
    assert NOTHING.remarks == {"cache_counts": "unknown", "usage_source": "none"}


@pytest.mark.parametrize(
    ("usage", "says"),
    [
        ({"prompt_tokens": -1}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": 1.5}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": True}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": "10"}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": 10**15 + 1}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}}, "11 cached tokens are more than the 10"),
        ({"prompt_tokens": 10, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 5}, "11 cached tokens"),
        ({"prompt_tokens": 1, "completion_tokens": 2, "reasoning_tokens": 3}, "3 reasoning tokens are more than the 2"),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}, "cache_read_input_tokens": 5}, "contradict"),
        ({"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1, "total_tokens": 99}, "total_tokens 99"),
    ],
)
def test_counts_that_cannot_be_are_refused_not_mended(usage: dict[str, Any], says: str) -> None:
    with pytest.raises(RecordError, match=says):
        token_classes(usage)


def test_what_a_gateway_guessed_is_marked_and_knows_nothing_of_the_cache() -> None:
    guessed = openai_chat({"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}})
    estimate = guessed.as_estimate()
    assert estimate.counts == guessed.counts
    assert estimate.remarks == {"cache_counts": "unknown", "usage_source": "gateway_estimate"}


def test_the_chunks_of_a_stream_are_not_added_up() -> None:
    start = {"input_tokens": 25, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 70, "output_tokens": 1}
    usage = last_of_stream([start, None, {"output_tokens": 7}, {"output_tokens": 15, "input_tokens": None}])
    assert anthropic(usage) == TokenClasses(100, 70, 5, 15, 0, cache_known=True, usage_source="provider")
    vllm = [{"prompt_tokens": 100, "completion_tokens": count} for count in (1, 2, 3)]
    assert token_classes(last_of_stream(vllm)).output_tokens == 3


def test_documents_of_a_rerank_are_one_request() -> None:
    documents = [{"meta_info": {"prompt_tokens": 30}}, {"meta_info": {}}, {"meta_info": {"prompt_tokens": 12}}]
    assert rerank_documents(documents).input_tokens == 42
    assert rerank_documents([{}]) == NOTHING
    assert rerank({"billed_units": {"input_tokens": 3, "output_tokens": 1}}).output_tokens == 1


def test_the_disjoint_parts_add_up_to_the_total() -> None:
    classes = token_classes({"input_tokens": 50, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1800,
                             "output_tokens": 503})  # fmt: skip
    assert classes.uncached_input_tokens == 50
    assert classes.uncached_input_tokens + classes.cache_read_input_tokens + classes.cache_creation_input_tokens == 2098
