"""The agent of a Kubernetes cluster: decoding a list of pods beside the official client, and 200 events a second."""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubernetes import client as official

from metering.k8s.agent import Agent
from metering.k8s.description import Scope
from metering.k8s.objects import decoded, items_of, node_object, pod_object, pod_page, seen_pod
from metering.k8s.stream import Changes, Event, ListBegins, ListEnds, ListPage
from metering.spool import open_state

PODS = 20_000
OFFICIAL_PODS = 400
EVENTS, EVENTS_PER_SECOND = 4_000, 200
START = datetime(2026, 10, 10, 10, tzinfo=UTC)
Row = tuple[str, ...]


def measure(rounds: int) -> list[Row]:
    """Rows of the table."""
    return [relist(rounds), events()]


def pod(number: int, version: int, phase: str = "Running") -> dict[str, Any]:
    """A pod of common size: two containers with environment, mounts, probes, and its status."""
    name = f"train-{number}"
    stamp = "2026-10-10T10:00:00Z"
    container = {
        "name": "train", "image": "registry.example.com/team/train:1.2.3", "command": ["torchrun", "train.py"],
        "env": [{"name": f"OPTION_{n}", "value": f"value {n}"} for n in range(12)],
        "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "32", "memory": "256Gi"},
                      "requests": {"nvidia.com/gpu": "8", "cpu": "32", "memory": "256Gi"}},
        "volumeMounts": [{"name": f"v{n}", "mountPath": f"/data/{n}"} for n in range(4)],
        "ports": [{"containerPort": 29500, "protocol": "TCP"}], "terminationMessagePolicy": "File",
    }  # fmt: skip
    sidecar = {**container, "name": "logs", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    statuses = [
        {"name": item, "image": "registry.example.com/x:1", "imageID": "sha256:" + "a" * 64, "ready": True,
         "restartCount": 0, "state": {"running": {"startedAt": stamp}}}
        for item in ("train", "logs")
    ]  # fmt: skip
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "metadata": {"name": name, "namespace": f"team-{number % 40}", "uid": f"uid-{number}",
                     "resourceVersion": str(version), "creationTimestamp": stamp,
                     "labels": {f"label-{n}": f"value-{n}" for n in range(6)},
                     "annotations": {f"example.com/annotation-{n}": "x" * 60 for n in range(4)},
                     "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{number}",
                                          "controller": True}]},
        "spec": {"nodeName": f"node-{number % 500}", "containers": [container, sidecar],
                 "schedulerName": "default-scheduler", "volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(4)],
                 "tolerations": [{"key": f"t{n}", "operator": "Exists", "effect": "NoExecute"} for n in range(3)]},
        "status": {"phase": phase, "startTime": stamp, "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
                   "conditions": [{"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in conditions],
                   "containerStatuses": statuses},
    }  # fmt: skip


def page(first: int, count: int, version: int) -> bytes:
    """A page of a list, as the API server sends it."""
    items = [pod(number, version) for number in range(first, first + count)]
    return json.dumps({"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": items}).encode()


def relist(rounds: int) -> Row:
    """Pods decoded in a second of processor time, in pages of 500, against the official client's models.

    Both decode whole lists; what is billed is few fields. `to snapshots`: with effective requests and what the rules of
    holds read, for which the official client has nothing.
    """
    body = page(0, 500, 1)
    small = page(0, OFFICIAL_PODS, 1)
    api = official.CoreV1Api(official.ApiClient(official.Configuration(host="http://localhost")))
    ours, whole, theirs = [], [], []
    for _ in range(rounds):
        ours.append(_rate(lambda: [decoded(item) for item in items_of(body, pod_page, pod_object)[1]], PODS // 500))
        whole.append(_rate(lambda: _snapshots(body), PODS // 500))
        theirs.append(_rate(lambda: _official(api, small).items, 1))
    mine, limit, snapshots = statistics.median(ours), statistics.median(theirs), statistics.median(whole)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    measured = f"{mine:,.0f} pods/s; to snapshots {snapshots:,.0f}"
    return ("B10 relist of 20,000 pods", measured, f"official client {limit:,.0f} pods/s", f"{ratio:.0f} x", ">= 60 x")


def _snapshots(body: bytes) -> list[Any]:
    _, pods, _ = items_of(body, pod_page, pod_object)
    return [found.snapshot(START) for item in pods if (found := seen_pod(item)) is not None]


def _rate(decode: Callable[[], list[Any]], times: int) -> float:
    begin = time.process_time()
    count = sum(len(decode()) for _ in range(times))
    seconds = time.process_time() - begin
    assert count in (PODS, OFFICIAL_PODS)
    return count / seconds


def _official(api: official.CoreV1Api, body: bytes) -> Any:
    return api.api_client.deserialize(body.decode(), "V1PodList", "application/json")


def events() -> Row:
    """Events applied and made durable, with 20,000 pods alive, in a process of its own: its peak memory is the agent's."""
    done = subprocess.run([sys.executable, "-m", "tests.benchmarks.agent"], text=True, capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert told["open"] == PODS
    share = told["cpu_s"] / (EVENTS / EVENTS_PER_SECOND)
    return (
        "200 pod events/s, 20,000 live pods", f"{EVENTS / told['wall_s']:,.0f} events/s, peak {told['peak_mb']} MB",
        f"{share:.0%} of a core at 200/s", f"{EVENTS / told['wall_s'] / EVENTS_PER_SECOND:.1f} x",
        ">= 1 x, < 200 MB",
    )  # fmt: skip


def _events_alone() -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H800"}
    node = {"metadata": {"name": "n", "uid": "n", "resourceVersion": "1", "labels": labels},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(open_state(Path(folder) / "agent.sqlite"), Scope("hq-1"), name="bench")
        agent.apply("nodes", ListBegins(START))
        nodes = [json.loads(json.dumps(node).replace('"n"', f'"node-{number}"')) for number in range(500)]
        agent.apply("nodes", ListPage([node_object.decode(json.dumps(item).encode()) for item in nodes], START))
        agent.apply("nodes", ListEnds("1", START, START))
        agent.apply("pods", ListBegins(START))
        for first in range(0, PODS, 500):
            agent.apply("pods", ListPage(items_of(page(first, 500, 2), pod_page, pod_object)[1], START))
        agent.apply("pods", ListEnds("2", START, START))
        bodies = [json.dumps(pod(number * 5, 3 + number)).encode() for number in range(EVENTS)]
        wall, cpu = time.perf_counter(), time.process_time()
        for first in range(0, EVENTS, 20):  # ten commits a second
            part = [Event(pod_object.decode(body)) for body in bodies[first : first + 20]]
            at = START + timedelta(seconds=first / EVENTS_PER_SECOND)
            agent.apply("pods", Changes(part, str(first + 22), at, True))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return {"open": agent.store.counts()[0], "wall_s": wall, "cpu_s": cpu, "peak_mb": peak_mb}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_events_alone()))
