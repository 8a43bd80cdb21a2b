"""Capacity type and tags of allocations: optional, no part of the identity, kept by the allow-list of the cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.usage.models import GpuAllocation, QuarantinedRecord, UnknownShare
from metering.records import GpuAllocation as Record
from metering.records import decode_batch
from tests.factories import AFTER, allocation_record, apply, ingest_allocations
from tests.factories.ingest import answer
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db
PROJECT = {"cluster": "hq-1", "key": "project", "from": "label.project"}
TEAM = {"cluster": "hq-1", "key": "squad", "longest": "8"}
OPEN = {"ended_at": None, "end_reason": None, "observed_until": "2026-10-10T01:00:00Z"}
SECRET = "a-secret-of-nobody"


def facts() -> list[dict[str, Any]]:
    return [
        {name: row.facts[name] for name in ("capacity_type", "tags") if name in row.facts}
        for row in GpuAllocation.objects.order_by("allocation_id")
    ]


def test_capacity_type_and_tags_are_stored_as_far_as_they_are_allowed(tmp_path: Path) -> None:
    apply(tmp_path, tags=[PROJECT, TEAM])
    ingest_allocations(
        allocation_record(1, capacity_type="SPOT", tags={"squad": "blue", "user": SECRET}, labels={"project": "apollo"}),
        allocation_record(2, capacity_type="on-demand", tags={"squad": "much-too-long"}),
        allocation_record(3, tags={"user": SECRET}), allocation_record(4),
    )  # fmt: skip
    assert facts() == [
        {"capacity_type": "spot", "tags": {"project": "apollo", "squad": "blue"}},
        {"capacity_type": "on_demand", "tags": {"squad": None}}, {}, {},
    ]  # fmt: skip
    assert SECRET not in json.dumps(facts())


@pytest.mark.parametrize(("first", "second", "meaning"), [
    ({}, {"capacity_type": "spot"}, (0, 1, 0)),
    ({"capacity_type": "spot"}, {}, (0, 1, 0)),
    ({"capacity_type": "spot"}, {"capacity_type": "SPOT"}, (0, 1, 0)),
    ({"capacity_type": "spot"}, {"capacity_type": "reserved"}, (0, 0, 1)),
    ({"tags": {"squad": "a"}}, {"tags": {"squad": "b"}}, (0, 0, 1)),
    ({"tags": {"squad": "a"}}, {"tags": {"user": "b"}}, (0, 1, 0)),
])  # fmt: skip
def test_only_different_values_are_a_conflict(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], meaning: tuple[int, int, int]
) -> None:
    apply(tmp_path, tags=[TEAM])
    ingest_allocations(allocation_record(1, **first))
    assert answer(ingest_allocations(allocation_record(1, **second)))[:3] == meaning


def test_a_running_pod_goes_on_where_its_agent_learns_to_state_more(tmp_path: Path) -> None:
    """An older agent reported it open; the newer one, which states more, extends and ends the same allocation."""
    apply(tmp_path, tags=[TEAM])
    ingest_allocations(allocation_record(1, **OPEN))
    stated = {"capacity_type": "spot", "tags": {"squad": "a"}}
    assert answer(ingest_allocations(allocation_record(1, **OPEN | {"observed_until": "2026-10-10T02:00:00Z"}, **stated)))[
        :3] == (1, 0, 0)  # fmt: skip
    assert answer(ingest_allocations(allocation_record(1, **stated)))[:3] == (1, 0, 0)
    assert [row.ended_at is not None for row in GpuAllocation.objects.all()] == [True]


def test_neither_is_part_of_the_identity() -> None:
    stated: list[dict[str, Any]] = [{}, {"capacity_type": "spot", "tags": {"a": "b"}}]
    raws = [json.dumps(allocation_record(1, **more)).encode() for more in stated]
    (_, plain), (_, full) = decode_batch(Record, raws).records
    assert plain.identity == full.identity


def test_what_is_refused_or_waits_for_its_share_has_no_other_tags(tmp_path: Path) -> None:
    apply(tmp_path, tags=[TEAM])
    tags = {"squad": "blue", "user": SECRET}
    ingest_allocations(
        allocation_record(1, quantity=0, tags=tags),
        allocation_record(2, device_fraction=None, share_unknown="no slice of that name", tags=tags),
    )
    (refused,), (waiting,) = QuarantinedRecord.objects.all(), UnknownShare.objects.all()
    assert json.loads(refused.record)["tags"] == json.loads(waiting.record)["tags"] == {"squad": "blue"}
    assert SECRET not in refused.record + refused.error + waiting.record


def test_the_close_proves_what_was_stated(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record(1, capacity_type="spot"))
    period_close(month="2026-10", actor="ops", now=AFTER)
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    rewrite("""UPDATE usage_gpuallocation SET facts = '{"capacity_type": "on_demand"}'""")
    faults = [proof.stored for proof in period_verify(month="2026-10") if not proof.holds]
    assert [fault.split()[0] for fault in faults] == ["as", "gpu_facts"]
