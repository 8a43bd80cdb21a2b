"""Any price list that is accepted is written one way: reading it again, from values or from YAML, gives the same bytes."""

from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from billing.rates.price_list import PriceListError, Sources, parse_price_list
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
