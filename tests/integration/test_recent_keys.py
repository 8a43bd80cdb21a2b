"""The memory of keys that were written lately spares questions; with it or without it the answers are the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import override_settings

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
    with override_settings(INGEST_RECENT_KEYS=str(tmp_path / "run" / "keys")):
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
    memory._marks[:] = 0
    assert counts(ingest_tokens(*batch(range(5, 15)))) == (5, 5, 0)
    assert counts(ingest_tokens(*batch(range(20, 30)))) == (10, 0, 0)
    assert asked == [10, 10], "once repeats were missed, all keys are looked for a while"
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM token_event")
        assert cursor.fetchone()[0] == 25


def test_without_a_place_for_the_memory_everything_is_taken_as_before(asked: list[int], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with override_settings(INGEST_RECENT_KEYS=str(tmp_path / "file" / "keys")):
        tokens._recent_keys.cache_clear()
        assert counts(ingest_tokens(*batch(range(10)))) == (10, 0, 0)
        assert counts(ingest_tokens(*batch(range(12)))) == (2, 10, 0)
    assert asked == [12]


def test_processes_share_one_memory_and_a_newer_key_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    one, other = RecentKeys(tmp_path / "keys"), RecentKeys(tmp_path / "keys")
    one.add(keys_of("a", "b"))
    assert other.may_know(keys_of("a", "c", "b")).tolist() == [True, False, True]
    other.add_few(bytes(key) for key in keys_of("c"))
    assert one.may_know(keys_of("a", "b", "c")).tolist() == [True, True, True]
    first = np.array([[0] * 8 + [7, 0, 0, 0, 0, 3, 0, 0]], np.uint8)
    same_slot = np.array([[0] * 8 + [7, 0, 0, 0, 0, 5, 0, 0]], np.uint8)
    one.add(first)
    assert not other.may_know(same_slot)[0], "another key of the slot is not taken for it"
    other.add(same_slot)
    assert (one.may_know(first)[0], one.may_know(same_slot)[0]) == (False, True)
