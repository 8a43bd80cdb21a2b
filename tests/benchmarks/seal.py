"""Sealing a month and recounting it from its seal, beside what reading the records costs alone (B16).

The raw limit of a seal is one COPY of the same rows in the same order to nowhere, that of a recount DuckDB's plain sums of
the same files.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from tests.benchmarks import month
from tests.benchmarks.month import MONTH, Size

Row = tuple[str, ...]
ROOT = Path(__file__).resolve().parents[2]
COPY = "COPY (SELECT * FROM token_entry WHERE time >= %s AND time < %s ORDER BY key) TO STDOUT (FORMAT binary)"


def measure(home: Path, rounds: int, share: float) -> list[Row]:
    """Rows of the table. `share`: of a month of two million token records."""
    size = Size(tokens=2_000_000).scaled(share)
    month.fill(size, home)
    subprocess.run([sys.executable, "manage.py", "period_close", MONTH], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    copied, sealed, added, recounted = list[float](), list[float](), list[float](), list[float]()
    for number in range(rounds):
        folder = home / f"archive-{number}"
        copied.append(_seconds(_copied))
        sealed.append(_seconds(_sealed, folder))
        files = sorted(folder.rglob("tokens-*.parquet"))
        added.append(_seconds(_added, files))
        recounted.append(_seconds(_recounted, files, size))
        bytes_of_tokens = sum(file.stat().st_size for file in files)
    copy, seal, add, recount = (statistics.median(times) for times in (copied, sealed, added, recounted))
    return [
        (f"B16 sealing {size}, read back: {size.tokens / seal:,.0f}/s, {bytes_of_tokens / size.tokens:.1f} bytes a record",
         f"{seal:.1f} s", f"{copy:.1f} s one COPY", f"{seal / copy:.2f}"),
        (f"B16 recount of the seal: {size.tokens / recount:,.0f} token records/s", f"{recount:.2f} s",
         f"{add:.2f} s DuckDB adds it up", f"{recount / add:.1f}"),
    ]  # fmt: skip


def _seconds(work: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def _closed() -> Any:
    from billing.invoices.models import BillingPeriod
    from billing.usage.services.sealing import ClosedMonth
    from metering.intervals import Interval

    period = BillingPeriod.objects.get(month=MONTH)
    return ClosedMonth(MONTH, Interval(period.start, period.end), period.zone, period.close_number)


def _copied() -> None:
    from django.db import connection

    window = _closed().window
    with connection.cursor() as cursor, cursor.copy(COPY, [window.start, window.end]) as copy:
        for _ in copy:
            pass


def _sealed(folder: Path) -> None:
    from django.utils import timezone

    from billing.usage.services.sealing import usage_seal

    _, made = usage_seal(closed=_closed(), address=str(folder), actor="bench", now=timezone.now())
    assert made


def _added(files: list[Path]) -> None:
    names = [str(file) for file in files]
    sums = "sum(input_tokens), sum(output_tokens)"
    duckdb.execute(f"SELECT consumer, model, {sums} FROM read_parquet(?) GROUP BY 1, 2", [names])


def _recounted(files: list[Path], size: Size) -> None:
    from billing.rating.recount import tokens_recount
    from billing.usage.token_file import file_token_sums

    closed = _closed()
    engine = partial(file_token_sums, files, before=closed.close_seq)
    found = tokens_recount(engine=engine, window=closed.window, zone=closed.zone, close_seq=closed.close_seq)
    assert found.holds, found.differences[:5]
    assert found.records == size.tokens
