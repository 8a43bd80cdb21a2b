"""The memory of keys that were written lately spares questions; with it or without it the answers are the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import override_settings
from numpy.typing import NDArray

from billing.usage.services import IngestOutcome, tokens
from billing.usage.services.recent_keys import RecentKeys
from metering.token_keys import token_key
from tests.factories import ingest_tokens, token_record

pytestmark = pytest.mark.django_db


def counts(outcome: IngestOutcome) -> tuple[int, int, int]:
    return outcome.accepted, outcome.duplicates, outcome.conflicts


def batch(numbers: range, **changed: Any) -> list[dict[str, Any]]:
    return [token_record(number, **changed) for number in numbers]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many keys each question to the ledger names, with an empty memory, and no group taken for a small one."""
    found: list[int] = []
    real = tokens._known_rows

    def note(keys: str) -> Any:
        found.append(keys.count(",") + 1)
        return real(keys)

    monkeypatch.setattr(tokens, "SMALL", -1)
    monkeypatch.setattr(tokens, "_look_first", 0)
    monkeypatch.setattr(tokens, "_known_rows", note)
    tokens._recent_keys.cache_clear()
    with override_settings(INGEST_DEDUP_CACHE_PATH=str(tmp_path / "run" / "keys")):
        yield found
    tokens._recent_keys.cache_clear()


def keys_of(*identities: str) -> Any:
    return np.frombuffer(b"".join(token_key("gw", identity) for identity in identities), np.uint8).reshape(-1, 16)


def test_the_ledger_is_asked_for_what_was_written_lately_only(asked: list[int]) -> None:
    assert counts(ingest_tokens(*batch(range(300)))) == (300, 0, 0)
    assert asked == []
    assert counts(ingest_tokens(*batch(range(297, 600)))) == (300, 3, 0)
    assert asked == [3]
    assert counts(ingest_tokens(*batch(range(2), output_tokens=99))) == (0, 0, 2)
    assert asked == [3, 2]


def test_what_was_forgotten_is_refused_by_the_key_and_found_by_a_look_for_all(asked: list[int]) -> None:
    ingest_tokens(*batch(range(10)))
    memory = tokens._recent_keys()
    assert memory is not None
    memory._slots[:] = 0
    assert counts(ingest_tokens(*batch(range(7, 17)))) == (7, 3, 0)
    for start in (20, 30, 40, 50):
        assert counts(ingest_tokens(*batch(range(start, start + 10)))) == (10, 0, 0)
    assert asked == [10] * 4, "after three keys were missed, all keys are looked for in three more groups"
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM token_event")
        assert cursor.fetchone()[0] == 57


def test_where_everything_was_forgotten_all_is_looked_for_in_a_bounded_number_of_groups(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_tokens(*batch(range(100)))
    memory = tokens._recent_keys()
    assert memory is not None
    memory._slots[:] = 0
    monkeypatch.setattr(tokens, "LOOK_AHEAD", 2)
    assert counts(ingest_tokens(*batch(range(100)))) == (0, 100, 0)
    for start in (200, 300, 400):
        ingest_tokens(*batch(range(start, start + 10)))
    assert asked == [100, 10, 10]


def test_without_a_place_for_the_memory_everything_is_taken_as_before(asked: list[int], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with override_settings(INGEST_DEDUP_CACHE_PATH=str(tmp_path / "file" / "keys")):
        tokens._recent_keys.cache_clear()
        assert counts(ingest_tokens(*batch(range(10)))) == (10, 0, 0)
        assert counts(ingest_tokens(*batch(range(12)))) == (2, 10, 0)
    assert asked == [12]


def key_in_slot(slot: int, mark: int) -> NDArray[np.uint8]:
    """A key of this slot; its mark is an odd number."""
    end = slot | mark << 40
    return np.frombuffer(bytes(8) + end.to_bytes(8, "little"), np.uint8).reshape(1, 16)


def test_processes_share_one_memory(tmp_path: Path) -> None:
    one, other = RecentKeys(tmp_path / "keys"), RecentKeys(tmp_path / "keys")
    assert one.add(keys_of("a", "b")).tolist() == [False, False]
    assert other.add(keys_of("a", "c", "b")).tolist() == [True, False, True]
    other.add_few(bytes(key) for key in keys_of("d"))
    assert one.add(keys_of("a", "b", "c", "d")).tolist() == [True] * 4


@pytest.mark.parametrize("few", [False, True])
def test_a_slot_remembers_the_last_four_keys_that_came_to_it(tmp_path: Path, few: bool) -> None:
    memory = RecentKeys(tmp_path / "keys")
    keys = [key_in_slot(7, mark) for mark in (3, 5, 7, 9, 11)]
    for key in keys:
        if few:
            memory.add_few([key.tobytes()] * 6)  # a key that comes again takes no more room
        else:
            assert [memory.add(key)[0] for _ in range(6)] == [False, *[True] * 5]
    assert [memory.add(key)[0] for key in reversed(keys)] == [True, True, True, True, False]
    assert not memory.add(key_in_slot(8, 3))[0], "the same mark in another slot"


def test_two_new_keys_of_one_slot_in_one_batch_are_both_remembered(tmp_path: Path) -> None:
    memory = RecentKeys(tmp_path / "keys")
    together = np.concatenate([key_in_slot(7, mark) for mark in (3, 5, 7)])
    assert memory.add(together).tolist() == [False] * 3
    assert memory.add(together).tolist() == [True] * 3
