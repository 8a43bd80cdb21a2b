"""Load tests at several prompt lengths: which lengths share a price, where the buckets end, and what a price recovers."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.__main__ import main
from pricing.contexts import parse_context
from pricing.loadtests.own import parse_load_test
from pricing.token_contexts import context_buckets, figures_by_class
from pricing.token_price import ClassCosts, LoadPointError
from pricing.token_sheet import parse_token_sheet
from tests.factories.load_reports import THREE, report, run

TERMS: dict[str, Any] = {
    "currency": "CNY", "gpu_hour_cost": "10", "markup": "0.20", "ttft_p99_ms": "1000", "tpot_p99_ms": "50",
    "context_buckets": True,
}  # fmt: skip


def result(tests: Any = THREE, **changed: Any) -> dict[str, Any]:
    return parse_token_sheet({**TERMS, "report": tests, **changed}).result()


def prices(answer: dict[str, Any]) -> dict[str, str]:
    return {name: format(price, "f") for name, price in figures_by_class(answer, "price_per_1m").items()}


def test_lengths_within_a_fifth_share_a_price_and_others_do_not() -> None:
    """By hand. 10/3600 x 10^6 / 8000 = 25/72 and / 7200 = 125/324: 11.1 % more, one bucket; / 5000 = 5/9: 44 % to 60 % more.

    Shared: mean m = (25/72 + 125/324) / 2 = 475/1296; an hour at each length brings 3600/10^6 x m x (8000 + 7200) =
    20.0555..., and must bring 20: m x 20 / 20.0555... = 10^6/3600 x 20 / 15200 = 0.365497. x 1.2 = 0.4386 in, 1.7544 out.
    The last: 5/9 x 1.2 = 0.6667 in, 2.6667 out. A tenth of the input for what is read from the cache.
    """
    answer = result()
    assert prices(answer) == {
        "input@0-2000": "0.4386", "cache_read@0-2000": "0.0439", "output@0-2000": "1.7544",
        "cache_creation@0-2000": "0.4386", "input@2001+": "0.6667", "cache_read@2001+": "0.0667",
        "output@2001+": "2.6667", "cache_creation@2001+": "0.6667",
    }  # fmt: skip
    assert answer["context_steps"] == [
        {"from_tokens": 1000, "to_tokens": 2000, "class": "input", "change": "0.111111", "splits": False},
        {"from_tokens": 2000, "to_tokens": 8000, "class": "input", "change": "0.600000", "splits": True},
    ]
    assert [[item["tokens"] for item in bucket["measured"]] for bucket in answer["contexts"]] == [[1000, 2000], [8000]]


@pytest.mark.parametrize(("tokens_per_second", "splits"), [(6000, False), (5999, True)])
def test_a_difference_of_exactly_a_fifth_is_none(tokens_per_second: int, splits: bool) -> None:
    """7200 against 6000 weighted tokens/s: 20 % more exactly; one token less a second, and the length has its own price."""
    answer = result(report(run(1000, 7200, 0), run(8000, tokens_per_second, 0)))
    assert [step["splits"] for step in answer["context_steps"]] == [splits]
    assert bool(answer["contexts"]) is splits


def test_small_steps_do_not_creep() -> None:
    """Each 15 % dearer than the one before: the third is 32 % dearer than the first and opens a bucket."""
    tests = report(run(1000, 13225, 0), run(2000, 11500, 0), run(4000, 10000, 0))
    steps = result(tests)["context_steps"]
    assert [(step["change"], step["splits"]) for step in steps] == [("0.150000", False), ("0.322500", True)]


def test_longer_prompts_that_cost_less_are_reported_and_priced_by_themselves() -> None:
    answer = result(report(run(1000, 3000, 0), run(8000, 6000, 0)))
    assert answer["context_steps"][0]["change"] == "-0.500000"
    assert prices(answer)["input@1001+"] == "0.5556"


def test_one_length_has_one_price() -> None:
    answer = result(report(run(1000, 6000, 500), run(1000, 7000, 600, offered_rps="7", completed_rps="7")))
    assert (answer["contexts"], answer["context_steps"]) == ([], [])
    without = parse_token_sheet({**TERMS, "context_buckets": "false", "report": report(run(1000, 6000, 500))}).result()
    assert "contexts" not in without


def test_a_length_without_a_sustainable_run_is_named() -> None:
    with pytest.raises(LoadPointError, match=r"prompts of 8000 tokens: no run keeps the bounds.*TTFT p99 2000 > 1000 ms"):
        result(report(run(1000, 6000, 500), run(8000, 4000, 250, ttft_p99_ms="2000")))


def test_a_run_that_completed_nothing_has_no_length() -> None:
    with pytest.raises(LoadPointError, match="completed no request"):
        result(report(run(1000, 6000, 500), {**run(1000, 0, 0), "offered_rps": "1", "completed_rps": "0"}))


rates = st.integers(100, 100_000)


@given(st.lists(st.tuples(rates, rates), min_size=1, max_size=5))
def test_a_shared_price_recovers_an_hour_at_each_of_its_lengths(measured: list[tuple[int, int]]) -> None:
    runs = [run(1000 * 2**place, 1000 * 2**place * read, written) for place, (read, written) in enumerate(measured)]
    sheet = parse_token_sheet({**TERMS, "serving_utilisation": "0.5", "report": report(*runs)})
    found = context_buckets(sheet.tests, sheet.terms)
    for bucket in found.buckets:
        got = sum(length.recovered(bucket.costs) for length in bucket.lengths)
        assert got == 20 * len(bucket.lengths)
    ends = [bucket.context for bucket in found.buckets]
    assert [context.first for context in ends[1:]] == [context.last + 1 for context in ends[:-1] if context.last is not None]
    assert (ends[0].first, ends[-1].last) == (0, None)
    assert sum(step["splits"] for step in found.steps) == len(ends) - 1


def test_lengths_that_vary_a_little_are_one_length() -> None:
    tests = [parse_load_test(report(run(1000, 6000, 500))), parse_load_test(report(run(1100, 6600, 100)))]
    found = context_buckets(tests, parse_token_sheet({**TERMS, "report": THREE}).terms)
    assert [length.tokens for length in found.lengths] == [1100]


def test_costs_are_the_same_for_shared_and_single() -> None:
    sheet = parse_token_sheet({**TERMS, "report": report(run(1000, 6000, 500))})
    (bucket,) = context_buckets(sheet.tests, sheet.terms).buckets
    assert bucket.costs == ClassCosts(Fraction(25, 72), Fraction(5, 144), Fraction(25, 18))


@pytest.mark.parametrize("text", ["", "5", "1-", "+", "0-8192+", "01-2", "a-b"])
def test_what_is_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_context(text)


@pytest.mark.parametrize("given_value", ["yes", "1", 3])
def test_a_switch_is_true_or_false(given_value: Any) -> None:
    with pytest.raises(ValueError, match=r"context_buckets: .* must be true or false"):
        parse_token_sheet({**TERMS, "context_buckets": given_value, "report": THREE})


def test_the_command_prints_the_buckets_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(THREE))
    asked = ["tokens", str(path), "--gpu-hour-cost", "10", "--markup", "0.2", "--ttft-p99-ms", "1000", "--tpot-p99-ms", "50"]
    assert main([*asked, "--context-buckets"]) == 0
    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines() if line.startswith("2001+")] == [
        ["2001+", "input", "0.555555555556", "0.6667"], ["2001+", "cache_read", "0.055555555556", "0.0667"],
        ["2001+", "output", "2.222222222222", "2.6667"],
    ]  # fmt: skip
    assert "2000 -> 8000 tokens: input +60.0 %, a bucket of its own" in printed
    assert "1000 -> 2000 tokens: input +11.1 %, the same bucket" in printed
    assert main([*asked, "--context-buckets", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    found = [(bucket["context"], bucket["up_to_tokens"]) for bucket in answer["contexts"]]
    assert found == [("0-2000", 2000), ("2001+", None)]
    assert main([*asked, "--json"]) == 0
    assert "contexts" not in json.loads(capsys.readouterr().out)
