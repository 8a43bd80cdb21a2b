"""Clients that offer another protocol (`Upgrade: h2c`, as Java's does over plain HTTP): the offer is passed over."""

import json
import socket
from typing import Any

import pytest

from billing.tenancy.tokens import api_token_create
from tests.factories import token_record
from tests.factories.gateway_connection import answers, dialled, port, stored, token
from tests.factories.token_endpoint import body
from tests.gateway_records import payload

__all__ = ["port", "token"]

TOKENS, EVENTS, LITELLM = "/api/v1/usage/tokens", "/api/v1/events", "/api/v1/usage/litellm"
JAVA = (
    "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA", "Upgrade: h2c",
)  # fmt: skip
"""As java.net.http.HttpClient and `curl --http2` send them."""
OFFERS = {
    "h2c": JAVA,
    "websocket": ("Upgrade: websocket", "Connection: keep-alive, upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    "several": ("upgrade: TLS/1.3, h2c", "CONNECTION: Upgrade", "Upgrade: IRC/6.9"),
}


def head(method: str, path: str, token: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *more, "", ""]
    return "\r\n".join(lines).encode()


def reported(token: str, content: bytes, *more: str, path: str = TOKENS, offer: tuple[str, ...] = JAVA) -> bytes:
    named = ("Content-Type: application/json", f"Content-Length: {len(content)}")
    return head("POST", path, token, *offer, *named, *more) + content


def answered(port: int, *pieces: bytes, number: int = 1) -> list[tuple[int, Any]]:
    """What one connection is answered to these pieces, each of them a packet."""
    with dialled(port) as channel:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            channel.sendall(piece)
        return answers(channel, number)


@pytest.mark.parametrize("offer", sorted(OFFERS))
@pytest.mark.parametrize("pieces", ["one", "head and body", "bytes"])
def test_a_report_is_taken_however_it_comes(offer: str, pieces: str, port: int, token: str) -> None:
    whole = reported(token, body(token_record()), offer=OFFERS[offer])
    begun = whole.index(b"\r\n\r\n") + 4
    sent = {"one": [whole], "head and body": [whole[:begun], whole[begun:]], "bytes": [bytes([byte]) for byte in whole]}
    [(status, said)] = answered(port, *sent[pieces])
    assert (status, said["accepted"], stored()) == (200, 1, 1)


def test_a_body_in_chunks_is_taken(port: int, token: str) -> None:
    content = body(*[token_record(number) for number in range(1000)])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:7], content[7:90_000], content[90_000:]))
    begun = head("POST", TOKENS, token, *JAVA, "Transfer-Encoding: chunked")
    [(status, said)] = answered(port, begun, chunks + b"0\r\nUpgrade: h2c\r\n\r\n")
    assert (status, said["accepted"], stored()) == (200, 1000, 1000)


def test_a_body_is_no_request(port: int, token: str) -> None:
    """Were it read as one, whoever reports through a proxy could send requests that the proxy never saw."""
    hidden = reported(token, body(token_record(9)), offer=())
    refused, taken = answered(port, reported(token, hidden), reported(token, body(token_record(1))), number=2)
    assert [said["accepted"] for _, said in (refused, taken)] == [0, 1]
    assert stored() == 1


def test_requests_sent_ahead_are_answered_in_their_order(port: int, token: str) -> None:
    records = {first: [token_record(n) for n in range(first, first + 1 + first % 3)] for first in range(0, 80, 4)}
    many = [reported(token, body(*records[first])) for first in records]
    found = answered(port, b"".join(many) + reported(token, body(token_record(0)), offer=()), number=21)
    assert [said["accepted"] for _, said in found[:20]] == [len(records[first]) for first in records]
    assert (found[20][1]["duplicates"], stored()) == (1, 39)


def test_a_client_that_waits_for_leave_is_given_it(port: int, token: str) -> None:
    content = body(token_record())
    whole = reported(token, content, "Expect: 100-continue")
    with dialled(port) as channel:
        channel.sendall(whole[: -len(content)])
        assert channel.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        channel.sendall(content)
        [(status, said)] = answers(channel, 1)
    assert (status, said["accepted"]) == (200, 1)


def routes() -> dict[str, tuple[str, str, bytes]]:
    event = {
        "specversion": "1.0", "type": "t", "source": "s", "id": "e1", "subject": "team", "time": "2026-10-01T00:00:00Z",
        "data": {"model": "m", "input_tokens": 10, "output_tokens": 2},
    }  # fmt: skip
    return {
        "usage/litellm": ("POST", LITELLM, json.dumps([payload()]).encode()),
        "usage/tokens, none": ("POST", TOKENS, b"[]"),
        "events": ("POST", EVENTS, json.dumps([event]).encode()),
        "budgets/check": ("GET", "/api/v1/budgets/check?source=s&consumer=c&model=m", b""),
        "budgets/authorize": ("GET", "/api/v1/budgets/authorize?source=s&consumer=c&model=m", b""),
        "periods": ("GET", "/api/v1/periods/2026-10", b""),
        "healthz": ("GET", "/healthz", b""),
        "a page": ("GET", "/", b""),
    }


@pytest.mark.parametrize("route", sorted(routes()))
def test_every_route_answers_as_without_the_offer(route: str, port: int, transactional_db: None) -> None:
    scopes = ["usage:write", "budgets:read", "invoices:read", "usage:read"]
    presented = api_token_create(name="all", scopes=scopes, actor="tests")[1]
    method, path, content = routes()[route]
    named = ("Content-Type: application/json", f"Content-Length: {len(content)}") if content else ()
    found = []
    for offer in ((), JAVA, ()):
        begun = head(method, path, presented, *offer, *named, "Connection: close" if not offer else "Accept: */*")
        with dialled(port) as channel:
            for piece in filter(None, (begun, content)):
                channel.sendall(piece)
            found.append(answers(channel, 1)[0])
    assert found[1][0] == found[0][0] != 500
    assert found[1] == found[2], "the same again, so a report is a duplicate in both"
