"""Web in this process, and reports of gateways over plain sockets."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from django.db import connection

from billing.api.admission import gate
from billing.tenancy.tokens import api_token_create
from tests.factories.servers import served_web
from tests.factories.token_endpoint import body
from tests.stored_rows import token_events

DOOR = "/api/v1/usage/tokens"


@pytest.fixture
def token(transactional_db: None) -> str:
    return api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]


@pytest.fixture
def port(transactional_db: None) -> Iterator[int]:
    """Of web in this process, served as `up` serves it."""
    with served_web() as port:
        yield port
    assert gate.held == 0, "whatever was counted in was given back"


def stored() -> int:
    return int(queried(f"SELECT count(*) FROM {token_events()}")[0][0])


def queried(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def post(
    port: int, content: bytes | Iterator[bytes], presented: str | None, path: str = DOOR, **headers: str
) -> httpx.Response:
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if presented is not None:
        named["Authorization"] = f"Bearer {presented}"
    return httpx.post(f"http://127.0.0.1:{port}{path}", content=content, headers=named, timeout=60)


@contextmanager
def dialled(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as channel:
        yield channel


def head(presented: str, length: int, *more: str) -> bytes:
    lines = [f"POST {DOOR} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {presented}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def request(presented: str, *records: dict[str, Any]) -> bytes:
    content = body(*records)
    return head(presented, len(content)) + content


def answers(channel: socket.socket, number: int) -> list[tuple[int, Any]]:
    """So many answers, each by its Content-Length."""
    reader, found = channel.makefile("rb"), []
    for _ in range(number):
        status = int(reader.readline().split()[1])
        length = 0
        while (line := reader.readline().strip()):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        found.append((status, reader.read(length)))
    return [(status, json.loads(content) if content[:1] == b"{" else content.decode()) for status, content in found]
