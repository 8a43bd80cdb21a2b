"""Ingest into the ledger in parts by key beside the same into one table, turn by turn in one database (ADR 0039).

Without HTTP: what `tokens_ingest` takes, decoded before. Processor time is that of this process and of the backend of its
connection, which other work on the machine does not touch as it does the clock.
"""

import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from django.db import connection

from billing.usage.services import rollups_fold, tokens_ingest
from billing.usage.services.outcome import Reporter
from billing.usage.store import records
from metering.records import TokenUsage, decode_batch
from tests.benchmarks import load

Row = tuple[str, ...]
IDS: Final = {"UUIDv7": load.ordered_uuid, "UUIDv4": load.random_uuid}
MONTHS: Final = (0, 24)
SINGLES: Final = 300
BATCH: Final = 1_000
BEFORE: Final = f"""SELECT uuid_send(key), dimension, timestamptz_send(time), rest, {records.COUNTS}
    FROM token_entry WHERE key = ANY(%s::uuid[])"""
SHAPES: Final = ("token_entry_one", "token_entry_parts")


def measure(rounds: int, count: int) -> list[Row]:
    """Rows of the table: for each number of months with a part the ratios of batches and of single reports."""
    _plain_beside()
    rows = [row for months in MONTHS for row in _with_months(months, rounds, count)]
    _sql("DROP TABLE token_entry_one")  # whatever is measured next has the ledger as it was
    _sql("ALTER TABLE token_entry_parts RENAME TO token_entry")
    return rows


def _with_months(months: int, rounds: int, count: int) -> list[Row]:
    if not months:
        _sql("""DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(inhrelid::regclass::text, ', ') FROM pg_inherits
             WHERE inhparent = 'token_entry_timed'::regclass AND inhrelid <> 'token_entry_unmade'::regclass); END $$""")
    with _used(SHAPES[1]):
        for number in range(months):  # back from the three that are ahead
            _sql(f"SELECT token_month_make((date_trunc('month', now()) + interval '{3 - number} months')::date)")
    seconds = defaultdict[str, dict[str, list[tuple[float, float]]]](lambda: {shape: [] for shape in SHAPES})
    for number in range(rounds + 1):  # the first is to warm up
        for ids in IDS:
            for shape in SHAPES if number % 2 else SHAPES[::-1]:
                with _used(shape):
                    found = _turn(ids, count, seed=1000 * months + number)
                if number:
                    for what, taken in found.items():
                        seconds[f"{what}, ids {ids}"][shape].append(taken)
    return [_row(f"{what}; {months} months", taken, count) for what, taken in seconds.items()]


def _turn(ids: str, count: int, seed: int) -> dict[str, tuple[float, float]]:
    """Seconds by the clock and of the processor, by what was sent; `count` records in batches, then SINGLES one by one."""
    batched = _decoded(load.records(count, seed=seed, identity=IDS[ids]))
    singles = _decoded(load.records(SINGLES, seed=-seed - 1, identity=IDS[ids]))
    rollups_fold()
    found = {}
    for what, reports, size in (("batches of 1,000", batched, BATCH), ("single reports", singles, 1)):
        for again in (False, True):
            found[f"{what}, {'repeats' if again else 'new'}"] = _timed(partial(_send, reports, size))
    return found


def _send(reports: Sequence[TokenUsage], size: int) -> None:
    now = datetime.now(UTC)
    for first in range(0, len(reports), size):
        part = [(number, record, b"") for number, record in enumerate(reports[first : first + size])]
        tokens_ingest(records=part, reporter=Reporter("bench", "usage/tokens"), now=now)


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    (backend,) = _sql("SELECT pg_backend_pid()")
    processes = (os.getpid(), backend)
    gc.collect()
    before, started = _processor(processes), time.perf_counter()
    work()
    return time.perf_counter() - started, _processor(processes) - before


def _processor(processes: Sequence[int]) -> float:
    """Seconds, to the nanosecond."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in processes) / 1e9


def _decoded(lines: Iterable[bytes]) -> list[TokenUsage]:
    return [record for _, record in decode_batch(TokenUsage, list(lines)).records]


def _row(what: str, taken: dict[str, list[tuple[float, float]]], count: int) -> Row:
    number = SINGLES if what.startswith("single") else count
    plain, parts = (taken[shape] for shape in SHAPES)
    clock = statistics.median(one[0] / other[0] for one, other in zip(plain, parts, strict=True))
    processor = sum(used for _, used in plain) / sum(used for _, used in parts)
    rates = [f"{number / statistics.median(clock for clock, _ in taken[shape]):,.0f}/s" for shape in SHAPES]
    return (f"parts: {what}", rates[1], f"one table: {rates[0]}", f"clock {clock:.2f}, processor {processor:.2f}", ">= 0.9")


def _plain_beside() -> None:
    """The ledger as one table, with its guards, beside the one in parts."""
    _sql("CREATE TABLE token_entry_one (LIKE token_entry INCLUDING ALL)")
    _sql("SELECT token_part_guard('token_entry_one')")
    _sql("ALTER TABLE token_entry RENAME TO token_entry_parts")


@contextmanager
def _used(shape: str) -> Iterator[None]:
    """The ledger of this shape has the name under which ingest writes; in one table keys are looked up as they were."""
    _sql(f"ALTER TABLE {shape} RENAME TO token_entry")
    now = records.KNOWN_ROWS
    records.KNOWN_ROWS = BEFORE if shape == SHAPES[0] else now
    yield
    records.KNOWN_ROWS = now
    _sql(f"ALTER TABLE token_entry RENAME TO {shape}")


def _sql(statement: str) -> Sequence[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchone() or ()) if cursor.description else ()
