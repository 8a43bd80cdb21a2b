"""Stretches that an agent could not watch block the close until they are filled; a record may be an estimate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from billing.closing.report import Report, build_report
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.usage.gaps import metering_gaps
from billing.usage.models import AgentWatermark, CoverageNote, GpuAllocation
from metering.intervals import Interval
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.api import gateway
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def post(db: None) -> Any:
    report = gateway()

    def send(*records: dict[str, Any], agent: Any = "agent-1", **fields: Any) -> Any:
        who = agent if isinstance(agent, dict) else {"name": agent, "cluster": "hq-1"}
        body = {"agent": who, "allocations": records, **fields}
        return report("usage/gpu-allocations", body)

    return send


def stretch(start: str, until: str) -> dict[str, str]:
    return {"from": f"2026-10-{start}:00:00Z", "until": f"2026-10-{until}:00:00Z"}


def unwatched() -> list[tuple[str, list[Interval]]]:
    return [(gap.subject, list(gap.unwatched)) for gap in metering_gaps(NOVEMBER)]


def interval(start: str, until: str) -> Interval:
    reported = stretch(start, until)
    return Interval(datetime.fromisoformat(reported["from"]), datetime.fromisoformat(reported["until"]))


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
    assert CoverageNote.objects.count() == 1


def test_the_silence_of_an_agent_can_be_filled_as_well(post: Any) -> None:
    post(watermark="2026-10-31T20:00:00Z")
    assert unwatched() == [("agent agent-1", [Interval(datetime(2026, 10, 31, 20, tzinfo=UTC), NOVEMBER)])]
    post(agent="backfill", filled=[{"from": "2026-10-31T20:00:00Z", "until": "2026-11-01T00:00:00Z"}])
    assert unwatched() == []


# A reporter that begins anew


def at(hour: float) -> str:
    return (datetime(2026, 10, 20, tzinfo=UTC) + timedelta(hours=hour)).isoformat()


def lost(start: float, until: float) -> list[tuple[str, list[Interval]]]:
    """What a watermark that reaches the end of October leaves."""
    return [("agent agent-1", [Interval(datetime.fromisoformat(at(start)), datetime.fromisoformat(at(until)))])]


OVER = "2026-11-01T00:00:00Z"


def test_a_reporter_that_lost_its_state_leaves_a_gap_from_what_was_reported_last_to_its_first_list(post: Any) -> None:
    post(watermark=at(8), watched_since=at(1))
    post(watermark=at(9), watched_since=at(1))
    for watermark in (at(9.5), at(9.5), OVER):  # its first list is complete a moment after it was asked for
        post(watermark=watermark, watched_since=at(9.6))
    assert unwatched() == lost(9, 9.6)


def test_a_reporter_that_kept_its_state_or_is_the_first_leaves_none(post: Any) -> None:
    post(watermark=at(1), watched_since=at(1.1))
    post(watermark=at(2), watched_since=at(1.1))
    post(watermark=at(20), watched_since=at(1.1))
    post(watermark=OVER, watched_since=at(1.1))
    assert unwatched() == []


def test_a_second_agent_of_a_lease_that_had_watched_as_well_leaves_none(post: Any) -> None:
    """It reports of time that was reported before it took over; of the rest it reports what it did not see."""
    post(watermark=at(8), watched_since=at(1))
    post(watermark=at(9), watched_since=at(3), unwatched=[
        {"from": at(4), "until": at(5)}, {"from": at(7.5), "until": at(8.5)},
    ])  # fmt: skip
    post(watermark=OVER, watched_since=at(3))
    assert unwatched() == lost(8, 8.5)


def test_a_reporter_that_says_nothing_of_its_state_answers_for_the_time_between_its_watermarks(post: Any) -> None:
    post(watermark=at(8))
    AgentWatermark.objects.update(reported_at=timezone.now() - timedelta(days=1))
    post(watermark=OVER)
    assert unwatched() == []


@pytest.mark.parametrize(("pause_s", "advance_h", "gap"), [
    (121, 0.5, True), (119, 0.5, False), (3600, 1 / 30, False), (3600, 1 / 29, True),
])  # fmt: skip
def test_an_agent_from_before_is_believed_only_while_it_reports_without_a_pause(
    post: Any, pause_s: int, advance_h: float, gap: bool
) -> None:
    """Version 1 says nothing of its state: after two minutes of silence nobody knows whether it kept it."""
    old = {"name": "agent-1", "cluster": "hq-1", "version": "1"}
    post(watermark=at(8), agent=old)
    AgentWatermark.objects.update(reported_at=timezone.now() - timedelta(seconds=pause_s))
    post(watermark=at(8 + advance_h), agent=old)
    post(watermark=OVER)
    assert unwatched() == (lost(8, 8 + advance_h) if gap else [])


def test_an_allocation_that_a_new_state_does_not_show_was_gone_by_its_first_list(post: Any) -> None:
    """Seen until 8:00, not in the list of 9:00: what is in doubt is one hour, not the rest of the month.

    A claim may be there under another name, so that nothing is known of it.
    """
    running = {"started_at": at(2), "ended_at": None, "observed_until": at(8)}
    post(allocation_record(1, **running), watermark=at(8), watched_since=at(1))
    assert post(watermark=at(8.9), watched_since=at(9)).json()["accepted"] == 0
    month_end = [Interval(datetime.fromisoformat(at(8)), NOVEMBER)]
    assert unwatched()[0] == ("nlp-train", month_end), "while the new reports are not complete"
    post(watermark=OVER, watched_since=at(9))
    assert unwatched() == [("nlp-train", lost(8, 9)[0][1]), *lost(8, 9)]
    post(allocation_record(2, **{**running, "resource": "dra/gpu.nvidia.com"}))
    assert unwatched()[0] == ("nlp-train", month_end)


def claimed(started: str, until: str) -> dict[str, Any]:
    end = f"2026-10-{until}:00:00Z"
    times = {"started_at": f"2026-10-{started}:00:00Z", "ended_at": end, "observed_until": end}
    return allocation_record(9, resource="dra/gpu.nvidia.com", **times)


@pytest.mark.parametrize(("until", "agent", "stays"), [
    ("20T07", "backfill", True),  # an hour before the gap, devices were held through claims
    ("20T06", "backfill", False),
    ("20T07", "own-tool", False),  # not pieced together from what reports no claims
])  # fmt: skip
def test_claims_cannot_be_backfilled_and_their_gap_stays_until_it_is_waived(
    post: Any, tmp_path: Path, until: str, agent: str, stays: bool
) -> None:
    apply(tmp_path)
    assert post(claimed("20T04", until), unwatched=[stretch("20T08", "20T12")]).status_code == 200
    post(claimed("20T04", until), agent=agent, filled=[stretch("20T08", "20T12")])
    assert unwatched() == ([("agent agent-1", [interval("20T08", "20T12")])] if stays else [])
    if not stays:
        return
    report = build_report(period_of("2026-10"), now=NOVEMBER)
    (gap,) = [item for item in report.blocking if item.subject == "hq-1/agent agent-1"]
    assert (gap.kind, gap.quantity, gap.action) == ("metering_gap", 4 * 3600, (
        "claims of devices cannot be backfilled, and this cluster offers devices to claims: see what pods claimed "
        "meanwhile, import it, and waive with a reason"
    ))  # fmt: skip


def test_a_cluster_that_offers_devices_to_claims_is_one_in_which_they_may_be_held(post: Any) -> None:
    offered = {"cluster": "hq-1", "node": "n-1", "accelerator": "NVIDIA-H800", "resource": "dra/gpu.nvidia.com",
               "quantity": 8, "from": "2026-10-19T00:00:00Z", "until": "2026-10-25T00:00:00Z"}  # fmt: skip
    body = {"agent": {"name": "agent-1", "cluster": "hq-1"}, "nodes": [offered]}
    assert gateway()("usage/capacity", body).status_code == 200
    post(unwatched=[stretch("20T08", "20T12"), stretch("26T08", "26T12")])
    post(agent="backfill", filled=[stretch("20T08", "20T12"), stretch("26T08", "26T12")])
    assert unwatched() == [("agent agent-1", [interval("20T08", "20T12")])]


@pytest.mark.parametrize(
    "reported",
    [
        [stretch("20T12", "20T08")],
        [{"from": "2026-10-20T08:00:00", "until": "2026-10-20T09:00:00Z"}],
        [{"from": "2026-10-20T08:00:00Z", "until": "2999-01-01T00:00:00Z"}],
        [{"from": "2026-10-20T08:00:00Z"}],
    ],
)
@pytest.mark.parametrize("field", ["unwatched", "filled"])
def test_a_stretch_that_is_none_is_refused(post: Any, field: str, reported: Any) -> None:
    answer = post(**{field: reported})
    assert (answer.status_code, CoverageNote.objects.count()) == (400, 0)


def test_a_watched_hold_takes_the_place_of_a_reconstructed_one_and_only_estimates_give_way(post: Any) -> None:
    end = "2026-10-10T04:00:00Z"
    guess = {"ended_at": end, "end_reason": "unknown", "end_estimated": True, "end_rule": "absent from kube_pod_info",
             "end_earliest": "2026-10-10T03:59:30Z", "end_latest": end}  # fmt: skip
    bare = {"queue": None, "workload": None, "scheduler": None, "priority_class": None, "labels": None, "pool": None}
    assert post(allocation_record(1, **bare, **guess, reconstructed_from="prometheus")).json()["accepted"] == 1
    row = GpuAllocation.objects.get()
    assert (row.reconstructed_from, row.end_estimated, row.end_reconstructed, row.queue) == ("prometheus", True, True, "")
    reported = {"ended_at": "2026-10-10T03:59:42Z", "end_reason": "completed", "end_rule": "finishedAt"}
    answer = post(allocation_record(1, queue="research", **reported)).json()
    assert (answer["accepted"], answer["conflicts"]) == (1, 0)
    row.refresh_from_db()
    assert (row.reconstructed_from, row.end_estimated, row.queue, row.end_reason) == ("", False, "research", "completed")
    assert (row.ended_at, row.observed_until) == (datetime(2026, 10, 10, 3, 59, 42, tzinfo=UTC),) * 2
    assert [(span.start, span.until) for span in row.spans.all()] == [(row.started_at, row.ended_at)]
    again = post(allocation_record(1, **bare, **guess, reconstructed_from="prometheus")).json()
    assert (again["duplicates"], again["conflicts"]) == (1, 0)
    other = post(allocation_record(1, queue="research", **{**reported, "ended_at": "2026-10-10T03:59:50Z"})).json()
    assert other["conflicts"] == 1


# Scans beside what was watched


def scan(hour: int, watched: int, scanned: int, differing: int) -> dict[str, Any]:
    return {"at": f"2026-10-20T{hour:02}:00:00Z", "watched": watched, "scanned": scanned, "differing": differing}


def october() -> Report:
    return build_report(period_of("2026-10"), now=NOVEMBER)


def scan_check() -> tuple[bool, str]:
    return next((check.ok, check.detail) for check in october().checks if check.name.startswith("watched allocations"))


def test_scans_within_a_thousandth_agree(post: Any, tmp_path: Path) -> None:
    apply(tmp_path)
    assert scan_check() == (True, "no scan was reported")
    assert post(scans=[scan(8, 5_000, 5_000, 0), scan(9, 4_995, 5_000, 5)]).status_code == 200
    post(scans=[scan(9, 1, 1, 1)])  # the same instant again
    post(scans=[scan(10, 5_000, 5_000, 10)])
    assert scan_check() == (True, "15,000 units in 3 scans, 15 differ")
    assert october().closable


def test_scans_further_apart_block_the_close_until_somebody_answers_for_it(post: Any, tmp_path: Path) -> None:
    apply(tmp_path)
    post(scans=[scan(8, 990, 1_000, 10), scan(9, 1_000, 1_000, 0)])
    assert scan_check() == (False, "2,000 units in 2 scans, 10 differ")
    (item,) = october().blocking
    assert (item.kind, item.subject, item.quantity, item.unit) == ("scan_difference", "hq-1", 10, "units")
    exception_waive(
        period=period_open(month="2026-10"), kind="scan_difference", subject="hq-1", reason="a list during an upgrade",
        actor="lin", now=NOVEMBER,
    )  # fmt: skip
    assert october().closable
    post(scans=[scan(10, 999, 1_000, 1)])
    assert not october().closable


@pytest.mark.parametrize(
    "wrong", [{"watched": -1}, {"at": "2026-10-20T08:00:00"}, {"more": 1}, {"at": "2999-01-01T00:00:00Z"}]
)
def test_a_scan_that_is_none_is_refused(post: Any, wrong: dict[str, Any]) -> None:
    assert post(scans=[{**scan(8, 1, 1, 0), **wrong}]).status_code == 400


def test_the_report_for_people_shows_each_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply(tmp_path)
    end = "2026-10-10T02:00:00Z"
    ingest_allocations(allocation_record(1, started_at="2026-10-10T00:00:00Z", ended_at=end, observed_until=end))
    call_command("period_report", "2026-10")
    assert "hq-1/NVIDIA-H800: charged 57,600, platform 0, unowned 0, unpriced 0, idle and capacity unknown" in (
        capsys.readouterr().out
    )


def test_what_an_agent_cannot_meter_blocks_the_close_until_somebody_takes_it_on(tmp_path: Path) -> None:
    """A pod that cannot be read is in no charge; a resource that nobody knows may be a device. Reported again: the same."""
    apply(tmp_path)
    report = gateway()
    agent = {
        "name": "agent-1", "cluster": "hq-1", "problems": {"pod nlp-train/x": "request 1.5 is no whole number"},
        "unknown_resources": {"example.com/npu": 4},
    }  # fmt: skip
    body = {"agent": agent, "watermark": "2026-11-01T00:00:00Z", "allocations": []}
    for _ in range(2):
        assert report("usage/gpu-allocations", body).status_code == 200
    assert rewrite("UPDATE usage_agentdiagnostic SET at = '2026-10-15T00:00:00Z'") == 2

    def reported() -> list[tuple[str, str, bool]]:
        report = build_report(period_of("2026-10"), now=datetime(2026, 11, 3, tzinfo=UTC))
        return [(item.kind, item.subject, item.blocks) for item in report.exceptions]

    period_open(month="2026-10")
    assert reported() == [
        ("agent_problem", "hq-1/pod nlp-train/x", True),
        ("unknown_resource", "hq-1/example.com/npu", True),
    ]
    exception_waive(period=period_of("2026-10"), kind="agent_problem", subject="hq-1/pod nlp-train/x", reason="a test pod",
                    actor="ops", now=datetime(2026, 11, 3, tzinfo=UTC))  # fmt: skip
    assert reported()[0] == ("agent_problem", "hq-1/pod nlp-train/x", False)
