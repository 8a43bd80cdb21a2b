"""Usage arrives twice, late, wrong, all at once: the ledger holds each fact once and every answer adds up."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.usage.gaps import metering_gaps
from billing.usage.models import AllocationRevision, GpuAllocation, NodeCapacity, QuarantinedRecord
from billing.usage.scope import EpochFilter
from billing.usage.services import (
    Reporter,
    capacity_ingest,
    efficiency_ingest,
    rollups_fold,
    tokens,
)
from billing.usage.store.dimensions import dimensions_forget, remembered_dimensions
from billing.usage.store.proofs import rollup_difference
from billing.usage.store.sums import token_sums
from metering.records import EfficiencySample, decode_batch
from metering.records import NodeCapacity as NodeCapacityRecord
from tests.factories import AFTER, allocation_record, ingest_allocations, ingest_tokens, token_record
from tests.factories.ingest import NOON, OCTOBER, answer, capacity, held_seconds, reports, rows, sample
from tests.stored_rows import token_events

pytestmark = pytest.mark.django_db
LIMITED = Reporter("gateway", "usage/tokens", source="litellm-hq", future_limit_s=3600)


def quarantine() -> list[tuple[str, str, str]]:
    return list(QuarantinedRecord.objects.order_by("id").values_list("reason", "key", "error"))


# Tokens


def test_a_token_record_sent_again_has_no_effect() -> None:
    assert answer(ingest_tokens(token_record())) == (1, 0, 0, 0)
    assert answer(ingest_tokens(token_record())) == (0, 1, 0, 0)
    assert answer(ingest_tokens(token_record(time="2026-10-15T04:00:00Z"))) == (0, 1, 0, 0)
    assert (rows(token_events()), QuarantinedRecord.objects.count()) == (1, 0)


@pytest.mark.django_db(transaction=True)
def test_a_process_learns_from_repeats_what_they_are_summed_by() -> None:
    """Else a repeat costs many times what a new record does, in a process that was just started."""
    batch = [token_record(number) for number in range(100)]
    ingest_tokens(*batch)
    dimensions_forget()
    assert answer(ingest_tokens(*batch)) == (0, 100, 0, 0)
    assert [name[:3] for name in remembered_dimensions().ids] == [("litellm-hq", "nlp-key-1", "llama-3-8b")]
    assert answer(ingest_tokens(*batch)) == (0, 100, 0, 0)


def test_repetitions_inside_one_batch_are_distinguished() -> None:
    same, other = token_record(), token_record(output_tokens=101)
    assert answer(ingest_tokens(same, same, other, token_record(2))) == (2, 1, 1, 0)
    assert rows(token_events()) == 2


def test_the_first_of_two_contents_stays_and_the_second_goes_to_quarantine() -> None:
    ingest_tokens(token_record())
    later = token_record(time="2026-12-01T00:00:00Z", output_tokens=7, reasoning_output_tokens=0)
    assert answer(ingest_tokens(later)) == (0, 0, 1, 0)
    record = QuarantinedRecord.objects.get()
    assert (record.reason, record.key, record.status, record.times_received) == (
        "conflict", "litellm-hq/req-1", "open", 1,
    )  # fmt: skip
    assert json.loads(record.record) == later
    assert record.at == datetime(2026, 12, 1, tzinfo=UTC)
    assert "was reported before with other content" in record.error
    assert next(token_sums([OCTOBER], EpochFilter())).output_tokens == 100


def test_the_same_id_of_another_source_is_another_record() -> None:
    assert answer(ingest_tokens(token_record(), token_record(source="other"))) == (2, 0, 0, 0)


def test_a_bad_record_is_kept_with_its_reason_and_costs_no_neighbour() -> None:
    outcome = ingest_tokens(token_record(1), token_record(2, output_tokens=-1), token_record(3))
    assert outcome.answer() == {
        "accepted": 2, "duplicates": 0, "conflicts": 0,
        "rejected": [
            {"index": 1, "key": "litellm-hq/req-2", "error": "output_tokens -1: expected `int` >= 0"},
        ],
    }  # fmt: skip
    record = QuarantinedRecord.objects.get()
    assert (record.door, record.reporter, record.reason) == ("usage/tokens", "tests", "invalid")
    assert json.loads(record.record)["output_tokens"] == -1


def test_the_same_bad_record_again_only_raises_its_counter() -> None:
    for _ in range(3):
        ingest_tokens(token_record(output_tokens=-1))
    assert QuarantinedRecord.objects.get().times_received == 3


def test_what_is_no_text_at_all_can_be_kept() -> None:
    batch: Any = decode_batch(tokens.TokenUsage, [b'{"id": "\xff\x00"}', b'{"id":"\\u0000"}'])
    outcome = tokens.tokens_ingest(records=[], rejected=batch.rejected, reporter=LIMITED, now=AFTER)
    assert answer(outcome) == (0, 0, 0, 2)
    assert [record.record for record in QuarantinedRecord.objects.order_by("id")] != []
    assert all("\0" not in record.record for record in QuarantinedRecord.objects.all())


def test_a_record_of_the_future_is_quarantined_within_the_tolerance_taken() -> None:
    clock = datetime(2026, 10, 15, 4, tzinfo=UTC)
    early = token_record(1, time="2026-10-15T05:00:00Z")
    late = token_record(2, time="2026-10-15T05:00:00.000001Z")
    assert answer(ingest_tokens(early, late, reporter=LIMITED, now=clock)) == (1, 0, 0, 1)
    assert [(reason, key) for reason, key, _ in quarantine()] == [("future", "litellm-hq/req-2")]
    assert answer(ingest_tokens(late, reporter=LIMITED, now=clock + timedelta(seconds=1))) == (1, 0, 0, 0)


def test_an_operator_may_import_the_future_knowingly() -> None:
    assert answer(ingest_tokens(token_record(time="2030-01-01T00:00:00Z"))) == (1, 0, 0, 0)


def test_a_token_bound_to_a_source_reports_for_no_other() -> None:
    outcome = ingest_tokens(token_record(1), token_record(2, source="other"), reporter=LIMITED)
    assert answer(outcome) == (1, 0, 0, 1)
    assert quarantine() == [("invalid", "other/req-2", "source 'other': this token may report for 'litellm-hq' only")]


def test_a_forged_source_does_not_take_the_key_of_the_true_record() -> None:
    ingest_tokens(token_record(source="other"), reporter=LIMITED)
    assert answer(ingest_tokens(token_record(source="other"))) == (1, 0, 0, 0)


def test_an_empty_batch_is_no_error() -> None:
    assert answer(ingest_tokens()) == (0, 0, 0, 0)
    assert answer(ingest_allocations()) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "value", [f"{10**40}", f"{-(2**63) - 1}", "1e300", '{"y": [1, null]}', *("[" * n + "]" * n for n in (50, 200, 500, 900))]
)
def test_attributes_of_any_json_never_fail_their_batch(value: str) -> None:
    raws = [
        json.dumps(token_record(1)).encode(),
        json.dumps(token_record(2, attributes={"x": "HERE"})).replace('"HERE"', value).encode(),
    ]
    batch: Any = decode_batch(tokens.TokenUsage, raws)
    outcome = tokens.tokens_ingest(
        records=[(index, record, raws[index]) for index, record in batch.records], rejected=batch.rejected,
        reporter=LIMITED, now=AFTER,
    )  # fmt: skip
    assert outcome.accepted + len(outcome.refusals) == 2
    assert outcome.accepted >= 1


def test_the_roll_up_is_the_sum_of_the_rows_whenever_it_is_folded() -> None:
    chance = random.Random(20261015)
    expected: dict[str, int] = {}
    for number in range(60):
        at = NOON + timedelta(minutes=chance.randrange(-2000, 2000))
        record = token_record(number, time=at.isoformat(), consumer=chance.choice("abc"), output_tokens=number * 7 + 40)
        ingest_tokens(record)
        expected[record["consumer"]] = expected.get(record["consumer"], 0) + record["output_tokens"]
        if chance.random() < 0.3:
            rollups_fold()
        if chance.random() < 0.3:
            ingest_tokens(record)
    difference = rollup_difference(OCTOBER)
    assert set(difference.values()) == {0}
    assert {item.consumer: item.output_tokens for item in token_sums([OCTOBER], EpochFilter())} == expected
    assert rows("token_hour_delta") > 0
    rollups_fold()
    assert (rows("token_hour_delta"), set(rollup_difference(OCTOBER).values())) == (0, {0})
    assert {item.consumer: item.output_tokens for item in token_sums([OCTOBER], EpochFilter())} == expected
    assert rollups_fold() == 0


# Allocations


def test_an_allocation_sent_again_has_no_effect() -> None:
    assert answer(ingest_allocations(allocation_record())) == (1, 0, 0, 0)
    assert answer(ingest_allocations(allocation_record(), allocation_record())) == (0, 2, 0, 0)
    assert (GpuAllocation.objects.count(), AllocationRevision.objects.count()) == (1, 1)


def running(until: str, **changed: Any) -> dict[str, Any]:
    return allocation_record(ended_at=None, end_reason=None, observed_until=until, **changed)


def test_an_open_allocation_grows_with_each_later_observation_and_ends_once() -> None:
    assert answer(ingest_allocations(running("2026-10-10T01:00:00Z"))) == (1, 0, 0, 0)
    assert answer(ingest_allocations(running("2026-10-10T02:00:00Z"))) == (1, 0, 0, 0)
    assert held_seconds() == 8 * 7200
    assert answer(ingest_allocations(running("2026-10-10T01:30:00Z"))) == (0, 1, 0, 0)
    assert held_seconds() == 8 * 7200
    assert answer(ingest_allocations(allocation_record())) == (1, 0, 0, 0)
    assert answer(ingest_allocations(running("2026-10-10T09:00:00Z"))) == (0, 1, 0, 0)
    assert held_seconds() == 8 * 9433
    row = GpuAllocation.objects.get()
    assert (row.ended_at, row.observed_until, row.end_reason) == (
        datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC), datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC), "completed",
    )  # fmt: skip


def test_an_end_before_the_last_observation_gives_the_time_back() -> None:
    ingest_allocations(running("2026-10-10T03:00:00Z"))
    assert answer(ingest_allocations(allocation_record())) == (1, 0, 0, 0)
    assert held_seconds() == 8 * 9433


def test_an_end_at_the_start_leaves_no_time_held() -> None:
    ingest_allocations(running("2026-10-10T03:00:00Z"))
    start = "2026-10-10T00:00:00Z"
    assert answer(ingest_allocations(allocation_record(ended_at=start, observed_until=start))) == (1, 0, 0, 0)
    assert (held_seconds(), AllocationRevision.objects.count()) == (0, 0)


def test_a_whole_life_in_one_batch_is_one_allocation() -> None:
    batch = (running("2026-10-10T01:00:00Z"), running("2026-10-10T02:00:00Z"), allocation_record(), allocation_record())
    assert answer(ingest_allocations(*batch)) == (3, 1, 0, 0)
    assert held_seconds() == 8 * 9433


@pytest.mark.parametrize("changed", [{"quantity": 4}, {"namespace": "cv"}, {"accelerator": "NVIDIA-A100"},
                                     {"started_at": "2026-10-10T00:00:01Z"}, {"ended_at": "2026-10-10T03:00:00Z"},
                                     {"end_reason": "evicted"}])  # fmt: skip
def test_an_allocation_with_other_content_conflicts_and_the_first_stays(changed: dict[str, Any]) -> None:
    ingest_allocations(allocation_record())
    assert answer(ingest_allocations(allocation_record(**changed))) == (0, 0, 1, 0)
    assert [(reason, key) for reason, key, _ in quarantine()] == [("conflict", "alloc-1")]
    assert held_seconds() == 8 * 9433


def test_an_allocation_of_the_future_or_of_another_cluster_is_refused() -> None:
    agent = Reporter("agent", "usage/gpu-allocations", source="hq-1", future_limit_s=60)
    clock = datetime(2026, 10, 10, 2, 36, tzinfo=UTC)
    outcome = ingest_allocations(allocation_record(), allocation_record(2, cluster="hq-2"), reporter=agent, now=clock)
    assert answer(outcome) == (0, 0, 0, 2)
    assert sorted((reason, key) for reason, key, _ in quarantine()) == [("future", "alloc-1"), ("invalid", "alloc-2")]


def test_what_lies_in_the_future_is_refused_by_the_name_of_its_field() -> None:
    agent, clock = Reporter("agent", "usage/gpu-allocations", future_limit_s=60), datetime(2026, 10, 10, 2, tzinfo=UTC)
    ended, running = allocation_record(1), allocation_record(2, ended_at=None, observed_until="2026-10-10T04:00:00Z")
    outcome = ingest_allocations(ended, running, reporter=agent, now=clock)
    said = "lies in the future; the clock of the ledger says 2026-10-10T02:00:00+00:00"
    assert [str(refusal.error) for refusal in outcome.refusals] == [
        f"ended_at 2026-10-10T02:37:13+00:00 {said}", f"observed_until 2026-10-10T04:00:00+00:00 {said}",
    ]  # fmt: skip
    seen = allocation_record(3, ended_at="2026-10-10T01:00:00Z", observed_until="2099-01-01T00:00:00Z")
    outcome = ingest_allocations(seen, reporter=agent, now=clock)
    assert [str(refusal.error) for refusal in outcome.refusals] == [f"observed_until 2099-01-01T00:00:00+00:00 {said}"]
    request = ingest_tokens(token_record(), reporter=LIMITED, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert str(request.refusals[0].error).startswith("time 2026-10-15T12:00:00+08:00 lies in the future; the clock of the ")


@pytest.mark.parametrize("fraction", ["1E-2000000", "0E-20000", f"0.{'9' * 40}", f"0.{'0' * 20000}1"])
def test_a_fraction_of_any_spelling_never_fails_its_batch(fraction: str) -> None:
    outcome = ingest_allocations(allocation_record(1), allocation_record(2, device_fraction=fraction))
    assert outcome.accepted + len(outcome.refusals) == 2
    assert outcome.accepted >= 1


def test_an_allocation_from_a_file_needs_no_heartbeat() -> None:
    ingest_allocations(running("2026-10-10T01:00:00Z"), from_file=True)
    assert metering_gaps(OCTOBER.end) == []


# Capacity and efficiency


def test_capacity_extends_repeats_and_conflicts() -> None:
    later = capacity(until="2026-10-03T00:00:00Z")
    assert answer(reports(NodeCapacityRecord, capacity_ingest, capacity(), capacity())) == (1, 1, 0, 0)
    assert answer(reports(NodeCapacityRecord, capacity_ingest, later)) == (1, 0, 0, 0)
    assert answer(reports(NodeCapacityRecord, capacity_ingest, capacity())) == (0, 1, 0, 0)
    assert answer(reports(NodeCapacityRecord, capacity_ingest, capacity(quantity=7))) == (0, 0, 1, 0)
    assert answer(reports(NodeCapacityRecord, capacity_ingest, capacity(), source="hq-2")) == (0, 0, 0, 1)
    assert NodeCapacity.objects.get().until == datetime(2026, 10, 3, tzinfo=UTC)


def test_efficiency_repeats_and_conflicts() -> None:
    assert answer(reports(EfficiencySample, efficiency_ingest, sample(), sample(mfu="0.410"))) == (1, 1, 0, 0)
    assert answer(reports(EfficiencySample, efficiency_ingest, sample(mfu="0.42"))) == (0, 0, 1, 0)
    assert answer(reports(EfficiencySample, efficiency_ingest, sample(), source="hq-2")) == (0, 0, 0, 1)


@pytest.mark.parametrize("ratio", ["1E-2000000", "0E-20000", "0E+20000", f"0.{'0' * 20000}"])
def test_a_ratio_of_any_spelling_never_fails_its_batch(ratio: str) -> None:
    outcome = reports(EfficiencySample, efficiency_ingest, sample(), sample(pod_uid="uid-2", mfu=ratio))
    assert outcome.accepted + len(outcome.refusals) == 2
    assert outcome.accepted >= 1
