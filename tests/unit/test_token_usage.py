"""What is true of token classes whatever the API; the shapes of the APIs themselves are in tests/usage_shapes.py."""

from typing import Any

import pytest

from metering.records import RecordError
from metering.token_usage import NOTHING, classes_by_name, token_classes, without_texts


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"billed_units": {"search_units": 1}}, {"prompt_tokens": None}, {"prompt_tokens_details": {}}, {"tier": "a"}],
)
def test_what_states_no_tokens_is_not_a_provider_that_counted_zero(usage: dict[str, Any] | None) -> None:
    assert token_classes(usage) == NOTHING
    assert NOTHING.remarks == {"cache_counts": "unknown", "usage_source": "none"}


@pytest.mark.parametrize(
    ("usage", "says"),
    [
        ({"prompt_tokens": -1}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": 1.5}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": True}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": "10"}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": float("nan")}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": 10**15 + 1}, "prompt_tokens must be a whole number"),
        ({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": True}, "total_tokens must be a whole number"),
        ({"prompt_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 11}},
         "11 cached tokens are more than the 10"),
        ({"prompt_tokens": 10, "completion_tokens": 0, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 5},
         "11 cached tokens"),
        ({"prompt_tokens": 1, "completion_tokens": 2, "reasoning_tokens": 3}, "3 reasoning tokens are more than the 2"),
        ({"prompt_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 4},
          "cache_read_input_tokens": 5}, "contradict"),
        ({"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1, "total_tokens": 99}, "total 99 is not"),
        ({"total_tokens": 56}, "usage of no known API: total_tokens"),
        ({"other": 1}, "usage of no known API: other"),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"prompt_tokens": 1}}}}}}}}}, "nested deeper than 8"),
    ],
)  # fmt: skip
def test_counts_that_cannot_be_are_refused_not_mended(usage: dict[str, Any], says: str) -> None:
    with pytest.raises(RecordError, match=says):
        token_classes(usage)


def test_a_total_alone_is_input_only_where_the_caller_knows_that_there_is_no_output() -> None:
    assert tuple(token_classes({"total_tokens": 56}, input_only=True).counts.values()) == (56, 0, 0, 0, 0)
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 56}
    assert tuple(token_classes(zeros, input_only=True).counts.values()) == (56, 0, 0, 0, 0)
    with pytest.raises(RecordError, match="total 56 is not input 40"):
        token_classes({"prompt_tokens": 40, "total_tokens": 56}, input_only=True)


def test_what_a_gateway_guessed_is_marked_and_knows_nothing_of_the_cache() -> None:
    guessed = token_classes({"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}})
    estimate = guessed.as_estimate()
    assert estimate.counts == guessed.counts
    assert estimate.remarks == {"cache_counts": "unknown", "usage_source": "gateway_estimate"}


@pytest.mark.parametrize("beside", [{"guard_tokens": 4}, {"draft": {"tokens": 2}}, {"x": 1}, {"audio_minutes": 0.5}])
def test_a_number_of_unknown_meaning_is_refused_though_the_total_contains_it(beside: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="is not known"):
        token_classes({"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21, **beside})


@pytest.mark.parametrize("total", [{}, {"total_tokens": 7}])
def test_an_answer_to_an_input_of_0_tokens_is_refused(total: dict[str, int]) -> None:
    with pytest.raises(RecordError, match="input 0 of an answer with output 7"):
        token_classes({"prompt_tokens": 0, "completion_tokens": 7, **total})
    with pytest.raises(RecordError, match="input 0 of an answer with output 7"):
        classes_by_name({"input_tokens": 0, "output_tokens": 7})


def test_the_disjoint_parts_add_up_to_the_total() -> None:
    classes = token_classes({"input_tokens": 50, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1800,
                             "output_tokens": 503})  # fmt: skip
    cached = (classes.cache_read_input_tokens, classes.cache_creation_input_tokens)
    assert (classes.input_tokens, cached) == (50 + 248 + 1800, (1800, 248))


# Counts that a mapping finds one by one

# counts, whether the mapping says that the cache is beside the input, (all input, read, creation, output, reasoning)
NAMED: list[tuple[dict[str, int | None], bool, tuple[int, int, int, int, int]]] = [
    ({"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 64, "reasoning_output_tokens": 12}, False,
     (100, 64, 0, 20, 12)),
    ({"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10}, True,
     (100, 80, 10, 20, 0)),
    ({"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 80, "total_tokens": 110}, False,
     (90, 80, 0, 20, 0)),
    ({"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 80, "total_tokens": 120}, True,
     (100, 80, 0, 20, 0)),
    ({"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 60, "reasoning_output_tokens": 30,
      "total_tokens": 180}, False, (100, 60, 0, 80, 30)),
    ({"input_tokens": 100, "tool_use_input_tokens": 10, "output_tokens": 50, "reasoning_output_tokens": 30,
      "total_tokens": 190}, False, (110, 0, 0, 80, 30)),
    ({"input_tokens": 8, "output_tokens": None, "total_tokens": 8}, False, (8, 0, 0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "beside", "classes"), NAMED)
def test_counts_by_name(counts: dict[str, int | None], beside: bool, classes: tuple[int, int, int, int, int]) -> None:
    assert tuple(classes_by_name(counts, cache_beside=beside).counts.values()) == classes


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 9, "total_tokens": 50}, "total 50 is not"),
        ({"input_tokens": 10, "output_tokens": 4, "total_tokens": 13}, "total 13 is not input 10 \\+ output 4"),
        ({"input_tokens": 10}, "output is not stated"),
        ({"output_tokens": 10}, "usage of no known API"),
        ({"total_tokens": 10}, "usage of no known API"),
    ],
)
def test_counts_by_name_that_do_not_add_up_are_refused(counts: dict[str, int | None], says: str) -> None:
    with pytest.raises(RecordError, match=says):
        classes_by_name(counts)


# What quarantine keeps


def test_no_text_of_a_usage_object_is_kept_and_no_number_is_lost() -> None:
    secret = "the-prompt-nobody-may-read"
    usage = {"prompt_tokens": 10, "cached_tokens": "64", "note": secret, secret * 4: 7, "parts": [secret, {"n": 2.5}, None],
             "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}}, "ids": list(range(100)),
             "flag": True}  # fmt: skip
    assert without_texts(usage) == {
        "prompt_tokens": 10, "cached_tokens": "64", "note": "", "(withheld 3)": 7, "parts": ["", {"n": 2.5}, None],
        "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": -1}}}}}}}, "ids": -1, "flag": True,
    }  # fmt: skip
