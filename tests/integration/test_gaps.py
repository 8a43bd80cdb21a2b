"""Stretches that an agent could not watch hold the close until they are filled; a record may be an estimate."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from billing.tenancy.tokens import api_token_create
from billing.usage.models import GpuAllocation, WatchNote
from billing.usage.selectors import metering_gaps
from metering.intervals import Interval
from tests.factories import allocation_record

pytestmark = pytest.mark.django_db

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def post(client: Any) -> Any:
    token = api_token_create(name="agent", scopes=["usage:write"], actor="tests")[1]

    def send(*records: dict[str, Any], agent: str = "agent-1", **fields: Any) -> Any:
        body = {"agent": {"name": agent, "cluster": "hq-1"}, "allocations": records, **fields}
        return client.post("/api/v1/usage/gpu-allocations", json.dumps(body), content_type="application/json",
                           headers={"Authorization": f"Bearer {token}"})  # fmt: skip

    return send


def stretch(start: str, until: str) -> dict[str, str]:
    return {"from": f"2026-10-{start}:00:00Z", "until": f"2026-10-{until}:00:00Z"}


def unwatched() -> list[tuple[str, list[Interval]]]:
    return [(gap.subject, list(gap.unwatched)) for gap in metering_gaps(NOVEMBER)]


def interval(start: str, until: str) -> Interval:
    told = stretch(start, until)
    return Interval(datetime.fromisoformat(told["from"]), datetime.fromisoformat(told["until"]))


def test_a_stretch_that_was_not_watched_is_a_gap_until_all_of_it_is_filled(post: Any) -> None:
    assert post(watermark="2026-11-01T00:00:00Z", unwatched=[stretch("20T08", "20T12")]).status_code == 200
    assert unwatched() == [("agent agent-1", [interval("20T08", "20T12")])]
    post(agent="backfill", filled=[stretch("20T07", "20T09"), stretch("20T10", "20T11")])
    assert unwatched() == [("agent agent-1", [interval("20T09", "20T10"), interval("20T11", "20T12")])]
    post(agent="backfill", filled=[stretch("20T08", "20T12")])
    assert unwatched() == []


def test_the_same_note_twice_is_one(post: Any) -> None:
    for _ in range(2):
        post(unwatched=[stretch("20T08", "20T12"), stretch("21T08", "21T08")])
    assert WatchNote.objects.count() == 1


def test_the_silence_of_an_agent_can_be_filled_as_well(post: Any) -> None:
    post(watermark="2026-10-31T20:00:00Z")
    assert unwatched() == [("agent agent-1", [Interval(datetime(2026, 10, 31, 20, tzinfo=UTC), NOVEMBER)])]
    post(agent="backfill", filled=[{"from": "2026-10-31T20:00:00Z", "until": "2026-11-01T00:00:00Z"}])
    assert unwatched() == []


@pytest.mark.parametrize(
    "told",
    [
        [stretch("20T12", "20T08")],
        [{"from": "2026-10-20T08:00:00", "until": "2026-10-20T09:00:00Z"}],
        [{"from": "2026-10-20T08:00:00Z", "until": "2999-01-01T00:00:00Z"}],
        [{"from": "2026-10-20T08:00:00Z"}],
    ],
)
@pytest.mark.parametrize("field", ["unwatched", "filled"])
def test_a_stretch_that_is_none_is_refused(post: Any, field: str, told: Any) -> None:
    answer = post(**{field: told})
    assert (answer.status_code, WatchNote.objects.count()) == (400, 0)


def test_a_watched_hold_takes_the_place_of_a_reconstructed_one_and_only_estimates_give_way(post: Any) -> None:
    end = "2026-10-10T04:00:00Z"
    guess = {"ended_at": end, "end_reason": "unknown", "end_estimated": True, "end_rule": "absent from kube_pod_info",
             "end_earliest": "2026-10-10T03:59:30Z", "end_latest": end}  # fmt: skip
    bare = {"queue": None, "workload": None, "scheduler": None, "priority_class": None, "labels": None, "pool": None}
    assert post(allocation_record(1, **bare, **guess, reconstructed_from="prometheus")).json()["accepted"] == 1
    row = GpuAllocation.objects.get()
    assert (row.reconstructed_from, row.end_estimated, row.end_reconstructed, row.queue) == ("prometheus", True, True, "")
    told = {"ended_at": "2026-10-10T03:59:42Z", "end_reason": "completed", "end_rule": "finishedAt"}
    answer = post(allocation_record(1, queue="research", **told)).json()
    assert (answer["accepted"], answer["conflicts"]) == (1, 0)
    row.refresh_from_db()
    assert (row.reconstructed_from, row.end_estimated, row.queue, row.end_reason) == ("", False, "research", "completed")
    assert (row.ended_at, row.observed_until) == (datetime(2026, 10, 10, 3, 59, 42, tzinfo=UTC),) * 2
    assert [(span.start, span.until) for span in row.spans.all()] == [(row.started_at, row.ended_at)]
    again = post(allocation_record(1, **bare, **guess, reconstructed_from="prometheus")).json()
    assert (again["duplicates"], again["conflicts"]) == (1, 0)
    other = post(allocation_record(1, queue="research", **{**told, "ended_at": "2026-10-10T03:59:50Z"})).json()
    assert other["conflicts"] == 1
