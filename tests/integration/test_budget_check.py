"""The budget check over HTTP: what it answers to whom, and that bursts on processes that are killed keep to the limit."""

import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import redis
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from billing.api import budget_check, gateway_requests
from billing.api.admission import gate
from billing.api.budget_check import MOST_BODY
from billing.budgets.models import BudgetStatus
from billing.budgets.reference import CurrentReference, counters_read
from billing.budgets.reservations import PREFIX, Reservations
from billing.budgets.services import counters_refresh, standings, standings_refresh
from billing.local.process_list import free_port
from billing.tenancy.models import ApiToken, Team
from billing.tenancy.tokens import api_token_create, api_token_revoke
from metering.intervals import billing_month, month_of
from tests.cli import PROJECT
from tests.factories import SET_UP, apply, ingest_tokens, token_record
from tests.factories.servers import WebProcess, environment, served_web, until, web_process
from tests.stored_rows import token_events

pytestmark = pytest.mark.django_db(transaction=True)
SINCE = "2024-01-01T00:00:00+08:00"
PRICE = {
    "name": "p", "valid_from": SINCE, "gpu": [],
    "tokens": [{"model": "llama-3-8b", "input": "1000.0000", "cache_read": "0.2000", "output": "8.0000"}],
}  # fmt: skip
ASK = {"source": "litellm-hq", "consumer": "nlp-key-1", "model": "llama-3-8b"}
ADDRESS = "/api/v1/budgets/"


def set_up(directory: Path, amount: str = "50.00", **budget: Any) -> None:
    consumers = [{**SET_UP["consumers"][0], "valid_from": SINCE}]
    apply(directory, price_versions=[PRICE], consumers=consumers, budgets=[{"team": "nlp", "amount": amount, **budget}])


def report(number: int | str, tokens: int = 1000) -> None:
    """One request of now: 1,000 tokens cost 1.00."""
    now = timezone.now()
    record = token_record(1, id=f"req-{number}", time=now.isoformat(), input_tokens=tokens, cache_read_input_tokens=0,
                          output_tokens=0, reasoning_output_tokens=0)  # fmt: skip
    assert ingest_tokens(record, now=now).accepted == 1


def token(*scopes: str, **bound: Any) -> str:
    return api_token_create(name="gw", scopes=list(scopes or ("budgets:read",)), actor="tests", **bound)[1]


@pytest.fixture(autouse=True)
def nothing_reserved(services: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a start: nothing is reserved, and this process has read nothing."""
    monkeypatch.setattr(budget_check, "_current", CurrentReference())
    with redis.Redis.from_url(os.environ["BROKER_URL"]) as client:
        for key in client.scan_iter(f"{PREFIX}*"):
            client.delete(key)


class Asked:
    """Web in this process, served as `up` serves it."""

    def __init__(self, port: int) -> None:
        self.presented, self.port = token(), port

    def request(self, method: str, path: str, presented: str, **sent: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {presented}"} if presented else {}
        url = f"http://127.0.0.1:{self.port}{ADDRESS}{path}"
        return httpx.request(method, url, headers={**headers, **sent.pop("headers", {})}, timeout=30, **sent)

    def check(self, presented: str, **fields: Any) -> dict[str, Any]:
        answer = self.request("GET", "check", presented, params={**ASK, **fields})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    set_up(tmp_path)
    report("before", 2000)
    standings_refresh(now=timezone.now())
    with served_web() as port:
        yield Asked(port)


def test_the_answer_of_the_contract(asked: Asked) -> None:
    presented = asked.presented
    answer = asked.check(presented, reserve="0")
    standing = BudgetStatus.objects.get()
    assert {name: answer[name] for name in ("allowed", "reason", "budget", "spent", "remaining")} == {
        "allowed": True, "reason": "within_budget", "budget": "50.00", "spent": "2.00", "remaining": "48.00",
    }  # fmt: skip
    assert answer["as_of"] == standing.as_of.isoformat()
    assert answer["period"] == standing.period
    assert (answer["currency"], answer["team"], answer["reservation"]) == ("CNY", "nlp", None)


def test_a_reservation_is_stated_counted_and_can_be_released(asked: Asked) -> None:
    presented = asked.presented
    before = Decimal(asked.check(presented, reserve="0")["held"])
    made = asked.request("POST", "reservations", presented, json={**ASK, "reserve": "5.5", "seconds": 600}).json()
    assert made["reservation"]["amount"] == "5.5"
    assert Decimal(made["held"]) - before == Decimal("5.5")
    assert asked.request("DELETE", f"reservations/{made['reservation']['id']}", presented).status_code == 204
    assert asked.request("DELETE", f"reservations/{made['reservation']['id']}", presented).status_code == 404
    assert Decimal(asked.check(presented, reserve="0")["held"]) == before


def authorize(asked: Asked, path: str = "authorize", *, method: str = "GET", **headers: str) -> httpx.Response:
    named = {"consumer": "nlp-key-1", "source": "litellm-hq", "model": "llama-3-8b", **headers}
    sent = {f"X-Suanpan-{name.replace('_', '-')}": value for name, value in named.items() if value}
    return asked.request(method, path, asked.presented, headers=sent)


def test_forward_auth_lets_a_request_through_and_says_what_is_left(asked: Asked) -> None:
    answer = authorize(asked, id="req-80", reserve="5")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (answer.headers["X-Budget-Remaining"], answer.headers["X-Budget-Reason"]) == ("48.00", "within_budget")
    assert answer.headers["Cache-Control"] == "no-store"
    assert Decimal(asked.check(asked.presented, reserve="0")["held"]) == 5
    identity = answer.headers["X-Suanpan-Reservation"]
    assert authorize(asked, id="req-80", reserve="5", method="POST").headers["X-Suanpan-Reservation"] == identity
    assert asked.request("DELETE", f"reservations/{identity}", asked.presented).status_code == 204


@pytest.mark.parametrize(("query", "status"), [("", 429), ("?deny=429", 429), ("?deny=403", 403)])
def test_forward_auth_refuses_what_is_used_up_until_the_period_ends(asked: Asked, query: str, status: int) -> None:
    report("much", 48_000)
    standings_refresh(now=timezone.now())
    until(lambda: asked.check(asked.presented, reserve="0")["spent"] == "50.00")
    before = timezone.now()
    answer = authorize(asked, f"authorize{query}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert (answer.headers["X-Budget-Remaining"], answer.headers["X-Budget-Reason"]) == ("0.00", "budget_used_up")
    assert "it is used up; 50.00 of 50.00 CNY are spent" in answer.json()["detail"]
    end, wait = BudgetStatus.objects.get().end, int(answer.headers["Retry-After"])
    assert end - timezone.now() <= timedelta(seconds=wait) <= end - before + timedelta(seconds=1)


def test_forward_auth_asks_to_wait_for_requests_under_way(asked: Asked) -> None:
    assert authorize(asked, reserve="48").status_code == 204
    answer = authorize(asked, reserve="1")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
    assert (answer.headers["X-Budget-Remaining"], answer.headers["X-Budget-Reason"]) == ("48.00", "budget_reserved")


def test_forward_auth_passes_over_what_envoy_appends(asked: Asked) -> None:
    """Envoy's `path_prefix` comes before the path and the query of its client, with the client's method and body."""
    path = "authorize/v1/chat/completions?deny=403&api-version=2024-10-21&deny=403"
    assert authorize(asked, path, method="POST").status_code == 204
    long = {"X-Suanpan-Consumer": "nlp-key-1", "X-Suanpan-Source": "litellm-hq"}
    answer = asked.request("POST", "authorize/v1/chat/completions", asked.presented, headers=long, content=b"x" * 300_000)
    assert answer.status_code == 204, "a body that the gateway hands on is read by nobody"
    announced = {**long, "Authorization": f"Bearer {asked.presented}", "Content-Length": "5"}
    head = "".join(f"{name}: {value}\r\n" for name, value in announced.items())
    with socket.create_connection(("127.0.0.1", asked.port), timeout=30) as raw:
        raw.sendall(f"GET {ADDRESS}authorize HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 204"), "nginx announces a body that it does not send"
    assert authorize(asked, method="DELETE").status_code == 405


def test_forward_auth_takes_its_token_beside_that_of_the_client(asked: Asked) -> None:
    """Gateways hand on the client's Authorization; a token that is bound to a source needs no header for it."""
    bound, client = token(source="litellm-hq"), "Bearer sk-of-the-client"
    sent = {"X-Suanpan-Authorization": f"Bearer {bound}", "Authorization": client, "X-Suanpan-Consumer": "nlp-key-1"}
    assert asked.request("GET", "authorize", "", headers=sent).status_code == 204
    assert asked.request("GET", "authorize", "", headers={**sent, "X-Suanpan-Source": "other"}).status_code == 403
    del sent["Authorization"]
    assert asked.request("GET", "authorize", "", headers=sent).status_code == 204
    assert asked.request("GET", "authorize", "", headers={**sent, "X-Suanpan-Authorization": "Bearer no"}).status_code == 401
    assert asked.request("GET", "check", "", headers=sent, params=ASK).status_code == 401, "only here"


def test_forward_auth_in_django_answers_the_same(asked: Asked) -> None:
    headers = {"X-Suanpan-Authorization": f"Bearer {asked.presented}", "X-Suanpan-Consumer": "nlp-key-1",
               "X-Suanpan-Source": "litellm-hq", "X-Suanpan-Reserve": "48"}  # fmt: skip
    first = Client().get(f"{ADDRESS}authorize", headers=headers)
    assert (first.status_code, first["X-Budget-Remaining"]) == (204, "48.00")
    second = Client().post(f"{ADDRESS}authorize/v1/images?deny=403", headers=headers)
    assert (second.status_code, second["Retry-After"]) == (403, "5")


def test_forward_auth_names_the_header_at_fault(asked: Asked) -> None:
    def detail(*headers: tuple[str, bytes | str], path: str = "authorize") -> tuple[int, str]:
        sent: list[tuple[bytes, bytes]] = [(b"Authorization", f"Bearer {asked.presented}".encode())]
        sent += [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers]
        answer = httpx.get(f"http://127.0.0.1:{asked.port}{ADDRESS}{path}", headers=sent, timeout=30)
        return answer.status_code, answer.json()["detail"] if answer.content else ""

    key, source = ("X-Suanpan-Consumer", "nlp-key-1"), ("X-Suanpan-Source", "litellm-hq")
    assert detail(source) == (400, "consumer: is missing")
    assert detail(key) == (400, "source: is missing")
    assert detail(key, ("X-Suanpan-Consumer", "other"), source) == (400, "X-Suanpan-Consumer: is given twice")
    assert detail(("X-Suanpan-Consumer", b"\xff"), source)[0] == 400
    assert detail(("X-Suanpan-Consumer", "团队"), source) == (204, ""), "headers are UTF-8"
    assert detail(key, source, ("X-Suanpan-Input-Tokens", "-1"))[0] == 400
    assert detail(key, source, path="authorize?deny=500") == (400, "deny: '500' must be 403 or 429")
    assert detail(key, source, path="authorize?deny=403&deny=429") == (400, "deny: '403, 429' must be 403 or 429")


def test_a_named_reservation_ends_when_its_record_is_counted(asked: Asked) -> None:
    presented = asked.presented
    asked.check(presented, id="req-77", reserve="9")
    assert Decimal(asked.check(presented, reserve="0")["held"]) == 9
    report(77)
    standings_refresh(now=timezone.now())
    until(lambda: asked.check(presented, reserve="0")["spent"] == "3.00")
    assert Decimal(asked.check(presented, reserve="0")["held"]) == 9, "not looked for yet: too high, never too low"
    counters_refresh(now=timezone.now())
    answer = asked.check(presented, reserve="0")
    assert (answer["spent"], Decimal(answer["held"])) == ("3.00", 0), "in the same step"


def test_a_record_that_its_budget_could_not_count_stays_reserved(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> BudgetStatus:
        raise ArithmeticError("too large")

    asked.check(asked.presented, id="req-77", reserve="9", seconds=1)
    report(77)
    with monkeypatch.context() as patched:
        patched.setattr(standings, "_row", failing)
        counters_refresh(now=timezone.now())
    time.sleep(1.1)
    answer = asked.check(asked.presented, reserve="0")
    assert (answer["spent"], answer["held"], answer["remaining"]) == ("2.00", "9.0000", "48.00")
    counters_refresh(now=timezone.now())
    answer = asked.check(asked.presented, reserve="0")
    assert (answer["spent"], Decimal(answer["held"])) == ("3.00", 0)


def test_a_budget_that_was_never_summed_in_its_period_has_a_cap_too(asked: Asked) -> None:
    """As from the first second of a month, and for as long as its team cannot be rated in it."""
    BudgetStatus.objects.all().delete()
    first = asked.check(asked.presented, id="req-77", reserve="49")
    period = billing_month(month_of(timezone.now(), "Asia/Shanghai"), "Asia/Shanghai")
    assert (first["reason"], first["budget"], first["spent"], first["as_of"], first["period"]) == (
        "within_budget", "50.00", "0.00", period.start.isoformat(), month_of(period.start, "Asia/Shanghai")
    )  # fmt: skip
    assert asked.check(asked.presented, id="req-78", reserve="5")["allowed"]
    refused = asked.check(asked.presented, id="req-79", reserve="5")
    assert (refused["allowed"], refused["reason"], Decimal(refused["held"])) == (False, "budget_reserved", 54)
    report(77, 49_000)
    counters_refresh(now=timezone.now())
    until(lambda: asked.check(asked.presented, reserve="0")["spent"] == "51.00")
    assert Decimal(asked.check(asked.presented, reserve="0")["held"]) == 5


def test_of_what_is_not_in_force_there_is_no_counter(tmp_path: Path) -> None:
    now = timezone.now()
    plan = {"team": "nlp", "period": "plan", "amounts": {"2024-02": "9.00"}}
    set_up(tmp_path, valid_until=(now - timedelta(days=1)).isoformat())
    apply(tmp_path, price_versions=None, budgets=[
        plan, {"team": "cv", "amount": "9.00", "valid_from": (now + timedelta(days=1)).isoformat()},
    ])  # fmt: skip
    assert counters_read(now) == []
    assert [(line.spent, line.generation) for line in counters_read(now + timedelta(days=2))] == [(Decimal("0.00"), 0)]


WRONG: list[tuple[dict[str, str], str]] = [
    ({"source": ""}, "source"), ({"consumer": ""}, "consumer"), ({"reserve": "-1"}, "reserve"),
    ({"reserve": "NaN"}, "reserve"), ({"reserve": "1e99"}, "reserve"), ({"reserve": "0.00001"}, "reserve"),
    ({"input_tokens": "x"}, "input_tokens"), ({"output_tokens": "²"}, "output_tokens"), ({"seconds": "3601"}, "seconds"),
    ({"model": "m" * 513}, "model"), ({"consumer": "a\0b"}, "consumer"),
]  # fmt: skip


def test_a_bad_field_is_named(asked: Asked) -> None:
    for changed, field in WRONG:
        answer = asked.request("GET", "check", asked.presented, params={**ASK, **changed})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), changed
        assert answer.json()["detail"].startswith(f"{field}: "), changed


def test_who_may_ask_what(asked: Asked, client: Client) -> None:
    anyone, nlp, cv = asked.presented, token(team=Team.objects.get(code="nlp")), token(team=Team.objects.get(code="cv"))
    elsewhere, wrong_scope = token(source="elsewhere"), token("usage:write")
    everybody = [anyone, nlp, cv, elsewhere, wrong_scope, "nonsense", ""]
    answers = [asked.request("GET", "check", presented, params=ASK) for presented in everybody]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 403, 403, 401, 401]
    web = [
        client.get(f"{ADDRESS}check", ASK, headers={"Authorization": f"Bearer {presented}"} if presented else {})
        for presented in everybody
    ]  # fmt: skip
    assert [answer.status_code for answer in web] == [200, 200, 404, 403, 403, 401, 401]
    assert [answer.json()["title"] for answer in web[2:]] == [answer.json()["title"] for answer in answers[2:]]
    for method, action, allowed in (("PUT", "check", "GET, HEAD, OPTIONS"), ("GET", "reservations", "POST, OPTIONS")):
        refused = asked.request(method, action, anyone)
        assert (refused.status_code, refused.headers["Allow"]) == (405, allowed)
    assert asked.request("OPTIONS", "check", anyone).headers["Allow"] == "GET, HEAD, OPTIONS"
    assert {asked.request("GET", action, anyone).status_code for action in ("else", "checks", "check/")} == {404}
    assert asked.request("POST", "reservations", anyone, content=b"[1]").status_code == 400
    assert asked.request("POST", "reservations", anyone, content=b"{" * 10_000).status_code == 400
    assert asked.request("POST", "reservations", anyone, content=b" " * 20_000).status_code == 413
    assert asked.request("GET", "check", anyone, params=ASK, headers={"Host": "evil.example"}).status_code == 400


TEXT, WHOLE = "must be text of at most 512", "must be a whole number from 0 to"
DECIMAL = "must be a decimal string from 0 to 1000000000000"
IN_QUERY = {
    "model": ("a\0b", f"model: 'a\\x00b' {TEXT}"), "input_tokens": ("1.5", f"input_tokens: '1.5' {WHOLE} 1000000000"),
    "seconds": ("x", f"seconds: 'x' {WHOLE}"), "reserve": ("1e400", f"reserve: '1e400' {DECIMAL}"),
}  # fmt: skip
IN_BODY = {
    **IN_QUERY, "model": ([], f"model: [] {TEXT}"), "source": (0, f"source: 0 {TEXT}"), "id": (False, f"id: False {TEXT}"),
    "reserve": (5.5, f"reserve: 5.5 {DECIMAL}"), "seconds": (True, f"seconds: True {WHOLE}"),
}  # fmt: skip


def test_what_is_wrong_with_a_question_is_named_and_reserves_nothing(asked: Asked, client: Client) -> None:
    headers = {"Authorization": f"Bearer {asked.presented}"}
    queries = {urlencode({**ASK, name: value}): said for name, (value, said) in IN_QUERY.items()}
    bodies = {json.dumps({**ASK, name: value}): said for name, (value, said) in IN_BODY.items()}
    for query, said in {**queries, f"{urlencode(ASK)}&source=other": "'source' is given twice"}.items():
        answer = asked.request("GET", f"check?{query}", asked.presented)
        assert (answer.status_code, answer.json()["detail"][: len(said)]) == (400, said)
        assert client.get(f"{ADDRESS}check?{query}", headers=headers).json() == answer.json()
    for body, said in {**bodies, json.dumps(ASK)[:-1] + ', "source": "other"}': "'source' is given twice"}.items():
        answer = asked.request("POST", "reservations", asked.presented, content=body)
        assert (answer.status_code, answer.json()["detail"][: len(said)]) == (400, said)
    assert asked.check(asked.presented, reserve="0", model="", user="of the gateway")["held"] == "0.0000"


def test_what_the_connection_says_of_each_answer(asked: Asked) -> None:
    gone = asked.request("DELETE", "reservations/unknown", asked.presented)
    assert (gone.status_code, gone.headers["content-type"]) == (404, "application/problem+json")
    made = asked.request("POST", "reservations", asked.presented, json={**ASK, "reserve": "1"}).json()["reservation"]["id"]
    ended = asked.request("DELETE", f"reservations/{made}", asked.presented)
    assert (ended.status_code, ended.content) == (204, b"")
    assert {"content-type", "content-length"}.isdisjoint(ended.headers)
    head = asked.request("HEAD", "check", asked.presented, params=ASK)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 100
    assert head.headers["cache-control"] == "no-store"
    nobody = asked.request("GET", "check", "", params=ASK)
    assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")
    assert asked.request("GET", "%63heck", asked.presented, params=ASK).status_code == 200


def test_a_body_that_is_too_large_is_refused_and_not_kept(asked: Asked, client: Client) -> None:
    for content in (b" " * (MOST_BODY + 1), iter([b" " * MOST_BODY, b" "])):
        assert asked.request("POST", "reservations", asked.presented, content=content).status_code == 413
    assert gate.held == 0
    headers = {"Authorization": f"Bearer {asked.presented}"}
    large = client.post(f"{ADDRESS}reservations", b" " * (MOST_BODY + 1), content_type="application/json", headers=headers)
    assert large.status_code == 413


def test_an_error_of_ours_is_a_500_and_the_next_question_is_answered(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(gateway_requests, "budget_answer", broken)
        answer = asked.request("GET", "check", asked.presented, params=ASK)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "broken" in caplog.text
    assert asked.check(asked.presented, reserve="0")["allowed"]


def test_without_valkey_every_process_answers_503_and_never_yes(
    asked: Asked, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Reservations(f"redis://127.0.0.1:{free_port()}/0")
    with monkeypatch.context() as patched:
        patched.setattr(budget_check, "reservations", lambda: away)
        headers = {"Authorization": f"Bearer {asked.presented}"}
        answers = [
            asked.request("GET", "check", asked.presented, params=ASK),
            asked.request("POST", "reservations", asked.presented, json=ASK),
            asked.request("DELETE", f"reservations/{'a' * 24}", asked.presented),
            client.get(f"{ADDRESS}check", ASK, headers=headers),
            client.post(f"{ADDRESS}reservations", json.dumps(ASK), content_type="application/json", headers=headers),
            client.delete(f"{ADDRESS}reservations/{'a' * 24}", headers=headers),
        ]  # fmt: skip
    assert [(answer.status_code, answer.headers["Retry-After"]) for answer in answers] == [(503, "1")] * 6
    assert {answer.json()["detail"] for answer in answers} == {"reservations cannot be reached: ask again in a second"}
    assert asked.check(asked.presented, reserve="0")["allowed"]


def test_the_counters_are_refreshed_without_valkey_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(tmp_path)
    report("one", 2000)
    away = Reservations(f"redis://127.0.0.1:{free_port()}/0")
    monkeypatch.setattr("billing.budgets.services.counters.reservations", lambda: away)
    assert counters_refresh(now=timezone.now())[0].spent == 2


def test_a_revoked_token_and_a_raised_budget_are_noticed(asked: Asked, tmp_path: Path) -> None:
    made = ApiToken.objects.get()
    presented = asked.presented
    assert asked.check(presented, reserve="0")["budget"] == "50.00"
    set_up(tmp_path, "60.00")
    standings_refresh(now=timezone.now())
    until(lambda: asked.check(presented, reserve="0")["budget"] == "60.00")
    api_token_revoke(token=made, actor="tests", now=timezone.now())
    until(lambda: asked.request("GET", "check", presented, params=ASK).status_code == 401)


def test_what_one_process_reserves_another_knows_and_releases(asked: Asked, client: Client) -> None:
    headers = {"Authorization": f"Bearer {asked.presented}"}
    made = client.get(f"{ADDRESS}check", {**ASK, "reserve": "5.5", "seconds": 600}, headers=headers)
    assert (made.status_code, made["Content-Type"], made["Cache-Control"]) == (200, "application/json", "no-store")
    web, found = made.json(), asked.check(asked.presented, reserve="0")
    assert (web["reservation"]["amount"], Decimal(found["held"])) == ("5.5", Decimal("5.5"))
    assert {name: web[name] for name in web if name != "reservation"} == {
        name: found[name] for name in found if name != "reservation"
    }  # fmt: skip
    posted = client.post(
        f"{ADDRESS}reservations", json.dumps({**ASK, "reserve": "1"}), content_type="application/json", headers=headers
    )  # fmt: skip
    assert Decimal(posted.json()["held"]) == Decimal("6.5")
    for identity in (web["reservation"]["id"], posted.json()["reservation"]["id"]):
        assert asked.request("DELETE", f"reservations/{identity}", asked.presented).status_code == 204
        assert client.delete(f"{ADDRESS}reservations/{identity}", headers=headers).status_code == 404
    assert Decimal(asked.check(asked.presented, reserve="0")["held"]) == 0


def test_the_list_shows_where_budgets_stand_and_only_to_whom_they_belong(tmp_path: Path, client: Client) -> None:
    set_up(tmp_path)
    report("one", 2000)
    standings_refresh(now=timezone.now())

    def listed(**bound: Any) -> list[dict[str, Any]]:
        answer = client.get("/api/v1/budgets", headers={"Authorization": f"Bearer {token(**bound)}"})
        assert answer.status_code == 200
        return list(answer.json()["results"])

    (row,) = listed()
    assert (row["team"], row["amount"], row["thresholds"]) == ("nlp", "50.00", [50, 80, 100])
    standing = row["standing"]
    assert (standing["spent"], standing["remaining"], standing["forecast_p50"]) == ("2.00", "48.00", None)
    assert len(listed(team=Team.objects.get(code="nlp"))) == 1
    assert listed(team=Team.objects.get(code="cv")) == []
    headers = {"Authorization": f"Bearer {token('usage:read')}"}
    assert client.get("/api/v1/budgets", headers=headers).status_code == 403


class Installation:
    """Web processes, and the command that brings the ledger to them."""

    def __init__(self, *processes: WebProcess) -> None:
        self.processes = processes
        follow = [sys.executable, str(PROJECT / "manage.py"), "budget_counter", "--follow"]
        self.counter = subprocess.Popen(follow, env={**environment(), "PYTHONWARNINGS": "ignore"})

    @property
    def urls(self) -> list[str]:
        return [process.url for process in self.processes]

    def kill_and_restart(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].start()

    def stop(self) -> None:
        self.counter.terminate()
        assert self.counter.wait(timeout=30) == 0


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Installation]:
    set_up(tmp_path)
    standings_refresh(now=timezone.now())
    with web_process() as one, web_process() as two, web_process() as three:
        found = Installation(one, two, three)
        try:
            yield found
        finally:
            found.stop()


def _gateway(urls: list[str], presented: str, number: int, most: int) -> None:
    """Asks any process, and reports what it was let through for a little later; gives up once it is refused for good."""
    connections.close_all()
    dice = random.Random(number)
    with httpx.Client(headers={"Authorization": f"Bearer {presented}"}, timeout=10) as client:
        refused = 0
        for turn in range(most):
            identity = f"{number}-{turn}"
            answer = _ask_until_answered(client, urls, dice, f"req-{identity}")
            if answer["allowed"]:
                time.sleep(dice.random() * 0.05)
                report(identity)
                refused = 0
            else:
                refused += 1
                time.sleep(0.05)
            if refused >= 20 and answer["reason"] == "budget_used_up":
                break
    os._exit(0)


def _ask_until_answered(client: httpx.Client, urls: list[str], dice: random.Random, identity: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            url = f"{dice.choice(urls)}{ADDRESS}check"
            answer = client.get(url, params={**ASK, "id": identity, "reserve": "1.00"})
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if answer.status_code == 200:
            return dict(answer.json())
        time.sleep(0.05)
    raise AssertionError("no answer")


def test_gateways_in_a_burst_on_many_processes_stay_within_the_limit_while_these_are_killed(real: Installation) -> None:
    presented = token()
    context = multiprocessing.get_context("fork")
    connections.close_all()
    gateways = [context.Process(target=_gateway, args=(real.urls, presented, number, 400)) for number in range(4)]
    for gateway in gateways:
        gateway.start()
    for number in (1, 2):
        time.sleep(0.5)
        real.kill_and_restart(number)
    for gateway in gateways:
        gateway.join(timeout=120)
        assert gateway.exitcode == 0
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*), sum(input_tokens) FROM {token_events()}")
        requests, tokens = cursor.fetchone()
    assert requests == 50, "each costs what it reserved: exactly the budget, and all of it"
    call_command("budget_counter")
    standing = BudgetStatus.objects.get()
    assert standing.spent == Decimal(int(tokens)) / 1000


def test_the_counter_equals_the_ledger_after_any_interleaving(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up(tmp_path)
    context = multiprocessing.get_context("fork")
    connections.close_all()
    writers = [context.Process(target=_writer, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(10):
        standings_refresh(now=timezone.now())
    for writer in writers:
        writer.join(timeout=120)
        assert writer.exitcode == 0
    call_command("budget_counter", "--json")
    rows = json.loads(capsys.readouterr().out)["budgets"]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT sum(input_tokens) FROM {token_events()}")
        tokens = int(cursor.fetchone()[0])
    assert tokens == 4 * sum(range(1, 41)) * 1000
    assert Decimal(rows[0]["spent"]) == Decimal(tokens) / 1000 == BudgetStatus.objects.get().spent
    later = timezone.now() + timedelta(seconds=1)
    assert standings_refresh(now=later)[0].spent == Decimal(tokens) / 1000


def _writer(number: int) -> None:
    connections.close_all()
    for turn in range(1, 41):
        report(f"{number}-{turn}", turn * 1000)
    os._exit(0)
