"""`python -m metering gpu` as a process of its own: it meters, is killed, goes on, and reports the rest when it is
stopped."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metering.k8s.volcano_queues import QUEUES
from tests.agent.cluster import ApiServer, Cluster
from tests.agent.rig import Platform
from tests.http_servers import HttpServer, Request, acknowledgement, serving

PROJECT = Path(__file__).resolve().parents[2]
MANIFEST = PROJECT / "docker/charts/suanpan-agent/templates/gpu.yaml"


class Endpoint(HttpServer):
    """A platform over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.platform = Platform()

    def answer(self, request: Request) -> tuple[int, bytes]:
        assert request.headers["Authorization"] == "Bearer secret"
        self.platform.take(request.path, json.loads(request.body))
        return (204, b"") if request.path.endswith("watermarks") else (200, acknowledgement(request.body))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer(Cluster())
    server.silent_s = 0.1
    server.cluster.add_node("n-1")
    with serving(server):
        yield server


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    with serving(server):
        yield server


@pytest.fixture
def start(api: ApiServer, endpoint: Endpoint, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    (tmp_path / "token").write_text("secret\n")
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}],
        "clusters": [{"name": "k", "cluster": {"server": api.address}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    made: list[subprocess.Popen[str]] = []

    def begin(*more: str) -> subprocess.Popen[str]:
        where = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--state", str(tmp_path / "state")]
        to = ["--endpoint", endpoint.address, "--token-file", str(tmp_path / "token")]
        pace = ["--report-seconds", "0.1", "--refresh-seconds", "0.2", "--port", "0"]
        command = [sys.executable, "-m", "metering", "gpu", "--cluster", "hq-1", *where, *to, *pace, *more]
        made.append(subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True))
        return made[-1]

    yield begin
    for process in made:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to pass within thirty seconds")


def test_it_meters_through_kill_9_and_reports_the_rest_when_it_is_stopped(
    api: ApiServer, endpoint: Endpoint, start: Callable[..., subprocess.Popen[str]]
) -> None:
    platform, cluster = endpoint.platform, api.cluster
    process = start()
    cluster.create("a")
    cluster.bind("a")
    until(lambda: bool(platform.holds))
    process.kill()
    process.wait()
    with cluster.lock:
        cluster.advance(50)
        cluster.finish("a")
    cluster.create("b", gpus=2)
    cluster.bind("b")
    process = start()
    until(lambda: len(platform.holds) == 2 and bool(platform.hold("a")["ended_at"]))
    with cluster.lock:
        cluster.advance(25)
        cluster.finish("b")
        reached = cluster.version
    until(lambda: any("/pods?" in path and f"resourceVersion={reached}" in path for path in api.requests))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert (platform.seconds("a"), platform.seconds("b")) == (50, 25)
    assert platform.conflicts == []


def test_it_finds_claims_and_says_what_it_may_not_read(
    api: ApiServer, endpoint: Endpoint, start: Callable[..., subprocess.Popen[str]]
) -> None:
    platform, cluster = endpoint.platform, api.cluster
    cluster.add_claims()
    cluster.add_slice("n-1", {"gpu-0": {"productName": {"string": "NVIDIA H100"}}})
    cluster.allocate("one", "gpu-0")
    cluster.reserve("one", "a")
    cluster.create("a", 0, resourceClaims=[{"name": "gpus", "resourceClaimName": "one"}])
    cluster.bind("a")
    api.refused.add("resourceslices")
    process = start()
    until(lambda: any(subject.startswith("reading slices") for subject in platform.problems))
    assert platform.holds == {}
    api.refused.clear()
    until(lambda: bool(platform.holds))
    assert (platform.hold("a")["resource"], platform.hold("a")["accelerator"]) == ("dra/gpu.nvidia.com", "NVIDIA-H100")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def test_probes_and_metrics_answer(api: ApiServer, endpoint: Endpoint, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start()
    read = answer_of(process)
    until(lambda: endpoint.platform.watermark != "")
    until(lambda: "suanpan_agent_lists 1.0" in read("/metrics")[1])
    asked = re.findall(r"(\w+)Probe: {httpGet: {path: (\S+), port: metrics}", MANIFEST.read_text(encoding="utf-8"))
    assert asked == [("liveness", "/healthz"), ("readiness", "/readyz")]
    assert [read(path) for _, path in asked] == [(200, "ok\n")] * 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def answer_of(process: subprocess.Popen[str]) -> Callable[[str], tuple[int, str]]:
    """Status and body of the process's probes and metrics, by path."""
    assert process.stderr is not None
    line = next(line for line in process.stderr if "health and metrics on port" in line)

    def read(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{line.split()[-1]}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return read


def test_a_standby_is_ready_and_shows_what_it_knows_and_reports_nothing(
    api: ApiServer, endpoint: Endpoint, start: Callable[..., subprocess.Popen[str]]
) -> None:
    held = {"holderIdentity": "another", "renewTime": "2026-10-10T10:00:00.000000Z", "leaseDurationSeconds": 60}
    path = "/apis/coordination.k8s.io/v1/namespaces/suanpan/leases/gpu-agent"
    api.leases[path] = {"metadata": {"resourceVersion": "1"}, "spec": held}
    api.cluster.launch("a")
    read = answer_of(start("--lease", "suanpan/gpu-agent"))
    until(lambda: read("/readyz") == (200, "ok, standing by: another agent holds the lease\n"))
    metrics = read("/metrics")[1]
    assert "suanpan_agent_open_holds 1.0" in metrics
    assert "suanpan_agent_leading 0.0" in metrics
    assert endpoint.platform.bodies == []
    assert endpoint.platform.watermark == ""


def test_a_lease_that_the_agent_has_no_right_to_is_a_line_of_its_log(
    api: ApiServer, endpoint: Endpoint, start: Callable[..., subprocess.Popen[str]]
) -> None:
    api.refused.add("gpu-agent")
    process = start("--lease", "suanpan/gpu-agent")
    assert process.stderr is not None
    line = next(text for text in process.stderr if "lease suanpan/gpu-agent" in text)
    assert "ERROR" in line
    assert "403" in line
    assert line.endswith("this agent reports nothing until it holds the lease\n")
    assert endpoint.platform.watermark == ""


def test_each_scan_compares_what_is_held_with_what_volcano_gave(
    api: ApiServer, start: Callable[..., subprocess.Popen[str]]
) -> None:
    cluster = api.cluster
    cluster.add_node("n-1")
    cluster.create("u", 4, schedulerName="volcano")
    cluster.bind("u")
    given = {"metadata": {"name": "default"}, "status": {"allocated": {"nvidia.com/gpu": "7"}}}
    api.others[QUEUES] = {"kind": "QueueList", "items": [given]}
    process = start("--scan-seconds", "0.2")
    read = answer_of(process)
    until(lambda: "suanpan_agent_queue_difference 3.0" in read("/metrics")[1])
    assert process.stderr is not None
    assert any("queue default: 4 of nvidia.com/gpu are held, Volcano says 7" in text for text in process.stderr)
    given["status"] = {"allocated": {"nvidia.com/gpu": "4"}}
    until(lambda: "suanpan_agent_queue_difference 0.0" in read("/metrics")[1])
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (("--token-file", "absent"), "absent: No such file or directory"),
        (("--kubeconfig", "absent"), "Invalid kube-config file"),
        (("--resource", "fpga"), "'fpga' must be written DOMAIN/NAME"),
        (("--claim-driver", "=nvidia"), "'=nvidia' must be written NAME, NAME=VENDOR or NAME="),
        (("--owner", "Job=batch"), "'Job=batch' must be written KIND=GROUP/VERSION/PLURAL"),
        (("--lease", "agent"), "--lease 'agent' must be written NAMESPACE/NAME"),
    ],
)
def test_what_is_wrong_from_the_start_is_one_line(
    start: Callable[..., subprocess.Popen[str]], changed: tuple[str, str], complaint: str
) -> None:
    process = start(*changed)
    _, reported = process.communicate(timeout=60)
    assert process.returncode == 2
    assert complaint in reported
    assert len(reported.splitlines()) == 1
