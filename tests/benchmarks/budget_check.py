"""`budgets/check` at a paced 400 requests/s, idle and while two senders fill the ledger through the same processes, beside
an empty application of the same server.

Every answer is right or the run fails: the spent of an answer is a counter that the ledger had, nothing passes the limit by
more than the stated reservation.
"""

import multiprocessing
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

RATE = 400
SECONDS, ROUNDS = 5.0, 5
"""Of each round, in which web and the empty application have their turns."""
CLIENTS = 4
SENDING_SECONDS = ROUNDS * (2 * SECONDS + 2)
EMPTY = "tests.benchmarks.empty_application:application"
Times = list[float]


def measure(home: Path) -> list[tuple[str, ...]]:
    """Rows of the table: idle and under load, p50 and p99 in milliseconds, with the empty application beside each."""
    from billing.local.process_list import children, free_port
    from billing.tenancy.tokens import api_token_create

    _set_up(home)
    _, token = api_token_create(name="bench gateway", scopes=["usage:write", "budgets:read"], actor="bench")
    port = free_port()
    address = f"http://127.0.0.1:{port}/api/v1/budgets/check"
    parts = {child.name: child for child in children(port)}
    with _running(parts["web"]), _running(parts["counter"]), _empty(parts["web"].env) as empty:
        _wait(lambda: _probe(address, token) == 200)
        urls = [address, empty]
        rows = [_row("idle", _in_turns(urls, token))]
        senders = _senders(f"http://127.0.0.1:{port}", token)
        time.sleep(1)
        loaded = _in_turns(urls, token)
        busy = all(sender.is_alive() for sender in senders)
        for sender in senders:
            sender.join()
        assert busy, "the senders must outlast the measurement"
        rows += [_row("under ingest by two senders", loaded), _overshoot(address, token)]
    return rows


def _set_up(home: Path) -> None:
    import yaml

    from billing.setup.apply import set_up_apply

    since = "2024-01-01T00:00:00+08:00"
    tokens = [{"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "output": "8.0000"}]
    teams = [{"code": f"bench-{number}"} for number in range(12)]
    consumers = [{"source": "bench", "consumer": f"key-{number}", "team": f"bench-{number}"} for number in range(12)]
    budgets = [{"team": team["code"], "amount": "1000000.00"} for team in teams]
    sections = {
        "billing": {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "BENCH"}, "teams": teams, "consumers": consumers,
        "price_versions": [{"name": "bench-check", "valid_from": since, "gpu": [], "tokens": tokens}],
        "budgets": [*budgets, {"team": "bench-0", "model": "llama-3-8b", "amount": "1.00", "name": "tight"}],
    }  # fmt: skip
    path = home / "bench-budgets.yaml"
    path.write_text(yaml.safe_dump(sections))
    set_up_apply(path=path, actor="bench")


@contextmanager
def _running(child: Any) -> Iterator[None]:
    process = subprocess.Popen(list(child.argv), env=dict(child.env or {}), stdout=subprocess.DEVNULL)
    try:
        if child.ready is not None:
            _wait(child.ready)
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _empty(environment: Any) -> Iterator[str]:
    from billing.local.process_list import free_port
    from tests.benchmarks.servers import serving

    port = free_port()
    process = subprocess.Popen(serving(EMPTY, port), env=dict(environment or {}), stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/"
        _wait(lambda: _probe(url, "nobody") == 200)
        yield url
    finally:
        process.terminate()
        process.wait()


def _probe(url: str, token: str) -> int:
    try:
        headers = {"Authorization": f"Bearer {token}"}
        params = {"source": "bench", "consumer": "key-1", "model": "llama-3-8b"}
        return httpx.get(url, params=params, headers=headers, timeout=2).status_code
    except httpx.TransportError:
        return 0


def _wait(ready: Any) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline, "a part never served"
        time.sleep(0.1)


def _in_turns(urls: Sequence[str], token: str) -> list[list[Times]]:
    """Milliseconds of each request to each, round by round."""
    return [[_paced(url, token) for url in urls] for _ in range(ROUNDS)]


def _paced(url: str, token: str) -> Times:
    """Milliseconds of each request by clients that together send RATE a second, each on its own beat."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    clients = [context.Process(target=_client, args=(url, token, number, queue)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    times: Times = [value for _ in clients for value in queue.get(timeout=SECONDS * 6)]
    for client in clients:
        client.join()
    assert len(times) == int(RATE * SECONDS), "every request was answered"
    return times


def _client(url: str, token: str, number: int, queue: Any) -> None:
    """A raw keep-alive connection: what a client library costs is not the server's time."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    request = (
        f"GET {parts.path}?source=bench&consumer=key-{number + 1}&model=llama-3-8b HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()
    with socket.create_connection((str(parts.hostname), int(parts.port or 80))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        beat, times = CLIENTS / RATE, []
        started = time.perf_counter() + number * beat / CLIENTS
        for turn in range(int(RATE * SECONDS) // CLIENTS):
            time.sleep(max(0.0, started + turn * beat - time.perf_counter()))
            asked = time.perf_counter()
            connection.sendall(request)
            answer = _read(connection)
            times.append((time.perf_counter() - asked) * 1000)
            assert answer.startswith(b"HTTP/1.1 200"), answer
    queue.put(times)


def _read(connection: Any) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return head


def _senders(url: str, token: str) -> Sequence[Any]:
    context = multiprocessing.get_context("fork")
    senders = [context.Process(target=_send, args=(url, token, number)) for number in range(2)]
    for sender in senders:
        sender.start()
    return senders


def _send(url: str, token: str, number: int) -> None:
    """Batches of 1,000 of this hour, as fast as they are taken."""
    import msgspec

    deadline = time.monotonic() + SENDING_SECONDS
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
        batch = 0
        while time.monotonic() < deadline:
            now = datetime.now(UTC).isoformat()
            records = [
                {"id": f"{number}-{batch}-{index}", "source": "bench", "time": now, "consumer": f"key-{index % 11 + 1}",
                 "model": "llama-3-8b", "input_tokens": 100, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
                 "output_tokens": 10, "reasoning_output_tokens": 0} for index in range(1000)
            ]  # fmt: skip
            assert client.post("/api/v1/usage/tokens", content=msgspec.json.encode(records)).status_code == 200
            batch += 1


def _row(what: str, rounds: Sequence[Sequence[Times]]) -> tuple[str, ...]:
    """The columns of the rounds are web and the empty application."""
    (mine, half), raw = (
        tuple(statistics.median(_quantile(times, share) for times in column) for share in (0.99, 0.5))
        for column in zip(*rounds, strict=True)
    )
    return (
        f"budgets/check at {RATE}/s, {what}: p99 (p50), medians of {len(rounds)} rounds",
        f"{mine:.2f} ms ({half:.2f} ms)", f"empty application {raw[0]:.2f} ms ({raw[1]:.2f} ms)", f"{mine / raw[0]:.1f}", "",
    )  # fmt: skip


def _quantile(times: Times, share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


def _overshoot(address: str, token: str) -> tuple[str, ...]:
    """A burst on a budget of 1.00: what passes is at most one reservation more."""
    reservation = Decimal("0.0300")
    params = {"source": "bench", "consumer": "key-0", "model": "llama-3-8b", "reserve": str(reservation), "seconds": 600}
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=10) as client:
        answers = [
            client.get(address, params={**params, "id": f"burst-{number}"}).json()
            for number in range(200)
        ]
    last = answers[-1]
    used = Decimal(last["spent"]) + Decimal(last["held"])
    over = max(Decimal(0), used - Decimal(last["budget"])) if last["name"] == "tight" else Decimal(0)
    passed = sum(answer["allowed"] for answer in answers)
    assert passed < len(answers), "the burst must meet the limit"
    limit = f"stated reservation {reservation}"
    return ("budget passed by a burst of 200", f"{over}", limit, f"{passed} allowed", "within it")

