"""An agent before a fake API server and a platform that folds what it receives, all driven step by step."""

import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from kubernetes import client as official

from metering.allocation import Rule
from metering.delivery import Attempt, Delivery
from metering.k8s.agent import Agent
from metering.k8s.api import Api, ClusterClock
from metering.k8s.description import Scope
from metering.k8s.reconciliation import Difference, Scan, confirmed, scan
from metering.k8s.stream import NODES, PODS, Kind, Stream, claim_kinds
from metering.spool import open_state
from tests.agent.cluster import ApiServer, Cluster
from tests.http_servers import acknowledgement

MICROSECOND = timedelta(microseconds=1)


class Platform(httpx.BaseTransport):
    """Keeps of each hold what the ledger keeps: the furthest sight while open, then the end; the first one stays."""

    def __init__(self) -> None:
        self.holds: dict[str, dict[str, Any]] = {}
        self.capacity: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.watermark = ""
        self.watched_since: list[str] = []
        self.unwatched: list[dict[str, str]] = []
        self.scans: list[dict[str, Any]] = []
        self.agent: dict[str, Any] = {}
        self.problems: set[str] = set()
        self.bodies: list[tuple[str, bytes]] = []
        self.down = False
        self.fields: list[str] | None = ["capacity_type", "tags"]
        self.conflicts: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            return httpx.Response(503)
        if request.method == "GET":
            known = {} if self.fields is None else {"optional_fields": self.fields}
            return httpx.Response(200, json={"version": "1.0.0", "postgresql": "15.0", **known})
        body = request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.bodies.append((request.url.path, body))
        self.take(request.url.path, json.loads(body))
        return httpx.Response(200, content=acknowledgement(body))

    def take(self, path: str, response: dict[str, Any]) -> None:
        self.agent = response["agent"]
        if "problems" in self.agent:
            given = self.agent["problems"].items()
            self.agent["problems"] = {f"{subject}, {note['until'][:7]}": note["text"] for subject, note in given}
            self.problems |= set(self.agent["problems"])
        if "unknown_resources" in self.agent:
            given = self.agent["unknown_resources"].items()
            self.agent["unknown_resources"] = {name: int(note["text"]) for name, note in given}
        self.unwatched += response.get("unwatched", [])
        if "watermark" in response:
            self._begun(response["watched_since"])
            self.watermark = max(self.watermark, response["watermark"], key=_instant)
        self.scans += response.get("scans", [])
        for record in response.get("allocations", []):
            self._hold(record)
        for record in response.get("nodes", []):
            key = (record["node"], record["resource"], record["from"])
            known = self.capacity.setdefault(key, record)
            if {**known, "until": ""} != {**record, "until": ""}:
                self.conflicts.append(f"{known} / {record}")
            known["until"] = max(known["until"], record["until"])

    def _begun(self, since: str) -> None:
        """Who begins anew knows nothing of the time from what its predecessor reported last to its own first list."""
        if since in self.watched_since[-1:]:
            return
        if self.watermark and _instant(since) > _instant(self.watermark):
            self.unwatched.append({"from": self.watermark, "until": since})
        self.watched_since.append(since)

    def _hold(self, record: dict[str, Any]) -> None:
        known = self.holds.setdefault(record["allocation_id"], record)
        mutable = ("ended_at", "observed_until", "end_reason", "end_rule", "end_estimated", "end_earliest", "end_latest")
        if [known.get(name) for name in known if name not in mutable] != [record.get(n) for n in known if n not in mutable]:
            self.conflicts.append(f"{known} / {record}")
            return
        if known["ended_at"]:
            if known["end_rule"] == Rule.SHARE_CHANGED and _until(record) > _until(known):
                self.conflicts.append(f"{known} / {record}")
                return
            shared = [item for item in (record, known) if item.get("end_rule") == Rule.SHARE_CHANGED]
            if record["ended_at"] and shared:
                self.holds[record["allocation_id"]] = min(record, known, key=_cut)
            elif record["ended_at"] and (record.get("end_estimated") or known.get("end_estimated")):
                self.holds[record["allocation_id"]] = min(record, known, key=_belief)
            elif record["ended_at"] and record["ended_at"] != known["ended_at"]:
                self.conflicts.append(f"{known} / {record}")
            return
        if record["ended_at"] or record["observed_until"] > known["observed_until"]:
            self.holds[record["allocation_id"]] = record

    def replay(self) -> None:
        """Everything that was ever sent, once more."""
        for path, body in list(self.bodies):
            self.take(path, json.loads(body))

    def hold(self, uid: str) -> dict[str, Any]:
        found = [record for record in self.holds.values() if record["pod_uid"] == uid]
        assert len(found) == 1, (uid, found)
        return found[0]

    def seconds(self, uid: str) -> float:
        """Seconds for which the platform holds a pod."""
        record = self.hold(uid)
        until = datetime.fromisoformat(record["ended_at"] or record["observed_until"])
        return (until - datetime.fromisoformat(record["started_at"])) / timedelta(seconds=1)


def _until(record: dict[str, Any]) -> datetime:
    return _instant(record["ended_at"] or record["observed_until"])


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC)


def _cut(record: dict[str, Any]) -> tuple[Any, ...]:
    """Of two ends of which one is a change of share the smaller stays, as in the ledger."""
    return record["ended_at"], record.get("end_rule") == Rule.SHARE_CHANGED, not record.get("end_estimated")


def _belief(record: dict[str, Any]) -> tuple[Any, ...]:
    """Of two ends of which one is an estimate the smaller stays, as in the ledger: reported, then the narrower, the
    earlier.
    """
    estimated = bool(record.get("end_estimated"))
    width = _instant(record["end_latest"]) - _instant(record["end_earliest"]) if estimated else timedelta(0)
    return estimated, width, record["ended_at"]


class Rig:
    """Cluster, API server, state file, platform, and an agent that can be killed and started again."""

    claim_kinds: tuple[Kind, ...] = ()

    def __init__(self, state: Path, *, skew_s: float = 0, page: int = 500, **options: Any) -> None:
        self.cluster = Cluster()
        self.server = ApiServer(self.cluster)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
        self.thread.start()
        self.platform = Platform()
        self.state, self.skew, self.page = state, timedelta(seconds=skew_s), page
        self.options = options
        if options.get("claims"):
            self.cluster.add_claims()
        self.start()

    def connect(self) -> sqlite3.Connection:
        return open_state(self.state)

    def start(self) -> None:
        configuration = official.Configuration(host=self.server.address)
        clock = ClusterClock(lambda: self.cluster.now + self.skew)
        self.api = Api(configuration, clock, silence_s=self.options.get("silence_s", 5.0))
        self.connection = self.connect()
        if self.options.get("claims") and not self.claim_kinds:
            self.claim_kinds = claim_kinds(self.api)
        more = {name: self.options[name] for name in ("max_spool_bytes",) if name in self.options}
        if "look_around" in self.options:
            more["look_around"] = self.options["look_around"](self.api)
        scope = self.options.get("scope", Scope("hq-1"))
        self.agent = Agent(self.connection, scope, name="agent-1", version="test", **more)
        self.streams = {
            kind.name: Stream(
                self.api, kind, version=self.agent.store.cursor(kind.name).version, spread=random.Random(1), page=self.page
            )
            for kind in (NODES, PODS, *self.claim_kinds)
        }
        self.delivery = Delivery(
            self.agent.spool, endpoint="http://platform", token="t", client=httpx.Client(transport=self.platform),
            random_source=random.Random(1),
        )  # fmt: skip

    def kill(self) -> None:
        """The process is gone: nothing is committed, nothing is said."""
        self.connection.rollback()
        self.connection.close()
        self.api.close()
        self.delivery.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def lose_volume(self) -> None:
        """The process is gone and so is its state; another starts with nothing."""
        self.kill()
        for file in self.state.parent.glob(f"{self.state.name}*"):
            file.unlink()
        self.start()

    def watch(self, rounds: int = 1) -> None:
        """So many lists or watches of nodes, then of pods."""
        for _ in range(rounds):
            for name, stream in self.streams.items():
                for step in stream.steps():
                    self.agent.apply(name, step)

    def settle(self, tries: int = 6) -> None:
        """Watch until both streams have listed and watched without an error."""
        for _ in range(tries):
            self.watch()
            if all(stream.error is None and stream.version is not None for stream in self.streams.values()):
                self.watch()
                return
        raise AssertionError([stream.error for stream in self.streams.values()])

    def scan(self) -> Scan:
        """List independently of the streams, as the service does once an hour."""
        found = scan(self.api, self.agent.scope, self.agent.store)
        self.agent.listed_unreadable(found.unreadable, found.at)
        return found

    def judge(self, found: Scan) -> Difference:
        """Compare a scan with what the watch has reported since; what was found is kept."""
        difference = confirmed(found, self.agent.store, self.agent.scope)
        assert difference is not None, "the watch has not passed the list"
        self.agent.scanned(difference)
        return difference

    def read(self, *names: str) -> None:
        """Some streams only, each for one list or watch."""
        for name in names:
            for step in self.streams[name].steps():
                self.agent.apply(name, step)

    def report(self) -> None:
        """Watch once, and deliver what is known then."""
        self.watch()
        self.deliver()

    def deliver(self) -> list[Attempt]:
        """Report and deliver what can be."""
        self.agent.report(self.api.clock.now(), refresh=True)
        attempts = []
        while (attempt := self.delivery.run_once()).outcome.name == "DELIVERED":
            attempts.append(attempt)
        return [*attempts, attempt]

    def stop(self) -> None:
        self.kill()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@contextmanager
def rig(state: Path, **options: Any) -> Iterator[Rig]:
    """A rig that is taken down at the end."""
    made = Rig(state, **options)
    try:
        yield made
    finally:
        made.stop()
