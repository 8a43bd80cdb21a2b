"""Tokens by day: whatever is cut, folded or late, sums and names are those of the records themselves."""

import random
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import pytest

from billing.usage.scope import EpochFilter
from billing.usage.selectors import late_windows
from billing.usage.services import rollups_fold
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.sums import FEW, token_sums
from metering.intervals import Interval, billing_month
from tests.factories import allocation_record as hold
from tests.factories import ingest_allocations, ingest_tokens, token_record
from tests.factories.closing import window_close
from tests.stored_rows import query

OCTOBER = billing_month("2026-10", "Asia/Shanghai")
MINUTES = 31 * 24 * 60


def record(chance: random.Random, number: int, window: Interval) -> dict[str, Any]:
    at = window.start + timedelta(minutes=chance.randrange(MINUTES), seconds=chance.choice([0, 1, 59]))
    return token_record(
        number, time=at.isoformat(), consumer=chance.choice("abc"), input_tokens=number + 1, cache_read_input_tokens=0,
        output_tokens=7 * number, reasoning_output_tokens=0,
    )  # fmt: skip


def reported(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Records of October, some of them folded, others still as deltas."""
    records = [record(chance, number, OCTOBER) for number in range(count)]
    for one in records:
        ingest_tokens(one)
        if chance.random() < 0.1:
            rollups_fold()
    return records


def summed(records: list[dict[str, Any]], pieces: list[Interval]) -> dict[tuple[int, str], tuple[int, int, int]]:
    """Requests, input and output tokens by piece and consumer, record by record."""
    sums: dict[tuple[int, str], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for one in records:
        at = datetime.fromisoformat(one["time"])
        for index, piece in enumerate(pieces):
            if piece.start <= at < piece.end:
                requests, inputs, outputs = sums[index, one["consumer"]]
                sums[index, one["consumer"]] = (
                    requests + 1, inputs + one["input_tokens"], outputs + one["output_tokens"]
                )  # fmt: skip
    return dict(sums)


@pytest.mark.django_db
@pytest.mark.parametrize("cuts", [0, 1, 3, 2 * FEW])
@pytest.mark.parametrize("seed", [1, 2])
def test_sums_of_any_pieces_are_those_of_the_records(seed: int, cuts: int) -> None:
    chance = random.Random(seed)
    records = reported(chance, 60)
    instants = [
        OCTOBER.start + timedelta(minutes=chance.choice([60, 1, 1440, 7]) * chance.randrange(1, 40)) for _ in range(cuts)
    ]
    pieces = OCTOBER.cut(instants)
    found = {
        (item.piece, item.consumer): (item.requests, item.input_tokens, item.output_tokens)
        for item in token_sums(pieces, EpochFilter())
    }
    assert found == summed(records, pieces)
    assert set(rollup_difference(OCTOBER).values()) == {0}
    rollups_fold()
    assert set(rollup_difference(OCTOBER).values()) == {0}
    found = query("SELECT sum(requests), sum(output_tokens) FROM token_day")
    assert found == [(60, sum(one["output_tokens"] for one in records))]


MONTHS = [billing_month(f"2026-{month:02}", "Asia/Shanghai") for month in (6, 7, 8, 9)]


@pytest.mark.django_db
@pytest.mark.parametrize("folded", [True, False], ids=["folded", "not folded"])
@pytest.mark.parametrize(
    ("at", "late"),
    [
        ("2026-06-30T15:59:59Z", [1]), ("2026-06-30T16:00:00Z", [2]), ("2026-06-30T00:00:00Z", [1]),
        ("2026-05-31T16:00:00Z", [1]), ("2026-05-31T15:59:59Z", []), ("2026-07-15T12:00:00Z", [2]),
        ("2026-08-31T15:00:00Z", [3]), ("2026-08-31T16:00:00Z", []),
    ],
)  # fmt: skip
def test_a_window_is_late_where_tokens_of_it_came_since_the_close_before(at: str, late: list[int], folded: bool) -> None:
    for window in MONTHS[:3]:
        window_close(window.start, window.end)
    ingest_tokens(token_record(1, time=at))
    if folded:
        rollups_fold()
    assert [span.close_seq for span in late_windows(4)] == late
    window_close(MONTHS[3].start, MONTHS[3].end)
    assert late_windows(5) == []  # the close before has billed it


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("start", "end", "late"),
    [
        ("2026-06-30T10:00:00Z", "2026-06-30T16:00:00Z", [1]), ("2026-06-30T10:00:00Z", "2026-07-31T16:00:01Z", [1, 2, 3]),
        ("2026-08-31T16:00:00Z", "2026-09-02T00:00:00Z", []),
    ],
)  # fmt: skip
def test_a_window_is_late_where_holds_of_it_came_since_the_close_before(start: str, end: str, late: list[int]) -> None:
    for window in MONTHS[:3]:
        window_close(window.start, window.end)
    ingest_allocations(hold(1, started_at=start, ended_at=end, observed_until=end))
    assert [span.close_seq for span in late_windows(4)] == late
