"""A fake API server -> the agent -> HTTP -> the real ledger: GPU-seconds of each pod, through kills and outages."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.closing.report import Check, ReportedException, build_report
from billing.invoices.selectors import period_of
from billing.tenancy.tokens import api_token_create
from billing.usage.models import AgentWatermark, CoverageNote, GpuAllocation, NodeCapacity, QuarantinedRecord
from billing.usage.selectors import allocated_twice_by_pod, not_taken_in
from billing.usage.services.watermarks import AgentNote, agent_notes_add
from metering.intervals import Interval, billing_month
from tests.agent.claims import late
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations
from tests.factories.agents import LedgerRig
from tests.factories.closing import window_close
from tests.stored_rows import query

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def here(live_server: Any, tmp_path: Path) -> Iterator[LedgerRig]:
    LedgerRig.address = live_server.url
    LedgerRig.token = api_token_create(name="agent", scopes=["usage:write"], actor="tests")[1]
    made = LedgerRig(tmp_path / "agent.sqlite")
    made.cluster.add_node("n-1")
    yield made
    made.stop()


def gpu_seconds() -> dict[str, int]:
    return dict(query(
        """SELECT a.pod_uid, sum(a.quantity * extract(epoch FROM s.until - s.start))::bigint
           FROM usage_gpuallocation a JOIN usage_allocationrevision s ON s.allocation_id = a.id GROUP BY 1"""
    ))  # fmt: skip


def test_the_ledger_holds_what_the_cluster_did_through_kills_and_a_lost_deletion(here: LedgerRig) -> None:
    here.settle()
    for uid, gpus in (("short", 4), ("long", 8), ("lost", 1), ("runs", 2)):
        here.cluster.launch(uid, gpus)
    here.report()
    here.cluster.advance(30)
    here.cluster.finish("short")
    here.restart()
    here.report()
    here.kill()
    here.cluster.advance(3600)
    here.cluster.finish("long", "Failed")
    here.cluster.delete("lost")
    here.cluster.compact()
    here.cluster.advance(10)
    here.start()
    here.settle()
    here.deliver()
    here.deliver()
    assert gpu_seconds() == {"short": 4 * 30, "long": 8 * 3630, "lost": 3640, "runs": 2 * 3640}
    lost = GpuAllocation.objects.get(pod_uid="lost")
    assert (lost.end_estimated, lost.end_rule) == (True, "absent from list")
    assert GpuAllocation.objects.filter(end_estimated=True).count() == 1
    assert QuarantinedRecord.objects.count() == 0
    assert AgentWatermark.objects.get().watermark == here.cluster.now
    offered = NodeCapacity.objects.get()
    assert (offered.quantity, offered.accelerator, offered.until) == (8, "NVIDIA-H800", here.cluster.now)


def unmetered(year: int, month: int) -> list[tuple[str, str]]:
    window = Interval(datetime(year, month, 1, tzinfo=UTC), datetime(year, month + 1, 1, tzinfo=UTC))
    return [(whose, text) for what, whose, _, text in not_taken_in(window) if what == "agent problem"]


def test_what_cannot_be_metered_blocks_each_month_and_each_pod_of_a_name(
    claims: LedgerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod has an unknown claim from 10 October on, another of that name (Volcano gives it again) from 10 November on."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: claims.cluster.now)
    claims.settle()
    for month, uid in ((10, "first"), (11, "second")):
        claims.cluster.now = datetime(2026, month, 10, 10, tzinfo=UTC)
        claims.cluster.create(uid, 0, name="job-0", resourceClaims=[{"name": "x", "resourceClaimName": "never"}])
        claims.cluster.bind(uid)
        claims.watch()
        claims.cluster.advance(600)
        claims.report()
    unknown = "claim never: not seen as reserved for the pod"
    assert unmetered(2026, 10) == [("hq-1/pod nlp/job-0 (first), 2026-10", unknown)]
    assert unmetered(2026, 11) == [
        ("hq-1/pod nlp/job-0 (first), 2026-11", unknown), ("hq-1/pod nlp/job-0 (second), 2026-11", unknown),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        # already November in UTC, not yet in New York, where the same goes on until the 20th
        ("America/New_York", ["2026-10-10T12:00:00Z", "2026-11-01T00:00:30Z", "2026-11-20T12:00:00Z"]),
        # the last that is known of it is of November in Shanghai, though still of October in UTC
        ("Asia/Shanghai", ["2026-10-10T12:00:00Z", "2026-10-31T17:00:00Z"]),
        # the platform was away when the month ended, and hears of the last hours of October in November alone
        ("Asia/Shanghai", ["2026-11-02T00:00:00Z"]),
    ],
)
def test_what_cannot_be_metered_blocks_the_months_of_the_billing_zone(zone: str, told: list[str], tmp_path: Path) -> None:
    apply(tmp_path, billing={**SET_UP["billing"], "zone": zone}, price_versions=[], ownership=[])
    since = datetime(2026, 10, 10, 12, tzinfo=UTC)
    for at in map(datetime.fromisoformat, told):
        for _ in range(2):
            notes = {"pod nlp/job-0 (first)": AgentNote("claim never", since, at)}
            agent_notes_add(agent="agent-1", cluster="hq-1", kind="problem", notes=notes, now=at + timedelta(minutes=1))
    for month in ("2026-10", "2026-11"):
        found = [whose for _, whose, _, _ in not_taken_in(billing_month(month, zone))]
        assert found == [f"hq-1/pod nlp/job-0 (first), {month}"]


def test_what_was_not_metered_in_a_closed_month_blocks_the_next(tmp_path: Path) -> None:
    closed = billing_month("2026-10", "UTC")
    window_close(closed.start, closed.end)
    at = closed.end - timedelta(hours=1)
    agent_notes_add(
        agent="agent-1", cluster="hq-1", kind="problem", notes={"pod nlp/a (a)": AgentNote("claim never", at, at)},
        now=closed.end + timedelta(days=3),
    )
    assert not not_taken_in(closed)
    assert [whose for _, whose, _, _ in not_taken_in(billing_month("2026-11", "UTC"))] == ["hq-1/pod nlp/a (a), 2026-10"]


def test_a_cluster_that_is_reported_under_two_names_is_held_twice(tmp_path: Path) -> None:
    """After `hq-1` was renamed, its agent reports a pod again that ran for 600 s. Other UIDs are of their cluster alone."""
    uid = "0b4f2c1e-5d3a-4c57-9a10-3f2e6d7c8b90"
    for cluster, seconds in (("hq-1", 400), ("hq-new", 600)):
        for name in (uid, "job-1"):
            start = datetime(2026, 10, 10, tzinfo=UTC)
            ingest_allocations(allocation_record(
                cluster=cluster, pod_uid=name, allocation_id=f"{cluster}/{name}", started_at=start.isoformat(),
                ended_at=(start + timedelta(seconds=seconds)).isoformat(),
            ))  # fmt: skip
    assert allocated_twice_by_pod(billing_month("2026-10", "UTC")) == [("hq-new", uid, 400_000_000)]


def test_however_many_pods_cannot_be_metered_none_is_left_out_in_silence(
    claims: LedgerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: claims.cluster.now)
    claims.settle()
    for number in range(101):
        claims.cluster.create(f"u{number:03}", 0, resourceClaims=[{"name": "x", "resourceClaimName": f"never-{number}"}])
        claims.cluster.bind(f"u{number:03}")
    claims.watch()
    claims.cluster.advance(600)
    claims.report()
    found = unmetered(2026, 10)
    assert len(found) == 100
    assert found[0] == ("hq-1/others, 2026-10", "2 more cannot be metered: see the log of the agent")


@pytest.fixture
def claims(live_server: Any, tmp_path: Path) -> Iterator[LedgerRig]:
    LedgerRig.address = live_server.url
    LedgerRig.token = api_token_create(name="agent", scopes=["usage:write"], actor="tests")[1]
    made = LedgerRig(tmp_path / "agent.sqlite", claims=True)
    made.cluster.add_node("n-1", 0)
    cards = {f"gpu-{number}": {"productName": {"string": "NVIDIA H800"}} for number in range(3)}
    made.cluster.add_slice("n-1", {**cards, "old": {"productName": {"string": "NVIDIA A100"}}})
    yield made
    made.stop()


def test_a_card_that_pods_share_is_in_the_ledger_once_and_held_twice_by_nobody(claims: LedgerRig, tmp_path: Path) -> None:
    """One card for 200 s: `a` alone for 60 s, then with `b`. `a` has a card of its own and one of another product too.

    The share changes while no agent watches, so that what was reported of `a` is cut afterwards.
    """
    apply(tmp_path, ownership=[{"cluster": "hq-1", "namespace": "nlp", "team": "nlp", "valid_from": "2026-01-01"}])
    cluster = claims.cluster
    claims.settle()
    cluster.allocate("own", "gpu-0", "old")
    cluster.allocate("shared", "gpu-1")
    named = [{"name": name, "resourceClaimName": name} for name in ("own", "shared")]
    for uid, entries, wait in (("a", named, 60), ("b", named[1:], 100)):
        for entry in entries:
            cluster.reserve(entry["name"], uid)
        cluster.create(uid, 0, resourceClaims=entries)
        cluster.bind(uid)
        cluster.advance(wait)
        if uid == "a":
            claims.report()
    claims.restart()
    claims.report()
    cluster.advance(40)
    cluster.finish("a")
    cluster.finish("b", "Failed")
    claims.report()
    claims.deliver()
    assert QuarantinedRecord.objects.count() == 0
    assert query(
        """SELECT a.pod_uid, a.accelerator,
                  sum(a.quantity * a.device_fraction * extract(epoch FROM s.until - s.start))::float
           FROM usage_gpuallocation a JOIN usage_allocationrevision s ON s.allocation_id = a.id
           GROUP BY 1, 2 ORDER BY 1, 2"""
    ) == [
        ("a", "NVIDIA-A100", 200.0), ("a", "NVIDIA-H800", 200.0 + 60 + 70), ("b", "NVIDIA-H800", 70.0),
    ]  # fmt: skip
    report = build_report(period_of("2026-10"), now=datetime(2026, 11, 3, tzinfo=UTC))
    kinds = {item.kind for item in report.exceptions}
    assert "overlap" not in kinds
    assert report.gpu_seconds["charged"] == 400
    assert report.gpu_seconds["unpriced"] == 200
    claimed, old = 3 * 200, 200
    assert report.gpu_seconds["capacity"] == claimed + old
    assert report.gpu_seconds["idle"] == claimed - 400


def test_the_ledger_takes_what_was_reported_of_a_shared_claim_before_all_its_pods_were_known(claims: LedgerRig) -> None:
    """One card for 100 s, of which `b` (from 20 s on) was learned of after `c` (from 60 s on) had been reported."""
    claims.settle()
    late(claims)
    assert QuarantinedRecord.objects.count() == 0
    assert query(
        """SELECT a.pod_uid, round(sum(a.quantity * a.device_fraction * extract(epoch FROM s.until - s.start)), 3)::float
           FROM usage_gpuallocation a JOIN usage_allocationrevision s ON s.allocation_id = a.id GROUP BY 1 ORDER BY 1"""
    ) == [("a", 20 + 20 + 13.333), ("b", 20 + 13.333), ("c", 13.333)]
    assert allocated_twice_by_pod(Interval(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))) == []


def compared() -> tuple[Check, list[ReportedException]]:
    """What the report of October says of scans."""
    report = build_report(period_of("2026-10"), now=datetime(2026, 11, 3, tzinfo=UTC))
    (check,) = [check for check in report.checks if check.name.startswith("watched allocations = hourly scans")]
    return check, [item for item in report.exceptions if item.kind == "scan_difference"]


def test_the_report_shows_scans_that_agree(here: LedgerRig, tmp_path: Path) -> None:
    apply(tmp_path)
    here.settle()
    for uid, gpus in (("a", 8), ("b", 2)):
        here.cluster.launch(uid, gpus)
    here.watch()
    for _ in range(3):
        here.cluster.advance(3600)
        found = here.scan()
        here.watch()
        here.judge(found)
    here.deliver()
    here.deliver()
    check, differing = compared()
    assert (check.ok, check.detail, differing) == (True, "30 units in 3 scans, 0 differ", [])


def test_the_report_shows_scans_that_found_what_the_watch_had_lost(here: LedgerRig, tmp_path: Path) -> None:
    """`a` (8 units) was deleted and `b` (2) bound without an event, both know `c` (4): 4 + 8 watched, 4 + 2 listed."""
    apply(tmp_path)
    here.settle()
    for uid, gpus in (("a", 8), ("c", 4)):
        here.cluster.launch(uid, gpus)
    here.watch()
    here.cluster.delete("a")
    here.server.drop.add(here.cluster.version)
    here.cluster.launch("b", 2)
    here.server.drop.add(here.cluster.version)
    here.cluster.advance(3600)
    found = here.scan()
    here.watch()
    here.judge(found)
    here.deliver()
    check, differing = compared()
    assert (check.ok, check.detail) == (False, "6 units in 1 scans, 10 differ")
    assert [(item.subject, item.quantity, item.unit, item.blocks) for item in differing] == [("hq-1", 10, "units", True)]
    assert here.agent.reconciliation is not None
    assert (here.agent.reconciliation.watched_units, here.agent.reconciliation.examples) == (12, ("b", "a"))


def exceptions_of(here: LedgerRig, *kinds: str) -> list[tuple[str, str, int, bool]]:
    """What of these kinds the report of October says, as far as the cluster's time has passed."""
    report = build_report(period_of("2026-10"), now=here.cluster.now)
    found = [item for item in report.exceptions if item.kind in kinds]
    return [(item.kind, item.subject, int(item.quantity), item.blocks) for item in found]


def test_a_lost_volume_is_a_gap_from_what_was_acknowledged_last_to_the_first_list(here: LedgerRig, tmp_path: Path) -> None:
    """Twelve pods of 30 s lived in the 160 s after the last report; a pod that ran before and after is whole."""
    apply(tmp_path)
    here.settle()
    here.cluster.launch("runs", 2)
    here.cluster.advance(60)
    here.report()
    here.kill()
    for number in range(12):
        here.cluster.launch(f"short-{number}", 8)
    here.cluster.advance(30)
    for number in range(12):
        here.cluster.finish(f"short-{number}")
        here.cluster.delete(f"short-{number}")
    here.cluster.advance(130)
    here.start()
    here.lose_volume()
    here.settle()
    here.deliver()
    here.cluster.advance(300)
    here.report()
    here.deliver()
    assert gpu_seconds() == {"runs": 2 * 520}
    assert exceptions_of(here, "metering_gap") == [("metering_gap", "hq-1/agent agent-1", 160, True)]
    here.restart()
    here.report()
    assert CoverageNote.objects.filter(kind="unwatched").count() == 1, "a state that was kept leaves no gap"


def test_a_pod_that_its_node_refused_after_a_reboot_is_billed_until_last_seen(here: LedgerRig, tmp_path: Path) -> None:
    """Eight devices for 60 s are known. The volume is lost, and all that the new state ever sees is the refusal."""
    apply(tmp_path)
    here.settle()
    here.cluster.launch("ran", 8)
    here.cluster.advance(60)
    here.report()
    here.cluster.advance(640)
    pod = here.cluster.pod("ran")
    pod["status"] |= {"phase": "Failed", "reason": "UnexpectedAdmissionError", "containerStatuses": []}
    here.cluster.put("pods", pod)
    here.lose_volume()
    here.settle()
    here.deliver()
    here.cluster.advance(300)
    here.report()
    here.deliver()
    assert gpu_seconds() == {"ran": 8 * 60}
    assert exceptions_of(here, "metering_gap") == [
        ("metering_gap", "hq-1/nlp", 640, True), ("metering_gap", "hq-1/agent agent-1", 640, True),
    ]  # fmt: skip


def test_an_outage_of_75_seconds_that_a_list_ends_is_a_gap(here: LedgerRig, tmp_path: Path) -> None:
    apply(tmp_path)
    here.settle()
    here.deliver()
    here.cluster.launch("lost", 8)
    here.cluster.advance(45)
    here.cluster.force("lost")
    here.cluster.compact()
    here.cluster.advance(30)
    here.settle()
    here.deliver()
    assert gpu_seconds() == {}
    assert exceptions_of(here, "metering_gap") == [("metering_gap", "hq-1/agent agent-1", 75, True)]


def test_a_pod_deleted_by_force_while_nobody_watched_is_billed_until_then(here: LedgerRig, tmp_path: Path) -> None:
    apply(tmp_path)
    here.settle()
    here.cluster.launch("forced", 8)
    here.cluster.advance(60)
    here.report()
    here.kill()
    here.cluster.advance(600)
    here.cluster.force("forced")
    here.cluster.advance(7200)
    here.start()
    here.report()
    here.deliver()
    assert gpu_seconds() == {"forced": 8 * 660}
    assert exceptions_of(here, "metering_gap", "estimated_end") == [("estimated_end", "hq-1/nlp/forced", 8 * 7200, False)]


def test_a_shared_claim_that_a_new_state_cuts_otherwise_blocks(claims: LedgerRig, tmp_path: Path) -> None:
    """`a` and `b` shared a card for 60 s; of `b`, gone since, the new agent knows nothing and bills `a` the whole card."""
    apply(tmp_path)
    cluster = claims.cluster
    claims.settle()
    cluster.allocate("shared", "gpu-1")
    for uid in ("a", "b"):
        cluster.reserve("shared", uid)
        cluster.create(uid, 0, resourceClaims=[{"name": "shared", "resourceClaimName": "shared"}])
        cluster.bind(uid)
    cluster.advance(60)
    claims.report()
    cluster.release("shared", "b")
    cluster.force("b")
    claims.lose_volume()
    cluster.advance(40)
    claims.settle()
    claims.deliver()
    claims.deliver()
    assert exceptions_of(claims, "overlap") == [("overlap", "hq-1/a", 60, True)]
