"""Token records over HTTP. Every number stands beside its raw limit, measured in turns with it in the same run."""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import psycopg

from billing.usage.services import rollups_fold
from metering.records import TokenUsage
from tests.benchmarks import load
from tests.benchmarks.plain_doors import CREATE
from tests.benchmarks.processor import ProcessorTime
from tests.benchmarks.servers import Server, installation_server, plain_server

SENDERS, CONNECTIONS = 2, 4
"""Connections: of each sender, for batches of 1,000."""
MANY_CONNECTIONS = 32
"""Of all senders together, for what is smaller."""
REPLAYED = 0.02
LITELLM_PER_SECOND = 972
"""Spend logging of LiteLLM without a database on two cores, measured elsewhere, where it is not run here."""
LITELLM_EVENTS = 2_000
ENTRY_COLUMNS = (
    "key, time, dimension, input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens,"
    " reasoning_output_tokens, epoch, id, rest"
)
FRESHNESS_PAUSE_SECONDS = 0.02
FRESHNESS_ROUNDS = 16
REPLAY_SECONDS = 60
Row = tuple[str, ...]


def measure(rounds: int, count: int, litellm: Path | None = None) -> list[Row]:
    """Rows of the table: batches of 1,000 and 100, single events, replays, freshness.

    `litellm`: a Python that has it, to be measured in the same run.
    """
    _sql("CREATE TABLE raw_entry (LIKE token_entry INCLUDING ALL)", CREATE)
    with installation_server() as own:
        thousands = _thousands(own, rounds, count)
    with plain_server() as plain:
        with installation_server(workers=2) as own:  # as many as what they are compared with
            hundreds = _hundreds(own, plain, rounds, count)
        with installation_server() as own:  # LiteLLM is one process
            return [*thousands, *hundreds, *_singles(own, plain, rounds, count, litellm)]


def _thousands(own: Server, rounds: int, count: int) -> list[Row]:
    """Batches of 1,000 against COPY; the same again as a full replay; then freshness under that load.

    Both tables grow alike: a row costs more where the index of its keys has outgrown the caches.
    """
    rates, again, watched = list[tuple[float, float]](), list[float](), ProcessorTime(own)
    for number in range(rounds + 1):  # the first is to warm up
        records = list(load.records(count, seed=1000 + number))
        parts = _requests(own, "usage/tokens", records, 1000)
        rollups_fold()  # as the scheduler does every ten seconds
        ready = [[_ready(batch) for batch in part] for part in load.shares(_cut(records, 1000), SENDERS)]
        before = _rows("token_entry")
        with watched.watched(count):
            http = count / load.at_once(load.send, [(own.port, part, CONNECTIONS) for part in parts])
        assert _rows("token_entry") - before == count, "every record once"
        copy = count / load.at_once(_copy, [(part,) for part in ready])
        assert _rows("raw_entry") == count * (number + 1)
        if number:
            rates.append((http, copy))
        before = _rows("token_entry")
        again.append(count / load.at_once(load.send, [(own.port, part, CONNECTIONS) for part in parts]))
        assert _rows("token_entry") == before, "a replay adds nothing"
    for_long = _replayed(own, parts, count)
    seen = _fresh(own, count)
    assert _difference() == 0, "the roll-up is the sum of the rows"
    replay, late = statistics.median(again[1:]), statistics.quantiles(seen, n=100)[98]
    http, copy = (statistics.median(column) for column in zip(*rates, strict=True))
    return [
        ("B1 ingest over HTTP, batches of 1,000, 2 % replays", _rate(http),
         f"two writers of COPY, a commit per 1,000: {_rate(copy)}",
         f"{statistics.median(mine / raw for mine, raw in rates):.2f}", ">= 0.50"),
        watched.row("B1"),
        ("B4 from sending an event to its sum, under the load of B1, p99", f"{late:.3f} s",
         f"{len(seen)} events looked for", "", "<= 2 s"),
        ("B12 the same again, 100 % replays, no new row", _rate(replay),
         f"B1: {_rate(http)}; for {REPLAY_SECONDS} s: {_rate(for_long)}", f"{replay / http:.2f}", ">= 0.5"),
    ]  # fmt: skip


def _replayed(own: Server, parts: Sequence[Sequence[bytes]], count: int) -> float:
    """Events a second while everything is sent again and again for REPLAY_SECONDS."""
    before, started, sent = _rows("token_entry"), time.monotonic(), 0
    while time.monotonic() - started < REPLAY_SECONDS:
        load.at_once(load.send, [(own.port, part, CONNECTIONS) for part in parts])
        sent += count
    assert _rows("token_entry") == before, "however often it is repeated"
    return sent / (time.monotonic() - started)


def _fresh(own: Server, count: int) -> list[float]:
    """Seconds from sending an event to its sum while batches of 1,000 come in. Who looks all the time takes of the
    processor, which is why the rates are measured without.
    """
    seen: list[float] = []
    for number in range(FRESHNESS_ROUNDS):
        parts = _requests(own, "usage/tokens", list(load.records(count, seed=9000 + number)), 1000)
        rollups_fold()
        before = _rows("token_entry")
        with _Freshness(own, number) as freshness:
            load.at_once(load.send, [(own.port, part, CONNECTIONS) for part in parts])
        assert _rows("token_entry") - before == count + freshness.sent, "every record once"
        seen += freshness.seconds
    return seen


def _hundreds(own: Server, plain: Server, rounds: int, count: int) -> list[Row]:
    usual, watched, connections = count // 5, ProcessorTime(own), MANY_CONNECTIONS // SENDERS
    rates, raw = list[float](), list[float]()
    for number in range(rounds):
        records = list(load.records(count, seed=100 + number))
        parts = _requests(own, "usage/tokens", records, 100)
        rollups_fold()
        with watched.watched(count):
            rates.append(count / load.at_once(load.send, [(own.port, part, connections) for part in parts]))
        parts = _requests(plain, "plain", records[:usual], 100)
        raw.append(usual / load.at_once(load.send, [(plain.port, part, connections) for part in parts]))
        assert _rows("plain_usage") == usual
        _sql("TRUNCATE plain_usage")
    return [
        (f"B2 batches of 100, 2 % replays, {MANY_CONNECTIONS} connections", _rate(statistics.median(rates)),
         f"REST serializers and bulk_create: {_rate(statistics.median(raw))}", f"{_ratio(rates, raw):.1f} x", ">= 6 x"),
        watched.row("B2"),
    ]  # fmt: skip


def _singles(own: Server, plain: Server, rounds: int, count: int, litellm: Path | None) -> list[Row]:
    number_of = max(count // 4, 1000)
    servers = {"web": (own, "usage/tokens"), "empty": (plain, "empty")}
    watched = {name: ProcessorTime(server) for name, (server, _) in servers.items()}
    rates: dict[str, list[float]] = {name: [] for name in [*servers, "litellm"]}
    with _spend_logging(litellm) as spend_logging:
        for number in range(rounds):
            before = _rows("token_entry")
            rollups_fold()
            bodies = [b"[" + record + b"]" for record in load.records(number_of, seed=number)]
            for name, (server, path) in servers.items():
                requests = [load.request(path, server.token, body) for body in bodies]
                with watched[name].watched(number_of):
                    rates[name].append(number_of / load.at_once(load.send, [(server.port, requests, MANY_CONNECTIONS)]))
            rates["litellm"].append(spend_logging())
            assert _rows("token_entry") - before == number_of
    where = "in turns" if litellm else "elsewhere"
    beside = (
        f"LiteLLM's spend logging without a database, {where}: {_rate(statistics.median(rates['litellm']))};"
        f" an authenticated REST view that does nothing: {_rate(statistics.median(rates['empty']))}"
    )
    return [
        (f"B3 single events, {MANY_CONNECTIONS} connections", _rate(statistics.median(rates["web"])), beside,
         f"{_ratio(rates['web'], rates['litellm']):.1f} x; {_ratio(rates['web'], rates['empty']):.1f} x the view",
         ">= 10 x of LiteLLM"),
        watched["web"].row("B3"),
        watched["empty"].row("B3 the view that does nothing,"),
    ]  # fmt: skip


@contextmanager
def _spend_logging(python: Path | None) -> Iterator[Callable[[], float]]:
    """What measures the events a second of LiteLLM's spend logging; without its Python it gives the known figure."""
    if python is None:
        yield lambda: LITELLM_PER_SECOND
        return
    argv = [str(python), str(Path(__file__).with_name("litellm_spend.py"))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def measured(events: int = LITELLM_EVENTS) -> float:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{events}\n")
            process.stdin.flush()
            return events / float(process.stdout.readline())

        measured(500)  # to warm up
        yield measured


def _ratio(mine: Sequence[float], raw: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, raw, strict=True))


def _requests(server: Server, path: str, records: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    bodies = load.batches(records, size, replayed=REPLAYED if path == "usage/tokens" else 0)
    return load.shares([load.request(path, server.token, body) for body in bodies], SENDERS)


def _rate(value: float) -> str:
    return f"{value:,.0f}/s"


def _cut(records: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [records[index : index + size] for index in range(0, len(records), size)]


def _ready(batch: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Rows as the ledger keeps them, sorted, made before the clock starts."""
    made = [msgspec.json.decode(record, type=TokenUsage) for record in batch]
    return sorted((UUID(bytes=r.key), r.time, 1, *r.counts, 0, "", "") for r in made)


def _copy(batches: Sequence[list[tuple[Any, ...]]]) -> None:
    """The raw limit of one writer: prepared rows, a COPY and a commit each; no HTTP, no decoding, no roll-up."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection, connection.cursor() as cursor:
        for rows in batches:
            with cursor.copy(f"COPY raw_entry ({ENTRY_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["uuid", "timestamptz", *["int4"] * 4, *["int2"] * 3, "text", "text"])
                for row in rows:
                    copy.write_row(row)
            connection.commit()


class _Freshness:
    """Sends an event of a consumer of its own again and again, and looks until its sum is what readers see."""

    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number = server, number
        self.seconds: list[float] = []
        self.sent = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_Freshness":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self.server.token}"}
        url = f"http://127.0.0.1:{self.server.port}/api/v1/"
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client, _connect() as reader:
            while not self._end.wait(FRESHNESS_PAUSE_SECONDS):
                consumer = f"fresh-{self.number}-{self.sent}"
                record = next(load.records(1, seed=self.number * 100_000 + self.sent + 7))
                started = time.monotonic()
                body = msgspec.json.encode([{**msgspec.json.decode(record), "consumer": consumer}])
                answer = client.post("usage/tokens", content=body)
                assert answer.json()["accepted"] == 1, answer.text
                self.sent += 1
                while not _summed(reader, consumer):
                    time.sleep(0.001)
                self.seconds.append(time.monotonic() - started)


def _summed(reader: psycopg.Connection[Any], consumer: str) -> bool:
    row = reader.execute(
        """SELECT sum(u.requests) FROM token_usage_hour u JOIN token_dimension d ON d.id = u.dimension
           WHERE d.consumer = %s""", [consumer],
    ).fetchone()  # fmt: skip
    return row is not None and row[0] == 1


def _difference() -> int:
    with _connect() as connection:
        row = connection.execute(
            """SELECT (SELECT sum(requests) FROM token_usage_hour) - (SELECT count(*) FROM token_event)
                    + (SELECT sum(output_tokens) FROM token_usage_hour) - (SELECT sum(output_tokens) FROM token_event)"""
        ).fetchone()
    return int(row[0]) if row else -1


def _connect() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def _sql(*statements: str) -> None:
    with _connect() as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _rows(table: str) -> int:
    with _connect() as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    return int(row[0]) if row else 0
