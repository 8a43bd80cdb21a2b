"""Closing and proving a month of a thousand teams, beside DuckDB that adds up the same month from Parquet (B5, B6, B7, B13).

The month is closed and issued by a process of its own that is up and connected, as a worker is when an operator presses the
button; what the start of a command line takes beside it is a row of its own. What the invoices say is compared, team by
team, with sums and prices that DuckDB and a few lines here work out from the events alone.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from billing.usage.token_file import files_text
from metering.intervals import billing_month
from tests.benchmarks import month
from tests.benchmarks.month import MONTH, PRICE_CHANGE, Size
from tests.benchmarks.processor import family_seconds, postmaster, seconds_of

Row = tuple[str, ...]
ROOT = Path(__file__).resolve().parents[2]
REPETITIONS, DOCUMENTS = 10, 60
ELSEWHERE = 60_000
"""Token events a second of CloudKitty's hashmap rating on two cores, at best; measured elsewhere, it does not run here."""
TOKENS = """COPY (SELECT 'r-' || e.key AS id, d.source, e.time, d.consumer, d.model, e.input_tokens,
    e.cache_read_input_tokens, e.cache_creation_input_tokens, e.output_tokens, e.reasoning_output_tokens
    FROM token_event e JOIN token_dimension d ON d.id = e.dimension) TO STDOUT (FORMAT csv, HEADER)"""
HOLDS = """COPY (SELECT a.namespace, a.accelerator, a.quantity * a.device_fraction::int AS devices,
    (extract(epoch FROM s.start) * 1000000)::bigint AS lo, (extract(epoch FROM s.until) * 1000000)::bigint AS hi
    FROM usage_allocationrevision s JOIN usage_gpuallocation a ON a.id = s.allocation_id) TO STDOUT (FORMAT csv, HEADER)"""
SUM_TOKENS = """SELECT consumer, model, time >= '{instant}'::timestamptz AS later, sum(input_tokens)::hugeint
        - sum(cache_read_input_tokens) - sum(cache_creation_input_tokens), sum(cache_read_input_tokens)::hugeint,
    sum(cache_creation_input_tokens)::hugeint, sum(output_tokens)::hugeint FROM {files} GROUP BY ALL"""
SUM_HOLDS = """SELECT namespace, accelerator, later, sum(devices::hugeint * (least(hi, until) - greatest(lo, since)))
    FROM {files}, (VALUES (false, {start}, {change}), (true, {change}, {end})) AS p (later, since, until)
    WHERE lo < until AND hi > since GROUP BY ALL"""
TOKEN_PRICES = {False: ("2", "0.2", "2.5", "8"), True: ("2", "0.2", "2.5", "7.6")}
DEVICE_PRICES = {
    ("NVIDIA-H800", False): "10", ("NVIDIA-H800", True): "10.5", ("NVIDIA-A800", False): "7.5",
    ("NVIDIA-A800", True): "7.25",
}  # fmt: skip
DERIVED = """closing_blockedteam, rating_teamsnapshot, rating_ratingsnapshot, rating_idleshare, rating_poolcapacity,
    invoices_invoiceline, invoices_invoice, invoices_numberseries, invoices_operation, invoices_billingperiod, rating_charge,
    rating_efficiencyverdict, rating_pooltime, usage_close"""


def measure(home: Path, rounds: int, share: float) -> list[Row]:
    """Rows of the table. `share`: of the full month."""
    size = Size().scaled(share)
    month.fill(size, home)
    files = {"tokens": exported(home, "tokens", TOKENS), "holds": exported(home, "holds", HOLDS)}
    closes, more, sums, starts = list[Run](), list[Run](), list[float](), list[float]()
    for _ in range(rounds):
        more.append(_closed(size, REPETITIONS))
        closes.append(_closed(size, 1, files))
        sums.append(seconds_of(lambda: add_up(files)))
        starts.append(seconds_of(lambda: _command("period_close", "--help")))
    duck, own, large = statistics.median(sums), _median(closes), _median(more)
    rows = [
        (f"B5 close and issue: {size}", f"{own:.2f} s, {max(one.megabytes for one in closes)} MB",
         f"{duck:.3f} s DuckDB, the same sums from Parquet", f"{own / duck:.1f}", "< 500 MB"),
        ("beside it, by the command: starting `manage.py period_close`", f"{statistics.median(starts):.2f} s"),
        ("B5 the same sums, to the cent, by another engine", f"{_count('invoices_invoice'):,} invoices, "
         f"{_count('invoices_invoiceline'):,} lines", "all agree"),
        (f"B6 close of {size.tokens * REPETITIONS:,} token records, by the roll-up", f"{large:.2f} s",
         f"{own:.2f} s for {size.tokens:,}, in turn", f"{large / own:.2f}", "<= 1.3"),
    ]  # fmt: skip
    return rows + _proofs(size, files) + _documents()


@dataclass(frozen=True)
class Run:
    """What one process took, by the clock and of its own processor, the highest resident MB that it ever had, and what the
    database took of the processor meanwhile.
    """

    seconds: float
    processor: float
    megabytes: int
    database: float


def _median(runs: list[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def _closed(size: Size, reported: int, files: dict[str, list[Path]] | None = None) -> Run:
    """The same month, of which the roll-up has so many times the events, closed and issued; with `files` what it billed is
    compared.
    """
    month.roll_up(Size(size.teams, size.tokens, size.allocations, reported))
    _empty()
    run = closed_by_worker(MONTH)
    if files is not None:
        assert_equal(add_up(files))
    return run


def _command(*arguments: str) -> None:
    subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def _empty() -> None:
    """Nobody has closed the month."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(f"TRUNCATE {DERIVED} RESTART IDENTITY CASCADE".encode())


def closed_by_worker(name: str) -> Run:
    """Have a worker that was up already close and issue a month."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    worker = [sys.executable, "-m", "tests.benchmarks.warm_close", name]
    with subprocess.Popen(worker, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        before = family_seconds(postmaster())
        process.stdin.write("go\n")
        process.stdin.flush()
        reported = json.loads(process.stdout.readline())
        database = family_seconds(postmaster()) - before
    return Run(**reported, database=database)


def exported(home: Path, name: str, statement: str) -> list[Path]:
    """What a COPY gives, as Parquet."""
    text, made = home / f"{name}.csv", home / f"{name}.parquet"
    connected, file = psycopg.connect(os.environ["DATABASE_URL"]), text.open("wb")
    with file, connected as connection, connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for block in copy:
            file.write(block)
    duckdb.sql(f"COPY (FROM read_csv('{text}')) TO '{made}' (FORMAT parquet)")
    text.unlink()
    return [made]


def add_up(files: dict[str, list[Path]]) -> tuple[list[Any], list[Any]]:
    """Sums by line: tokens by class, device-microseconds."""
    at = {"start": month.START, "change": PRICE_CHANGE, "end": month.END}
    bounds = {name: int(datetime.fromisoformat(text).timestamp()) * 1_000_000 for name, text in at.items()}
    tokens = duckdb.sql(SUM_TOKENS.format(files=files_text(files["tokens"]), instant=PRICE_CHANGE)).fetchall()
    return tokens, duckdb.sql(SUM_HOLDS.format(files=files_text(files["holds"]), **bounds)).fetchall()


def assert_equal(sums: tuple[list[Any], list[Any]]) -> None:
    """Price the sums, round each line half up, and compare every team's GPU and token lines; to the cent."""
    expected: dict[str, Decimal] = defaultdict(Decimal)
    for consumer, _, later, *classes in sums[0]:
        for count, price in zip(classes, TOKEN_PRICES[later], strict=True):
            expected[consumer[:5]] += _cents(Fraction(count) * Fraction(price) / 1_000_000)
    for namespace, accelerator, later, held in sums[1]:
        expected[namespace[:5]] += _cents(Fraction(held) * Fraction(DEVICE_PRICES[accelerator, later]) / 3_600_000_000)
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        billed = dict(
            connection.execute(
                """SELECT t.code, sum(l.amount) FROM invoices_invoiceline l JOIN invoices_invoice i ON i.id = l.invoice_id
                   JOIN tenancy_team t ON t.id = i.team_id WHERE l.kind IN ('gpu', 'tokens') AND i.status = 'issued'
                   GROUP BY 1"""
            ).fetchall()
        )
    assert billed == expected


def _cents(exact: Fraction) -> Decimal:
    return Decimal(int(exact * 100 + Fraction(1, 2))) / 100


def _proofs(size: Size, files: dict[str, list[Path]]) -> list[Row]:
    """What it costs to prove the month: from the events, from what a close read, and before a change of owners or prices."""
    from billing.corrections.services.proof import closed_periods_check, period_verify
    from billing.usage.store.proofs import rollup_difference

    window = billing_month(MONTH, "Asia/Shanghai")
    turns = [(_processor(lambda: _bare(files["tokens"])), _processor(lambda: _rate_every_event(files["tokens"], size)),
              seconds_of(lambda: _rate_every_event(files["tokens"], size))) for _ in range(5)]  # fmt: skip
    bare, worked, rated = (statistics.median(column) for column in zip(*turns, strict=True))
    raw = seconds_of(lambda: _nothing_in(rollup_difference(window)))
    verify = seconds_of(lambda: _all_hold(period_verify(month=MONTH)))
    check = seconds_of(closed_periods_check)
    unchanged = seconds_of(closed_periods_check)
    rate = size.tokens / rated
    return [
        ("B7 re-rating of every raw token event from Parquet, line by line what is billed", f"{rate:,.0f} events/s",
         f"{ELSEWHERE:,}/s CloudKitty, elsewhere", f"{rate / ELSEWHERE:.0f}", ">= 150"),
        ("of which processor time", f"{worked:.2f} s", f"{bare:.2f} s, a bare GROUP BY of the file", f"{worked / bare:.1f}"),
        ("every raw event summed beside the roll-up", f"{size.tokens / raw:,.0f} events/s"),
        (f"every document of {size.teams:,} teams rated again, hashes compared", f"{verify:.1f} s"),
        ("what a change of owners or prices waits for, per closed month that it may concern", f"{check:.1f} s"),
        ("... and per closed month that it cannot", f"{unchanged:.2f} s", f"{check:.1f} s rated again",
         f"{unchanged / check:.2f}"),
    ]  # fmt: skip


def _bare(files: list[Path]) -> None:
    duckdb.sql(SUM_TOKENS.format(files=files_text(files), instant=PRICE_CHANGE)).fetchall()


def _rate_every_event(files: list[Path], size: Size) -> None:
    """Charge every record of the month from its file, and compare each line with what was billed, to the last digit."""
    from billing.rating.recount import tokens_recount
    from billing.usage.token_file import file_token_sums

    month = billing_month(MONTH, "Asia/Shanghai")
    found = tokens_recount(engine=partial(file_token_sums, files), window=month, zone="Asia/Shanghai", close_seq=1)
    assert found.holds, found.differences[:5]
    assert found.records == size.tokens


def _nothing_in(difference: dict[str, int]) -> None:
    assert not any(difference.values()), difference


def _all_hold(proofs: list[Any]) -> None:
    assert proofs
    assert all(proof.holds for proof in proofs)


def _documents() -> list[Row]:
    """PDF of issued invoices of this month, with one compiler."""
    from billing.invoices.documents import PdfRenderer
    from billing.invoices.models import Invoice
    from billing.invoices.selectors import document_of

    invoices = list(Invoice.objects.filter(status="issued").order_by("sequence")[:DOCUMENTS])
    lines = sum(len(document_of(invoice)["lines"]) for invoice in invoices) / len(invoices)
    renderer, started = PdfRenderer(), time.process_time()
    for invoice in invoices:
        renderer.render(document_of(invoice), sha256=invoice.sha256, issued_at=invoice.issued_at)
    rate = len(invoices) / (time.process_time() - started)
    return [(f"B13 invoices of {lines:.0f} lines as PDF", f"{rate:.1f} documents/s per core", "", "", ">= 20")]


def _processor(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _count(table: str) -> int:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])
