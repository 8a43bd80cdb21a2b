"""A large month in either store: closed, issued, and recounted by DuckDB, from its records and from its seal (B16).

Beside each is what the store itself takes to add the same records up, one `SELECT sum(...) GROUP BY` of every row. Its sums
have to be those of DuckDB, and those what the invoices say, team by team, and line by line what the close charged.
"""

import os
import resource
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from billing.usage.contents import TOKEN_COUNTS
from billing.usage.token_file import files_text
from tests.benchmarks import close, month
from tests.benchmarks.month import MONTH, Size
from tests.benchmarks.processor import Taken, say, taken
from tests.benchmarks.shards import clickhouse, records_moved, shards_exported

Row = tuple[str, ...]
SUMS = ", ".join(f"sum({name})" for name in TOKEN_COUNTS)
IN_POSTGRESQL = f"""SELECT d.consumer, d.model, {SUMS} FROM token_entry e JOIN token_dimension d ON d.id = e.dimension
    GROUP BY 1, 2"""
SIZES = """SELECT sum(pg_relation_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint
    FROM pg_partition_tree('token_entry')"""
PARTS = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = '{}_{}'"
SAID_EVERY = 5_000_000


def measure(home: Path, rounds: int, size: Size, *, sharded: bool) -> list[Row]:
    """Rows of the table. `sharded`: ClickHouse keeps the records."""
    with clickhouse(home / "clickhouse", replicated=False) if sharded else nullcontext() as begin:
        if begin is not None:
            begin("large")
        filled = taken(partial(month.fill, size, home, key=month.RANDOM_KEY, elsewhere=records_moved if sharded else None))
        say(f"{size} filled: {filled}")
        run = close.closed_by_worker(MONTH)
        say(f"closed and issued: {run}")
        bytes_of, found = _bytes(sharded), dict[str, list[Taken]]()
        say(f"bytes: {bytes_of}")
        for number in range(rounds):
            bytes_of["Parquet"] = _round(home / f"round-{number}", size, sharded, found)
        own = {name: sorted(times, key=lambda one: one.clock)[rounds // 2] for name, times in found.items()}
        sums, store = own.pop("sums of the store"), "ClickHouse" if sharded else "PostgreSQL"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        closed = Taken(run.seconds, run.processor + run.database)
        return [
            (f"B16 {what}, {size}, {store}", str(one), f"{sums} sums of the store", one.ratio(sums))
            for what, one in {"close and issue": closed, **own}.items()
        ] + [
            ("B16 bytes of a record", ", ".join(f"{name} {count / size.tokens:.1f}" for name, count in bytes_of.items())),
            ("B16 most memory: of the worker that closes, of the process that does the rest",
             f"{run.megabytes:,}, {memory:,} MB"),
            ("B16 the same sums, to the cent, by another engine", f"{size.teams:,} teams", "all agree"),
        ]  # fmt: skip


def _round(folder: Path, size: Size, sharded: bool, found: dict[str, list[Taken]]) -> int:
    """What each work takes, and the bytes of the sealed records."""
    sums, records = list[Any](), list[Path]()

    def step(name: str, work: Callable[[], Any]) -> None:
        found.setdefault(name, []).append(taken(work))
        say(f"{name}: {found[name][-1]}")

    folder.mkdir()
    step("sums of the store", lambda: sums.extend(sorted(_sums_of_shards() if sharded else _sums_of_postgresql())))
    step("export of its records", lambda: records.extend(
        shards_exported(folder) if sharded else close.exported(folder, "records", close.TOKENS)))  # fmt: skip
    step("sums of these by DuckDB", lambda: _added(records, sums))
    close.assert_equal(close.add_up({"tokens": records, "holds": close.exported(folder, "holds", close.HOLDS)}))
    step("recount of these, line by line", lambda: _recounted(records, size, None))
    for path in records:
        path.unlink()
    step("every record compared with the roll-ups", _compared)
    step("sealing", lambda: _sealed(folder))
    sealed = sorted(folder.rglob("tokens-*.parquet"))
    step("sums of the seal by DuckDB", lambda: _added(sealed, sums))
    step("recount of the seal, line by line", lambda: _recounted(sealed, size, _closed().close_seq))
    return sum(file.stat().st_size for file in sealed)


def _sums_of_postgresql() -> list[tuple[Any, ...]]:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        return [(*row[:2], *map(int, row[2:])) for row in connection.execute(IN_POSTGRESQL.encode())]


def _sums_of_shards() -> list[tuple[Any, ...]]:
    from billing.usage.store.clickhouse import token_servers
    from billing.usage.store.dimensions import dimension_names

    servers, sums = token_servers(), dict[tuple[str, str], list[int]]()
    assert servers is not None
    asked = "SELECT dimension, {} FROM {}.token_entry_{} GROUP BY dimension"
    places = [(shard, asked.format(SUMS, servers.database, shard)) for shard in range(len(servers.shards))]
    found = servers.each(lambda place: servers.rows(*place), places)
    rows = [tuple(map(int, row)) for part in found for row in part]
    names = dimension_names({number for number, *_ in rows})
    for number, *counts in rows:
        _, consumer, model, *_ = names[number]
        known = sums.setdefault((consumer, model), [0] * len(counts))
        known[:] = [one + more for one, more in zip(known, counts, strict=True)]
    return [(*name, *counts) for name, counts in sums.items()]


def _compared() -> None:
    from billing.usage.store.proofs import rollup_difference

    assert not any(rollup_difference(_closed().window).values())


def _closed() -> Any:
    from billing.invoices.models import BillingPeriod
    from billing.usage.services.sealing import ClosedMonth
    from metering.intervals import Interval

    period = BillingPeriod.objects.get(month=MONTH)
    return ClosedMonth(MONTH, Interval(period.start, period.end), period.zone, period.close_number)


def _sealed(folder: Path) -> None:
    from django.utils import timezone

    from billing.usage.services.sealing import usage_seal

    written = 0

    def advance(rows: int) -> None:
        nonlocal written
        if written // SAID_EVERY != (written + rows) // SAID_EVERY:
            say(f"{written + rows:,} rows sealed")
        written += rows

    _, made = usage_seal(closed=_closed(), address=str(folder), actor="bench", now=timezone.now(), advance=advance)
    assert made


def _added(files: list[Path], expected: list[Any]) -> None:
    rows = duckdb.execute(f"SELECT consumer, model, {SUMS} FROM {files_text(files)} GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
    assert [(*row[:2], *map(int, row[2:])) for row in rows] == expected


def _recounted(files: list[Path], size: Size, before: int | None) -> None:
    from billing.rating.recount import tokens_recount
    from billing.usage.token_file import file_token_sums

    closed = _closed()
    engine = partial(file_token_sums, files, before=before)
    found = tokens_recount(engine=engine, window=closed.window, zone=closed.zone, close_seq=closed.close_seq)
    assert found.holds, found.differences[:5]
    assert found.records == size.tokens


def _bytes(sharded: bool) -> dict[str, int]:
    """Of all records, by where they are; of one replica."""
    from billing.usage.store.clickhouse import token_servers

    if not sharded:
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            row = connection.execute(SIZES).fetchone()
        assert row is not None
        return dict(zip(("table", "index"), row, strict=True))
    servers, found = token_servers(), {}
    assert servers is not None
    for name in ("token_entry", "token_key"):
        parts = [servers.run(shard, PARTS.format(name, shard), replicas[0]) for shard, replicas in enumerate(servers.shards)]
        found[f"ClickHouse {name}"] = sum(map(int, parts))
    return found
