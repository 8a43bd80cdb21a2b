"""The endpoint of token records in the web process, and what it does under pressure."""

import gzip
from typing import Any

import pytest

from billing.api import token_reports
from billing.api.admission import Busy, Gate, gate
from billing.tenancy.tokens import api_token_create
from billing.usage import epochs
from tests.factories import token_record
from tests.factories.token_endpoint import CASES, EXPECTED, body, refused_busy, through_django
from tests.integration.usage_held import usage_held


@pytest.fixture
def token(transactional_db: None) -> str:
    return api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_body_has_its_answer(case: str, token: str) -> None:
    content, headers = CASES[case]
    status, _, answer = through_django(content, token, **headers)
    assert (status, answer.get("accepted")) == EXPECTED[case]


@pytest.mark.parametrize("broken", [
    {"time": "1999-12-31T23:59:59Z"}, {"time": "2026-10-10T00:00:00+16:00"}, {"cache_creation_input_tokens": 10**9},
    {"output_tokens": 1, "reasoning_output_tokens": 2},
])  # fmt: skip
def test_a_large_report_is_held_to_the_rules_of_a_small_one(broken: dict[str, Any], token: str) -> None:
    """Rules between fields are looked at for all records of a large report at once."""
    bad = token_record(1000, **broken)
    (alone,) = through_django(body(bad), token)[2]["rejected"]
    large = [token_record(number) for number in range(120)]
    assert len(body(*large)) > token_reports.AT_ONCE_BYTES
    assert through_django(body(*large, token_record(119)), token)[2] == {
        "accepted": 120, "duplicates": 1, "conflicts": 0, "rejected": [],
    }  # fmt: skip
    status, _, answer = through_django(body(*large[:50], bad, *large[50:]), token)
    assert (status, answer["accepted"], answer["duplicates"]) == (200, 0, 120)
    assert answer["rejected"] == [{**alone, "index": 50}]


def test_a_bound_token_reports_for_its_source_only(transactional_db: None) -> None:
    bound = api_token_create(name="b", scopes=["usage:write"], actor="tests", source="litellm-hq")[1]
    answer = through_django(body(token_record(1), token_record(2, source="other")), bound)[2]
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (1, [1])


# Under pressure


def test_beyond_what_a_process_takes_in_at_a_time_reports_are_asked_to_come_again(token: str, settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 1000
    refused = refused_busy()
    with gate.admit(900):
        status, head, answer = through_django(body(token_record()), token)
    assert (status, head["Retry-After"], head["Content-Type"]) == (503, "2", "application/problem+json")
    assert "send again" in answer["detail"]
    assert refused_busy() == refused + 1
    assert through_django(body(token_record()), token)[2]["accepted"] == 1
    assert gate.held == 0


def test_a_body_counts_at_its_unpacked_size(token: str, settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 100_000
    packed = gzip.compress(body(*[token_record(n) for n in range(400)]))
    assert len(packed) < 10_000
    with gate.admit(80_000):
        assert through_django(packed, token, HTTP_CONTENT_ENCODING="gzip")[0] == 503
    assert through_django(packed, token, HTTP_CONTENT_ENCODING="gzip")[2]["accepted"] == 400
    assert gate.held == 0


def test_one_body_always_comes_in(settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 10
    alone = Gate()
    with alone.admit(100) as admitted:
        admitted.grow(1000)
        assert alone.held == 1100
        with pytest.raises(Busy), alone.admit(1):
            raise AssertionError("came in beside it")
    assert alone.held == 0


def test_a_lock_that_is_not_given_in_time_is_a_503_and_nothing_is_taken(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "ENTER", epochs.ENTER.replace("10s", "50ms"))
    with usage_held():
        status, head, answer = through_django(body(token_record()), token)
    assert (status, head["Retry-After"], head["Content-Type"]) == (503, "2", "application/problem+json")
    assert "nothing is acknowledged" in answer["detail"]
    assert through_django(body(token_record()), token)[2]["accepted"] == 1


def test_a_large_body_waits_its_turn_and_is_sent_away_if_it_takes_too_long(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_reports, "LARGE_WAIT_SECONDS", 0.01)
    large = body(*[token_record(n) for n in range(200)])
    assert len(large) > token_reports.LARGE_BYTES
    with token_reports._large:
        assert through_django(large, token)[0] == 503
        assert through_django(body(token_record()), token)[0] == 200
    assert through_django(large, token)[2]["accepted"] == 199
