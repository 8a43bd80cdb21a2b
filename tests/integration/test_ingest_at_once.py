"""Reports of many at once, each with a connection of its own: as if they had come one after the other."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from billing.usage.models import AllocationRevision, GpuAllocation, NodeCapacity
from billing.usage.services import (
    IngestOutcome,
    allocations_ingest,
    capacity_ingest,
    efficiency_ingest,
    rollups_fold,
)
from billing.usage.store.proofs import rollup_difference
from metering.records import EfficiencySample
from metering.records import NodeCapacity as NodeCapacityRecord
from tests.factories import allocation_record, ingest_allocations, ingest_tokens, token_record
from tests.factories.ingest import NOON, OCTOBER, answer, capacity, held_seconds, reports, rows, sample
from tests.factories.threads import at_once
from tests.stored_rows import query, token_events

THREADS = 8


@pytest.fixture
def ledger(transactional_db: None) -> None:
    """A database in which this test commits for real."""


def all_at_once(work: Callable[[int], Any]) -> list[Any]:
    """`work(0)` to `work(7)` at the same time; raises the first error."""
    results = at_once(*(partial(work, number) for number in range(THREADS)))
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def test_overlapping_token_batches_of_many_writers_make_one_row_per_key(ledger: None) -> None:
    """Eight writers deliver overlapping halves of the same 400 records, each in its own order; two contents of some."""
    keys = 400

    def work(number: int) -> list[IngestOutcome]:
        chance = random.Random(number)
        mine = chance.sample(range(keys), 250)
        outcomes = []
        for offset in range(0, 250, 50):
            batch = [
                token_record(key, output_tokens=200 + (number if key < 40 else 0), time=NOON.isoformat())
                for key in mine[offset : offset + 50]
            ]
            outcomes.append(ingest_tokens(*batch))
            rollups_fold()
        return outcomes

    outcomes = [outcome for outcomes in all_at_once(work) for outcome in outcomes]
    answers = [answer(outcome) for outcome in outcomes]
    assert all(sum(counts) == 50 for counts in answers)
    reported = {key for number in range(THREADS) for key in random.Random(number).sample(range(keys), 250)}
    accepted, duplicates, conflicts, rejected = (sum(column) for column in zip(*answers, strict=True))
    assert (accepted, rejected) == (len(reported), 0)
    assert accepted + duplicates + conflicts == THREADS * 250
    assert rows(token_events()) == len(reported)
    assert conflicts > 0
    assert set(rollup_difference(OCTOBER).values()) == {0}
    rollups_fold()
    assert set(rollup_difference(OCTOBER).values()) == {0}


def test_writers_that_meet_a_new_month_and_new_consumers_at_once_agree(ledger: None) -> None:
    def work(number: int) -> IngestOutcome:
        records = [
            token_record(number * 100 + day, time=f"2031-0{1 + day % 9}-10T00:00:00Z", consumer=f"new-{day % 4}")
            for day in range(20)
        ]
        return ingest_tokens(*records)

    assert [answer(outcome) for outcome in all_at_once(work)] == [(20, 0, 0, 0)] * THREADS
    assert rows(token_events()) == 20 * THREADS
    assert query("SELECT count(*) FROM token_dimension WHERE consumer LIKE 'new-%%'") == [(4,)]


def test_overlapping_allocation_reports_of_many_writers_end_in_the_furthest_state(ledger: None) -> None:
    """Writers report the same forty allocations in their own order: some open, some ended."""

    def work(number: int) -> list[tuple[int, int, int, int]]:
        order = list(range(40))
        random.Random(number).shuffle(order)
        answers = []
        for offset in range(0, 40, 10):
            batch = [
                allocation_record(key)
                if key % 2 and number == key % THREADS
                else allocation_record(
                    key, ended_at=None, end_reason=None, observed_until=f"2026-10-10T02:{10 + number}:00Z"
                )
                for key in order[offset : offset + 10]
            ]
            outcome: IngestOutcome = ingest_allocations(*batch)
            answers.append(answer(outcome))
        return answers

    answers = [counts for results in all_at_once(work) for counts in results]
    assert all(sum(counts) == 10 and counts[2:] == (0, 0) for counts in answers)
    assert (GpuAllocation.objects.count(), AllocationRevision.objects.count()) == (40, 40)
    ended = GpuAllocation.objects.exclude(ended_at=None)
    assert {row.allocation_id for row in ended} == {f"alloc-{key}" for key in range(1, 40, 2)}
    assert set(ended.values_list("observed_until", flat=True)) == {datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC)}
    still = GpuAllocation.objects.filter(ended_at=None)
    assert set(still.values_list("observed_until", flat=True)) == {datetime(2026, 10, 10, 2, 17, tzinfo=UTC)}
    assert held_seconds() == 8 * (20 * 9433 + 20 * (2 * 3600 + 17 * 60))


def test_two_agents_reporting_the_same_capacity_and_samples_at_once_count_them_once(ledger: None) -> None:
    def work(number: int) -> list[tuple[int, int, int, int]]:
        nodes = [capacity(node=f"node-{index}") for index in range(20)]
        random.Random(number).shuffle(nodes)
        measured = [sample(pod_uid=f"uid-{index}") for index in range(20)]
        return [
            answer(reports(NodeCapacityRecord, capacity_ingest, *nodes)),
            answer(reports(EfficiencySample, efficiency_ingest, *measured)),
        ]

    results = all_at_once(work)
    for index in (0, 1):
        answers = [result[index] for result in results]
        assert all(sum(counts) == 20 and counts[2:] == (0, 0) for counts in answers)
        assert sum(counts[0] for counts in answers) == 20
    assert NodeCapacity.objects.count() == 20


def test_the_ingest_of_allocations_is_one_transaction(ledger: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure at the end of a batch leaves nothing of it, so that a retry is whole."""

    def broken(**_: Any) -> None:
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr("billing.usage.services.allocations.quarantine_add", broken)
    with pytest.raises(RuntimeError):
        ingest_allocations(allocation_record())
    assert (GpuAllocation.objects.count(), AllocationRevision.objects.count()) == (0, 0)
    monkeypatch.undo()
    assert answer(ingest_allocations(allocation_record())) == (1, 0, 0, 0)
    assert allocations_ingest is not None
