"""The spool and its delivery, against a real HTTP server and real files."""

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metering.delivery import Delivery, Outcome, UnsplittableError, halves
from metering.spool import Spool, SpoolFullError, open_state
from tests.http_servers import HttpServer, Request, acknowledgement, serving


class Platform(HttpServer):
    """Answers as configured, and remembers what it took."""

    def __init__(self) -> None:
        super().__init__()
        self.says: Callable[[bytes], tuple[int, bytes] | tuple[int, bytes, dict[str, str]]] = (
            lambda body: (200, acknowledgement(body))
        )
        self.taken: list[Request] = []

    def answer(self, request: Request) -> tuple[int, bytes] | tuple[int, bytes, dict[str, str]]:
        said = self.says(request.body)
        if said[0] < 300:
            self.taken.append(request)
        return said


class Desk:
    """A spool, a platform, and deliveries between them."""

    def __init__(self, state: sqlite3.Connection, platform: Platform, closing: ExitStack) -> None:
        self.state, self.platform, self._closing = state, platform, closing
        self.spool = Spool(state)

    def put(self, *bodies: bytes, door: str = "usage/tokens") -> None:
        with self.state:
            for body in bodies:
                self.spool.put(door, body)

    def delivery(self, **changed: Any) -> Delivery:
        options = {"endpoint": self.platform.address, "token": "secret", "random_source": random.Random(1), **changed}
        return self._closing.enter_context(Delivery(self.spool, **options))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_state(tmp_path / "state" / "agent.sqlite")) as connection:
        yield connection


@pytest.fixture
def desk(state: sqlite3.Connection) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(state, stack.enter_context(serving(Platform())), stack)


def test_bodies_are_delivered_in_order_and_then_forgotten(desk: Desk) -> None:
    desk.put(b"[1]", b"[2]", b"[" + b"3," * 600 + b"3]")
    sender = desk.delivery()
    assert [sender.run_once().outcome for _ in range(4)] == [Outcome.DELIVERED] * 3 + [Outcome.EMPTY]
    assert [(path, len(body)) for path, body, _ in desk.platform.taken] == [
        ("/api/v1/usage/tokens", length) for length in (3, 3, 1203)
    ]
    assert desk.platform.taken[0][2]["Authorization"] == "Bearer secret"
    assert (len(desk.spool), desk.spool.bytes) == (0, 0)


def test_what_a_rolled_back_transaction_had_to_report_is_not_reported(state: sqlite3.Connection) -> None:
    spool = Spool(state)
    spool.put("usage/tokens", b"[1]")
    state.rollback()
    assert (spool.oldest(), spool.bytes) == (None, 0)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_answer_that_may_pass_keeps_the_body_and_waits_as_long_as_the_platform_asks(desk: Desk, status: int) -> None:
    desk.put(b"[1]")
    desk.platform.says = lambda body: (status, b"busy", {"Retry-After": "17"})
    sender = desk.delivery()
    attempt = sender.run_once()
    assert (attempt.outcome, attempt.wait_s) == (Outcome.TEMPORARY, 17.0)
    assert sender.last_error.startswith(f"usage/tokens: {status} ")
    assert len(desk.spool) == 1


def test_a_retry_after_date_is_understood(desk: Desk) -> None:
    desk.put(b"[1]")
    desk.platform.says = lambda body: (503, b"", {"Retry-After": "Sat, 21 Nov 2026 12:00:40 GMT"})
    sender = desk.delivery(now=lambda: datetime(2026, 11, 21, 12, tzinfo=UTC))
    assert sender.run_once().wait_s == 40.0


def test_waits_grow_to_a_minute_and_start_again_after_a_success(desk: Desk) -> None:
    desk.put(b"[1]", b"[2]")
    desk.platform.says = lambda body: (503, b"")
    sender = desk.delivery()
    waits = [sender.run_once().wait_s for _ in range(9)]
    for attempt, wait in enumerate(waits, start=1):
        longest = min(60.0, 0.5 * 2**attempt)
        assert longest / 2 <= wait <= longest
    desk.platform.says = lambda body: (200, acknowledgement(body))
    assert sender.run_once().outcome is Outcome.DELIVERED
    desk.platform.says = lambda body: (503, b"")
    assert sender.run_once().wait_s <= 1.0


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html><title>Sign in</title></html>"), (200, b""), (200, b"OK"), (200, b'{"accepted": 2, "rej'),
        (200, b"[]"), (200, b"{}"), (200, b'{"error": "maintenance"}'),
        (202, b'{"queued": true}'), (204, b""),
        (200, b'{"accepted": 2, "rejected": []}'),
        (200, b'{"accepted": 2, "duplicates": 0, "conflicts": 0, "rejected": 0}'),
        (200, b'{"accepted": 0, "duplicates": 0, "conflicts": 0, "rejected": []}'),
        (200, b'{"accepted": 3, "duplicates": 0, "conflicts": 0, "rejected": []}'),
        (200, b'{"accepted": 3, "duplicates": -1, "conflicts": 0, "rejected": []}'),
        (200, b'{"accepted": 2, "duplicates": 0, "conflicts": 0, "rejected": [5]}'),
        (201, b'{"accepted": 2, "duplicates": 0, "conflicts": 0, "rejected": []}'),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_account_for_every_record_acknowledges_nothing(
    desk: Desk, answer: tuple[int, bytes]
) -> None:
    """A proxy in between shows its own page with 200, a queue says 202; the platform never had the body."""
    desk.put(b"[1, 2]")
    desk.platform.says = lambda body: answer
    sender = desk.delivery()
    assert sender.run_once().outcome is Outcome.TEMPORARY
    assert sender.last_error.startswith(f"usage/tokens: {answer[0]} ")
    assert len(desk.spool) == 1
    desk.platform.says = lambda body: (200, acknowledgement(body))
    assert sender.run_once().outcome is Outcome.DELIVERED
    assert len(desk.spool) == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 415, 422])
def test_a_refused_body_holds_the_queue_and_nothing_behind_it_is_reported(
    desk: Desk, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk.put(b"[1]", b"[2]")
    desk.platform.says = lambda body: (status, b"no") if body == b"[1]" else (200, acknowledgement(body))
    sender = desk.delivery()
    assert [sender.run_once().outcome for _ in range(2)] == [Outcome.REFUSED] * 2
    assert desk.platform.taken == []
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    first = desk.spool.oldest()
    assert first is not None
    desk.spool.acknowledge(first.id)  # as a person who takes it out by hand would
    assert sender.run_once().outcome is Outcome.DELIVERED


def test_a_platform_that_is_not_there_keeps_the_body(desk: Desk) -> None:
    desk.put(b"[1]")
    with Platform() as closed:
        address = closed.address
    attempt = desk.delivery(endpoint=address).run_once()
    assert (attempt.outcome, len(desk.spool)) == (Outcome.TEMPORARY, 1)
    assert attempt.detail.startswith("ConnectError")


def test_a_body_that_is_too_large_goes_in_parts_and_the_watermark_goes_last(desk: Desk) -> None:
    body = json.dumps({"agent": {"name": "a"}, "watermark": "2026-11-21T00:00:00Z", "allocations": [1, 2, 3, 4, 5]}).encode()
    desk.put(body, door="usage/gpu-allocations")
    large = lambda sent: len(json.loads(sent)["allocations"]) > 2  # noqa: E731
    desk.platform.says = lambda sent: (413, b"") if large(sent) else (200, acknowledgement(sent))
    assert desk.delivery(endpoint=desk.platform.address + "/api/v1/").run_once().outcome is Outcome.DELIVERED
    reported = [json.loads(sent) for _, sent, _ in desk.platform.taken]
    assert [part["allocations"] for part in reported] == [[1, 2], [3], [4, 5]]
    assert [part.get("watermark") for part in reported] == [None, None, "2026-11-21T00:00:00Z"]
    assert all(part["agent"] == {"name": "a"} for part in reported)
    assert len(desk.spool) == 0


def test_a_single_record_that_is_too_large_is_refused(desk: Desk) -> None:
    desk.put(b"[1]")
    desk.platform.says = lambda body: (413, b"")
    assert desk.delivery().run_once().outcome is Outcome.REFUSED
    assert len(desk.spool) == 1


def test_quarantined_records_are_counted_and_said_aloud(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.put(b"[1]")
    desk.platform.says = lambda body: (200, acknowledgement(body, rejected=[{"index": 0, "error": "no model"}]))
    sender = desk.delivery()
    assert sender.run_once().outcome is Outcome.DELIVERED
    assert sender.rejected_records == 1
    assert "no model" in caplog.text


@pytest.mark.parametrize("counts", [{"duplicates": 2}, {"conflicts": 1}, {"pending": 2}, {"duplicates": 1, "pending": 1}])
def test_whatever_became_of_each_record_is_an_acknowledgement(desk: Desk, counts: dict[str, int]) -> None:
    desk.put(b'{"agent": {}, "watermark": "2026-11-21T00:00:00Z", "allocations": [1, 2]}', door="usage/gpu-allocations")
    desk.put(b'{"agent": {}, "watermark": "2026-11-21T00:00:00Z", "allocations": []}', door="usage/gpu-allocations")
    desk.platform.says = lambda body: (200, acknowledgement(body, **(counts if b"[1" in body else {})))
    assert [desk.delivery().run_once().outcome for _ in range(2)] == [Outcome.DELIVERED] * 2


def test_only_a_watermark_is_acknowledged_with_204(desk: Desk) -> None:
    desk.put(b'{"agent": {}, "source": "s", "watermark": "2026-11-21T00:00:00Z"}', door="usage/watermarks")
    sender = desk.delivery()
    for answer in ((200, b"{}"), (202, b""), (200, b'{"accepted": 1, "duplicates": 0, "conflicts": 0, "rejected": []}')):
        desk.platform.says = lambda body, answer=answer: answer  # type: ignore[misc]
        assert sender.run_once().outcome is Outcome.TEMPORARY
    desk.platform.says = lambda body: (204, b"")
    assert sender.run_once().outcome is Outcome.DELIVERED


def test_a_full_spool_takes_nothing_and_loses_nothing(state: sqlite3.Connection) -> None:
    spool = Spool(state, max_bytes=10)
    with state:
        spool.put("usage/tokens", b"12345678")
    with pytest.raises(SpoolFullError, match="8 of 10 bytes and cannot take 3 more"), state:
        spool.put("usage/tokens", b"abc")
    assert (len(spool), spool.bytes) == (1, 8)
    with state:
        spool.put("usage/tokens", b"ab")
    assert spool.bytes == 10


def test_a_renewed_token_is_used_without_a_restart(desk: Desk) -> None:
    desk.put(b"[1]", b"[2]")
    tokens = iter(["old", "new"])
    sender = desk.delivery(token=lambda: next(tokens))
    sender.run_once()
    sender.run_once()
    assert [headers["Authorization"] for _, _, headers in desk.platform.taken] == ["Bearer old", "Bearer new"]


def test_flush_stops_when_everything_is_reported_and_when_time_is_up(desk: Desk) -> None:
    desk.put(b"[1]", b"[2]")
    sender = desk.delivery()
    assert sender.flush(seconds=10)
    desk.platform.says = lambda body: (503, b"")
    desk.put(b"[3]")
    assert not sender.flush(seconds=0.1)
    assert len(desk.spool) == 1


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
    reported = 40 + len(writer.stdout.read().split())
    writer.wait()
    writer.stdout.close()
    state = open_state(path)
    kept = [int(body) for (body,) in state.execute("SELECT body FROM spool ORDER BY id")]
    spool = Spool(state)
    assert kept[: reported + 1] == list(range(reported + 1))
    assert len(kept) <= reported + 2
    assert spool.bytes == sum(len(str(number)) for number in kept)
    state.close()


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        (b"[1,2,3]", b"[1]", b"[2,3]"),
        (b'{"nodes":[1,2],"agent":{"x":1}}', b'{"nodes":[1],"agent":{"x":1}}', b'{"nodes":[2],"agent":{"x":1}}'),
    ],
)
def test_halves_hold_the_same_records_in_the_same_order(body: bytes, first: bytes, second: bytes) -> None:
    assert halves(body) == (first, second)


@pytest.mark.parametrize("body", [b"[1]", b'{"specversion":"1.0","data":{}}', b'{"allocations":[1]}'])
def test_one_record_cannot_be_halved(body: bytes) -> None:
    with pytest.raises(UnsplittableError):
        halves(body)
