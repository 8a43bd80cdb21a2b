"""The explorer over a year of months of a thousand teams (B14): p95 of the server's time for any grouping.

The month is made once and closed; its sums are copied as those of the months before it, each with a close of its own and
with jobs of its own.
"""

import statistics
import subprocess
import sys
import time
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import month
from tests.benchmarks.month import MONTH, ZONE, Size

Row = tuple[str, ...]
ROOT = Path(__file__).resolve().parents[2]
MONTH_MS, YEAR_MS, VIEWS, TEAM = 300, 1000, 5, "t0007"
SINGLE: Final = (
    "team", "namespace", "job", "consumer", "model", "accelerator", "cluster", "site", "pool", "queue", "tier", "kind",
)  # fmt: skip
PAIRS: Final = tuple(combinations(("team", "namespace", "job", "model", "accelerator", "kind"), 2))
YEAR: Final = "from=2025-11-01&to=2026-10-31"


def measure(home: Path, share: float) -> list[Row]:
    """Rows of the table. `share`: of the full month."""
    size = Size(tokens=2_000_000).scaled(share)
    month.fill(size, home)
    command = [sys.executable, "manage.py", "period_close", MONTH, "--json"]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    rows = [_made(size)]
    _copied()
    for name, span, most in (("a month", f"month={MONTH}", MONTH_MS), ("a year", YEAR, YEAR_MS)):
        for who, teams in (("everybody", None), ("one team", frozenset({TEAM}))):
            rows.append(_asked(f"B14 any grouping of {name}, {who}", span, teams, most))
    rows.append(_hours("a day of everybody by hour", f"from={MONTH}-10&to={MONTH}-10", None))
    rows.append(_hours("a month of one team by hour", f"month={MONTH}", frozenset({TEAM})))
    return rows


def _hours(what: str, span: str, teams: frozenset[str] | None) -> Row:
    """Of every grouping by one dimension the median."""
    times = [_views(f"{span}&step=hour&by={name}", teams, views=1)[0] for name in SINGLE]
    wall, processor = (statistics.median(one) for one in zip(*times, strict=True))
    return (f"B14 {what}", f"{wall:.0f} ms, own processor {processor:.0f} ms", "", "", "")


def _made(size: Size) -> Row:
    from django.utils import timezone

    from billing.explorer.models import MonthCube
    from billing.explorer.services import cube_make
    from billing.invoices.selectors import period_of

    started = time.perf_counter()
    cube = cube_make(period_of(MONTH), now=timezone.now())
    took, stored = time.perf_counter() - started, sum(len(column.content) for column in cube.columns.all())
    MonthCube.objects.filter(pk=cube.pk).update(took_ms=round(took * 1000))
    return (f"B14 the sums of a month with {size}", f"{took:.1f} s, {cube.rows:,} rows, {stored / 1e6:.1f} MB", "", "", "")


def _copied() -> None:
    from datetime import timedelta

    from billing.explorer.models import CubeColumn, MonthCube
    from billing.explorer.month_lines import sources_of
    from billing.invoices.models import BillingPeriod
    from metering.intervals import billing_month, previous_month

    cube = MonthCube.objects.get(month=MONTH)
    columns, name = list(cube.columns.values_list("name", "content")), MONTH
    for number in range(24):
        name = previous_month(name)
        window = billing_month(name, ZONE)
        other = BillingPeriod.objects.create(
            month=name, zone=ZONE, start=window.start, end=window.end, status="closed", close_seq=1000 + number,
            closed_at=window.end + timedelta(hours=1),
        )  # fmt: skip
        copy = MonthCube.objects.create(
            month=name, source=sources_of([other])[name], as_of=cube.as_of, took_ms=0, rows=cube.rows, facts=cube.facts
        )
        CubeColumn.objects.bulk_create(
            CubeColumn(cube=copy, name=one, content=_renamed(content, name) if one == "job" else content)
            for one, content in columns
        )  # fmt: skip


def _renamed(content: bytes, month: str) -> bytes:
    """The jobs of another month."""
    from billing.explorer.cube import packed, unpacked
    from billing.explorer.names import Coded

    column = unpacked(bytes(content))
    if not isinstance(column, Coded):
        raise TypeError("jobs have names")
    return packed(Coded.of([name and f"{name}-{month}" for name in column.names], column.codes))


def _asked(what: str, span: str, teams: frozenset[str] | None, most: int) -> Row:
    times: list[tuple[float, float]] = []
    for by in [(one,) for one in SINGLE] + list(PAIRS):
        own = _views(f"{span}&" + "&".join(f"by={name}" for name in by), teams)
        wall, processor = (statistics.median(one) for one in zip(*own, strict=True))
        print(f"  {what}: {' and '.join(by):26} {wall:6.0f} ms, own processor {processor:6.0f} ms", flush=True)
        times += own
    p95, own_p95 = (statistics.quantiles(one, n=20)[18] for one in zip(*times, strict=True))
    return (what, f"p95 {p95:.0f} ms, own processor {own_p95:.0f} ms", "", f"{p95 / most:.2f}", f"< {most} ms")


def _views(text: str, teams: frozenset[str] | None, *, views: int = VIEWS) -> list[tuple[float, float]]:
    """What each of some views of an address took."""
    from django.http import QueryDict
    from django.utils import timezone

    from billing.explorer.selectors import Explorer
    from billing.tenancy.models import Team

    everybody = frozenset(Team.objects.values_list("code", flat=True))
    explorer = Explorer(teams or everybody, timezone.now(), ZONE)
    query = explorer.asked(QueryDict(text))
    return [_milliseconds(partial(explorer.explore, query)) for _ in range(views)]


def _milliseconds(work: Any) -> tuple[float, float]:
    """By the clock, and of the processor."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - started) * 1000, (time.process_time() - used) * 1000
