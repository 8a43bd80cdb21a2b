"""Four hours that no agent watched, filled from kube-state-metrics series of a real Prometheus, through to the report."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import override_settings

from billing.closing.report import build_report
from billing.invoices.selectors import period_of
from billing.tenancy.tokens import api_token_create
from billing.usage.models import GpuAllocation, QuarantinedRecord
from metering.__main__ import main
from tests.documented import AGENTS, filled, of_page, words
from tests.factories import apply
from tests.prometheus.open_metrics import OpenMetrics, every

pytestmark = pytest.mark.django_db

GAP = (datetime(2026, 10, 20, 8, tzinfo=UTC), datetime(2026, 10, 20, 12, tzinfo=UTC))
WATCHED = (GAP[0] - timedelta(minutes=15), GAP[1] + timedelta(minutes=15))
OCTOBER_OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
SCRAPE = 30


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-10-20T{text}+00:00")


class Cluster:
    """What kube-state-metrics would have shown, scraped each 30 seconds."""

    def __init__(self, away: Callable[[datetime], bool] = lambda moment: False) -> None:
        """`away`: when the second of two shards of kube-state-metrics was not scraped, which has gpu-2."""
        self.series, self._away = OpenMetrics(), away
        for node, labels in (
            ("gpu-1", {"label_nvidia_com_gpu_product": "NVIDIA-H800"}),
            ("gpu-2", {"label_nvidia_com_gpu_product": "NVIDIA-H800", "label_nvidia_com_mig_strategy": "mixed"}),
        ):
            for name, shown in (("kube_node_info", {"node": node}), ("kube_node_labels", {"node": node, **labels})):
                self._show(name, shown, start=WATCHED[0], end=WATCHED[1], value=1, second=node == "gpu-2")

    def _show(
        self, name: str, labels: dict[str, str], *, start: datetime, end: datetime, value: Any, second: bool
    ) -> None:
        """Samples of one of the shards."""
        shown = lambda moment: None if second and self._away(moment) else value(moment) if callable(value) else value  # noqa: E731
        scraped = {"job": "kube-state-metrics", "instance": f"10.0.0.{2 if second else 1}:8080"}
        self.series.add(name, {**scraped, **labels}, every(start, end, SCRAPE, shown))

    def pod(
        self,
        name: str,
        scheduled: datetime,
        gone: datetime,
        requests: dict[str, int],
        *,
        completed: datetime | None = None,
        resource: str = "nvidia_com_gpu",
        node: str = "gpu-1",
        phase: str = "Succeeded",
        reason: str | None = None,
        second: bool = False,
    ) -> None:
        """A pod that objects show until `gone`; `requests` by container, those of init containers as `init-...`."""
        who = {"namespace": "nlp-train", "pod": name, "uid": f"uid-{name}"}
        start, end = max(WATCHED[0], scheduled), min(WATCHED[1], gone)
        start = datetime.fromtimestamp(-(-int(start.timestamp()) // SCRAPE) * SCRAPE, UTC)  # its first scrape
        show = partial(self._show, start=start, end=end, second=second)
        show("kube_pod_info", {**who, "node": node, "priority_class": "", "host_ip": "10.0.0.1"}, value=1)
        show("kube_pod_status_scheduled_time", who, value=int(scheduled.timestamp()))
        owner = {**who, "owner_kind": "PyTorchJob", "owner_name": "llm", "owner_is_controller": "true"}
        show("kube_pod_owner", owner, value=1)
        for container, count in requests.items():
            metric = "kube_pod_init_container_resource_requests" if container.startswith("init") else REQUESTS
            labels = {**who, "node": node, "container": container, "resource": resource, "unit": "integer"}
            show(metric, labels, value=count)
            show(metric, {**labels, "resource": "cpu", "unit": "core"}, value="4")
            if container.startswith("init"):
                show("kube_pod_init_container_info", {**who, "container": container, "image": "x"}, value=1)
        if completed or reason:
            done = completed or scheduled
            ended = lambda moment: 1 if moment >= done else 0  # noqa: E731
            show("kube_pod_status_phase", {**who, "phase": phase}, value=ended)
        if completed:
            after = lambda moment: int(completed.timestamp()) if moment >= completed else None  # noqa: E731
            show("kube_pod_completion_time", who, value=after)
        if reason:
            show("kube_pod_status_reason", {**who, "reason": reason}, value=1)


REQUESTS = "kube_pod_container_resource_requests"


@pytest.fixture(scope="module")
def prometheus(prometheus_of: Callable[[OpenMetrics], str]) -> str:
    cluster = Cluster()
    later = WATCHED[1] + timedelta(hours=1)
    cluster.pod("runs-through", at("06:00:00"), later, {"main": 8})
    cluster.pod("ends-in-it", at("07:00:00"), at("09:20:00"), {"main": 4}, completed=at("09:17:23"))
    cluster.pod("lives-in-it", at("08:30:05"), at("10:05:00"), {"main": 2, "init-data": 4}, completed=at("10:00:05"))
    cluster.pod("vanishes", at("10:15:00"), at("11:00:30"), {"main": 1})
    cluster.pod("sliced", at("09:00:00"), at("09:31:00"), {"main": 2}, completed=at("09:30:00"), phase="Failed",
                resource="nvidia_com_mig_1g_10gb", node="gpu-2")  # fmt: skip
    refused = "UnexpectedAdmissionError"
    cluster.pod("turned-away", at("09:00:00"), at("09:10:00"), {"main": 8}, phase="Failed", reason=refused)
    return prometheus_of(cluster.series)


@pytest.fixture(autouse=True, scope="session")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with override_settings(STATIC_ROOT=tmp_path_factory.mktemp("static")):
        yield


def arguments(prometheus: str, *more: str) -> list[str]:
    gap = ["--from", GAP[0].isoformat(), "--until", GAP[1].isoformat()]
    return ["backfill", "--cluster", "hq-1", "--prometheus", prometheus, *gap, *more]


def backfilled(prometheus: str, folder: Path) -> dict[str, dict[str, Any]]:
    out = folder / "holds.json"
    assert main(arguments(prometheus, "--out", str(out))) == 0
    return {item["pod"]: item for item in map(json.loads, out.read_text(encoding="utf-8").splitlines())}


def test_holds_are_pieced_together_with_their_bounds(prometheus: str, tmp_path: Path) -> None:
    found = backfilled(prometheus, tmp_path)
    reported = {
        name: (item["quantity"], item["started_at"][11:19], (item["ended_at"] or "")[11:19], item["end_rule"],
               item["end_reason"])
        for name, item in found.items()
    }  # fmt: skip
    assert reported == {
        "runs-through": (8, "06:00:00", "", None, None),
        "ends-in-it": (4, "07:00:00", "09:17:23", "kube_pod_completion_time", "completed"),
        "lives-in-it": (4, "08:30:05", "10:00:05", "kube_pod_completion_time", "completed"),  # its init container needs 4
        "vanishes": (1, "10:15:00", "11:00:30", "absent from kube_pod_info", "unknown"),
        "sliced": (2, "09:00:00", "09:30:00", "kube_pod_completion_time", "failed"),
    }
    gone = found["vanishes"]
    assert (gone["end_earliest"][11:19], gone["end_latest"][11:19]) == ("11:00:00", "11:00:30")
    assert {item["reconstructed_from"] for item in found.values()} == {"prometheus"}
    assert {item["end_estimated"] for item in found.values() if item["ended_at"]} == {True}
    assert found["runs-through"]["observed_until"] == "2026-10-20T12:00:00Z"
    assert found["sliced"]["device_fraction"] == "0.142857142857"
    assert found["sliced"]["allocation_id"] == "hq-1/uid-sliced/nvidia.com/mig-1g.10gb/2026-10-20T09:00:00+00:00"


def test_a_file_for_import_holds_the_same(prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(prometheus, "--out", str(tmp_path / "holds.csv"))) == 0
    rows = (tmp_path / "holds.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 5
    assert rows[0].startswith("cluster,namespace,pod,pod_uid,resource,quantity,device_fraction,accelerator")
    assert "1 allocations go on: import the file with --until" in capsys.readouterr().err


def test_hours_without_a_scrape_stay_a_gap(prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "holds.json")
    gap = ["--from", GAP[0].isoformat(), "--until", (GAP[1] + timedelta(hours=1)).isoformat()]
    assert main(["backfill", "--cluster", "hq-1", "--prometheus", prometheus, *gap, "--out", out]) == 3
    # scrapes end at 12:14:30, and the gap at 13:00
    said = "2730 s of the gap have no scrape of kube-state-metrics, or not of each shard, and stay a gap"
    assert said in capsys.readouterr().err


def test_stretches_with_claims_in_use_stay_a_gap(
    prometheus_of: Callable[[OpenMetrics], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two claims from 09:00:00 to 09:29:30, so between the scrapes of 08:59:30 and 09:30:00; a driver of networks always."""
    cluster = Cluster()
    cluster.pod("lives-in-it", at("08:30:05"), at("10:05:00"), {"main": 2}, completed=at("10:00:05"))
    in_use = lambda moment: 2 if at("09:00:00") <= moment < at("09:30:00") else 0  # noqa: E731
    kubelet = {"node": "gpu-1", "job": "kubelet"}
    for driver, value in (("gpu.nvidia.com", in_use), ("dra.net", 1), ("<any>", in_use)):
        cluster.series.add("dra_resource_claims_in_use", {**kubelet, "driver_name": driver}, every(*WATCHED, SCRAPE, value))
    out = tmp_path / "holds.json"
    assert main(arguments(prometheus_of(cluster.series), "--out", str(out))) == 3
    reported = capsys.readouterr().err
    assert "1830 s of the gap had claims of gpu.nvidia.com in use" in reported
    assert "no scrape" not in reported
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1


def test_what_a_shard_shows_is_known_only_while_it_was_scraped(
    prometheus_of: Callable[[OpenMetrics], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two was scraped at 08:59:30 and again at 10:00:00; a pod of it was gone at 09:30."""
    cluster = Cluster(away=lambda moment: at("09:00:00") <= moment < at("10:00:00"))
    cluster.pod("vanishes", at("08:00:00"), at("09:30:00"), {"main": 8}, second=True)
    cluster.pod("vanishes-of-the-first", at("08:00:00"), at("09:30:00"), {"main": 8})
    cluster.pod("card", at("08:00:00"), at("09:30:00"), {"main": 1}, resource="example_com_nic")
    shown, out = prometheus_of(cluster.series), tmp_path / "holds.json"
    assert main(arguments(shown, "--out", str(out))) == 3
    assert "nlp-train/card on gpu-1: example_com_nic is unknown: name it with --resource" in capsys.readouterr().err
    assert main(arguments(shown, "--out", str(out), "--no-accelerator", "example.com/nic")) == 3
    assert "3630 s of the gap have no scrape of kube-state-metrics, or not of each shard" in capsys.readouterr().err
    ends = {item["pod"]: (item["end_earliest"][11:19], item["ended_at"][11:19], item["end_latest"][11:19])
            for item in map(json.loads, out.read_text(encoding="utf-8").splitlines())}  # fmt: skip
    assert ends == {
        "vanishes": ("08:59:30", "10:00:00", "10:00:00"), "vanishes-of-the-first": ("09:29:30", "09:30:00", "09:30:00"),
    }


def test_an_instance_that_was_away_all_the_time_is_missed(
    prometheus_of: Callable[[OpenMetrics], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An instance on each node shows the pods of that node, and one the nodes; that on gpu-2 showed nothing.

    Of a third shard only its number is known, and of gpu-9, on which a pod ran, nothing but its name.
    """
    series, always = OpenMetrics(), lambda value: every(*WATCHED, SCRAPE, value)
    for node in ("gpu-1", "gpu-2"):
        series.add("kube_node_info", {"node": node, "instance": "nodes:1"}, always(1))
        series.add("kube_node_labels", {"node": node, "label_nvidia_com_gpu_product": "NVIDIA-H800"}, always(1))
        series.add("kube_node_status_capacity", {"node": node, "resource": "nvidia_com_gpu"}, always(8))
    for pod, node, kind in (("train", "gpu-1", "Job"), ("proxy", "gpu-1", "DaemonSet"), ("lost", "gpu-9", "Job")):
        who = {"namespace": "nlp", "pod": pod, "uid": f"uid-{pod}", "instance": "gpu-1:1"}
        series.add("kube_pod_info", {**who, "node": node, "created_by_kind": kind}, always(1))
        if kind == "Job":
            series.add(REQUESTS, {**who, "container": "main", "resource": "nvidia_com_gpu"}, always(8))
    series.add("kube_state_metrics_total_shards", {"instance": "nodes:2"}, always(3))
    out = tmp_path / "holds.json"
    assert main(arguments(prometheus_of(series), "--out", str(out), "--accelerators", "*=NVIDIA-H800")) == 3
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in said] == [
        "gpu-2: no kube-state-metrics shows the pods of this node",
        "kube_node_info does not show gpu-9: a shard of kube-state-metrics is missing",
        "kube-state-metrics has 3 shards, and series show 2",
    ]
    assert {item["pod"] for item in map(json.loads, out.read_text(encoding="utf-8").splitlines())} == {"train", "lost"}


# Through the platform


def agents_report(url: str, token: str) -> None:
    """An agent that saw two holds begin, was down for the gap, and came back without knowing what happened in it."""

    def record(name: str, quantity: int, started: str, **changed: Any) -> dict[str, Any]:
        return {
            "allocation_id": f"hq-1/uid-{name}/nvidia.com/gpu/2026-10-20T{started}+00:00", "cluster": "hq-1",
            "namespace": "nlp-train", "pod": name, "pod_uid": f"uid-{name}", "resource": "nvidia.com/gpu",
            "quantity": quantity, "device_fraction": "1", "accelerator": "NVIDIA-H800", "node": "gpu-1", "queue": "research",
            "started_at": f"2026-10-20T{started}Z", "observed_until": GAP[0].isoformat(), "scheduler": "volcano", **changed,
        }  # fmt: skip

    def post(*records: dict[str, Any], **more: Any) -> None:
        body = {"agent": {"name": "agent-1", "cluster": "hq-1"}, "allocations": records, **more}
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{url}/api/v1/usage/gpu-allocations", json=body, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["rejected"]) == (200, [])

    post(record("runs-through", 8, "06:00:00"), record("ends-in-it", 4, "07:00:00"), watermark=GAP[0].isoformat())
    ended = {"ended_at": "2026-10-20T13:00:00Z", "end_reason": "completed"}
    unwatched = [{"from": GAP[0].isoformat(), "until": GAP[1].isoformat()}]
    post(record("runs-through", 8, "06:00:00", **ended), unwatched=unwatched, watermark="2026-10-31T16:00:00Z")


def gaps_and_seconds() -> tuple[list[tuple[str, int]], Decimal | None]:
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert all(check.ok for check in report.checks)
    blocking = [(item.subject, int(item.quantity)) for item in report.blocking]
    return blocking, report.gpu_seconds["charged"]


def test_a_gap_of_the_period_report_disappears_once_it_is_filled(prometheus: str, live_server: Any, tmp_path: Path) -> None:
    apply(tmp_path)
    token = api_token_create(name="agent", scopes=["usage:write"], source="hq-1", actor="tests")[1]
    (tmp_path / "token").write_text(token, encoding="utf-8")
    agents_report(live_server.url, token)
    through_s = 7 * 3600 * 8
    blocking, charged = gaps_and_seconds()
    month_end = datetime(2026, 10, 31, 16, tzinfo=UTC)
    open_s = int((month_end - GAP[0]).total_seconds())
    assert blocking == [("hq-1/nlp-train", open_s), ("hq-1/agent agent-1", 4 * 3600)]
    assert charged == through_s + 3600 * 4

    send = ["--endpoint", live_server.url, "--token-file", str(tmp_path / "token"), "--state", str(tmp_path / "spool.db")]
    assert main(arguments(prometheus, *send)) == 0
    slices_s = Decimal(1800 * 2) * Decimal("0.142857142857")
    filled = through_s + 8243 * 4 + 5400 * 4 + 2730 + slices_s  # 07:00:00-09:17:23, 08:30:05-10:00:05, 10:15:00-11:00:30
    assert gaps_and_seconds() == ([], filled)
    rows = {row.pod: row for row in GpuAllocation.objects.all()}
    assert (rows["ends-in-it"].queue, rows["ends-in-it"].end_estimated, rows["ends-in-it"].reconstructed_from) == (
        "research", True, "",
    )  # fmt: skip
    assert (rows["lives-in-it"].end_estimated, rows["lives-in-it"].reconstructed_from) == (True, "prometheus")
    assert not rows["runs-through"].end_estimated

    assert main(arguments(prometheus, *send)) == 0
    assert gaps_and_seconds() == ([], filled)
    assert QuarantinedRecord.objects.count() == 0


def test_the_commands_of_the_page_show_what_would_be_sent_and_send_it(
    prometheus: str, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(tmp_path)
    token = api_token_create(name="agent", scopes=["usage:write"], source="hq-1", actor="tests")[1]
    (tmp_path / "token").write_text(token, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    show, send = of_page(AGENTS, "python -m metering backfill")
    shown = words(filled(show, {"http://127.0.0.1:9090": prometheus}))[3:]
    assert main(shown) == 0
    pods = {json.loads(line)["pod"] for line in capsys.readouterr().out.splitlines()}
    assert pods == {"runs-through", "ends-in-it", "lives-in-it", "vanishes", "sliced"}
    own = {"https://suanpan.example.com": live_server.url, "backfill ...": "backfill"}
    assert main([*shown, *words(filled(send, own))[4:]]) == 0
    assert {row.pod for row in GpuAllocation.objects.all()} == pods
