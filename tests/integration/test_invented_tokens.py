"""Tokens that are not valid are limited per address of the client; valid ones pass wherever they come from."""

from typing import Any

import httpx
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.tenancy import token_failures, tokens
from billing.tenancy.tokens import api_token_create
from tests.factories.gateway_connection import DOOR, port

__all__ = ["port"]
LIMIT = 3


@pytest.fixture(autouse=True)
def three_a_minute(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "api_token_failed": f"{LIMIT}/m/key"}
    monkeypatch.setattr(token_failures, "_paused", {})
    monkeypatch.setattr(tokens, "_valid", (frozenset(), 0.0))  # the list that the test before read a moment ago


@pytest.fixture
def valid(transactional_db: None) -> str:
    return api_token_create(name="gateway", scopes=["usage:write", "budgets:read", "people:provision"], actor="tests")[1]


def ask(token: str, address: str, path: str = "/api/v1/invoices") -> Any:
    return Client(REMOTE_ADDR=address, headers={"Authorization": f"Bearer {token}"}).get(path)


def statuses(tokens: list[str], address: str) -> list[int]:
    return [ask(token, address).status_code for token in tokens]


def test_after_so_many_invented_tokens_an_address_gets_429_and_a_valid_token_still_passes(valid: str) -> None:
    assert statuses(["a", "b", "c", "d", "e"], "10.5.0.1") == [401, 401, 401, 429, 429]
    answer = ask("f", "10.5.0.1")
    assert (answer.headers["Retry-After"], answer.headers["Content-Type"]) == ("60", "application/problem+json")
    assert (answer.json()["status"], answer.json()["title"]) == (429, "Too Many Requests")
    assert ask(valid, "10.5.0.1", "/api/v1/scim/v2/Users").status_code == 200
    assert statuses(["f"], "10.5.0.2") == [401]


def test_scim_and_the_endpoints_for_reports_count_together(valid: str) -> None:
    paths = ["/api/v1/scim/v2/Users", DOOR, "/api/v1/invoices", "/api/v1/scim/v2/Users", DOOR, "/api/v1/budgets/check"]
    assert [ask("wrong", "10.5.0.3", path).status_code for path in paths] == [401, 401, 401, 429, 429, 429]


def test_a_refused_address_costs_the_database_one_query_a_second_at_most(valid: str) -> None:
    statuses(["a", "b", "c", "d", "e"], "10.5.0.4")
    with CaptureQueriesContext(connection) as asked:
        assert statuses([f"wrong {number}" for number in range(20)], "10.5.0.4") == [429] * 20
    assert len(asked) <= 1, [query["sql"] for query in asked]


def test_a_valid_token_costs_no_query_more_than_without_a_limit(valid: str, settings: Any) -> None:
    def queries() -> int:
        ask(valid, "10.5.0.5", "/api/v1/scim/v2/Users")
        with CaptureQueriesContext(connection) as asked:
            assert ask(valid, "10.5.0.5", "/api/v1/scim/v2/Users").status_code == 200
        return len(asked)

    limited = queries()
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "api_token_failed": None}
    assert limited == queries()


def test_another_process_refuses_after_one_more(valid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert statuses(["a", "b", "c"], "10.5.0.6") == [401, 401, 401]
    monkeypatch.setattr(token_failures, "_paused", {})  # what another process remembers
    assert statuses(["d"], "10.5.0.6") == [429]


def test_addresses_of_one_network_of_ipv6_count_together(valid: str) -> None:
    assert [ask("wrong", f"2001:db8:5::{n}").status_code for n in range(1, 6)] == [401, 401, 401, 429, 429]
    assert ask("wrong", "2001:db8:6::1").status_code == 401


def test_without_a_limit_every_invented_token_gets_401(valid: str, settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "api_token_failed": None}
    assert statuses(["a", "b", "c", "d", "e"], "10.5.0.7") == [401] * 5


def test_without_the_cache_no_request_fails(valid: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE suanpan_cache RENAME TO suanpan_cache_away")
    try:
        assert statuses(["a", "b", "c", "d", "e"], "10.5.0.8") == [401] * 5
        assert ask(valid, "10.5.0.8", "/api/v1/scim/v2/Users").status_code == 200
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE suanpan_cache_away RENAME TO suanpan_cache")


def test_invented_tokens_do_not_make_a_process_forget_valid_ones(valid: str) -> None:
    ask(valid, "10.5.0.9", DOOR)
    ask("wrong", "10.5.0.10", DOOR)
    with CaptureQueriesContext(connection) as asked:
        ask(valid, "10.5.0.9", DOOR)
    assert not [query["sql"] for query in asked if "tenancy_apitoken" in query["sql"]]


def test_what_gateways_send_is_limited_in_the_same_way(port: int, valid: str, settings: Any) -> None:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1

    def report(token: str, path: str = DOOR) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "10.5.0.11", "Content-Type": "application/json"}
        return httpx.post(f"http://127.0.0.1:{port}{path}", content=b"[]", headers=headers, timeout=60)

    answers = [report("wrong", path) for path in (DOOR, "/api/v1/budgets/check", DOOR, DOOR, "/api/v1/budgets/check")]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert [answer.headers["Retry-After"] for answer in answers[3:]] == ["60", "60"]
    assert answers[4].json()["detail"] == "too many tokens from this address are unknown, expired or revoked"
    assert report(valid).status_code == 200
