"""Clients that ask without an end and read nothing hold no thread that others need, and are cut."""

import asyncio
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
from django.contrib.staticfiles import finders
from django.db import connections

from billing.api import limited_connection
from billing.api.gateway_requests import ClientGone
from billing.api.handed_over import ALL, EACH, Handover, Room
from billing.api.shared_threads import SharedThreads
from billing.api.whole_requests import PIECE, WholeRequests
from tests.factories.servers import heard_until_closed, served, served_web, until

HELD = 60
PIPELINED = 200
FILE = "/static/portal/portal.css"


@contextmanager
def unread(port: int, path: str, number: int = HELD) -> Iterator[list[socket.socket]]:
    """So many connections, each of which has asked for `path` again and again and reads nothing."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as opened:
        channels = []
        for _ in range(number):
            channel = opened.enter_context(socket.socket())
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            channel.settimeout(30)
            channel.connect(("127.0.0.1", port))
            channel.sendall(request * PIPELINED)
            channels.append(channel)
        yield channels


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", [FILE, "/login/"])
def test_others_are_answered_while_sixty_read_nothing(path: str) -> None:
    assert finders.find(FILE.removeprefix("/static/"))
    with served_web() as port, unread(port, path):
        for asked in ("/readyz", "/healthz", "/login/", FILE, "/metrics"):
            assert httpx.get(f"http://127.0.0.1:{port}{asked}", timeout=300).status_code == 200, asked
        form = {"username": "nobody", "password": "wrong"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            client.get("/login/")
            form["csrfmiddlewaretoken"] = client.cookies["csrftoken"]
            assert client.post("/login/", data=form).status_code == 200


class Large:
    """WSGI: an answer of many pieces at /large, of which it notes how many were made; else a small one."""

    def __init__(self) -> None:
        self.made, self.closed, self.fails_at = 0, 0, 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("X-Made", "by us")])
        return self if environ["PATH_INFO"] == "/large" else [b"small"]

    def __iter__(self) -> Iterator[bytes]:
        for number in range(1, 401):
            if number == self.fails_at:
                raise ZeroDivisionError
            self.made += 1
            yield bytes(PIECE)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    with served(WholeRequests(Large(), threads=4)) as port:
        yield port


def test_answers_without_an_end_leave_half_of_the_threads(port: int) -> None:
    with unread(port, "/large"):
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=300).text == "small"


def test_an_answer_that_is_larger_than_its_room_comes_whole(port: int) -> None:
    answer = httpx.get(f"http://127.0.0.1:{port}/large", timeout=300)
    assert (answer.status_code, len(answer.content)) == (200, 400 * PIECE)
    assert 400 * PIECE > ALL > EACH


def test_a_client_that_reads_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_connection, "UNREAD_SECONDS", 0.2)
    application = Large()
    with served(WholeRequests(application, threads=2)) as port, unread(port, "/large", number=4):
        until(lambda: application.closed == 4)
        assert application.made < 4 * 400


def test_an_answer_that_fails_on_the_way_begins_no_second_one() -> None:
    application = Large()
    application.fails_at = 3
    with served(WholeRequests(application, threads=2)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as channel:
            channel.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heard = b""
            with suppress(ConnectionResetError):  # as good as an end
                heard = heard_until_closed(channel)
        assert heard.count(b"HTTP/1.1") <= 1
        assert b"500" not in heard[:20]
        assert b"\r\n0\r\n\r\n" not in heard, "nothing says that this is all of it"
        application.fails_at = 1
        assert httpx.get(f"http://127.0.0.1:{port}/large").status_code == 500, "before its first piece it may still fail"


def test_each_network_has_a_turn_and_none_has_all_threads() -> None:
    asyncio.run(_turns())


async def _turns() -> None:
    threads, order, may_end = SharedThreads(4, "tests"), list[str](), threading.Event()

    def job(name: str) -> None:
        order.append(name)
        may_end.wait()

    for number in range(6):
        threads.submit("10.0.0.1", job, f"a{number}")
    threads.submit("10.0.0.2", job, "b0")
    threads.submit("10.0.0.3", job, "c0")
    await asyncio.to_thread(until, lambda: len(order) == 4)
    assert sorted(order) == ["a0", "a1", "a2", "b0"], "three quarters, and the next network"
    may_end.set()
    assert await threads.ask("10.0.0.3", sum, [1, 2]) == 3
    with pytest.raises(ZeroDivisionError):
        await threads.ask("10.0.0.2", lambda: 1 // 0)
    assert "c0" in order[4:6], "before what the first network has waiting"
    await threads.stop()


def test_of_more_that_wait_than_may_the_one_that_waits_longest_is_left() -> None:
    asyncio.run(_waits())


async def _waits() -> None:
    room, cut = Room(most=1), list[str]()
    first, second = (Handover(room, 30, lambda: None) for _ in range(2))
    for answer in (first, second):
        for _ in range(EACH // PIECE):
            room.take(answer, PIECE, 30)
    named = {"first": first, "second": second}
    waiting = [threading.Thread(target=_taken, args=[room, answer, name, cut]) for name, answer in named.items()]
    waiting[0].start()
    until(lambda: first in room._waiting)
    waiting[1].start()
    waiting[0].join(30)
    assert cut == ["first"]
    room.give_back(second, PIECE)
    waiting[1].join(30)
    assert (cut, second.held, first.is_left) == (["first"], EACH, True)


def _taken(room: Room, answer: Handover, name: str, cut: list[str]) -> None:
    try:
        room.take(answer, PIECE, 30)
    except ClientGone:
        cut.append(name)
