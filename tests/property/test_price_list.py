"""Any price list that is accepted is written one way: reading it again, from values or from YAML, gives the same bytes."""

from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from billing.rates.price_list import PriceListError, Sources, parse_price_list
from pricing.contexts import bounds_by_model, class_and_context, parse_context
from pricing.documents import parse_yaml
from pricing.rate_card import TOKEN_CLASSES

NO_SHEETS = Sources(gpu=lambda name: None, tokens=lambda name: None)
WRONG = ("", "x", "-1", "0.00001", "1000000.0001", 0.5, None, True, [])
names = st.text("abcXYZ019-._/ é算", min_size=1, max_size=20).map(str.strip).filter(bool)
prices = st.decimals(min_value=0, max_value=1_000_000, places=4, allow_nan=False, allow_infinity=False)
written = prices.flatmap(lambda price: st.sampled_from([format(price, "f"), price, f"{price:.4f}", f"+{price:f}"]))
gpu_entries = st.lists(
    st.tuples(names, names, st.sampled_from(["price_per_gpu_hour", "price_per_slice_hour"]), written).map(
        lambda parts: {"accelerator": parts[0], "resource": parts[1], parts[2]: parts[3]}
    ),
    min_size=1, max_size=6, unique_by=lambda entry: (entry["accelerator"], entry["resource"]),
)  # fmt: skip
token_entries = st.lists(
    st.tuples(names, st.dictionaries(st.sampled_from(TOKEN_CLASSES), written, min_size=1)).map(
        lambda parts: {"model": parts[0], **parts[1]}
    ),
    max_size=6, unique_by=lambda entry: entry["model"],
)  # fmt: skip
lists = st.fixed_dictionaries({"gpu": gpu_entries, "tokens": token_entries})


@given(lists)
def test_what_was_read_is_written_so_that_it_is_read_the_same(content: dict[str, Any]) -> None:
    first = parse_price_list(content, currency="CNY", sources=NO_SHEETS)
    again = parse_price_list(first.content, currency="CNY", sources=NO_SHEETS)
    assert again == first
    text = yaml.safe_dump(first.content, allow_unicode=True, sort_keys=False)
    from_file = parse_price_list(parse_yaml(text, "list"), currency="CNY", sources=NO_SHEETS)
    assert from_file == first


@given(lists)
def test_no_price_is_rounded_lost_or_made_up(content: dict[str, Any]) -> None:
    found = parse_price_list(content, currency="CNY", sources=NO_SHEETS)
    asked = [Decimal(str(value)) for entry in content["gpu"] for name, value in entry.items() if name.startswith("price")]
    assert [item.price for item in found.gpu] == asked
    tokens = {
        (entry["model"], name): Decimal(str(entry[name])) for entry in content["tokens"] for name in entry if name != "model"
    }
    assert found.tokens == tokens


@given(lists, st.data())
def test_a_list_with_bad_prices_names_each_of_them_and_nothing_else(content: dict[str, Any], data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.sampled_from(range(len(content["gpu"]))), min_size=1))
    expected = set()
    for index in bad:
        field = next(name for name in content["gpu"][index] if name.startswith("price"))
        content["gpu"][index][field] = data.draw(st.sampled_from(WRONG))
        expected.add(index)
    with pytest.raises(PriceListError) as caught:
        parse_price_list(content, currency="CNY", sources=NO_SHEETS)
    assert {problem.path[1] for problem in caught.value.problems} == expected


@given(
    st.lists(st.integers(1, 99_999_999), min_size=1, max_size=4, unique=True).map(sorted),
    st.lists(st.sampled_from(TOKEN_CLASSES), min_size=1, unique=True),
    st.data(),
)
def test_buckets_of_prompt_lengths_cover_every_length_once(ends: list[int], classes: list[str], data: st.DataObject) -> None:
    rows: list[dict[str, Any]] = [
        {"model": "long", **({} if end is None else {"up_to_tokens": end}), **{name: data.draw(written) for name in classes}}
        for end in [*ends, None]
    ]
    found = parse_price_list({"tokens": rows}, currency="CNY", sources=NO_SHEETS)
    assert parse_price_list(found.content, currency="CNY", sources=NO_SHEETS) == found
    prompt = data.draw(st.one_of(st.sampled_from([0, *ends, *(end + 1 for end in ends)]), st.integers(0, 10**9)))
    place = next((number for number, end in enumerate(ends) if prompt <= end), len(ends))
    holding = [
        price
        for (_, priced), price in found.tokens.items()
        if class_and_context(priced)[0] == classes[0] and parse_context(class_and_context(priced)[1]).holds(prompt)
    ]
    assert holding == [Decimal(str(rows[place][classes[0]]))]
    assert bounds_by_model(found.tokens) == {"long": tuple(ends)}


def bucket(up_to: Any = None, **classes: str) -> dict[str, Any]:
    return {"model": "long", **({} if up_to is None else {"up_to_tokens": up_to}), **(classes or {"input": "1"})}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([bucket(100), bucket(100), bucket()],
         "tokens[1].up_to_tokens: 100 must be above 100, where the bucket before it ends"),
        ([bucket(100), bucket(50), bucket()],
         "tokens[1].up_to_tokens: 50 must be above 100, where the bucket before it ends"),
        ([bucket(100), bucket(200)],
         "tokens[1].up_to_tokens: 200 must be left out: the last bucket of 'long' takes all longer prompts"),
        ([bucket(100)], "tokens[0].up_to_tokens: 100 must be left out: the last bucket of 'long' takes all longer prompts"),
        ([bucket(100), bucket(), bucket()],
         "tokens[1].up_to_tokens: is missing, must be above 100: only the last bucket of 'long' is open"),
        ([bucket(), bucket(100), bucket()],
         "tokens[0].up_to_tokens: is missing, must be above 0: only the last bucket of 'long' is open"),
        ([bucket(100, input="1", output="2"), bucket(input="1")],
         "tokens[1].output: is missing: every bucket of 'long' prices input, output"),
        ([bucket(0), bucket()],
         "tokens[0].up_to_tokens: 0 must be a whole number from 1 to 99999999 (input tokens of a request, cached included)"),
        ([bucket("1.5"), bucket()],
         "tokens[0].up_to_tokens: '1.5' must be a whole number from 1 to 99999999 "
         "(input tokens of a request, cached included)"),
        ([{"model": "long", "up_to_tokens": 5, "cost_sheet": "x"}, bucket()],
         "tokens[0].up_to_tokens: is given beside cost_sheet: give the prices, or the sheet that they come from"),
    ],
)  # fmt: skip
def test_a_list_with_bad_buckets_says_which_and_what_is_expected(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(PriceListError) as caught:
        parse_price_list({"tokens": rows}, currency="CNY", sources=NO_SHEETS)
    assert message in caught.value.messages
