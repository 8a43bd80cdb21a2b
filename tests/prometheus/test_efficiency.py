"""A month of DCGM and NPU series in a real Prometheus, and training logs -> efficiency samples, to the last digit."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from metering.__main__ import main
from tests.documented import AGENTS, filled, of_page, words
from tests.prometheus.open_metrics import OpenMetrics, every

START = datetime(2026, 10, 1, tzinfo=UTC)
END = datetime(2026, 11, 1, tzinfo=UTC)
DAY_10 = datetime(2026, 10, 10, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
EXPORTER = {"job": "dcgm-exporter", "namespace": "gpu-operator", "pod": "dcgm-exporter-x7k2p", "instance": "10.0.0.9:9400"}


Samples = dict[str, dict[str, str]]
"""By the UID of their pod."""


@dataclass(frozen=True)
class Site:
    prometheus: str
    folder: Path


def one_gpu_was_lost(at: datetime) -> str | None:
    """For a quarter of an hour nothing was scraped of it."""
    return None if DAY_10 <= at < DAY_10 + 15 * MINUTE else "0.52"


def month_of_series() -> OpenMetrics:
    series = OpenMetrics()
    for gpu in ("GPU-a0", "GPU-a1"):
        labels = {
            **EXPORTER, "UUID": gpu, "hostname": "node-a", "modelName": "NVIDIA H800",
            "exported_namespace": "nlp-train", "exported_pod": "llama-worker-0", "exported_container": "main",
        }  # fmt: skip
        active = "0.52" if gpu == "GPU-a0" else one_gpu_was_lost
        series.add("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, every(START, END, 60, active))
    llama = {"namespace": "nlp-train", "pod": "llama-worker-0", "uid": "uid-llama"}
    series.add("kube_pod_info", llama, every(START, END, 60, 1))
    add_one_hour(series)
    return series


def add_one_hour(series: OpenMetrics) -> None:
    """Other exporters, spellings and doubts, all between 8 and 9 o'clock of the 10th."""
    hour = (DAY_10, DAY_10 + HOUR)

    def pod(name: str, uid: str, resource: str) -> None:
        labels = {"namespace": "lab", "pod": name, "uid": uid}
        series.add("kube_pod_info", labels, every(*hour, 30, 1))
        requests = {**labels, "container": "main", "resource": resource, "unit": "integer"}
        series.add("kube_pod_container_resource_requests", requests, every(*hour, 30, 1))

    pod("titan-0", "uid-titan", "nvidia_com_gpu")
    pod("boaster-0", "uid-boaster", "nvidia_com_gpu")
    pod("plain-0", "uid-plain", "nvidia_com_gpu")
    pod("matmul-0", "uid-matmul", "nvidia_com_gpu")
    pod("ascend-0", "uid-ascend", "huawei_com_Ascend910")
    pod("sliced-0", "uid-sliced-0", "nvidia_com_gpu")
    pod("sliced-1", "uid-sliced-1", "nvidia_com_gpu")
    requests = {"namespace": "nlp-train", "pod": "llama-worker-0", "uid": "uid-llama", "container": "main"}
    series.add("kube_pod_container_resource_requests", {**requests, "resource": "nvidia_com_gpu", "unit": "integer"},
               every(*hour, 30, 2))  # fmt: skip
    series.add("kube_pod_info", {"namespace": "gpu-operator", "pod": "dcgm-exporter-x7k2p", "uid": "uid-exporter"},
               every(*hour, 30, 1))  # fmt: skip

    honoured = {"job": "dcgm", "instance": "10.0.0.8:9400", "Hostname": "node-b", "modelName": "NVIDIA H800"}

    def ours(name: str, gpu: str) -> dict[str, str]:
        return {**honoured, "namespace": "lab", "pod": name, "UUID": gpu}

    series.add("DCGM_FI_PROF_TENSOR_UTIL_RATIO", ours("titan-0", "GPU-b0"), every(*hour, 30, "0.45"))
    series.add("DCGM_FI_PROF_TENSOR_UTIL_RATIO", ours("boaster-0", "GPU-b1"), every(*hour, 30, "0.30"))
    series.add("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", ours("matmul-0", "GPU-b4"), every(*hour, 30, "0.75"))
    series.add("DCGM_FI_DEV_GPU_UTIL", ours("plain-0", "GPU-b2"), every(*hour, 30, 99))
    idle = {**EXPORTER, "UUID": "GPU-a7", "hostname": "node-a", "modelName": "NVIDIA H800"}
    series.add("DCGM_FI_DEV_GPU_UTIL", idle, every(*hour, 30, 0))
    for name in ("sliced-0", "sliced-1"):
        series.add("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", ours(name, "GPU-b3"), every(*hour, 30, "0.20"))
    chip = {"id": "0", "model_name": "910B3", "vdie_id": "V-1", "namespace": "npu-exporter", "pod": "npu-exporter-1",
            "exported_namespace": "lab", "pod_name": "ascend-0", "container_name": "main"}  # fmt: skip
    series.add("npu_chip_info_cube_utilization", chip, every(DAY_10 + 20 * MINUTE, hour[1], 30, 40))
    series.add("npu_chip_info_utilization", {**chip, "id": "1", "vdie_id": "V-2", "pod_name": "nobody-0"},
               every(*hour, 30, 5))  # fmt: skip


def write_logs(folder: Path) -> None:
    lines = [
        f" [{START + MINUTE * n:%Y-%m-%d %H:%M:%S}] iteration {n:8d}/   99999 | consumed samples: {n * 512:12d} | "
        "elapsed time per iteration (ms): 57000.0 | throughput per GPU (TFLOP/s/GPU): 395.76 | learning rate: 1.0E-04 |"
        for n in range(1, 31 * 24 * 60 + 1)
    ]
    (folder / "llama.log").write_text("\n".join(lines), encoding="utf-8")
    (folder / "titan.log").write_text(titan_log("395.76"), encoding="utf-8")
    (folder / "boaster.log").write_text(titan_log("593.64"), encoding="utf-8")
    start, end = (DAY_10 + 20 * MINUTE).isoformat(), (DAY_10 + HOUR).isoformat()
    progress = json.dumps({"start": start, "end": end, "tokens": 4_800_000, "devices": 1})
    (folder / "ascend.log").write_text(f"suanpan-progress {progress}\n", encoding="utf-8")
    (folder / "jobs.yaml").write_text(JOBS, encoding="utf-8")


def titan_log(tflops: str) -> str:
    """A line each five minutes of the hour, in the clock of Shanghai."""
    return "\n".join(
        f"[rank0]:[titan] {DAY_10 + 8 * HOUR + n * 5 * MINUTE:%Y-%m-%d %H:%M:%S},000 - root - INFO - "
        f"\x1b[31mstep: {n * 10:2}  \x1b[32mloss: 7.1  \x1b[33mmemory: 40.2GiB(50.0%)  \x1b[34mtps: 7,500  "
        f"\x1b[36mtflops: {tflops}  "
        "\x1b[35mmfu: 40.00%\x1b[39m"
        for n in range(13)
    )


def titan_job(pods: str, log: str) -> str:
    reports = f"{{format: torchtitan, file: {log}, zone: Asia/Shanghai}}"
    return f"  - {{namespace: lab, pod: {pods}, recomputation: none, reports: {reports}}}"


JOBS = "\n".join([
    "peaks:",
    '  910B3: {BF16: "300"}',
    "jobs:",
    "  - {namespace: nlp-train, pod: llama-*, recomputation: full, reports: {format: megatron, file: llama.log, zone: UTC}}",
    titan_job("titan-*", "titan.log"),
    titan_job("boaster-*", "boaster.log"),
    titan_job("plain-*", "titan.log"),
    titan_job("sliced-*", "titan.log"),
    titan_job("matmul-*", "titan.log"),
    "  - namespace: lab",
    "    pod: ascend-*",
    "    recomputation: none",
    "    model: {active_params: 10000000000}",
    "    reports: {format: progress, file: ascend.log}",
])  # fmt: skip


@pytest.fixture(scope="module")
def site(prometheus_of: Callable[[OpenMetrics], str], tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("logs")
    write_logs(folder)
    return Site(prometheus_of(month_of_series()), folder)


def samples(site: Site, start: datetime, end: datetime) -> list[dict[str, str]]:
    out = site.folder / "samples.json"
    jobs = str(site.folder / "jobs.yaml")
    where = ["--cluster", "hq-1", "--prometheus", site.prometheus, "--jobs", jobs, "--out", str(out)]
    assert main(["efficiency", *where, "--from", start.isoformat(), "--until", end.isoformat()]) == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def hour_of_the_10th(site: Site) -> Samples:
    found = samples(site, DAY_10, DAY_10 + HOUR)
    assert len({item["pod_uid"] for item in found}) == len(found)
    return {item["pod_uid"]: item for item in found}


@pytest.fixture(scope="module")
def hour(site: Site) -> Samples:
    return hour_of_the_10th(site)


def test_a_month_of_a_job_is_its_hours_to_the_last_digit(site: Site) -> None:
    found = [item for item in samples(site, START, END) if item["pod_uid"] == "uid-llama"]
    assert len(found) == 744
    assert {item["mfu"] for item in found} == {"0.4"}  # 395.76 / 989.4
    assert {item["hfu"] for item in found} == {"0.533333333333"}  # 8 / 6 of it
    assert sum(Decimal(item["gpu_seconds"]) for item in found) == 744 * 3600 * 2
    assert found[0]["start"] == "2026-10-01T00:00:00Z"
    assert found[0]["end"] == "2026-10-01T01:00:00Z"
    covered = [item["coverage"] for item in found]
    assert covered.count("0.95") == 743  # 57 of every 60 seconds were training


def test_minutes_that_the_exporter_missed_are_not_covered(hour: Samples) -> None:
    # 15 of 120 device-minutes without a sample, 57 of 60 seconds of the others reported: 105 / 120 x 57 / 60
    assert hour["uid-llama"]["coverage"] == "0.83125"


def test_honoured_labels_new_metric_names_and_local_times_are_read(hour: Samples) -> None:
    assert hour["uid-titan"] == {
        "cluster": "hq-1", "start": "2026-10-10T08:00:00Z", "end": "2026-10-10T09:00:00Z", "gpu_seconds": "3600",
        "mfu": "0.4", "hfu": "0.4", "dtype": "bf16", "coverage": "1",
        "pod_uid": "uid-titan", "workload": None, "method": "palm (torchtitan)", "reason": None,
    }  # fmt: skip


def test_an_ascend_pod_is_scored_by_its_progress_and_a_contract_peak(hour: Samples) -> None:
    # 4.8e6 tokens in 2400 s on one device: 2000 tokens/s x 6 x 1e10 FLOP / 300e12 FLOP/s
    found = hour["uid-ascend"]
    assert (found["mfu"], found["hfu"], found["coverage"]) == ("0.4", "0.4", "1")
    assert (found["start"], found["gpu_seconds"], found["method"]) == ("2026-10-10T08:20:00Z", "2400", "6N (progress)")


@pytest.mark.parametrize(
    ("uid", "reason"),
    [
        ("uid-boaster", "reported MFU 0.600 is more than the matrix pipes were busy (0.300)"),
        ("uid-plain", "no tensor activity was measured to check the report"),
        ("uid-sliced-0", "device shared with another pod"),
        ("uid-sliced-1", "device shared with another pod"),
    ],
)
def test_what_cannot_be_trusted_is_no_score(hour: Samples, uid: str, reason: str) -> None:
    found = hour[uid]
    assert (found["mfu"], found["hfu"], found["reason"], found["coverage"]) == (None, None, reason, "0")
    assert found["gpu_seconds"] == "3600"


def test_pipes_that_are_busier_than_the_progress_explains_lift_no_score_and_are_reported(hour: Samples) -> None:
    found = hour["uid-matmul"]
    assert (found["mfu"], found["hfu"], found["coverage"]) == ("0.4", "0.4", "1")
    assert found["reason"] == "look at it: matrix pipes were busy 0.750, the progress explains 0.400"


def test_an_idle_device_and_the_exporter_itself_are_nobodys_work(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    found = hour_of_the_10th(site)
    assert set(found) == {
        "uid-llama", "uid-titan", "uid-boaster", "uid-plain", "uid-matmul", "uid-ascend", "uid-sliced-0", "uid-sliced-1",
    }  # fmt: skip
    assert "lab/nobody-0 used devices, but kube_pod_info says no UID of it" in capsys.readouterr().err


def test_the_command_of_the_page_shows_an_hour_before_anything_is_sent(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 o'clock in Shanghai is midnight here: of that hour there is the month's job alone."""
    (command,) = of_page(AGENTS, "python -m metering efficiency")
    monkeypatch.chdir(site.folder)
    assert main(words(filled(command, {"http://127.0.0.1:9090": site.prometheus}))[3:]) == 0
    (sample,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (sample["pod_uid"], sample["start"], sample["mfu"]) == ("uid-llama", "2026-10-10T00:00:00Z", "0.4")
