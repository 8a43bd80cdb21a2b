"""The key of a token record: one for each (source, id), readable back where the id is a UUID."""

from uuid import UUID

import pytest

from metering.token_keys import is_masked, token_key

RANDOM = "7f2d1e5c-0b6a-4c3d-9e8f-001122334455"
ORDERED = "0190b5a2-7c1e-7abc-8def-0123456789ab"


def test_a_uuid_is_its_key_under_the_mask_of_its_source() -> None:
    mask = int.from_bytes(token_key("gw", ORDERED), "big") ^ UUID(ORDERED).int
    assert mask == int.from_bytes(token_key("gw", RANDOM), "big") ^ UUID(RANDOM).int
    assert token_key("gw", ORDERED) != token_key("other", ORDERED)


@pytest.mark.parametrize("identity", [RANDOM, ORDERED])
def test_random_and_ordered_uuids_are_masked(identity: str) -> None:
    assert is_masked(identity)


@pytest.mark.parametrize(
    "identity",
    [
        RANDOM.upper(), f"{{{RANDOM}}}", RANDOM.replace("-", ""), f"{RANDOM}\n", f" {RANDOM[1:]}",
        "00000000-0000-0000-0000-000000000001", "7f2d1e5c-0b6a-1c3d-9e8f-001122334455",
        "7f2d1e5c-0b6a-4c3d-ce8f-001122334455", "٧f2d1e5c-0b6a-4c3d-9e8f-001122334455", "", "req-1",
    ],
)  # fmt: skip
def test_whatever_can_be_guessed_or_written_in_two_ways_is_hashed(identity: str) -> None:
    assert not is_masked(identity)
    assert len(token_key("gw", identity)) == 16
    assert token_key("gw", identity) != token_key("gw", RANDOM)


def test_source_and_id_are_kept_apart() -> None:
    assert token_key("a", "bc") != token_key("ab", "c")
