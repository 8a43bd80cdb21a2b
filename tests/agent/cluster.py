"""A small cluster in memory, and its API server over real HTTP: versions, history, paging, bookmarks, and faults.

Time is simulated. A watch sends what happened since its version, then a bookmark, and ends: who watches again goes on
from there, so that a test decides when something happens.
"""

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

START = datetime(2026, 10, 10, 10, tzinfo=UTC)
Object = dict[str, Any]
Backup = tuple[int, dict[str, dict[str, Object]]]


def stamp(at: datetime) -> str:
    """A time as the API writes it: whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cluster:
    """Objects with one counter of versions, and the history of changes that watches are fed from."""

    def __init__(self) -> None:
        self.now = START
        self.version = 100
        self.objects: dict[str, dict[str, Object]] = {"pods": {}, "nodes": {}}
        self.history: list[tuple[int, str, str, Object]] = []
        self.uids: dict[int, str] = {}
        self.compacted = 100
        self.lock = threading.RLock()

    def add_claims(self) -> None:
        """From now on the cluster knows dynamic resource allocation."""
        self.objects |= {"resourceclaims": {}, "resourceslices": {}}

    def add_slice(
        self, node: str, devices: dict[str, Object], *, driver: str = "gpu.nvidia.com", generation: int = 1
    ) -> None:
        """Devices of a node by name, each with its attributes."""
        self.put(
            "resourceslices",
            {
                "metadata": {"name": f"{node}-{driver}", "uid": f"slice-{node}-{driver}"},
                "spec": {"driver": driver, "nodeName": node, "pool": {"name": node, "generation": generation},
                         "devices": [{"name": name, "attributes": given} for name, given in devices.items()]},
            },
        )  # fmt: skip

    def allocate(self, claim: str, *devices: str, node: str = "n-1", driver: str = "gpu.nvidia.com", **more: Any) -> None:
        """A claim gets devices, and is nobody's yet; of a hidden one `more` says so."""
        results = [{"request": "gpus", "driver": driver, "pool": node, "device": name} for name in devices]
        results = [{**result, **more.get("result", {})} for result in results]
        self.put(
            "resourceclaims",
            {
                "metadata": {"name": claim, "namespace": "nlp", "uid": f"claim-{claim}",
                             "annotations": more.get("annotations")},
                "spec": {"devices": {"requests": []}},
                "status": {"allocation": {"devices": {"results": results}}, "reservedFor": []},
            },
        )  # fmt: skip

    def reserve(self, claim: str, *pods: str) -> None:
        """Pods are added to those that a claim is reserved for."""
        item = deepcopy(self.objects["resourceclaims"][f"claim-{claim}"])
        item["status"]["reservedFor"] += [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
        self.put("resourceclaims", item)

    def release(self, claim: str, pod: str) -> None:
        """A pod gives a claim back."""
        item = deepcopy(self.objects["resourceclaims"][f"claim-{claim}"])
        item["status"]["reservedFor"] = [one for one in item["status"]["reservedFor"] if one["uid"] != pod]
        self.put("resourceclaims", item)

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def put(self, kind: str, item: Object) -> Object:
        with self.lock:
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            known = item["metadata"]["uid"] in self.objects[kind]
            self.objects[kind][item["metadata"]["uid"]] = item
            self.uids[self.version] = item["metadata"]["uid"]
            self.history.append((self.version, kind, "MODIFIED" if known else "ADDED", deepcopy(item)))
        return item

    def remove(self, kind: str, uid: str) -> None:
        with self.lock:
            self.version += 1
            item = self.objects[kind].pop(uid)
            self.uids[self.version] = uid
            item["metadata"]["resourceVersion"] = str(self.version)
            self.history.append((self.version, kind, "DELETED", deepcopy(item)))

    def backup(self) -> Backup:
        """What a backup of the cluster's store would hold now."""
        with self.lock:
            return self.version, deepcopy(self.objects)

    def restore(self, backup: Backup) -> None:
        """Go back to a backup, as etcd does where its revision is not bumped: versions are counted on from there."""
        with self.lock:
            self.version, self.objects = backup[0], deepcopy(backup[1])
            self.compacted = self.version
            self.history.clear()

    def compact(self) -> None:
        """Forget the history: every older version is gone."""
        with self.lock:
            self.version += 1
            self.compacted = self.version
            self.history.clear()

    def add_node(self, name: str, gpus: int = 8, product: str = "NVIDIA-H800", **labels: str) -> Object:
        given = {"nvidia.com/gpu": str(gpus), "cpu": "64", "pods": "110"}
        return self.put(
            "nodes",
            {
                "metadata": {"name": name, "uid": f"node-{name}", "creationTimestamp": stamp(self.now),
                             "labels": {"nvidia.com/gpu.product": product, **labels}},
                "spec": {},
                "status": {"capacity": dict(given), "allocatable": dict(given),
                           "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(self.now)}]},
            },
        )  # fmt: skip

    def pod(self, uid: str) -> Object:
        return deepcopy(self.objects["pods"][uid])

    def create(self, uid: str, gpus: int = 1, *, name: str = "", namespace: str = "nlp", **spec: Any) -> Object:
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        return self.put(
            "pods",
            {
                "metadata": {"name": name or uid, "uid": uid, "namespace": namespace, "creationTimestamp": stamp(self.now)},
                "spec": {"containers": [{"name": "train", "image": "x", "resources": resources}],
                         "schedulerName": "default-scheduler", **spec},
                "status": {"phase": "Pending"},
            },
        )  # fmt: skip

    def bind(self, uid: str, node: str = "n-1") -> None:
        pod = self.pod(uid)
        pod["spec"]["nodeName"] = node
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(self.now)}]
        self.put("pods", pod)

    def launch(self, uid: str, gpus: int = 1, **more: Any) -> None:
        """A pod that is created and bound at once."""
        self.create(uid, gpus, **more)
        self.bind(uid)

    def run(self, uid: str) -> None:
        pod = self.pod(uid)
        pod["status"] |= {"phase": "Running", "startTime": stamp(self.now)}
        pod["status"]["containerStatuses"] = [{"name": "train", "state": {"running": {"startedAt": stamp(self.now)}}}]
        self.put("pods", pod)

    def finish(self, uid: str, phase: str = "Succeeded", *, finished_at: datetime | None = None, lost: bool = False) -> None:
        """The container ends now; the kubelet's record of it may be lost."""
        pod = self.pod(uid)
        reported = None if lost else stamp(finished_at or self.now)
        pod["status"]["phase"] = phase
        pod["status"]["containerStatuses"] = [
            {"name": "train", "state": {"terminated": {"exitCode": 0, "startedAt": None, "finishedAt": reported}}}
        ]
        self.put("pods", pod)

    def ask_deletion(self, uid: str, grace: int = 30) -> None:
        pod = self.pod(uid)
        due = stamp(self.now + timedelta(seconds=grace))
        pod["metadata"] |= {"deletionTimestamp": due, "deletionGracePeriodSeconds": grace}
        self.put("pods", pod)

    def delete(self, uid: str) -> None:
        self.remove("pods", uid)

    def force(self, uid: str) -> None:
        """Delete without a grace period: a deletion that was asked for before goes back to when that was."""
        metadata = self.pod(uid)["metadata"]
        asked = self.now
        if "deletionTimestamp" in metadata:
            due = datetime.fromisoformat(metadata["deletionTimestamp"])
            asked = due - timedelta(seconds=metadata["deletionGracePeriodSeconds"])
        pod = self.pod(uid)
        pod["metadata"] |= {"deletionTimestamp": stamp(asked), "deletionGracePeriodSeconds": 0}
        self.put("pods", pod)
        self.remove("pods", uid)


class ApiServer(ThreadingHTTPServer):
    """The API server of a cluster. Faults are attributes that a test sets."""

    daemon_threads = True

    def __init__(self, cluster: Cluster, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster
        self.random = random.Random(seed)
        self.snapshots: dict[str, tuple[list[Object], int]] = {}
        self.tokens = itertools.count(1)
        self.requests: list[str] = []
        self.fail: list[tuple[int, dict[str, str]]] = []  # answers given instead, one per request
        self.refused: set[str] = set()  # last words of paths that the agent has no right to
        self.down = False
        self.break_after: int | None = None  # events after which a watch breaks off within the next event
        self.drop: set[int] = set()  # versions whose events are lost
        self.duplicate = False
        self.reorder = False
        self.bookmarks = True
        self.silent_s = 0.0  # how long a watch stays silent before it ends
        self.expire_pages = 0  # continuations that are answered with 410
        self.leases: dict[str, Object] = {}
        self.others: dict[str, Object] = {}  # single objects of other kinds, by path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of the server."""

    def _sent_whole(self, events: int) -> int:
        """How many of so many events a watch sends before it breaks off. Only among these do events overtake each other:
        one that a later one overtook and that was then not sent would be lost, since the next watch begins behind the later.
        """
        if self.break_after is None:
            return events
        return min(events, self.break_after // 2 if self.duplicate else self.break_after)

    def events(self, kind: str, version: int) -> Iterator[Object]:
        with self.cluster.lock:
            found = [
                {"type": what, "object": item}
                for number, which, what, item in self.cluster.history
                if which == kind and number > version and number not in self.drop
            ]
            reached = self.cluster.version
        if self.reorder:
            for place in range(0, self._sent_whole(len(found)) - 1, 2):
                found[place : place + 2] = reversed(found[place : place + 2])
        for event in found:
            yield event
            if self.duplicate:
                yield event
        if self.bookmarks and reached >= version:  # of a version that is not reached yet nothing is said at all
            yield {"type": "BOOKMARK", "object": {"kind": "x", "metadata": {"resourceVersion": str(reached)}}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ApiServer

    def do_GET(self) -> None:
        server, address = self.server, urlparse(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        kind = address.path.rpartition("/")[2]
        server.requests.append(self.path)
        if server.down:
            self.close_connection = True
            self.connection.close()
        elif kind in server.refused:
            self._answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden"})
        elif server.fail:
            status, headers = server.fail.pop(0)
            self._answer(status, {"kind": "Status", "code": status, "reason": "Fault"}, headers)
        elif "/leases/" in address.path:
            lease = server.leases.get(address.path)
            self._answer(200 if lease else 404, lease or {"kind": "Status", "code": 404})
        elif address.path in server.others:
            self._answer(200, server.others[address.path])
        elif kind == "resource.k8s.io" and "resourceclaims" in server.cluster.objects:
            self._answer(200, {"kind": "APIGroup", "versions": [{"version": name} for name in ("v1", "v1beta1")]})
        elif kind not in server.cluster.objects:
            self._answer(404, {"kind": "Status", "code": 404, "reason": "NotFound"})
        elif query.get("watch") in ("1", "true", "True"):
            self._watch(kind, int(query.get("resourceVersion") or 0))
        else:
            self._list(kind, query)

    def do_PUT(self) -> None:
        self._lease(self.path)

    def do_POST(self) -> None:
        body = self._lease(None)
        self.server.leases[f"{self.path}/{body['metadata']['name']}"] = body

    def _lease(self, path: str | None) -> Object:
        body: Object = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.server.leases.get(path) if path else None
        if known and known["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
            self._answer(409, {"kind": "Status", "code": 409, "reason": "Conflict"})
            return body
        body["metadata"]["resourceVersion"] = str(next(self.server.tokens))
        if path:
            self.server.leases[path] = body
        self._answer(200, body)
        return body

    def _list(self, kind: str, query: dict[str, str]) -> None:
        server = self.server
        limit, token = int(query.get("limit", 10**9)), query.get("continue")
        if token is None:
            with server.cluster.lock:
                items, version = deepcopy(list(server.cluster.objects[kind].values())), server.cluster.version
        elif server.expire_pages:
            server.expire_pages -= 1
            self._answer(410, {"kind": "Status", "code": 410, "reason": "Expired"})
            return
        else:
            items, version = server.snapshots.pop(token)
        rest = items[limit:]
        following = str(next(server.tokens)) if rest else ""
        if rest:
            server.snapshots[following] = rest, version
        metadata = {"resourceVersion": str(version), **({"continue": following} if rest else {})}
        self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]})

    def _watch(self, kind: str, version: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if version < self.server.cluster.compacted:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            self._chunk({"type": "ERROR", "object": gone})
            self._chunk(None)
            return
        for count, event in enumerate(self.server.events(kind, version)):
            if count == self.server.break_after:
                self.wfile.write(b"1000\r\n" + json.dumps(event).encode()[:20])
                self.close_connection = True
                return
            self._chunk(event)
        if self.server.silent_s:
            time.sleep(self.server.silent_s)
        self._chunk(None)

    def _chunk(self, event: Object | None) -> None:
        line = json.dumps(event).encode() + b"\n" if event is not None else b""
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def _answer(self, status: int, body: Object, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.server.cluster.now, usegmt=True)

    def log_message(self, *arguments: Any) -> None:
        pass
