"""The short way in for token records: the same answers as through Django, and what it does under pressure."""

import gzip
import io
import json
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from billing.api import token_door
from billing.api.admission import Busy, Gate, gate
from billing.settings.wsgi import application
from billing.tenancy.tokens import api_token_create, api_token_revoke
from billing.usage import epochs
from tests.factories import token_record
from tests.factories.token_endpoint import CASES, EXPECTED, Answer, body, through_django
from tests.integration.usage_held import usage_held
from tests.stored_rows import ledger_emptied


@pytest.fixture
def token(transactional_db: None) -> str:
    """Committed: the short way ends its request by looking after its connections, as Django does."""
    return api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]


def through_wsgi(body: bytes, presented: str | None, path: str = "/api/v1/usage/tokens", **headers: str) -> Answer:
    """What the WSGI entry point answers to a POST."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST", "PATH_INFO": path, "SCRIPT_NAME": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.input": io.BytesIO(body), "wsgi.url_scheme": "http",
        "CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/json", "HTTP_HOST": "localhost", **headers,
    }  # fmt: skip
    if presented is not None:
        environ["HTTP_AUTHORIZATION"] = f"Bearer {presented}"
    started: list[Any] = []
    content = b"".join(application(environ, lambda status, head: started.extend((status, head))))
    head = dict(started[1])
    return int(started[0].split()[0]), head, json.loads(content) if "json" in head["Content-Type"] else content


@pytest.mark.parametrize("case", CASES)
def test_both_ways_in_answer_alike(case: str, token: str) -> None:
    content, headers = CASES[case]
    status, head, answer = through_wsgi(content, token, **headers)
    assert (status, answer.get("accepted")) == EXPECTED[case]
    ledger_emptied()
    other = through_django(content, token, **headers)
    assert (other[0], other[2]) == (status, answer)
    assert other[1]["Content-Type"] == head["Content-Type"]


@pytest.mark.parametrize("broken", [
    {"time": "1999-12-31T23:59:59Z"}, {"time": "2026-10-10T00:00:00+16:00"}, {"cache_creation_input_tokens": 10**9},
    {"output_tokens": 1, "reasoning_output_tokens": 2},
])  # fmt: skip
def test_a_large_report_is_held_to_the_rules_of_a_small_one(broken: dict[str, Any], token: str) -> None:
    """Rules between fields are looked at for all records of a large report at once."""
    bad = token_record(1000, **broken)
    (alone,) = through_wsgi(body(bad), token)[2]["rejected"]
    large = [token_record(number) for number in range(120)]
    assert len(body(*large)) > token_door.AT_ONCE_BYTES
    assert through_wsgi(body(*large, token_record(119)), token)[2] == {
        "accepted": 120, "duplicates": 1, "conflicts": 0, "rejected": [],
    }  # fmt: skip
    status, _, answer = through_wsgi(body(*large[:50], bad, *large[50:]), token)
    assert (status, answer["accepted"], answer["duplicates"]) == (200, 0, 120)
    assert answer["rejected"] == [{**alone, "index": 50}]


def test_who_may_not_report_is_told_so_by_both_ways(token: str) -> None:
    reader, secret = api_token_create(name="reader", scopes=["usage:read"], actor="tests")
    for presented, expected in ((None, 401), ("wrong", 401), (secret, 403)):
        status, head, answer = through_wsgi(b"[]", presented)
        other = through_django(b"[]", presented)
        assert (status, head["Content-Type"]) == (expected, "application/problem+json")
        assert (other[0], other[2]) == (status, answer)
        assert head.get("WWW-Authenticate") == other[1].get("WWW-Authenticate") == ("Bearer" if expected == 401 else None)
    api_token_revoke(token=reader, actor="tests", now=timezone.now())
    assert through_wsgi(b"[]", secret)[0] == 401


def test_a_host_that_is_not_ours_is_refused(token: str) -> None:
    assert through_wsgi(b"[]", token, HTTP_HOST="evil.example")[0] == 400


def test_everything_else_goes_through_django(token: str) -> None:
    assert through_wsgi(b"[]", token, path="/api/v1/usage/efficiency")[0] == 200
    assert through_wsgi(b"[]", token, path="/api/v1/usage/litellm")[2]["accepted"] == 0


def test_a_bound_token_reports_for_its_source_only(transactional_db: None) -> None:
    bound = api_token_create(name="b", scopes=["usage:write"], actor="tests", source="litellm-hq")[1]
    answer = through_wsgi(body(token_record(1), token_record(2, source="other")), bound)[2]
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (1, [1])


# Under pressure


def test_beyond_what_a_process_takes_in_at_a_time_reports_are_asked_to_come_again(token: str, settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 1000
    refused = gate.refused
    with gate.admit(900):
        for answer in (through_wsgi(body(token_record()), token), through_django(body(token_record()), token)):
            assert (answer[0], answer[1]["Retry-After"]) == (503, "2")
            assert answer[1]["Content-Type"] == "application/problem+json"
            assert "send again" in answer[2]["detail"]
    assert gate.refused == refused + 2
    assert through_wsgi(body(token_record()), token)[2]["accepted"] == 1
    assert gate.held == 0


def test_a_body_counts_at_its_unpacked_size(token: str, settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 100_000
    packed = gzip.compress(body(*[token_record(n) for n in range(400)]))
    assert len(packed) < 10_000
    with gate.admit(80_000):
        assert through_wsgi(packed, token, HTTP_CONTENT_ENCODING="gzip")[0] == 503
    assert through_wsgi(packed, token, HTTP_CONTENT_ENCODING="gzip")[2]["accepted"] == 400
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
        for send in (through_wsgi, through_django):
            status, head, answer = send(body(token_record()), token)
            assert (status, head["Retry-After"], head["Content-Type"]) == (503, "2", "application/problem+json")
            assert "nothing is acknowledged" in answer["detail"]
    assert through_wsgi(body(token_record()), token)[2]["accepted"] == 1


def test_a_connection_that_died_costs_no_report(token: str) -> None:
    assert through_wsgi(body(token_record(1)), token)[0] == 200
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()
    assert through_wsgi(body(token_record(2)), token)[0] == 200


def test_a_large_body_waits_its_turn_and_is_sent_away_if_it_takes_too_long(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_door, "LARGE_WAIT_SECONDS", 0.01)
    large = body(*[token_record(n) for n in range(200)])
    assert len(large) > token_door.LARGE_BYTES
    with token_door._large:
        assert through_wsgi(large, token)[0] == 503
        assert through_wsgi(body(token_record()), token)[0] == 200
    assert through_wsgi(large, token)[2]["accepted"] == 199
