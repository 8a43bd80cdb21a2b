"""The same work with ever more records in the ledger (B17): ingest, the close of a small month, the first views of it.

Each size is a ledger of its own: twelve older months, closed and issued one after the other, and five months of which each
has the same number of records, whatever the size. Of these each is closed and issued in turn, then seen for the first time.
Keys are as random ids give them, which is the worst for the index.
"""

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from metering.intervals import previous_month
from tests.benchmarks import close, load, month
from tests.benchmarks.month import MONTH, Size
from tests.benchmarks.servers import Server, installation_server
from tests.benchmarks.shards import clickhouse, records_moved
from tests.benchmarks.web_process import WebProcess, session_of

Row = tuple[str, ...]
OLDER, SMALL, ROUNDS = 12, 5, 5
OF_SMALL: Final = Size(teams=100, tokens=40_000, allocations=2_000)
SENDERS, CONNECTIONS = 2, 4
MOST, EMPTY = 1.3, "2025-01"
RANDOM_KEY: Final = "md5(n::text)::uuid"
PAGES: Final = ("/explorer/", "/overview/")
WITHOUT_INDEX: Final = "ALTER TABLE token_entry DROP CONSTRAINT token_entry_pkey"
INDEX: Final = (
    "ALTER TABLE token_entry ADD PRIMARY KEY (key) WITH (fillfactor = 70)",
    "ALTER INDEX token_entry_pkey RESET (fillfactor)",
)  # fmt: skip
"""Made at once, as full as random keys leave it."""


@dataclass(frozen=True)
class Found:
    """What one ledger gives: records a second, seconds of a close, milliseconds of the first view of each page."""

    rate: float
    close: float
    views: dict[str, float]


def measure(home: Path, sizes: Sequence[int], records: int, *, sharded: bool = False) -> list[Row]:
    """Rows of the table: of each size, with its ratio to the first. `sharded`: ClickHouse keeps the records."""
    assert min(sizes) > SMALL * OF_SMALL.tokens, "older months have the rest"
    found = dict[int, Found]()
    with clickhouse(home / "clickhouse") if sharded else nullcontext() as begin:
        for size in sizes:
            if begin is not None:
                begin(f"of_{size}")
            found[size] = _of(size, home, records, sharded)
    first, rows = found[sizes[0]], list[Row]()
    for size, one in found.items():
        of = f"{size:,} token records in {'ClickHouse' if sharded else 'PostgreSQL'}"
        rows.append(
            (f"B17 ingest over HTTP, batches of 1,000, {of}", f"{one.rate:,.0f}/s", f"{first.rate:,.0f}/s of the first size",
             f"{first.rate / one.rate:.2f}")
        )  # fmt: skip
        rows.append(
            (f"B17 close and issue of {OF_SMALL}, {of}", f"{one.close:.2f} s", f"{first.close:.2f} s",
             f"{one.close / first.close:.2f}", f"<= {MOST}")
        )  # fmt: skip
        rows += [
            (f"B17 first view of {page} of such a month, {of}", f"{one.views[page]:.0f} ms", f"{first.views[page]:.0f} ms",
             f"{one.views[page] / first.views[page]:.2f}", f"<= {MOST}")
            for page in PAGES
        ]  # fmt: skip
    return rows


def _of(size: int, home: Path, records: int, sharded: bool) -> Found:
    small = [MONTH]
    while len(small) < SMALL:
        small.insert(0, previous_month(small[0]))
    older = [previous_month(small[0])]
    while len(older) < OLDER:
        older.insert(0, previous_month(older[0]))
    _say(f"{size:,}: filled in {_seconds(lambda: _fill(size, home, older, small)):.0f} s")
    if sharded:
        _say(f"moved to the shards in {_seconds(records_moved):.0f} s")
    _say(f"older months closed in {_seconds(lambda: _bill(older)):.0f} s")
    with installation_server() as server:
        rates = [_ingest(server, records, number) for number in range(ROUNDS + 1)][1:]  # the first is to warm up
    _say(f"ingest {', '.join(f'{rate:,.0f}' for rate in rates)}/s")
    closes, views = list[float](), list[dict[str, float]]()
    web, session = WebProcess(), _session()
    for name in small:
        closes.append(close.closed_by_worker(name).seconds)
        views.append({page: _first_view(web, session, page, name) for page in PAGES})
        _say(f"{name}: closed in {closes[-1]:.2f} s; {', '.join(f'{page} {ms:.0f} ms' for page, ms in views[-1].items())}")
    gc.unfreeze()
    middle = statistics.median
    return Found(middle(rates), middle(closes), {page: middle(one[page] for one in views) for page in PAGES})


def _fill(size: int, home: Path, older: Sequence[str], small: Sequence[str]) -> None:
    each, rest = divmod(size - SMALL * OF_SMALL.tokens, OLDER)
    sizes = [Size(tokens=each + (number < rest), allocations=OF_SMALL.allocations) for number in range(OLDER)]
    _sql(WITHOUT_INDEX)
    wanted = dict(zip([*older, *small], [*sizes, *[OF_SMALL] * SMALL], strict=True))
    month.fill(OF_SMALL, home, wanted, key=RANDOM_KEY)
    _sql(*INDEX, "ANALYZE token_entry", "CHECKPOINT")
    assert _reported() == size


def _bill(months: Sequence[str]) -> None:
    """Closed, issued, and with their sums for the explorer, as time and the scheduler leave them."""
    from django.utils import timezone

    from billing.closing.services.closing import period_close
    from billing.explorer.services import cubes_refresh
    from billing.invoices.services.invoices import invoices_issue

    for name in months:
        period_close(month=name, actor="bench", now=timezone.now())
        assert invoices_issue(month=name, actor="bench", now=timezone.now()) == OF_SMALL.teams
    cubes_refresh()


def _ingest(server: Server, count: int, number: int) -> float:
    """Records a second of the month after the small ones, every record new."""
    from billing.usage.services import rollups_fold

    bodies = load.batches(list(load.records(count, seed=1000 + number)), 1000, replayed=0)
    parts = load.shares([load.request("usage/tokens", server.token, body) for body in bodies], SENDERS)
    before = _reported()
    rate = count / load.at_once(load.send, [(server.port, part, CONNECTIONS) for part in parts])
    assert _reported() - before == count
    rollups_fold()
    return rate


def _first_view(web: WebProcess, session: str, page: str, name: str) -> float:
    """Nothing of this month is warm; the templates are."""
    web.answer(f"{page}?month={EMPTY}", session)
    return web.answer(f"{page}?month={name}", session).wall


def _session() -> str:
    from django.contrib.auth.models import User

    from billing.tenancy.models import Membership

    user = User.objects.create(username=f"bench-growth-{User.objects.count()}")
    Membership.objects.create(user=user, role="finance")
    return session_of(user)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _sql(*statements: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _reported() -> int:
    """Requests in the roll-ups, wherever the records are."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT sum(requests) FROM token_usage_day").fetchone()
    return int(row[0]) if row else 0
