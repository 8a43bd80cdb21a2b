"""What gateways send for each request, over a real connection and whatever comes on it; the answers are those of Django."""

import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.db import OperationalError, connection, connections
from django.utils import timezone

from billing.api import authentication, gateway_requests, limited_connection, token_reports
from billing.api.admission import gate
from billing.api.limited_connection import MOST_HEAD
from billing.tenancy import tokens as api_tokens
from billing.tenancy.tokens import RECENT_SECONDS, api_token_create, api_token_revoke
from billing.usage import epochs
from billing.usage.services import token_group, tokens
from billing.usage.store import records, wire
from tests.factories import token_record
from tests.factories.gateway_connection import DOOR, answers, dialled, head, port, post, queried, request, stored, token
from tests.factories.servers import heard_until_closed, until, web_process
from tests.factories.token_endpoint import CASES, EXPECTED, body, refused_busy, through_django
from tests.integration.usage_held import usage_held
from tests.stored_rows import ledger_emptied

__all__ = ["port", "token"]


# The same answers


@pytest.mark.parametrize("case", sorted(set(CASES) - {"length"}))
def test_the_answers_are_those_of_django(case: str, port: int, token: str) -> None:
    content, given = CASES[case]
    headers = {name.removeprefix("HTTP_").replace("_", "-").title(): value for name, value in given.items()}
    answer = post(port, content, token, **headers)
    assert (answer.status_code, answer.json().get("accepted")) == EXPECTED[case]
    ledger_emptied()
    status, named, said = through_django(content, token, **given)
    assert (answer.status_code, answer.json()) == (status, said)
    assert answer.headers["Content-Type"] == named["Content-Type"]
    assert (answer.headers["X-Content-Type-Options"], answer.headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "date" in answer.headers


def test_who_may_not_report_is_told_so(port: int, token: str) -> None:
    reader = api_token_create(name="reader", scopes=["usage:read"], actor="tests")[1]
    assert post(port, b"[]", token).status_code == 200
    assert post(port, body(token_record()), None, Authorization=f"Basic {token}").status_code == 401
    for presented, expected in ((None, 401), ("wrong", 401), (reader, 403)):
        answer = post(port, body(token_record()), presented)
        status, named, said = through_django(body(token_record()), presented)
        assert (answer.status_code, answer.json()) == (status, said) == (expected, said)
        assert answer.headers.get("WWW-Authenticate") == named.get("WWW-Authenticate")
    assert stored() == 0


def test_a_token_that_was_revoked_reports_no_longer(port: int, transactional_db: None) -> None:
    made, presented = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")
    assert post(port, b"[]", presented).status_code == 200
    api_token_revoke(token=made, actor="tests", now=timezone.now())
    time.sleep(RECENT_SECONDS)
    assert post(port, b"[]", presented).status_code == 401


def test_a_token_works_on_after_the_database_was_asked_again(port: int, token: str) -> None:
    for number, pause in enumerate((0, 1.1 * RECENT_SECONDS, 1.4 * RECENT_SECONDS)):
        time.sleep(pause)
        assert post(port, body(token_record(number)), token).json()["accepted"] == 1


@pytest.mark.parametrize("recent_seconds", [0, 3600])
def test_a_token_ends_when_it_expires(
    recent_seconds: int, port: int, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the database was asked lately or is asked again."""
    monkeypatch.setattr(api_tokens, "RECENT_SECONDS", recent_seconds)
    ends = timezone.now() + timezone.timedelta(hours=1)
    presented = api_token_create(name="gateway", scopes=["usage:write"], actor="tests", expires_at=ends)[1]
    for clock, status in ((ends - timezone.timedelta(microseconds=1), 200), (ends, 401)):
        monkeypatch.setattr(gateway_requests, "datetime", SimpleNamespace(now=lambda _, given=clock: given))
        monkeypatch.setattr(authentication, "timezone", SimpleNamespace(now=lambda given=clock: given))
        assert post(port, b"[]", presented).status_code == status


def test_a_bound_token_reports_for_its_source_only(port: int, transactional_db: None) -> None:
    bound = api_token_create(name="b", scopes=["usage:write"], actor="tests", source="litellm-hq")[1]
    answer = post(port, body(token_record(1), token_record(2, source="other")), bound).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (1, [1])


def test_other_methods_and_hosts_are_refused_as_django_does(port: int, token: str) -> None:
    reading = httpx.get(f"http://127.0.0.1:{port}{DOOR}", headers={"Authorization": f"Bearer {token}"})
    assert (reading.status_code, reading.headers["Allow"]) == (405, "POST, OPTIONS")
    assert post(port, b"[]", token, Host="evil.example").status_code == 400
    assert stored() == 0


# On the wire


def test_requests_sent_ahead_are_answered_in_their_order(port: int, token: str) -> None:
    many = [request(token, *[token_record(n) for n in range(first, first + 1 + first % 3)]) for first in range(0, 300, 3)]
    with dialled(port) as channel:
        channel.sendall(b"".join(many) + head("wrong", 2) + b"[]" + request(token, token_record(0)))
        found = answers(channel, 102)
    assert [status for status, _ in found] == [200] * 100 + [401, 200]
    assert [said["accepted"] for _, said in found[:100]] == [1 + first % 3 for first in range(0, 300, 3)]
    assert found[101][1]["duplicates"] == 1


def test_a_body_may_come_in_pieces_and_without_a_length(port: int, token: str) -> None:
    content = body(*[token_record(n) for n in range(500)])
    pieces = (content[at : at + 999] for at in range(0, len(content), 999))
    assert post(port, pieces, token).json()["accepted"] == 500
    with dialled(port) as channel:
        for at in range(0, len(whole := request(token, token_record(500))), 7):
            channel.sendall(whole[at : at + 7])
        assert answers(channel, 1)[0][1]["accepted"] == 1


def test_a_client_that_asks_first_may_send_or_is_refused_before_it_does(port: int, token: str) -> None:
    content = body(token_record())
    with dialled(port) as channel:
        channel.sendall(head(token, len(content), "Expect: 100-continue"))
        assert channel.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        channel.sendall(content)
        assert answers(channel, 1)[0][1]["accepted"] == 1
    for presented, length, status in ((token, 10**9, b"413"), ("wrong", 100, b"401")):
        with dialled(port) as channel:
            channel.sendall(head(presented, length, "Expect: 100-continue"))
            heard = heard_until_closed(channel)
        assert heard.startswith(b"HTTP/1.1 " + status)
        assert b"connection: close" in heard


def test_bodies_above_the_limit_are_refused(port: int, token: str, settings: Any) -> None:
    settings.INGEST_MAX_BYTES = 1000
    large = body(*[token_record(n) for n in range(10)])
    named, unnamed = post(port, large, token), post(port, iter([large]), token)
    for answer in (named, unnamed):
        assert (answer.status_code, answer.headers["Content-Type"]) == (413, "application/problem+json")
        assert "send smaller batches" in answer.json()["detail"]
    assert post(port, body(token_record()), token).json()["accepted"] == 1


def test_old_clients_are_answered_and_the_connection_ends(port: int, token: str) -> None:
    for version, more in (("1.0", ()), ("1.1", ("Connection: close",))):
        with dialled(port) as channel:
            content = body(token_record())
            channel.sendall(head(token, len(content), *more).replace(b"HTTP/1.1", f"HTTP/{version}".encode()) + content)
            heard = heard_until_closed(channel)
        assert heard.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close" in heard


@pytest.mark.parametrize("sent", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET /" + b"a" * 10 * MOST_HEAD + b" HTTP/1.1\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 10 * MOST_HEAD,
    b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 2 * MOST_HEAD,
])  # fmt: skip
def test_what_is_no_request_is_refused_and_the_connection_ends(port: int, sent: bytes) -> None:
    with dialled(port) as channel:
        with suppress(ConnectionError):  # it may be closed before all of it is sent
            channel.sendall(sent)
        with suppress(ConnectionResetError):
            assert heard_until_closed(channel).startswith(b"HTTP/1.1 400 ")


def test_trailers_are_bounded_and_are_no_headers(port: int, token: str) -> None:
    content = body(token_record())
    chunked = head("wrong", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    whole = chunked + b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % (len(content), content, token.encode())
    with dialled(port) as channel:
        channel.sendall(whole)
        assert answers(channel, 1)[0][0] == 401, "a trailer names no token"
    with dialled(port) as channel:
        channel.sendall(chunked.replace(b"wrong", token.encode()) + b"2\r\n[]\r\n0\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            until(lambda: channel.sendall(b"a" * 10_000) is not None)


def test_a_connection_that_brings_no_whole_request_in_time_is_closed(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_connection, "REQUEST_SECONDS", 0.3)
    for said in ([], [b"POST /", b"api"], [head(token, 16_000_000) + b"[", b" "]):
        with dialled(port) as channel:
            for piece in said:
                channel.sendall(piece)
                time.sleep(0.1)
            assert channel.recv(1) == b"", said
    until(lambda: gate.held == 0)
    with dialled(port) as channel:
        for number in range(3):  # longer than two looks
            channel.sendall(request(token, token_record(number)))
            assert answers(channel, 1)[0][0] == 200, "between two requests it may rest"
            time.sleep(0.4)
        with usage_held():
            channel.sendall(request(token, token_record(3)))
            time.sleep(0.9)
        assert answers(channel, 1)[0][0] == 200, "it may wait for its answer"
        channel.sendall(b"POST /")
        assert channel.recv(1) == b"", "also after good requests"


def test_who_shows_no_token_holds_no_memory_and_keeps_nobody_out(port: int, token: str) -> None:
    """Each names a body as large as may be and sends a byte of it."""
    with ExitStack() as stack:
        for _ in range(8):
            channel = stack.enter_context(dialled(port))
            channel.sendall(head("wrong", 16 * 1024 * 1024) + b"[")
            assert answers(channel, 1)[0][0] == 401
        assert gate.held == 0
        assert post(port, body(token_record()), token).json()["accepted"] == 1


# What is written together, and under pressure


def test_reports_that_come_while_another_is_written_share_a_commit(port: int, token: str) -> None:
    assert post(port, b"[]", token).status_code == 200
    with usage_held():
        channels = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(40)]
        for number, channel in enumerate(channels):
            channel.sendall(request(token, token_record(number)))
        time.sleep(0.5)
    assert [answers(channel, 1)[0][1]["accepted"] for channel in channels] == [1] * 40
    for channel in channels:
        channel.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(requests), count(DISTINCT xmin::text) FROM token_hour_delta")
        assert cursor.fetchone() in ((40, 1), (40, 2))


def test_what_few_records_repeat_is_told_apart(port: int, token: str) -> None:
    assert post(port, body(token_record(1), token_record(2)), token).json()["accepted"] == 2
    others = [token_record(number, output_tokens=12_345) for number in (2, 3)]
    sent = body(token_record(3), token_record(1), *others)
    for accepted in (1, 0):
        said = post(port, sent, token).json()
        assert (said["accepted"], said["duplicates"], said["conflicts"]) == (accepted, 2 - accepted, 2)
    assert stored() == 3
    assert queried("SELECT reason, times_received FROM usage_quarantinedrecord") == [("conflict", 2)] * 2


def test_other_requests_are_answered_while_few_records_wait_for_the_database(port: int, token: str) -> None:
    assert post(port, body(token_record(1)), token).json()["accepted"] == 1
    with dialled(port) as channel:
        with usage_held():
            channel.sendall(request(token, token_record(2)))
            until(lambda: gate.held > 0)
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
            assert post(port, body(token_record(3)), "wrong").status_code == 401
            assert stored() == 1
        assert answers(channel, 1)[0][1]["accepted"] == 1


def test_what_the_loop_reads_waits_for_no_huge_report_to_be_decoded(port: int, token: str) -> None:
    small, large, huge = (body(*(token_record(number) for number in range(*ends))) for ends in (
        (0, 1), (10, 1_000), (1_000, 4_000),
    ))  # fmt: skip
    assert token_reports.LARGE_BYTES < len(large) < gateway_requests.HERE_BYTES < len(huge)
    answer: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answer.append(post(port, huge, token)))
    with token_reports._large:  # as long as another is decoded
        waiting.start()
        until(lambda: gate.held >= len(huge))
        assert post(port, large, token).json() == {"accepted": 990, "duplicates": 0, "conflicts": 0, "rejected": []}
        assert post(port, small, token).json()["accepted"] == 1
        assert waiting.is_alive()
    waiting.join(timeout=30)
    assert answer[0].json()["accepted"] == 3_000
    assert stored() == 3_991


def test_beyond_what_a_process_takes_in_at_a_time_reports_are_to_come_again(port: int, token: str, settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 1000
    content = body(token_record(1))
    with dialled(port) as slow:
        slow.sendall(head(token, len(content) + 900) + content + b" " * 700)
        until(lambda: gate.held > 900)
        refused = refused_busy()
        busy = post(port, body(token_record(2)), token)
        assert (busy.status_code, busy.headers["Retry-After"]) == (503, "2")
        assert "send again" in busy.json()["detail"]
        assert refused_busy() == refused + 1
        slow.sendall(b" " * 200)
        assert answers(slow, 1)[0][1]["accepted"] == 1
    assert post(port, body(token_record(2)), token).json()["accepted"] == 1


def test_beyond_so_many_connections_clients_are_to_come_again(port: int, token: str, settings: Any) -> None:
    settings.INGEST_MAX_CONNECTIONS = 2
    with dialled(port) as first:
        with dialled(port) as second:
            for channel in (first, second):
                channel.sendall(request(token, token_record(1)))
                assert answers(channel, 1)[0][0] == 200
            with dialled(port) as third:
                answer = heard_until_closed(third)
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nretry-after: 2\r\n" in answer
            first.sendall(request(token, token_record(2)))
            assert answers(first, 1)[0][1]["accepted"] == 1, "who is there is served on"

        def taken() -> bool:
            with dialled(port) as another:
                another.sendall(request(token, token_record(3)))
                return answers(another, 1)[0][0] == 200

        until(taken)  # once the server saw that the second left
    assert stored() == 3


def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing(port: int, token: str) -> None:
    with dialled(port) as channel:
        channel.sendall(head(token, 5000) + b"[")
        until(lambda: gate.held == 1)
    until(lambda: gate.held == 0)
    with usage_held(), dialled(port) as channel:
        channel.sendall(request(token, token_record()))
        until(lambda: gate.held > 0)
    until(lambda: stored() == 1)  # heard is written, also if nobody waits for the answer


def test_a_lock_that_is_not_given_in_time_is_a_503(port: int, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "ENTER", epochs.ENTER.replace("10s", "50ms"))
    with usage_held():
        answer = post(port, body(token_record()), token)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "nothing is acknowledged" in answer.json()["detail"]
    assert post(port, body(token_record()), token).json()["accepted"] == 1


def test_few_records_wait_for_a_lock_once(port: int, token: str) -> None:
    """For the 10 seconds of `token_take`; again in the thread they were 20."""
    assert post(port, body(token_record(1)), token).json()["accepted"] == 1
    began = time.monotonic()
    with usage_held():
        answer = post(port, body(token_record(2)), token)
    assert (answer.status_code, answer.headers["Retry-After"], time.monotonic() - began < 18) == (503, "2", True)
    assert "nothing is acknowledged" in answer.json()["detail"]
    assert post(port, body(token_record(2)), token).json()["accepted"] == 1


def test_connections_of_the_database_that_died_cost_no_report(port: int, token: str) -> None:
    assert post(port, body(token_record(1)), token).status_code == 200
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    other.close()
    connection.close()
    time.sleep(RECENT_SECONDS)
    codes = [post(port, body(token_record(number)), token).status_code for number in (2, 3)]
    assert codes[1] == 200
    assert codes[0] in (200, 503)


@pytest.mark.parametrize("number", [1, 300])
def test_a_connection_that_dies_while_it_writes_is_a_new_one_and_the_report_is_written_again(
    port: int, token: str, number: int
) -> None:
    assert post(port, body(token_record()), token).status_code == 200
    content = body(*[token_record(place) for place in range(2, 2 + number)])
    waits = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
    with dialled(port) as channel:
        with usage_held():
            channel.sendall(head(token, len(content)) + content)
            until(lambda: queried(waits) != [])
            ((writing,),) = queried(waits)
            queried(f"SELECT pg_terminate_backend({writing})")
            until(lambda: queried(waits) not in ([], [(writing,)]))
        ((status, said),) = answers(channel, 1)
    assert (status, said["accepted"], said["duplicates"]) == (200, number, 0)
    assert stored() == 1 + number


def test_a_database_that_is_away_is_a_503_at_once_and_the_next_report_is_taken(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patched:
        for module in (wire, records):
            patched.setattr(module, "bare_connection", away)
        answers = [post(port, body(token_record(place)), token) for place in range(2)]
    assert [(answer.status_code, answer.headers["Retry-After"]) for answer in answers] == [(503, "2")] * 2
    assert post(port, body(token_record()), token).json()["accepted"] == 1


def test_a_connection_that_cannot_even_be_closed_costs_one_report(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(tokens, "write_group", lambda *_: [OperationalError("refused")])
        patched.setattr(tokens, "close_old_connections", failing)
        assert post(port, body(token_record()), token).status_code == 503
    assert post(port, body(token_record()), token).json()["accepted"] == 1


def test_a_report_that_nobody_writes_in_time_is_a_503_and_never_written(
    port: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_group, "QUEUE_SECONDS", 0.2)
    with dialled(port) as first, dialled(port) as second:
        with usage_held():
            first.sendall(request(token, token_record(1)))
            until(lambda: gate.held > 0)
            time.sleep(0.1)
            second.sendall(request(token, token_record(2)))
            ((status, said),) = answers(second, 1)
        assert (status, answers(first, 1)[0][0]) == (503, 200)
    assert "nothing is acknowledged" in said["detail"]
    assert stored() == 1


def test_an_error_of_ours_is_told_and_logged(port: int, token: str, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("in the endpoint")

    monkeypatch.setattr(token_reports, "token_batch", broken)
    answer = post(port, body(token_record()), token)
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "in the endpoint" in caplog.text


def test_a_process_that_has_to_end_answers_what_it_read(token: str) -> None:
    with web_process() as web, dialled(web.port) as first, dialled(web.port) as second:
        assert web.process is not None
        with usage_held():
            first.sendall(request(token, token_record(1)))
            second.sendall(request(token, *[token_record(n) for n in range(2, 300)]))
            time.sleep(0.5)
            web.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert web.process.poll() is None, "it waits for what it heard"
        assert [answers(channel, 1)[0][1]["accepted"] for channel in (first, second)] == [1, 298]
        web.process.wait(timeout=30)
    assert stored() == 299
