"""The agent of a Kubernetes cluster: decoding a list of pods beside the official client, and 200 events a second."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from kubernetes import client as official

from metering.claims import Claim
from metering.k8s import stream
from metering.k8s.agent import Agent
from metering.k8s.description import Scope
from metering.k8s.objects import Metadata, Pod, PodStatus, Slice, seen_pod
from metering.k8s.stream import CLAIMS, NODES, SLICES, Changes, Event, ListBegins, ListEnds, ListPage
from metering.spool import open_state

PODS = 20_000
OFFICIAL_PODS = 400
EVENTS, EVENTS_PER_SECOND = 4_000, 200
MOST_MB = 200
CLAIMING = 10
"""One pod in so many holds its devices through a claim of dynamic resource allocation, two of them through one."""
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
    claims = {"resourceClaims": [{"name": "card", "resourceClaimName": f"claim-{number - number % (2 * CLAIMING)}"}]}
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
                 "tolerations": [{"key": f"t{n}", "operator": "Exists", "effect": "NoExecute"} for n in range(3)],
                 **({} if number % CLAIMING else claims)},
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
        ours.append(_rate(lambda: [_decoded(item) for item in stream.PODS.items(body)[1]], PODS // 500))
        whole.append(_rate(lambda: _snapshots(body), PODS // 500))
        theirs.append(_rate(lambda: _official(api, small).items, 1))
    mine, limit, snapshots = statistics.median(ours), statistics.median(theirs), statistics.median(whole)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    measured = f"{mine:,.0f} pods/s; to snapshots {snapshots:,.0f}"
    return ("B10 relist of 20,000 pods", measured, f"official client {limit:,.0f} pods/s", f"{ratio:.0f} x", ">= 60 x")


_metadata = msgspec.json.Decoder(Metadata)
_status = msgspec.json.Decoder(PodStatus)


def _decoded(pod: Pod) -> tuple[Any, ...]:
    """All parts of a pod."""
    return _metadata.decode(pod.metadata), pod.spec, _status.decode(pod.status)


def _snapshots(body: bytes) -> list[Any]:
    _, pods, _ = stream.PODS.items(body)
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
    printed = json.loads(done.stdout)
    assert printed["open"] == PODS
    assert printed["told"] == 2 * (PODS + PODS // CLAIMING)
    assert printed["peak_mb"] < MOST_MB
    share = printed["cpu_s"] / (EVENTS / EVENTS_PER_SECOND)
    return (
        "200 pod events/s, 20,000 live pods, all reported twice, then all gone at once",
        f"{EVENTS / printed['wall_s']:,.0f} events/s, peak {printed['peak_mb']} MB",
        f"{share:.0%} of a core at 200/s", f"{EVENTS / printed['wall_s'] / EVENTS_PER_SECOND:.1f} x",
        f">= 1 x, < {MOST_MB} MB",
    )  # fmt: skip


def _events_alone() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(open_state(Path(folder) / "agent.sqlite"), Scope("hq-1"), name="bench")
        _list_cluster(agent)
        printed = sum(_told(agent, START + timedelta(minutes=minutes)) for minutes in (1, 6))
        bodies = [json.dumps(pod(number * 5, 3 + number)).encode() for number in range(EVENTS)]
        wall, cpu = time.perf_counter(), time.process_time()
        for first in range(0, EVENTS, 20):  # ten commits a second
            part = [Event(stream.PODS.decode(body)) for body in bodies[first : first + 20]]
            at = START + timedelta(seconds=first / EVENTS_PER_SECOND)
            agent.apply("pods", Changes(part, str(first + 22), at, True))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        still_open = agent.store.counts()[0]
        agent.apply("pods", ListBegins(START))
        agent.apply("pods", ListEnds("100000", START + timedelta(hours=1), START + timedelta(hours=1)))
        _told(agent, START + timedelta(hours=1))
        return {"open": still_open, "told": printed, "wall_s": wall, "cpu_s": cpu, "peak_mb": _peak_mb()}


def _list_cluster(agent: Agent) -> None:
    """500 nodes with slices, 20,000 pods, and the claims of every tenth of them."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H800"}
    node = {"metadata": {"name": "n", "uid": "n", "resourceVersion": "1", "labels": labels},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}}  # fmt: skip
    nodes = [json.dumps(node).replace('"n"', f'"node-{number}"').encode() for number in range(500)]
    agent.apply("nodes", ListBegins(START))
    agent.apply("nodes", ListPage([NODES.decode(body) for body in nodes], START))
    agent.apply("nodes", ListEnds("1", START, START))
    agent.apply(SLICES, ListBegins(START))
    agent.apply(SLICES, ListPage([msgspec.json.decode(device_slice(number), type=Slice) for number in range(500)], START))
    agent.apply(SLICES, ListEnds("1", START, START))
    agent.apply("pods", ListBegins(START))
    for first in range(0, PODS, 500):
        agent.apply("pods", ListPage(stream.PODS.items(page(first, 500, 2))[1], START))
    agent.apply("pods", ListEnds("2", START, START))
    agent.apply(CLAIMS, ListBegins(START))
    for first in range(0, PODS, 500 * 2 * CLAIMING):
        pairs = range(first, first + 500 * 2 * CLAIMING, 2 * CLAIMING)
        agent.apply(CLAIMS, ListPage([msgspec.json.decode(claim(number), type=Claim) for number in pairs], START))
    agent.apply(CLAIMS, ListEnds("2", START, START))


def device_slice(number: int) -> bytes:
    """The slice of a node with eight cards."""
    card = {"attributes": {"productName": {"string": "NVIDIA H800"}}, "capacity": {"memory": {"value": "80Gi"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": f"node-{number}",
            "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{place}", **card} for place in range(8)]}  # fmt: skip
    return json.dumps({"metadata": {"name": f"slice-{number}", "resourceVersion": "1"}, "spec": spec}).encode()


def claim(number: int) -> bytes:
    """A card that the pod of this number shares with the next that claims."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": f"node-{number % 500}", "device": "gpu-0"}
    pods = [{"resource": "pods", "name": f"train-{item}", "uid": f"uid-{item}"} for item in (number, number + CLAIMING)]
    metadata = {"name": f"claim-{number}", "namespace": "team-0", "uid": f"claim-uid-{number}", "resourceVersion": "2"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": pods}
    return json.dumps({"metadata": metadata, "status": status}).encode()


def _told(agent: Agent, now: datetime) -> int:
    """Put all that is known into the spool, as every few minutes, and take it from there; how many allocations."""
    printed = agent.report(now, refresh=True)
    while parcel := agent.spool.oldest():
        agent.spool.acknowledge(parcel.id)
    return printed or 0


def _peak_mb() -> int:
    """The most that this process ever held. Linux counts into `ru_maxrss` what the parent held when it forked."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_events_alone()))
