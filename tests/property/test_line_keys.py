"""The hash and the order of a line's key are those of its JSON and of its fields, however they are made."""

import json
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pricing.rating import LineKey

NAMES = st.text(max_size=8) | st.sampled_from(["", '"', "\\", "\n", "算盘", "a%s", "{0}"])
KEYS = st.builds(LineKey, NAMES, st.booleans(), st.booleans(), *[NAMES] * 12)


@given(KEYS)
def test_the_digest_is_the_hash_of_the_json_with_sorted_names(key: LineKey) -> None:
    assert key.digest() == sha256(json.dumps(structs.asdict(key), sort_keys=True).encode()).hexdigest()


@given(st.lists(KEYS, max_size=12))
def test_sorted_by_their_order_keys_stand_as_they_compare(keys: list[LineKey]) -> None:
    assert sorted(keys, key=lambda key: key.order) == sorted(keys)
