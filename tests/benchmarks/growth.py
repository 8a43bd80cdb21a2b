"""The same work with ever more records in the ledger (B17): ingest, the close of a small month, the first views of it.

Each size is a ledger of its own: twelve older months, closed and issued one after the other, and five months of which each
has the same number of records, whatever the size. Of these each is closed and issued in turn, then seen for the first time.
The keys of the filled ledger are as random ids give them. Processor time is that of the process that works and of
the database together: on a machine that does other work too it says more than the clock.
"""

import gc
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from metering.intervals import previous_month
from tests.benchmarks import close, load, month
from tests.benchmarks.month import MONTH, Size
from tests.benchmarks.processor import Taken, family_seconds, postmaster, say, taken
from tests.benchmarks.servers import Server, installation_server
from tests.benchmarks.shards import clickhouse, records_moved
from tests.benchmarks.web_process import WebProcess, session_of

Row = tuple[str, ...]
OLDER, SMALL, ROUNDS = 12, 5, 5
OF_SMALL: Final = Size(teams=100, tokens=40_000, allocations=2_000)
SENDERS, CONNECTIONS = 2, 4
MOST, EMPTY = 1.3, "2025-01"
IDS: Final = {"UUIDv4": load.random_uuid, "UUIDv7": load.ordered_uuid}
PAGES: Final = ("/explorer/", "/overview/")


def measure(home: Path, sizes: Sequence[int], records: int, *, sharded: bool = False) -> list[Row]:
    """Rows of the table: of each size, with its ratio to the first by clock and processor.

    `sharded`: ClickHouse keeps the records, whose processor time is not counted.
    """
    assert min(sizes) > SMALL * OF_SMALL.tokens, "older months have the rest"
    found = dict[int, dict[str, Taken]]()
    with clickhouse(home / "clickhouse") if sharded else nullcontext() as begin:
        for size in sizes:
            if begin is not None:
                begin(f"of_{size}")
            found[size] = _of(size, home, records, sharded)
    first, store = found[sizes[0]], "ClickHouse" if sharded else "PostgreSQL"
    return [
        (f"B17 {what}, {size:,} token records in {store}", str(taken), str(first[what]), taken.ratio(first[what]),
         f"<= {MOST}" if "ingest" not in what else "")
        for size, of_size in found.items() for what, taken in of_size.items()
    ]  # fmt: skip


def _of(size: int, home: Path, records: int, sharded: bool) -> dict[str, Taken]:
    small = [MONTH]
    while len(small) < SMALL:
        small.insert(0, previous_month(small[0]))
    older = [previous_month(small[0])]
    while len(older) < OLDER:
        older.insert(0, previous_month(older[0]))
    say(f"{size:,} records filled: {taken(_fill, size, home, older, small, records_moved if sharded else None)}")
    say(f"older months closed: {taken(_bill, older)}")
    say(f"vacuumed: {taken(_vacuumed)}")
    found = defaultdict[str, list[Taken]](list)
    with installation_server() as server:
        for ids, identity in IDS.items():
            for number in range(ROUNDS + 1):
                used = _ingest(server, records, number, identity)
                if number:  # the first is to warm up
                    found[f"ingest of {records:,} records over HTTP, batches of 1,000, ids {ids}"].append(used)
    say(f"vacuumed: {taken(_vacuumed)}")
    web, session = WebProcess(), _session()
    for name in small:
        found[f"close and issue of {OF_SMALL}"].append(_closed(name))
        for page in PAGES:
            found[f"first view of {page} of that month"].append(_first_view(web, session, page, name))
    gc.unfreeze()
    for what, every in found.items():
        say(f"{what}: {'; '.join(map(str, every))}")
    return {
        what: Taken(statistics.median(one.clock for one in every), statistics.median(one.processor for one in every))
        for what, every in found.items()
    }  # fmt: skip


def _fill(
    size: int, home: Path, older: Sequence[str], small: Sequence[str], elsewhere: Callable[[], None] | None
) -> None:
    each, rest = divmod(size - SMALL * OF_SMALL.tokens, OLDER)
    sizes = [Size(tokens=each + (number < rest), allocations=OF_SMALL.allocations) for number in range(OLDER)]
    wanted = dict(zip([*older, *small], [*sizes, *[OF_SMALL] * SMALL], strict=True))
    month.fill(OF_SMALL, home, wanted, key=month.RANDOM_KEY, elsewhere=elsewhere)
    assert _reported() == size


def _vacuumed() -> None:
    """Else the database does it while something is measured, and its processor time is counted there."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


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


def _ingest(server: Server, count: int, number: int, identity: Callable[[Random, int], str]) -> Taken:
    """Records of the month after the small ones, every one new."""
    from billing.usage.services import rollups_fold

    bodies = load.batches(list(load.records(count, seed=1000 + number, identity=identity)), 1000, replayed=0)
    parts = load.shares([load.request("usage/tokens", server.token, body) for body in bodies], SENDERS)
    before, used = _reported(), family_seconds(server.pid) + _database_seconds()
    clock = load.at_once(load.send, [(server.port, part, CONNECTIONS) for part in parts])
    found = Taken(clock, family_seconds(server.pid) + _database_seconds() - used)
    assert _reported() - before == count
    rollups_fold()
    return found


def _closed(name: str) -> Taken:
    run = close.closed_by_worker(name)
    return Taken(run.seconds, run.processor + run.database)


def _first_view(web: WebProcess, session: str, page: str, name: str) -> Taken:
    """Nothing of this month is warm; the templates are."""
    web.answer(f"{page}?month={EMPTY}", session)
    before = _database_seconds()
    answer = web.answer(f"{page}?month={name}", session)
    return Taken(answer.wall / 1000, answer.own / 1000 + _database_seconds() - before)


def _database_seconds() -> float:
    return family_seconds(postmaster())


def _session() -> str:
    from django.contrib.auth.models import User

    from billing.tenancy.models import Membership

    user = User.objects.create(username=f"bench-growth-{User.objects.count()}")
    Membership.objects.create(user=user, role="finance")
    return session_of(user)


def _reported() -> int:
    """Requests in the roll-ups, wherever the records are."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT sum(requests) FROM token_usage_day").fetchone()
    return int(row[0]) if row else 0
