"""Heads that a receiver has read before are not read again: every answer is what it would have been."""

import json
import socket
import time
from typing import Any

import pytest
from django.utils import timezone

from billing.api import report_connection
from billing.api.admission import gate
from billing.api.report_connection import KNOWN_HEAD_BYTES, KnownHead, ReportConnection, Request
from billing.tenancy.models import ApiToken
from billing.tenancy.tokens import GRACE_SECONDS, RECENT_SECONDS, api_token_create, api_token_revoke
from tests.factories import token_record
from tests.factories.token_endpoint import body
from tests.factories.token_receiver import answers, dialled, head, port, request, stored, token, until

__all__ = ["port", "token"]
TAKEN = {"accepted": 1, "duplicates": 0, "conflicts": 0, "rejected": []}
REPEATED = {"accepted": 0, "duplicates": 1, "conflicts": 0, "rejected": []}


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Which requests came with a head that was known, by their bodies."""
    found, made = list[bytes](), KnownHead.request

    def noted(self: KnownHead, connection: ReportConnection, body: bytes) -> Request:
        found.append(body)
        return made(self, connection, body)

    monkeypatch.setattr(KnownHead, "request", noted)
    return found


def numbered(number: int, **fields: Any) -> dict[str, Any]:
    """Records whose JSON is equally long."""
    return token_record(id=f"request-{number:06d}", **fields)


def said(channel: socket.socket, *requests: bytes) -> list[tuple[int, Any]]:
    """The answers to requests that are sent at once."""
    channel.sendall(b"".join(requests))
    return answers(channel, len(requests))


def known(channel: socket.socket, token: str) -> None:
    """Say twice what makes the head known: who reports is asked of the database first, and known at the second."""
    for number in (900_001, 900_002):
        assert said(channel, request(token, numbered(number))) == [(200, TAKEN)]


def test_what_has_a_known_head_is_taken_as_before(port: int, token: str, heard: list[bytes]) -> None:
    with dialled(port) as channel:
        known(channel, token)
        assert not heard
        assert said(channel, request(token, numbered(1))) == [(200, TAKEN)]
        assert said(channel, request(token, numbered(1))) == [(200, REPEATED)]
        with dialled(port) as another:
            assert said(another, request(token, numbered(2))) == [(200, TAKEN)]
        wrong = numbered(3, input_tokens=1000, cache_read_input_tokens=999, cache_creation_input_tokens=9)
        ((status, answer),) = said(channel, request(token, wrong))
        assert (status, answer["accepted"], answer["rejected"][0]["key"]) == (200, 0, "litellm-hq/request-000003")
    assert [json.loads(content)[0]["id"][-1] for content in heard][:3] == ["1", "1", "2"]
    assert stored() == 4


def test_a_request_in_pieces_is_put_together(port: int, token: str, heard: list[bytes]) -> None:
    with dialled(port) as channel:
        known(channel, token)
        whole = request(token, numbered(1))
        for cut in (1, 4, len(head(token, 1)) - 3, len(head(token, 1)) + 5, len(whole) - 1):
            with dialled(port) as pieces:
                pieces.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pieces.sendall(whole[:cut])
                assert said(channel, request(token, numbered(cut + 10))) == [(200, TAKEN)]  # the piece was read by now
                assert said(pieces, whole[cut:])[0][0] == 200
        assert stored() == 2 + 5 + 1


def test_what_follows_the_beginning_of_another_request_is_its_rest(port: int, token: str, heard: list[bytes]) -> None:
    """However much it looks like a request whose head is known."""
    with dialled(port) as channel:
        known(channel, token)
        inner = request(token, numbered(1))
        content = body(numbered(2))
        for begun in (b"P", head(token, len(content) + len(inner)) + content, head(token, len(inner))[:40]):
            with dialled(port) as pieces:
                pieces.sendall(begun)
                assert said(channel, request(token, numbered(3)))[0][0] == 200
                ((status, _),) = said(pieces, inner)
                assert status == 400
    assert stored() == 3
    assert all(b"request-000003" in content for content in heard)


def test_several_requests_at_once_are_answered_in_order(port: int, token: str, heard: list[bytes]) -> None:
    with dialled(port) as channel:
        known(channel, token)
        both = [(200, TAKEN), (200, REPEATED)]
        assert said(channel, request(token, numbered(1)), request(token, numbered(1))) == both
        assert said(channel, request(token, numbered(2))) == [(200, TAKEN)]
    assert len(heard) == 1


def test_whoever_lost_a_token_is_refused_though_the_head_is_known(port: int, token: str, heard: list[bytes]) -> None:
    with dialled(port) as channel:
        known(channel, token)
        api_token_revoke(token=ApiToken.objects.get(name="gateway"), actor="tests", now=timezone.now())
        time.sleep(RECENT_SECONDS + GRACE_SECONDS)
        assert said(channel, request(token, numbered(1)))[0][0] == 401
    assert len(heard) == 1
    assert stored() == 2


def test_a_full_house_refuses_what_has_a_known_head(port: int, token: str, heard: list[bytes], settings: Any) -> None:
    with dialled(port) as channel:
        known(channel, token)
        settings.INGEST_MAX_INFLIGHT_BYTES = 1
        gate.take(1)
        try:
            assert said(channel, request(token, numbered(1)))[0][0] == 503
        finally:
            gate.give_back(1)
        assert said(channel, request(token, numbered(1))) == [(200, TAKEN)]
    assert len(heard) == 2


@pytest.mark.parametrize("more", [
    "Expect: 100-continue", "Connection: close", "Content-Type: text/plain", "Content-Encoding: identity",
    f"X-Long: {'x' * KNOWN_HEAD_BYTES}",
])  # fmt: skip
def test_unusual_heads_are_read_each_time(more: str, port: int, token: str, heard: list[bytes]) -> None:
    content = body(numbered(1))
    unusual = head(token, len(content), more) + content
    for _ in range(3):
        with dialled(port) as channel:
            channel.sendall(unusual)
            if "100" in more:
                assert channel.makefile("rb").readline().startswith(b"HTTP/1.1 100")
                continue
            assert answers(channel, 1)[0][0] == (415 if "text/plain" in more else 200)
    assert not heard


def test_heads_of_who_may_not_report_are_not_remembered(port: int, token: str, heard: list[bytes]) -> None:
    reader = api_token_create(name="reader", scopes=["usage:read"], actor="tests")[1]
    with dialled(port) as channel:
        for presented, status in ((reader, 403), ("nobody", 401)):
            for _ in range(3):
                assert said(channel, request(presented, numbered(1)))[0][0] == status
    assert not heard


def test_a_body_in_chunks_is_no_length(port: int, token: str, heard: list[bytes]) -> None:
    content = body(numbered(1))
    chunked = head(token, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with dialled(port) as channel:
        known(channel, token)
        for _ in range(3):
            assert said(channel, chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))[0][0] == 200
    assert not heard


def test_so_many_heads_are_remembered(port: int, token: str, heard: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_connection, "MOST_HEADS", 2)
    content = body(numbered(1))
    with dialled(port) as channel:
        known(channel, token)
        for number in range(5):
            for _ in range(2):
                assert said(channel, head(token, len(content), f"X-Number: {number}") + content)[0][0] == 200
        until(lambda: len(heard) == 5)
    assert stored() == 3
