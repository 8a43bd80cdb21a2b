"""One fault after another, exactly as scripted: what the API server answers to each request, and which holds are sent.

kmock plays the server, in a thread of its own. The agent's clock follows the Date header of each answer, so that every
second below was written down, not measured: `at` is in seconds since 10:00:00.
"""

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kmock
import pytest

from metering.k8s.api import ThrottledError, UnreachableError, VersionGoneError
from tests.agent.cluster import START, Object, stamp
from tests.agent.rig import Platform, Rig

NEVER = 0.2  # seconds of silence after which these agents take a stream for dead


def clock(at: float) -> str:
    return stamp(START + timedelta(seconds=at))


def pod(uid: str, version: int, *, bound: float = -600, gpus: int = 8, finished: float | None = None) -> Object:
    """A pod that was bound ten minutes ago and runs, or has finished."""
    state: Object = {"running": {"startedAt": clock(bound)}}
    if finished is not None:
        state = {"terminated": {"exitCode": 0, "finishedAt": clock(finished)}}
    return {
        "metadata": {"name": uid, "uid": uid, "namespace": "nlp", "resourceVersion": str(version)},
        "spec": {"nodeName": "n-1", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
        "status": {
            "phase": "Running" if finished is None else "Succeeded",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": clock(bound)}],
            "containerStatuses": [{"name": "c", "state": state}],
        },
    }  # fmt: skip


NODE: Object = {
    "metadata": {"name": "n-1", "uid": "n", "resourceVersion": "50", "labels": {"nvidia.com/gpu.product": "NVIDIA-H800"}},
    "status": {"allocatable": {"nvidia.com/gpu": "64"}, "capacity": {"nvidia.com/gpu": "64"},
               "conditions": [{"type": "Ready", "status": "True"}]},
}  # fmt: skip


def listed(version: int, *items: Object, following: str = "") -> Object:
    metadata = {"resourceVersion": str(version), **({"continue": following} if following else {})}
    return {"kind": "List", "metadata": metadata, "items": list(items)}


def event(kind: str, item: Object) -> Object:
    return {"type": kind, "object": item}


def bookmark(version: int) -> Object:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def error(code: int, reason: str) -> Object:
    return event("ERROR", {"kind": "Status", "code": code, "reason": reason})


class Script(Rig):
    """An agent before a scripted server: `then` adds the answer to the next request for pods."""

    def __init__(self, handler: Any, state: Path) -> None:
        self.handler, self.state, self.page = handler, state, 2
        self.platform = Platform()
        self.cluster: Any = SimpleNamespace(now=START)
        self.server: Any = SimpleNamespace(address=str(handler.url).rstrip("/"))
        self.skew, self.options = timedelta(0), {"silence_s": NEVER}
        self.answers = 0
        self.pods = handler["get /api/v1/pods"]
        handler["get /api/v1/nodes"][:1] << self.headers(0) << listed(50, NODE)
        handler["get /api/v1/nodes"] << self.headers(0) << (bookmark(50),)
        self.start()

    def headers(self, at: float, **more: str) -> Any:
        return kmock.headers({"Date": format_datetime(START + timedelta(seconds=at), usegmt=True), **more})

    def then(self, at: float, body: Any, *, status: int = 200, **headers: str) -> "Script":
        """A body is an object (a list), a tuple (events of a watch, one chunk each) or bytes."""
        self.pods[self.answers : self.answers + 1] << status << self.headers(at, **headers) << body
        self.answers += 1
        return self

    def requests(self, count: int) -> None:
        """Let the agent ask so many times for pods, after it has listed the nodes."""
        for name, times in (("nodes", 1), ("pods", count)):
            for _ in range(times):
                for step in self.streams[name].steps():
                    self.agent.apply(name, step)

    def sent(self) -> dict[str, tuple[Any, ...]]:
        """Per pod what the platform holds: start, end (or how far seen), the rule of the end, bounds of an estimate."""
        self.deliver()
        assert self.platform.conflicts == []
        return {record["pod_uid"]: _told(record) for record in self.platform.holds.values()}

    @property
    def versions(self) -> list[str | None]:
        """The version from which each request for pods went on; None for a list."""
        return [request.params.get("resourceVersion") for request in self.pods]

    def stop(self) -> None:
        self.kill()


def _told(record: dict[str, Any]) -> tuple[Any, ...]:
    until = record["ended_at"] or record["observed_until"]
    seconds = tuple(
        int((datetime.fromisoformat(text) - START).total_seconds())
        for text in (record["started_at"], until, record.get("end_earliest"), record.get("end_latest")) if text
    )  # fmt: skip
    if record["ended_at"] is None:
        return (*seconds[:2], "open")
    return (*seconds[:2], record["end_rule"], *(seconds[2:] if record["end_estimated"] else ()))


class Server:
    """kmock with an event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.done = asyncio.Event()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        self.loop.run_until_complete(self._main())
        self.loop.close()

    async def _main(self) -> None:
        async with kmock.RawHandler() as self.handler, kmock.Server(self.handler):
            self.ready.set()
            await self.done.wait()

    def __enter__(self) -> "Server":
        self.thread.start()
        self.ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self.done.set)
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


@pytest.fixture
def script(server: Server, tmp_path: Path) -> Iterator[Script]:
    made = Script(server.handler, tmp_path / "agent.sqlite")
    yield made
    made.stop()


def test_410_in_the_middle_of_a_watch(script: Script) -> None:
    """The list after it shows one pod finished and lacks the other, which is reported as an estimate with its bounds."""
    script.then(0, listed(100, pod("a", 90), pod("b", 91)))
    script.then(60, (bookmark(101), error(410, "Expired")))
    script.then(70, listed(120, pod("b", 110, finished=65)))
    script.requests(2)
    assert isinstance(script.streams["pods"].error, VersionGoneError)
    assert script.streams["pods"].wait_s == 0.0
    script.requests(1)
    assert script.sent() == {
        "a": (-600, 70, "absent from list", 0, 70),
        "b": (-600, 65, "finishedAt"),
    }
    assert script.versions == [None, "100", None]


def test_410_instead_of_a_watch_costs_nothing_that_is_still_there(script: Script) -> None:
    script.then(0, listed(100, pod("a", 90)))
    script.then(30, {"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
    script.then(40, listed(120, pod("a", 90)))
    script.requests(3)
    assert script.sent() == {"a": (-600, 40, "open")}


def test_429_and_503_wait_as_long_as_asked_and_go_on_where_they_were(script: Script) -> None:
    busy: Object = {"kind": "Status", "code": 429, "reason": "TooManyRequests"}
    script.then(0, busy, status=429, **{"Retry-After": "17"})
    script.then(20, listed(100, pod("a", 90)))
    script.then(30, busy | {"code": 503}, status=503, **{"Retry-After": "23"})
    script.then(60, (event("MODIFIED", pod("a", 101, finished=55)), bookmark(102)))
    pods = script.streams["pods"]
    script.requests(1)
    assert isinstance(pods.error, ThrottledError)
    assert pods.wait_s == 17.0
    assert script.sent() == {}
    assert script.platform.bodies == [], "before the first list nothing is known, and nothing is said"
    script.requests(2)
    assert pods.wait_s == 23.0
    script.requests(1)
    assert script.sent() == {"a": (-600, 55, "finishedAt")}
    assert script.versions == [None, None, "100", "100"]


def test_a_row_of_500s_and_an_error_of_the_store_within_a_stream(script: Script) -> None:
    broken: Object = {"kind": "Status", "code": 500, "reason": "InternalError"}
    script.then(0, listed(100, pod("a", 90)))
    for number in range(3):
        script.then(10 + number, broken, status=500)
    script.then(20, (event("ADDED", pod("b", 105, bound=15, gpus=1)), bookmark(106), error(500, "InternalError")))
    script.then(90, (event("MODIFIED", pod("b", 107, bound=15, gpus=1, finished=45)), bookmark(108)))
    waits = []
    for _ in range(4):
        script.requests(1)
        waits.append(script.streams["pods"].wait_s)
    assert waits[0] == 0.0
    for attempt, wait in enumerate(waits[1:], start=1):
        assert 0.25 * 2**attempt <= wait <= 0.5 * 2**attempt
    script.requests(2)
    assert script.sent() == {"a": (-600, 90, "open"), "b": (15, 45, "finishedAt")}
    assert script.versions == [None, "100", "100", "100", "100", "106"]


def test_a_server_that_says_that_it_has_not_reached_a_version_is_asked_where_it_is(script: Script) -> None:
    """Servers of today wait in silence; kubernetes#135452 asks for this answer. One that lags behind gives it too."""
    too_large = error(504, "Timeout")
    script.then(0, listed(100, pod("a", 90), pod("b", 91)))
    script.then(10, (too_large,))
    script.then(20, listed(101, pod("a", 90)))
    script.then(30, (bookmark(102),))
    script.then(40, (too_large,))
    script.then(50, listed(60, pod("a", 40)))
    script.then(60, listed(60, pod("a", 40)))
    script.requests(6)
    assert script.sent() == {"a": (-600, 60, "open"), "b": (-600, 60, "absent from list", 0, 60)}
    assert script.versions == [None, "100", None, "100", "102", None, None]


def test_a_connection_that_falls_silent_is_given_up_and_nothing_it_reported_is_lost(server: Server, script: Script) -> None:
    script.then(0, listed(100, pod("a", 90)))
    script.then(10, (event("ADDED", pod("b", 101, bound=5)), bookmark(102), lambda: server.done.wait()))
    script.then(40, (event("MODIFIED", pod("b", 103, bound=5, finished=30)), bookmark(104)))
    script.requests(2)
    assert isinstance(script.streams["pods"].error, UnreachableError)
    script.requests(1)
    assert script.sent() == {"a": (-600, 40, "open"), "b": (5, 30, "finishedAt")}
    assert script.versions == [None, "100", "102"]


@pytest.mark.parametrize("broken", [b'{"type": "MODIFIED", "object": {"metadata": {"na', b"<html>504</html>\n"])
def test_a_watch_that_ends_in_no_event_is_read_again_from_the_last_whole_one(script: Script, broken: bytes) -> None:
    script.then(0, listed(100, pod("a", 90), pod("b", 91)))
    script.then(10, (event("MODIFIED", pod("a", 101, finished=8)), broken))
    script.then(30, (event("MODIFIED", pod("b", 102, finished=9)), bookmark(103)))
    script.requests(2)
    assert isinstance(script.streams["pods"].error, UnreachableError)
    script.requests(1)
    assert script.sent() == {"a": (-600, 8, "finishedAt"), "b": (-600, 9, "finishedAt")}
    assert script.versions == [None, "100", "101"]


def test_an_expired_continue_token_begins_the_list_anew(script: Script) -> None:
    """`a` was on the first page and is gone by the time of the second list: it was alive at 0 s and gone at 20 s."""
    script.then(0, listed(100, pod("a", 90), pod("b", 91), following="page-2"))
    script.then(5, {"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
    script.then(20, listed(120, pod("b", 91), pod("c", 92), following="page-2"))
    script.then(21, listed(120, pod("d", 93)))
    script.requests(1)
    assert isinstance(script.streams["pods"].error, VersionGoneError)
    assert script.streams["pods"].wait_s == 0.0
    assert script.sent() == {}, "half a list says nothing of what is not in it"
    script.requests(1)
    assert script.sent() == {
        "a": (-600, 20, "absent from list", 0, 20),
        "b": (-600, 20, "open"), "c": (-600, 20, "open"), "d": (-600, 20, "open"),
    }  # fmt: skip
    assert [request.params.get("continue") for request in script.pods] == [None, "page-2", None, "page-2"]


@pytest.mark.parametrize(
    "broken",
    [
        b'{"kind": "PodList", "metadata": {"resourceVersion": "100"}, "items": [{"metadata": {"name": "a", "ui',
        b"<html><body>502 Bad Gateway</body></html>",
        b"",
        b'{"kind": "PodList", "metadata": {}, "items": []}',
    ],
    ids=["truncated", "a page of a proxy", "nothing", "without a version"],
)
def test_a_list_that_is_none_ends_no_hold(script: Script, broken: bytes) -> None:
    script.then(0, listed(100, pod("a", 90)))
    script.then(10, (bookmark(101), error(410, "Expired")))
    script.then(20, broken)
    script.then(30, listed(120, pod("a", 90)))
    script.requests(3)
    assert isinstance(script.streams["pods"].error, UnreachableError)
    assert script.sent() == {"a": (-600, 10, "open")}
    script.requests(1)
    assert script.sent() == {"a": (-600, 30, "open")}
