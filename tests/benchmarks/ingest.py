"""Token records over HTTP by two senders, against two writers that COPY the same rows into the same keyed table."""

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from metering.records import TokenUsage
from tests.benchmarks import load

SENDERS, CONNECTIONS = 2, 4
REPLAYED = 0.02
ENTRY_COLUMNS = (
    "key, time, dimension, input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens,"
    " reasoning_output_tokens, epoch, id, rest"
)


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
        return _rows(port, token, rounds, count)
    finally:
        process.terminate()
        process.wait()


def _rows(port: int, token: str, rounds: int, count: int) -> list[tuple[str, ...]]:
    rows = []
    for size in (1000, 100):
        rates: dict[str, list[float]] = {"http": [], "copy": [], "replay": []}
        for number in range(rounds):
            records = list(load.records(count, seed=size * 100 + number))
            bodies = load.batches(records, size, replayed=REPLAYED)
            parts = load.shares([load.request("usage/tokens", token, body) for body in bodies], SENDERS)
            before = _stored()
            rates["http"].append(count / load.at_once(load.send, [(port, part, CONNECTIONS) for part in parts]))
            assert _stored() - before == count, "every record once"
            ready = [[_ready(batch) for batch in part] for part in load.shares(_cut(records, size), SENDERS)]
            rates["copy"].append(count / load.at_once(_copy, [(part,) for part in ready]))
            _empty_raw_tables()
            rates["replay"].append(count / load.at_once(load.send, [(port, part, CONNECTIONS) for part in parts]))
            assert _stored() - before == count, "a replay adds nothing"
        http, copy, replay = (statistics.median(rates[name]) for name in ("http", "copy", "replay"))
        rows.append((f"ingest over HTTP, batches of {size:,}, 2 % replays", _rate(http), _rate(copy), f"{http / copy:.2f}"))
        again = f"the same batches again, all replays, of {size:,}"
        rows.append((again, _rate(replay), _rate(http), f"{replay / http:.2f}"))
    return rows


def _rate(value: float) -> str:
    return f"{value:,.0f} records/s"


def _cut(records: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [records[index : index + size] for index in range(0, len(records), size)]


def _ready(batch: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Rows as the ledger keeps them, sorted, made before the clock starts."""
    made = [msgspec.json.decode(record, type=TokenUsage) for record in batch]
    return sorted(
        (UUID(bytes=r.key), r.time, 1, r.input_tokens, r.cache_read_input_tokens, r.cache_creation_input_tokens,
         r.output_tokens, r.reasoning_output_tokens, 0, "", "")
        for r in made
    )  # fmt: skip


def _copy(batches: Sequence[list[tuple[Any, ...]]]) -> None:
    """The raw limit of one writer: prepared rows, a COPY and a commit each; no HTTP, no decoding, no roll-up."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection, connection.cursor() as cursor:
        for rows in batches:
            with cursor.copy(f"COPY raw_entry ({ENTRY_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["uuid", "timestamptz", *["int4"] * 6, "int2", "text", "text"])
                for row in rows:
                    copy.write_row(row)
            connection.commit()


def _make_raw_tables() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("CREATE TABLE raw_entry (LIKE token_entry INCLUDING ALL)")


def _empty_raw_tables() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM raw_entry").fetchone()
        assert row is not None
        assert row[0] > 0
        connection.execute("TRUNCATE raw_entry")


def _stored() -> int:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM token_entry").fetchone()
    return int(row[0]) if row else 0
