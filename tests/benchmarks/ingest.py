"""Token records over HTTP by two senders, against two writers that COPY the same rows into the same keyed tables."""

import multiprocessing
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import psycopg

from metering.intervals import Interval
from metering.records import TokenUsage, from_row

SENDERS = 2
REPLAYED = 0.02
EVENT_COLUMNS = (
    "time, dimension, epoch, input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens,"
    " reasoning_output_tokens, id"
)
Batches = list[bytes]


def measure(home: Path, rounds: int, count: int) -> list[tuple[str, ...]]:
    """Rows of the table: batches of 1,000 and of 100, and a full replay."""
    from billing.config.house import children, free_port
    from billing.tenancy.tokens import api_token_create

    port = free_port()
    web = children(port)[0]
    _, token = api_token_create(name="bench", scopes=["usage:write"], actor="bench")
    process = subprocess.Popen(list(web.argv), env=dict(web.env or {}), stdout=subprocess.DEVNULL)
    _make_raw_tables()
    try:
        while web.ready is not None and not web.ready():
            time.sleep(0.1)
        return _rows(f"http://127.0.0.1:{port}", token, rounds, count)
    finally:
        process.terminate()
        process.wait()


def _rows(url: str, token: str, rounds: int, count: int) -> list[tuple[str, ...]]:
    rows = []
    for size in (1000, 100):
        rates: dict[str, list[float]] = {"http": [], "copy": [], "replay": []}
        for number in range(rounds):
            records = _records(count, seed=size * 100 + number)
            batches = _batches(records, size)
            before = _stored()
            rates["http"].append(count / _at_once(_send, [(url, token, part) for part in _halves(batches)]))
            assert _stored() - before == count, "every record once"
            rates["copy"].append(count / _at_once(_copy, [(_ready(part),) for part in _halves(records)]))
            _empty_raw_tables()
            rates["replay"].append(count / _at_once(_send, [(url, token, part) for part in _halves(batches)]))
            assert _stored() - before == count, "a replay adds nothing"
        http, copy, replay = (statistics.median(rates[name]) for name in ("http", "copy", "replay"))
        rows.append((f"ingest over HTTP, batches of {size:,}, 2 % replays", _rate(http), _rate(copy), f"{http / copy:.2f}"))
        again = f"the same batches again, all replays, of {size:,}"
        rows.append((again, _rate(replay), _rate(http), f"{replay / http:.2f}"))
    return rows


def _rate(value: float) -> str:
    return f"{value:,.0f} records/s"


def _records(count: int, seed: int) -> list[dict[str, Any]]:
    from billing.config.demo.month import token_records

    start, end = datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 10, 31, 16, tzinfo=UTC)
    return list(token_records(Interval(start, end), count, seed=seed))


def _batches(records: list[dict[str, Any]], size: int) -> Batches:
    dice = random.Random(1)
    cut = [records[index : index + size] for index in range(0, len(records), size)]
    return [
        msgspec.json.encode([*batch, *dice.sample(batch, int(len(batch) * REPLAYED))]) for batch in cut
    ]


def _halves(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[number::SENDERS] for number in range(SENDERS)]


def _at_once(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> float:
    """Seconds that the work takes in one process per argument, started together."""
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(len(arguments) + 1)
    running = [context.Process(target=_gated, args=(gate, work, item)) for item in arguments]
    for process in running:
        process.start()
    gate.wait()
    started = time.perf_counter()
    for process in running:
        process.join()
    assert all(process.exitcode == 0 for process in running)
    return time.perf_counter() - started


def _gated(gate: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    gate.wait()
    work(*arguments)


def _send(url: str, token: str, batches: Batches) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with httpx.Client(base_url=f"{url}/api/v1/", headers=headers, timeout=120) as client:
        for batch in batches:
            answer = client.post("usage/tokens", content=batch)
            assert answer.status_code == 200, answer.text


def _ready(records: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Rows as the ledger keeps them, made before the clock starts."""
    made = [from_row(TokenUsage, record) for record in records]
    keys = sorted((UUID(bytes=record.key), record.content) for record in made)
    return keys, [
        (r.time, 1, 0, r.input_tokens, r.cache_read_input_tokens, r.cache_creation_input_tokens, r.output_tokens,
         r.reasoning_output_tokens, r.id)
        for r in made
    ]  # fmt: skip


def _copy(ready: tuple[list[Any], list[Any]]) -> None:
    """The raw limit of one writer: prepared rows, one COPY a table; no HTTP, no decoding, no roll-up."""
    keys, events = ready
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY raw_key (key, content) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["uuid", "int8"])
            for row in keys:
                copy.write_row(row)
        with cursor.copy(f"COPY raw_event ({EVENT_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["timestamptz", "int4", "int4", *["int8"] * 5, "text"])
            for row in events:
                copy.write_row(row)


def _make_raw_tables() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("CREATE TABLE raw_key (LIKE token_key INCLUDING ALL)")
        connection.execute("CREATE TABLE raw_event (LIKE token_event INCLUDING ALL)")


def _empty_raw_tables() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM raw_key").fetchone()
        assert row is not None
        assert row[0] > 0
        connection.execute("TRUNCATE raw_key, raw_event")


def _stored() -> int:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM token_event").fetchone()
    return int(row[0]) if row else 0
