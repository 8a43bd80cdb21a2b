"""Efficiency samples on their way: durable in the spool, once in the ledger, and judged at the close."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from billing.closing.services.closing import period_close
from billing.local.process_list import free_port
from billing.rating.models import EfficiencyVerdict
from billing.tenancy.tokens import api_token_create
from billing.usage.models import EfficiencySample
from metering.__main__ import main
from tests.factories import allocation_record, apply, ingest_allocations
from tests.prometheus.open_metrics import OpenMetrics, every

pytestmark = pytest.mark.django_db

START = datetime(2026, 10, 10, 8, tzinfo=UTC)
HOURS = 3
OCTOBER_OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
POLICY = {"name": "bands", "valid_from": "2026-10-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
          "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95"}  # fmt: skip


@pytest.fixture(scope="module")
def prometheus(prometheus_of: Callable[[OpenMetrics], str]) -> str:
    series, end = OpenMetrics(), START + timedelta(hours=HOURS)
    who = {"namespace": "nlp-train", "pod": "llm-0"}
    for number in range(8):
        labels = {**who, "UUID": f"GPU-{number}", "Hostname": "n1", "modelName": "NVIDIA H800", "pod_uid": "uid-1"}
        series.add("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, every(START, end, 30, "0.60"))
    series.add("kube_pod_info", {**who, "uid": "uid-1"}, every(START, end, 30, 1))
    return prometheus_of(series)


@pytest.fixture(autouse=True, scope="session")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with override_settings(STATIC_ROOT=tmp_path_factory.mktemp("static")):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [
        f" [{START + timedelta(minutes=n):%Y-%m-%d %H:%M:%S}] iteration {n}/ 999 | "
        "elapsed time per iteration (ms): 60000.0 | throughput per GPU (TFLOP/s/GPU): 544.17 |"
        for n in range(1, HOURS * 60 + 1)
    ]
    (tmp_path / "log").write_text("\n".join(lines), encoding="utf-8")
    reports = "reports: {format: megatron, file: log, zone: UTC}"
    (tmp_path / "jobs.yaml").write_text(
        f"jobs: [{{namespace: nlp-*, recomputation: none, {reports}}}]", encoding="utf-8"
    )
    return tmp_path


def send(folder: Path, prometheus: str, endpoint: str, token: str) -> int:
    (folder / "token").write_text(token, encoding="utf-8")
    return main([
        "efficiency", "--cluster", "hq-1", "--prometheus", prometheus, "--jobs", str(folder / "jobs.yaml"),
        "--from", START.isoformat(), "--until", (START + timedelta(hours=HOURS)).isoformat(), "--endpoint", endpoint,
        "--token-file", str(folder / "token"), "--state", str(folder / "spool.db"),
    ])  # fmt: skip


def test_samples_wait_for_the_platform_and_arrive_once(
    prometheus: str, folder: Path, live_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(folder, efficiency_policies=[POLICY])
    end = (START + timedelta(hours=HOURS)).isoformat()
    ingest_allocations(allocation_record(1, started_at=START.isoformat(), ended_at=end, observed_until=end))
    monkeypatch.setattr("metering.efficiency.command.FLUSH_S", 0.5)
    assert send(folder, prometheus, f"http://127.0.0.1:{free_port()}", "none") == 3
    assert "3 bodies wait in" in capsys.readouterr().err
    monkeypatch.undo()
    token = api_token_create(name="agent", scopes=["usage:write"], source="hq-1", actor="tests")[1]
    assert send(folder, prometheus, live_server.url, token) == 0
    (folder / "spool.db").unlink()  # an agent that forgot everything reads and sends the same again
    assert send(folder, prometheus, live_server.url, token) == 0
    rows = EfficiencySample.objects.order_by("start")
    assert [(row.pod_uid, str(row.mfu.normalize()), str(row.gpu_seconds), row.method) for row in rows] == [
        ("uid-1", "0.55", "28800.000000", "megatron (megatron)")
    ] * HOURS
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    verdict = EfficiencyVerdict.objects.get()
    assert (verdict.reason, str(verdict.multiplier.normalize()), int(verdict.minutes), int(verdict.coverage)) == (
        "reward", "0.9", 180, 1,
    )  # fmt: skip


def test_the_file_is_what_the_import_reads(prometheus: str, folder: Path) -> None:
    apply(folder)
    out = folder / "samples.csv"
    where = ["--cluster", "hq-1", "--prometheus", prometheus, "--jobs", str(folder / "jobs.yaml"), "--out", str(out)]
    until = (START + timedelta(hours=4)).isoformat()
    assert main(["efficiency", *where, "--from", START.isoformat(), "--until", until]) == 0
    header, first, *_ = out.read_text(encoding="utf-8").splitlines()
    assert header == "cluster,pod_uid,start,end,gpu_seconds,mfu,hfu,dtype,coverage"
    assert first == "hq-1,uid-1,2026-10-10T08:00:00Z,2026-10-10T09:00:00Z,28800,0.55,0.55,bf16,1"
    call_command("import_usage", "efficiency", str(out))
    assert EfficiencySample.objects.count() == HOURS
