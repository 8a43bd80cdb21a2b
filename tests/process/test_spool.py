"""The spool and its delivery, against a real HTTP server and real files."""

import gzip
import json
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from metering.delivery import Delivery, Outcome, UnsplittableError, halves
from metering.spool import Spool, SpoolFullError, open_state

Answer = tuple[int, dict[str, str], bytes]


class Receiver(ThreadingHTTPServer):
    """Answers as told, and remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Callable[[str, bytes], Answer] = lambda path, body: (200, {}, b'{"accepted": 1, "rejected": []}')
        self.taken: list[tuple[str, bytes, dict[str, str]]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        status, headers, answer = self.server.answer(self.path, body)
        if status < 300:
            self.server.taken.append((self.path, body, dict(self.headers)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_state(tmp_path / "state" / "agent.sqlite")
    yield connection
    connection.close()


@pytest.fixture
def delivery(receiver: Receiver) -> Iterator[Callable[..., Delivery]]:
    made: list[Delivery] = []

    def make(spool: Spool, **changed: Any) -> Delivery:
        options = {"endpoint": receiver.address, "token": "secret", "random_source": random.Random(1), **changed}
        made.append(Delivery(spool, **options))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


def put(state: sqlite3.Connection, spool: Spool, *bodies: bytes, door: str = "usage/tokens") -> None:
    with state:
        for body in bodies:
            spool.put(door, body)


def test_bodies_are_delivered_in_order_and_then_forgotten(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]", b"[2]", b"[" + b"3," * 600 + b"3]")
    sender = delivery(spool)
    assert [sender.run_once().outcome for _ in range(4)] == [Outcome.DELIVERED] * 3 + [Outcome.EMPTY]
    assert [(path, len(body)) for path, body, _ in receiver.taken] == [
        ("/api/v1/usage/tokens", length) for length in (3, 3, 1203)
    ]
    assert receiver.taken[0][2]["Authorization"] == "Bearer secret"
    assert (len(spool), spool.bytes) == (0, 0)


def test_what_a_rolled_back_transaction_had_to_tell_is_not_told(state: sqlite3.Connection) -> None:
    spool = Spool(state)
    spool.put("usage/tokens", b"[1]")
    state.rollback()
    assert (spool.oldest(), spool.bytes) == (None, 0)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_answer_that_may_pass_keeps_the_body_and_waits_as_long_as_the_platform_asks(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery], status: int
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]")
    receiver.answer = lambda path, body: (status, {"Retry-After": "17"}, b"busy")
    sender = delivery(spool)
    attempt = sender.run_once()
    assert (attempt.outcome, attempt.wait_s) == (Outcome.TEMPORARY, 17.0)
    assert sender.last_error.startswith(f"usage/tokens: {status} ")
    assert len(spool) == 1


def test_a_retry_after_date_is_understood(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]")
    receiver.answer = lambda path, body: (503, {"Retry-After": "Sat, 21 Nov 2026 12:00:40 GMT"}, b"")
    sender = delivery(spool, now=lambda: datetime(2026, 11, 21, 12, tzinfo=UTC))
    assert sender.run_once().wait_s == 40.0


def test_waits_grow_to_a_minute_and_start_again_after_a_success(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]", b"[2]")
    receiver.answer = lambda path, body: (503, {}, b"")
    sender = delivery(spool)
    waits = [sender.run_once().wait_s for _ in range(9)]
    for attempt, wait in enumerate(waits, start=1):
        longest = min(60.0, 0.5 * 2**attempt)
        assert longest / 2 <= wait <= longest
    receiver.answer = lambda path, body: (200, {}, b"{}")
    assert sender.run_once().outcome is Outcome.DELIVERED
    receiver.answer = lambda path, body: (503, {}, b"")
    assert sender.run_once().wait_s <= 1.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 415, 422])
def test_a_refused_body_holds_the_queue_and_nothing_behind_it_is_told(
    state: sqlite3.Connection,
    receiver: Receiver,
    delivery: Callable[..., Delivery],
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]", b"[2]")
    receiver.answer = lambda path, body: (status, {}, b"no") if body == b"[1]" else (200, {}, b"{}")
    sender = delivery(spool)
    assert [sender.run_once().outcome for _ in range(2)] == [Outcome.REFUSED] * 2
    assert receiver.taken == []
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    first = spool.oldest()
    assert first is not None
    spool.set_aside(first.id, "a person looked at it")
    assert sender.run_once().outcome is Outcome.DELIVERED
    assert state.execute("SELECT body, reason FROM spool_set_aside").fetchall() == [(b"[1]", "a person looked at it")]


def test_a_platform_that_is_not_there_keeps_the_body(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as closed:
        port = closed.server_port
    attempt = delivery(spool, endpoint=f"http://127.0.0.1:{port}").run_once()
    assert (attempt.outcome, len(spool)) == (Outcome.TEMPORARY, 1)
    assert attempt.detail.startswith("ConnectError")


def test_a_body_that_is_too_large_goes_in_parts_and_the_watermark_goes_last(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    body = json.dumps({"agent": {"name": "a"}, "watermark": "2026-11-21T00:00:00Z", "allocations": [1, 2, 3, 4, 5]}).encode()
    put(state, spool, body, door="usage/gpu-allocations")
    receiver.answer = lambda path, sent: (413, {}, b"") if len(json.loads(sent)["allocations"]) > 2 else (200, {}, b"{}")
    assert delivery(spool, endpoint=receiver.address + "/api/v1/").run_once().outcome is Outcome.DELIVERED
    told = [json.loads(sent) for _, sent, _ in receiver.taken]
    assert [part["allocations"] for part in told] == [[1, 2], [3], [4, 5]]
    assert [part.get("watermark") for part in told] == [None, None, "2026-11-21T00:00:00Z"]
    assert all(part["agent"] == {"name": "a"} for part in told)
    assert len(spool) == 0


def test_a_single_record_that_is_too_large_is_refused(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]")
    receiver.answer = lambda path, body: (413, {}, b"")
    assert delivery(spool).run_once().outcome is Outcome.REFUSED
    assert len(spool) == 1


def test_quarantined_records_are_counted_and_said_aloud(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]")
    receiver.answer = lambda path, body: (200, {}, b'{"accepted": 0, "rejected": [{"index": 0, "error": "no model"}]}')
    sender = delivery(spool)
    assert sender.run_once().outcome is Outcome.DELIVERED
    assert sender.rejected_records == 1
    assert "no model" in caplog.text


def test_a_full_spool_takes_nothing_and_loses_nothing(state: sqlite3.Connection) -> None:
    spool = Spool(state, max_bytes=10)
    put(state, spool, b"12345678")
    with pytest.raises(SpoolFullError, match="8 of 10 bytes and cannot take 3 more"), state:
        spool.put("usage/tokens", b"abc")
    assert (len(spool), spool.bytes) == (1, 8)
    put(state, spool, b"ab")
    assert spool.bytes == 10


def test_a_renewed_token_is_used_without_a_restart(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]", b"[2]")
    tokens = iter(["old", "new"])
    sender = delivery(spool, token=lambda: next(tokens))
    sender.run_once()
    sender.run_once()
    assert [headers["Authorization"] for _, _, headers in receiver.taken] == ["Bearer old", "Bearer new"]


def test_flush_stops_when_everything_is_told_and_when_time_is_up(
    state: sqlite3.Connection, receiver: Receiver, delivery: Callable[..., Delivery]
) -> None:
    spool = Spool(state)
    put(state, spool, b"[1]", b"[2]")
    sender = delivery(spool)
    assert sender.flush(seconds=10)
    receiver.answer = lambda path, body: (503, {}, b"")
    put(state, spool, b"[3]")
    assert not sender.flush(seconds=0.1)
    assert len(spool) == 1


WRITER = """
import sys, os, signal
from pathlib import Path
from metering.spool import Spool, open_state
state = open_state(Path(sys.argv[1])); spool = Spool(state); spool
for number in range(10_000):
    with state:
        spool.put("usage/tokens", str(number).encode())
    print(number, flush=True)
"""


def test_every_body_that_was_committed_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) >= 40:
            writer.kill()
            break
    told = 40 + len(writer.stdout.read().split())
    writer.wait()
    writer.stdout.close()
    state = open_state(path)
    kept = [int(body) for (body,) in state.execute("SELECT body FROM spool ORDER BY id")]
    spool = Spool(state)
    assert kept[: told + 1] == list(range(told + 1))
    assert len(kept) <= told + 2
    assert spool.bytes == sum(len(str(number)) for number in kept)
    state.close()


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        (b"[1,2,3]", b"[1]", b"[2,3]"),
        (b'{"a":1}\n{"a":2}\n', b'{"a":1}', b'{"a":2}'),
        (b'{"nodes":[1,2],"agent":{"x":1}}', b'{"nodes":[1],"agent":{"x":1}}', b'{"nodes":[2],"agent":{"x":1}}'),
    ],
)
def test_halves_hold_the_same_records_in_the_same_order(body: bytes, first: bytes, second: bytes) -> None:
    assert halves(body) == (first, second)


@pytest.mark.parametrize("body", [b"[1]", b'{"specversion":"1.0","data":{}}', b'{"allocations":[1]}'])
def test_one_record_cannot_be_halved(body: bytes) -> None:
    with pytest.raises(UnsplittableError):
        halves(body)
