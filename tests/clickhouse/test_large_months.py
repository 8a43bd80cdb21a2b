"""A month of many records in ClickHouse: no server sorts all of it at once, and no process here holds all of its sums."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from billing.closing.services.closing import period_close
from billing.usage.services import rollups_fold
from billing.usage.services.sealing import ClosedMonth, usage_seal
from billing.usage.store import proofs, sharded_reads
from billing.usage.store.clickhouse import Servers
from metering.intervals import Interval
from tests.factories import apply, ingest_tokens, token_record
from tests.factories.token_reads import OCTOBER
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db(transaction=True)
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
EVERY_DAY = [
    token_record(number, time=f"2026-10-{1 + number % 31:02}T{number % 24:02}:59:59+08:00") for number in range(100)
]


def test_a_seal_reads_a_large_month_stretch_by_stretch(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(tmp_path)
    ingest_tokens(*EVERY_DAY)
    period_close(month="2026-10", actor="ops", now=OVER)
    monkeypatch.setattr(sharded_reads, "SORTED", 30)
    asked, stream = list[tuple[int, str]](), Servers.stream

    def noted(self: Servers, shard: int, statement: str) -> Any:
        asked.append((shard, statement.split("WHERE ")[1].split(" AND epoch")[0]))
        return stream(self, shard, statement)

    monkeypatch.setattr(Servers, "stream", noted)
    closed = ClosedMonth("2026-10", OCTOBER, "Asia/Shanghai", 1)
    seal, made = usage_seal(closed=closed, address=str(tmp_path / "archive"), actor="ops", now=OVER)
    assert made
    assert seal.manifest["rows"]["tokens"] == 100
    day, first = 86_400_000_000, 844_099_200_000_000
    bounds = [first + place * 31 * day // 4 for place in range(5)]
    assert asked == [
        (shard, f"time >= {since} AND time < {until}")
        for since, until in pairwise(bounds) for shard in (0, 1)
    ]  # fmt: skip


def test_roll_ups_are_compared_with_their_records_day_by_day(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest_tokens(*EVERY_DAY)
    rollups_fold()
    windows, hours = list[Interval](), proofs.sharded_hours

    def noted(servers: Servers, window: Interval) -> Any:
        windows.append(window)
        return hours(servers, window)

    monkeypatch.setattr(proofs, "sharded_hours", noted)
    assert set(proofs.rollup_difference(OCTOBER).values()) == {0}
    assert windows == OCTOBER.cut(datetime(2026, 10, number, tzinfo=UTC) for number in range(1, 32))
    assert len(windows) == 32
    assert max(window.end - window.start for window in windows) == timedelta(days=1)
    rewrite("UPDATE token_hour SET input_tokens = input_tokens + 7 WHERE hour = '2026-10-02T18:00:00Z'")
    rewrite("UPDATE token_hour SET input_tokens = input_tokens - 2 WHERE hour = '2026-10-20T11:00:00Z'")
    found = proofs.rollup_difference(OCTOBER)
    assert (found["input_tokens"], found["sums"]) == (5, 2)
